//! `queue` of a port: what waits in front of it, and what is dropped.

use super::diagnostics::Diagnostic;
use super::keys::Draft;
use super::keys::Reload::Live;
use super::notation::{Boolean, Choice, Given, Inner, Integer};
use super::section::Section;
use polder_datapath::queue::{
    Aqm, CakeOptions, CodelOptions, Discipline, FqCodelOptions, Isolation, LinkLayer, QueueOptions, Tins,
};
use polder_datapath::units::{BytesPerSecond, Nanos};
use serde::Serialize;

section! {
    /// The queue in front of each sending queue of a port.
    #[derive(Copy)]
    pub struct PortQueue("`queue`", "queue") {
        keys:
        /// Discipline: `fq_codel` (RFC 8290), `cake`, `codel` (RFC 8289) or `drop-tail`; see below.
        kind: QueueKind = QueueKind::Codel, Choice(QueueKind::WORDS) => Live, required(EXAMPLE);
        /// Maximum size of the queue in bytes, Ethernet headers included; it holds at most one packet per 512 bytes.
        limit_bytes: u32 = PortQueue::LIMIT_BYTES, Integer(10_000..=64_000_000, "bytes") => Live;
        /// CoDel: acceptable standing delay.
        target_ms: u16 = 5, Integer(1..=1000, "milliseconds") => Live, only(PortQueue::has_codel);
        /// CoDel: time for which the delay may exceed `target_ms`; the longest round-trip time of most connections.
        interval_ms: u16 = 100, Integer(1..=10_000, "milliseconds") => Live, only(PortQueue::has_codel);
        /// Rate to shape to, of Ethernet frames without FCS or of the `link`.
        rate_kbit: Option<u32> = None, Given(Integer(100..=400_000_000, "kbit/s")) => Live, usual("none");
        /// Link behind the port, whose overhead counts for the rate and for the shares of flows.
        link: LinkKind = LinkKind::Raw, Choice(LinkKind::WORDS) => Live;
        /// Bytes that the link adds to an Ethernet frame without FCS.
        overhead_bytes: Option<i16> = None, Given(Integer(-64..=256, "bytes")) => Live, usual("that of the `link`");
        /// Minimum size of a frame on the link with its overhead (MPU).
        mpu_bytes: Option<u16> = None, Given(Integer(0..=256, "bytes")) => Live, usual("that of the `link`");
        /// Bytes that a flow sends in its turn.
        quantum_bytes: u32 = 1514, Integer(256..=65_536, "bytes") => Live, only(PortQueue::has_flows);
        /// Number of flows that are told apart.
        flows: u32 = 1024, Integer(8..=65_536, "flows") => Live, only(PortQueue::has_flows);
        /// Mark ECN-capable packets where CoDel would drop them (RFC 3168).
        ecn: bool = true, Boolean => Live, only(PortQueue::has_flows);
        /// Time in the queue from which ECN-capable packets are marked, whatever CoDel decides.
        ce_threshold_us: Option<u32> = None, Given(Integer(1..=1_000_000, "microseconds")) => Live, only(PortQueue::has_flows), usual("none");
        /// Largest number of packets that a full queue drops at a time.
        drop_batch: u16 = 64, Integer(1..=1024, "packets") => Live, only(PortQueue::has_flows);
        /// Hosts that have equal shares: senders (`source`), receivers (`destination`) or both.
        isolation: HostIsolation = HostIsolation::Both, Choice(HostIsolation::WORDS) => Live, only(PortQueue::is_cake);
        /// Classes of traffic by DSCP: four, or one.
        diffserv: Diffserv = Diffserv::Four, Choice(Diffserv::WORDS) => Live, only(PortQueue::is_cake);
        /// Clear the DSCP of packets that leave.
        wash: bool = false, Boolean => Live, only(PortQueue::is_cake);
    }
}

const EXAMPLE: &str = "write `queue = { kind = \"fq_codel\" }`, or another one of `\"cake\"`, `\"codel\"` and \
                       `\"drop-tail\"`";

choices! {
    /// Discipline of a queue.
    pub enum QueueKind {
        /// Flows take turns, and each has its CoDel state (RFC 8290).
        FqCodel = "fq_codel",
        /// Tins, hosts and flows take turns, and each flow has its CoDel state.
        Cake = "cake",
        /// Drops packets to keep the delay short (RFC 8289).
        #[default]
        Codel = "codel",
        /// Drops packets that find no room.
        DropTail = "drop-tail",
    }
}

choices! {
    /// Link behind a port, in the words of tc-cake(8).
    pub enum LinkKind {
        /// Ethernet frames without FCS.
        #[default]
        Raw = "raw",
        /// Ethernet with FCS, preamble and gap.
        Ethernet = "ethernet",
        /// Cable modem.
        Docsis = "docsis",
        /// PPPoE over VDSL2.
        PppoePtm = "pppoe-ptm",
        /// PPPoE over ATM.
        PppoeLlcsnap = "pppoe-llcsnap",
    }
}

choices! {
    /// Hosts between which a queue is fair.
    pub enum HostIsolation {
        /// Senders.
        Source = "source",
        /// Receivers.
        Destination = "destination",
        /// Senders and receivers.
        #[default]
        Both = "both",
    }
}

choices! {
    /// Classes of traffic, in the words of tc-cake(8).
    pub enum Diffserv {
        /// Bulk, best effort, video and voice.
        #[default]
        Four = "diffserv4",
        /// One class.
        BestEffort = "besteffort",
    }
}

/// Notation of the queue of a port.
pub(super) const NOTATION: Inner<PortQueue> = Inner(EXAMPLE, check);

/// Keys of CoDel, of flows, and of `cake`.
const CODEL_KEYS: &[&str] = &["target_ms", "interval_ms"];
const FLOW_KEYS: &[&str] = &["quantum_bytes", "flows", "ecn", "ce_threshold_us", "drop_batch"];
const CAKE_KEYS: &[&str] = &["isolation", "diffserv", "wash"];

fn check(draft: &Draft<PortQueue>, section: &Section<'_>) -> bool {
    let queue = &draft.value;
    if draft.at("kind").is_none() {
        return true;
    }
    let refuse = |keys: &[&str], why: &str, kind: &str| {
        for key in keys {
            let remedy = format!("remove `{key}`, or use `kind = \"{kind}\"`");
            draft.refuse(key, why, &remedy).into_iter().for_each(|finding| section.findings.note(finding));
        }
    };
    if !queue.has_codel() {
        refuse(CODEL_KEYS, "`drop-tail` drops packets only when the queue is full", "codel");
    }
    if !queue.has_flows() {
        refuse(FLOW_KEYS, &format!("`{}` does not tell flows apart", queue.kind.word()), "fq_codel");
    }
    if !queue.is_cake() {
        let why = format!("`{}` tells neither hosts nor classes of traffic apart", queue.kind.word());
        refuse(CAKE_KEYS, &why, "cake");
    }
    let PortQueue { target_ms, interval_ms, .. } = *queue;
    if queue.has_codel() && target_ms >= interval_ms {
        let span = draft.key("target_ms").or(draft.key("interval_ms")).cloned().unwrap_or_default();
        let message = format!("a `target_ms` of {target_ms} is not below an `interval_ms` of {interval_ms}");
        let remedy = "use the longest round-trip time of most connections as the interval and a \
                      twentieth of that as the target (RFC 8289, 4.3)";
        section.findings.note(Diagnostic::error(span, message).remedy(remedy));
    }
    check_quantum(draft, section);
    true
}

/// A flow whose turn is longer than the queue makes the others wait for all that is queued.
fn check_quantum(draft: &Draft<PortQueue>, section: &Section<'_>) {
    let PortQueue { quantum_bytes, limit_bytes, .. } = draft.value;
    let Some(span) = draft.at("quantum_bytes").filter(|_| quantum_bytes > limit_bytes) else { return };
    let message = format!("a `quantum_bytes` of {quantum_bytes} is more than the queue holds");
    let remedy =
        format!("use at most the `limit_bytes` of {limit_bytes}, or leave it out for a frame at a turn");
    section.findings.note(Diagnostic::error(span.clone(), message).remedy(remedy));
}

impl PortQueue {
    /// Bytes when nothing is said: 40 ms at 100 Mbit/s.
    pub const LIMIT_BYTES: u32 = 512_000;

    fn has_codel(&self) -> bool {
        self.kind != QueueKind::DropTail
    }

    /// True if the queue tells flows apart.
    pub fn has_flows(&self) -> bool {
        matches!(self.kind, QueueKind::FqCodel | QueueKind::Cake)
    }

    fn is_cake(&self) -> bool {
        self.kind == QueueKind::Cake
    }

    /// True if the queue tells classes of traffic apart.
    pub fn has_tins(&self) -> bool {
        self.is_cake() && self.diffserv == Diffserv::Four
    }

    /// The same in the datapath's words, for a port whose longest frame has so many bytes.
    pub fn options(&self, longest_frame: u32) -> QueueOptions {
        let aqm = self.aqm(longest_frame);
        let Self { quantum_bytes: quantum, flows, wash, .. } = *self;
        let discipline = match self.kind {
            QueueKind::DropTail => Discipline::DropTail,
            QueueKind::Codel => Discipline::Codel(aqm.codel),
            QueueKind::FqCodel => Discipline::FqCodel(FqCodelOptions { aqm, quantum, flows, seed: 0 }),
            QueueKind::Cake => {
                let (isolation, tins) = (self.isolation.of_datapath(), self.diffserv.of_datapath());
                Discipline::Cake(CakeOptions { isolation, tins, wash, aqm, quantum, flows, seed: 0 })
            }
        };
        QueueOptions {
            rate: self.rate(),
            link: self.link_layer(),
            ..QueueOptions::new(discipline, u64::from(self.limit_bytes))
        }
    }

    /// Rate that the queue keeps to.
    pub fn rate(&self) -> Option<BytesPerSecond> {
        self.rate_kbit.map(|rate| BytesPerSecond::from_kilobits(u64::from(rate)))
    }

    fn aqm(&self, longest_frame: u32) -> Aqm {
        let millis = |millis: u16| Nanos::from_millis(u64::from(millis));
        Aqm {
            codel: CodelOptions {
                target: millis(self.target_ms),
                interval: millis(self.interval_ms),
                longest_packet: u64::from(longest_frame),
            },
            ecn: self.ecn,
            ce_threshold: self.ce_threshold_us.map(|micros| Nanos(u64::from(micros) * 1000)),
            drop_batch: self.drop_batch.into(),
        }
    }

    fn link_layer(&self) -> LinkLayer {
        let usual = match self.link {
            LinkKind::Raw => LinkLayer::RAW,
            LinkKind::Ethernet => LinkLayer::ETHERNET,
            LinkKind::Docsis => LinkLayer::DOCSIS,
            LinkKind::PppoePtm => LinkLayer::PPPOE_PTM,
            LinkKind::PppoeLlcsnap => LinkLayer::PPPOE_LLCSNAP,
        };
        let (overhead, mpu) = (self.overhead_bytes, self.mpu_bytes);
        LinkLayer { overhead: overhead.unwrap_or(usual.overhead), mpu: mpu.unwrap_or(usual.mpu), ..usual }
    }

    /// Packets that it holds at most.
    pub fn limit_packets(&self) -> u64 {
        self.options(0).limit_packets() as u64
    }
}

impl HostIsolation {
    const fn of_datapath(self) -> Isolation {
        match self {
            Self::Source => Isolation::Source,
            Self::Destination => Isolation::Destination,
            Self::Both => Isolation::Both,
        }
    }
}

impl Diffserv {
    const fn of_datapath(self) -> Tins {
        match self {
            Self::Four => Tins::Four,
            Self::BestEffort => Tins::One,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use polder_datapath::queue::Framing;
    use std::path::Path;

    /// Options of a queue with these keys, for frames of up to 1518 bytes.
    fn options(keys: &str) -> QueueOptions {
        let text = format!(
            "version = 1\n[port.a]\ninterface = \"eth0\"\nqueue = {{ {keys} }}\n[port.b]\ninterface = \"eth1\"\n\
             [bridge.br0]\nmembers = [\"a\", \"b\"]\n"
        );
        let parsed = parse(&text, Path::new("a.toml")).unwrap_or_else(|report| panic!("{report}"));
        parsed.configuration.ports[0].queue.expect("a queue").options(1518)
    }

    #[test]
    fn keys_reach_the_discipline() {
        let text = "kind = \"fq_codel\", target_ms = 2, interval_ms = 40, quantum_bytes = 300, flows = 64, \
                    ecn = false, ce_threshold_us = 1500, drop_batch = 8, limit_bytes = 100_000";
        let read = options(text);
        let codel = CodelOptions {
            target: Nanos::from_millis(2),
            interval: Nanos::from_millis(40),
            longest_packet: 1518,
        };
        let aqm = Aqm { codel, ecn: false, ce_threshold: Some(Nanos(1_500_000)), drop_batch: 8 };
        let discipline = Discipline::FqCodel(FqCodelOptions { aqm, quantum: 300, flows: 64, seed: 0 });
        assert_eq!(read, QueueOptions::new(discipline, 100_000));
        let cake =
            options("kind = \"cake\", isolation = \"destination\", diffserv = \"besteffort\", wash = true");
        let Discipline::Cake(cake) = cake.discipline else { panic!("{cake:?}") };
        assert_eq!((cake.isolation, cake.tins, cake.wash), (Isolation::Destination, Tins::One, true));
        assert_eq!(
            cake.aqm,
            Aqm { codel: CodelOptions { longest_packet: 1518, ..CodelOptions::default() }, ..Aqm::default() }
        );
    }

    #[test]
    fn a_link_has_the_overhead_of_its_kind_unless_another_is_given() {
        let link = |keys: &str| options(&format!("kind = \"drop-tail\", rate_kbit = 1000, {keys}")).link;
        assert_eq!(link("link = \"pppoe-ptm\""), LinkLayer::PPPOE_PTM);
        assert_eq!(link("link = \"docsis\""), LinkLayer::DOCSIS);
        let atm = link("link = \"pppoe-llcsnap\", overhead_bytes = -4, mpu_bytes = 96");
        assert_eq!(atm, LinkLayer { overhead: -4, mpu: 96, framing: Framing::Atm });
    }
}
