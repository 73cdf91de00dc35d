//! Rows: objects, numbers of them, and what grows.

/// Kind of thing of which a gateway has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Tunnels,
    Stations,
    Neighbours,
    Rules,
    Routes,
    Ports,
    Flows,
}

impl Object {
    pub(super) const ALL: [Self; 7] = [
        Self::Tunnels,
        Self::Stations,
        Self::Neighbours,
        Self::Rules,
        Self::Routes,
        Self::Ports,
        Self::Flows,
    ];

    /// Word in names of rows.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Tunnels => "tunnels",
            Self::Stations => "stations",
            Self::Neighbours => "neighbours",
            Self::Rules => "rules",
            Self::Routes => "routes",
            Self::Ports => "ports",
            Self::Flows => "flows",
        }
    }

    /// Numbers of it for which a packet's cost is measured.
    pub(super) fn numbers(self) -> &'static [u32] {
        match self {
            Self::Routes => &[1, 10, 100, 1000, 10_000, 100_000, 1_000_000],
            Self::Ports => PORTS,
            Self::Tunnels | Self::Stations | Self::Neighbours | Self::Rules | Self::Flows => NUMBERS,
        }
    }

    /// Numbers of it for which the program is measured.
    pub(super) fn numbers_of_program(self) -> &'static [u32] {
        match self {
            Self::Ports => PORTS,
            Self::Tunnels | Self::Stations | Self::Rules | Self::Routes => NUMBERS,
            Self::Neighbours | Self::Flows => &[],
        }
    }

    /// Number whose cost is compared with that of ten.
    pub(super) fn many(self) -> u32 {
        if self == Self::Ports { 128 } else { 10_000 }
    }

    /// Name of a row.
    pub(super) fn row(self, what: What, number: u32) -> String {
        format!("growth.{}.{}.{number}", self.word(), what.word())
    }

    /// Name of the row of a packet's cost with many, compared with that with ten.
    pub(super) fn ratio(self) -> String {
        format!("growth.{}.packet_ratio", self.word())
    }

    /// Row of the kernel's ratio.
    pub(super) fn kernel_ratio(self) -> String {
        format!("growth.{}.kernel_packet_ratio", self.word())
    }

    /// Beginning of all rows of a packet's cost in the kernel.
    pub(super) fn kernel_rows(self) -> String {
        format!("growth.{}.kernel_packet_", self.word())
    }

    /// Name of the row of the order in which something grows.
    pub(super) fn order(self, what: What) -> String {
        format!("growth.{}.{}_order", self.word(), what.stem())
    }
}

const NUMBERS: &[u32] = &[1, 10, 100, 1000, 10_000];
/// A bridge of one port forwards nothing.
const PORTS: &[u32] = &[2, 10, 32, 128];

/// Cost that grows with the number of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// CPU time of a packet.
    Packet,
    /// Time from the start of the process to its first answer.
    Start,
    /// Time of a reload that changes one object.
    Reload,
    /// Resident memory.
    Memory,
    /// Time of the slowest view, the asking program included.
    Show,
    /// CPU time of a packet in the kernel, from a veth to an interface that drops.
    KernelPacket,
    /// Time in which `ip`, `bridge` or `nft` make as many in the kernel.
    KernelMade,
    /// Time in which they show them.
    KernelShow,
}

impl What {
    fn word(self) -> &'static str {
        match self {
            Self::Packet => "packet_ns",
            Self::Start => "start_s",
            Self::Reload => "reload_s",
            Self::Memory => "memory_mib",
            Self::Show => "show_s",
            Self::KernelPacket => "kernel_packet_ns",
            Self::KernelMade => "kernel_made_s",
            Self::KernelShow => "kernel_show_s",
        }
    }

    fn stem(self) -> &'static str {
        self.word().split('_').next().unwrap_or_default()
    }

    /// Title of its plot, with the unit.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Packet => "CPU time a packet, ns",
            Self::Start => "start, s",
            Self::Reload => "reload of one change, s",
            Self::Memory => "resident memory, MiB",
            Self::Show => "slowest view, s",
            Self::KernelPacket => "the kernel: CPU time a packet, its veth included, ns",
            Self::KernelMade => "the kernel: making them, s",
            Self::KernelShow => "the kernel: showing them, s",
        }
    }
}

/// The slowest of all views of 10 000 rows.
pub(super) const SHOW_10K: &str = "growth.show_10k_s";

/// Exponent by which costs grow from one number of objects to a larger one: 1 if they are in proportion.
pub(super) fn exponent((few, low): (u32, f64), (many, high): (u32, f64)) -> Option<f64> {
    let grows = (high / low).ln() / (f64::from(many) / f64::from(few)).ln();
    grows.is_finite().then_some(grows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_number_has_its_rows() {
        let promised = crate::scenarios::growth::SCENARIO
            .promises()
            .iter()
            .map(|promise| promise.name.to_owned())
            .collect::<BTreeSet<_>>();
        for object in Object::ALL {
            let mut wanted = vec![object.ratio(), object.order(What::Packet)];
            wanted.extend(object.numbers().iter().map(|&number| object.row(What::Packet, number)));
            let program = object.numbers_of_program().iter();
            wanted.extend(
                program.flat_map(|&number| [What::Memory, What::Show].map(|what| object.row(what, number))),
            );
            let missing = wanted.into_iter().filter(|row| !promised.contains(row)).collect::<Vec<_>>();
            assert_eq!(missing, Vec::<String>::new());
            assert!(object.numbers().contains(&10) && object.numbers().contains(&object.many()));
        }
    }

    #[test]
    fn orders_are_exponents() {
        assert_eq!(exponent((10, 3.0), (1000, 300.0)), Some(1.0));
        assert_eq!(exponent((10, 3.0), (1000, 30_000.0)), Some(2.0));
        assert_eq!(exponent((10, 3.0), (1000, 3.0)), Some(0.0));
        assert_eq!(exponent((10, 0.0), (1000, 3.0)), None);
    }
}
