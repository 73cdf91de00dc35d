//! Network cards of a guest: the model that the guest's driver meets, and the far end of its wire.

use super::Namespace;
use crate::command;
use std::path::Path;
use std::process::Command;

/// A network card that QEMU emulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// `virtio-net-pci` with several queue pairs; the guest uses no more of them than it has processors.
    Virtio {
        /// Queue pairs.
        queues: u32,
        /// Checksums and segmentation left to the device, where the far end takes them (a TAP).
        offloads: bool,
        /// `VIRTIO_F_ACCESS_PLATFORM`: the kernel maps the device's memory, without which it binds no socket in zero copy.
        platform: bool,
    },
    /// Intel 82540EM.
    E1000,
    /// Intel 82545EM.
    E1000Em,
    /// Intel 82574L.
    E1000e,
    /// VMware's paravirtual card.
    Vmxnet3,
    /// Realtek RTL8139C+.
    Rtl8139,
    /// Intel 82576, which QEMU has from version 8.0 on, and below a PCI Express root port alone.
    Igb,
}

impl Model {
    /// The kernel modules that drive it.
    pub fn modules(self) -> &'static [&'static str] {
        match self {
            Self::Virtio { .. } => &["virtio_pci", "virtio_net"],
            Self::E1000 | Self::E1000Em => &["e1000"],
            Self::E1000e => &["e1000e"],
            Self::Vmxnet3 => &["vmxnet3"],
            Self::Rtl8139 => &["8139cp"],
            Self::Igb => &["igb"],
        }
    }

    /// True for a card that needs a newer emulator than Debian 12 installs: that one has no igb, and its e1000e
    /// carries nothing for Linux 6.1.
    pub fn needs_newer_emulator(self) -> bool {
        matches!(self, Self::E1000e | Self::Igb)
    }

    /// True for a card that drivers only drive in a PCI Express slot.
    pub(super) fn is_express(self) -> bool {
        matches!(self, Self::E1000e | Self::Igb)
    }

    /// The driver's name, as `ethtool -i` shows it in the guest.
    pub fn driver(self) -> &'static str {
        match self {
            Self::Virtio { .. } => "virtio_net",
            Self::E1000 | Self::E1000Em => "e1000",
            Self::E1000e => "e1000e",
            Self::Vmxnet3 => "vmxnet3",
            Self::Rtl8139 => "8139cp",
            Self::Igb => "igb",
        }
    }

    fn device(self) -> &'static str {
        match self {
            Self::Virtio { .. } => "virtio-net-pci",
            Self::E1000 => "e1000",
            Self::E1000Em => "e1000-82545em",
            Self::E1000e => "e1000e",
            Self::Vmxnet3 => "vmxnet3",
            Self::Rtl8139 => "rtl8139",
            Self::Igb => "igb",
        }
    }

    fn queues(self) -> u32 {
        match self {
            Self::Virtio { queues, .. } => queues,
            Self::E1000 | Self::E1000Em | Self::E1000e | Self::Vmxnet3 | Self::Rtl8139 | Self::Igb => 1,
        }
    }

    /// A TAP's packets have virtio-net headers, by which checksums and segments may be left undone.
    fn has_headers(self) -> bool {
        match self {
            Self::Virtio { offloads, .. } => offloads,
            Self::E1000 | Self::E1000Em | Self::E1000e | Self::Vmxnet3 | Self::Rtl8139 | Self::Igb => true,
        }
    }
}

/// The far end of a card's wire.
#[derive(Clone, Copy, Debug)]
pub enum FarEnd<'a> {
    /// Datagrams between two UDP ports of this machine, a frame each.
    Datagrams {
        /// UDP port that the emulator listens on.
        emulator: u16,
        /// UDP port that the lab listens on.
        ours: u16,
    },
    /// A Unix socket that somebody listens on: frames behind their length, of four bytes in network order. What a card has no
    /// room for is lost in the card.
    Stream {
        /// The socket.
        socket: &'a Path,
    },
    /// A TAP of this machine, in a namespace of its own, up.
    Tap {
        /// Namespace of the interface.
        namespace: &'a Namespace,
        /// Its name there.
        interface: &'a str,
    },
}

/// A network card of a guest.
#[derive(Clone, Copy, Debug)]
pub struct Card<'a> {
    /// The card's model.
    pub model: Model,
    /// Its link-layer address.
    pub mac: [u8; 6],
    /// The far end of its wire.
    pub far_end: FarEnd<'a>,
}

impl Card<'_> {
    /// Emulator arguments for the card that is number `index` of guest `tag`, on that bus.
    pub(super) fn arguments(&self, tag: u16, index: usize, bus: Option<&str>) -> Vec<String> {
        let Self { model, mac, far_end } = self;
        let queues = model.queues();
        let netdev = match far_end {
            FarEnd::Datagrams { emulator, ours } => format!(
                "dgram,id=card{index},local.type=inet,local.host=127.0.0.1,local.port={emulator},\
                 remote.type=inet,remote.host=127.0.0.1,remote.port={ours}"
            ),
            FarEnd::Stream { socket } => {
                format!("stream,id=card{index},server=off,addr.type=unix,addr.path={}", socket.display())
            }
            FarEnd::Tap { .. } => {
                let headers = if model.has_headers() { "on" } else { "off" };
                let name = tap(tag, index);
                let queues = if queues > 1 { format!(",queues={queues}") } else { String::new() };
                format!("tap,id=card{index},ifname={name},script=no,downscript=no,vnet_hdr={headers}{queues}")
            }
        };
        let mut device = format!("{},netdev=card{index},mac={},romfile=", model.device(), colons(*mac));
        if let Some(bus) = bus {
            device += &format!(",bus={bus},addr={}", index + 1);
        }
        if matches!(model, Model::Virtio { platform: true, .. }) {
            device += ",disable-legacy=on,iommu_platform=on";
        }
        if queues > 1 {
            // A vector for each direction of each pair, one for the configuration, one for control.
            device += &format!(",mq=on,vectors={}", 2 * queues + 2);
        }
        let mut arguments = Vec::new();
        if *model == Model::Igb {
            let port = format!("pcie-root-port,id=port{index},chassis={},slot={index}", index + 1);
            arguments.extend(["-device".to_owned(), port]);
            device += &format!(",bus=port{index}");
        }
        arguments.extend(["-netdev".to_owned(), netdev, "-device".to_owned(), device]);
        arguments
    }

    /// Puts the far end where it belongs, once the emulator has made it.
    pub(super) fn lay(&self, tag: u16, index: usize) -> anyhow::Result<()> {
        let FarEnd::Tap { namespace, interface } = self.far_end else { return Ok(()) };
        let name = tap(tag, index);
        command::run(Command::new("ip").args([
            "link",
            "set",
            &name,
            "netns",
            namespace.name(),
            "name",
            interface,
        ]))?;
        namespace.ip(&["link", "set", interface, "up"]).map(drop)
    }
}

/// The name that a TAP has until it is where it belongs.
fn tap(tag: u16, index: usize) -> String {
    format!("pdl{tag}c{index}")
}

/// A link-layer address as Linux writes it.
pub fn colons(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
