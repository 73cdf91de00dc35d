//! Messages of ctnetlink: events, the answers of a dump, and updates.
//!
//! A message is `nlmsghdr`, `nfgenmsg` (family, version, resource), and attributes, whose numbers are big-endian.
//! A list that is cut off ends there; a message without both tuples or without an identity is [`Event::Other`].

use polder_devices::checks::Check;
use polder_devices::netlink::{
    self, DUMP, INTERRUPTED, Message, REQUEST, attributes, find, number, number16, put,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same family.
    pub destination: IpAddr,
    /// IP protocol.
    pub protocol: u8,
    /// Source port; 0 if the protocol has none.
    pub source_port: u16,
    /// Destination port; 0 if the protocol has none.
    pub destination_port: u16,
}

impl Tuple {
    /// The same tuple seen from the other end: of the reply tuple, it is what the original direction becomes by NAT.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..self
        }
    }
}

/// `IPS_*` bits of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// Packets went in both directions.
    pub const SEEN_REPLY: Self = Self(1 << 1);
    /// The kernel does not drop the entry early.
    pub const ASSURED: Self = Self(1 << 2);
    /// The source of the original direction is translated.
    pub const SOURCE_NAT: Self = Self(1 << 4);
    /// The destination of the original direction is translated.
    pub const DESTINATION_NAT: Self = Self(1 << 5);
    /// TCP sequence numbers are changed.
    pub const SEQUENCE_ADJUST: Self = Self(1 << 6);
    /// The entry is being removed.
    pub const DYING: Self = Self(1 << 9);
    /// The timeout cannot be set.
    pub const FIXED_TIMEOUT: Self = Self(1 << 10);
    /// A helper was assigned by a rule.
    pub const HELPER: Self = Self(1 << 13);
    /// A flowtable has the connection.
    pub const OFFLOAD: Self = Self(1 << 14);
    /// Hardware has the connection.
    pub const HARDWARE_OFFLOAD: Self = Self(1 << 15);

    /// True if one of the bits of `other` is set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Protocol information of TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// `TCP_CONNTRACK_*`.
    pub state: u8,
    /// Window scale of the original direction.
    pub wscale_original: u8,
    /// Window scale of the reply direction.
    pub wscale_reply: u8,
}

impl Tcp {
    /// `TCP_CONNTRACK_ESTABLISHED`.
    pub const ESTABLISHED: u8 = 3;
}

/// A connection, as one message describes it. An event leaves out what has not changed, except identity, tuples, zone,
/// status, helper and timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// `CTA_ID`: the same for the life of the entry. Two living entries may have the same.
    pub id: u32,
    /// `AF_INET` or `AF_INET6`.
    pub family: u8,
    /// Tuple of the first packet.
    pub original: Tuple,
    /// Tuple of the packets that answer, after NAT.
    pub reply: Tuple,
    /// `IPS_*`.
    pub status: Status,
    /// Remaining time of the kernel's timer, in whole seconds.
    pub timeout: Option<Duration>,
    /// Connection mark; 0 if the message has none.
    pub mark: u32,
    /// Zone of both or of one direction; 0 if it has none.
    pub zone: u16,
    /// True if a helper looks at the packets.
    pub has_helper: bool,
    /// True if TCP sequence numbers are changed.
    pub has_sequence_adjustment: bool,
    /// True if the kernel has answered the handshake itself.
    pub is_synproxy: bool,
    /// Protocol information, where the message has it.
    pub tcp: Option<Tcp>,
    /// Netlink port of the socket whose request has caused the event; 0 if packets have. An answer has the asking one's.
    pub port_id: u32,
    /// Number of the request that it answers; 0 for an event.
    pub sequence: u32,
    /// True for an answer of a dump.
    pub is_dumped: bool,
}

/// Content of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection is there, is new, or has changed.
    Changed(Record),
    /// The connection is gone.
    Destroyed(Record),
    /// A dump is complete.
    Done {
        /// Number of the request.
        sequence: u32,
        /// True if the dump has to be repeated.
        is_interrupted: bool,
    },
    /// The kernel's answer to a request.
    Error {
        /// An `errno`; 0 if the request was done.
        code: i32,
        /// Number of the request.
        sequence: u32,
    },
    /// Another message, or one that cannot be understood.
    Other,
}

/// The events of a datagram, up to a message that is cut off.
pub fn events(datagram: &[u8]) -> impl Iterator<Item = Event> {
    netlink::messages(datagram).map(|message| event(&message))
}

fn event(message: &Message<'_>) -> Event {
    let sequence = message.sequence;
    let record = || record(message);
    match message.kind {
        NLMSG_ERROR => match number(message.body) {
            Some(code) => Event::Error { code: code.cast_signed().wrapping_neg(), sequence },
            None => Event::Other,
        },
        NLMSG_DONE => Event::Done { sequence, is_interrupted: is_interrupted(message) },
        CONNECTION_NEW => record().map_or(Event::Other, Event::Changed),
        CONNECTION_DELETE => record().map_or(Event::Other, Event::Destroyed),
        _ => Event::Other,
    }
}

/// True if the end of a dump says that it failed, or that entries have moved during it.
fn is_interrupted(message: &Message<'_>) -> bool {
    message.flags & INTERRUPTED != 0 || number(message.body).is_some_and(|code| code != 0)
}

fn record(message: &Message<'_>) -> Option<Record> {
    let (&[family, ..], rest) = message.body.split_first_chunk::<NFGENMSG>()?;
    let (original, original_zone) = tuple(find(rest, CTA_TUPLE_ORIG)?)?;
    let (reply, reply_zone) = tuple(find(rest, CTA_TUPLE_REPLY)?)?;
    let is_same_family = original.source.is_ipv4() == reply.source.is_ipv4();
    let mut record = Record {
        id: find(rest, CTA_ID).and_then(big32)?,
        family,
        original,
        reply,
        status: Status::default(),
        timeout: None,
        mark: 0,
        zone: original_zone.max(reply_zone),
        has_helper: false,
        has_sequence_adjustment: false,
        is_synproxy: false,
        tcp: None,
        port_id: message.port,
        sequence: message.sequence,
        is_dumped: message.flags & NLM_F_MULTI != 0,
    };
    for (kind, value) in attributes(rest) {
        record.read(kind, value);
    }
    (is_same_family && original.protocol == reply.protocol).then_some(record)
}

impl Record {
    fn read(&mut self, kind: u16, value: &[u8]) {
        match kind {
            CTA_STATUS => {
                self.status = Status(big32(value).unwrap_or_default());
                self.has_helper |= self.status.has(Status::HELPER);
                self.has_sequence_adjustment |= self.status.has(Status::SEQUENCE_ADJUST);
            }
            CTA_TIMEOUT => self.timeout = big32(value).map(|seconds| Duration::from_secs(seconds.into())),
            CTA_MARK if Check::ConnectionMark.is_made() => self.mark = big32(value).unwrap_or_default(),
            // A zone that cannot be read is a foreign one.
            CTA_ZONE => self.zone = self.zone.max(big16(value).unwrap_or(u16::MAX)),
            CTA_HELP => self.has_helper = true,
            CTA_SEQ_ADJ_ORIG | CTA_SEQ_ADJ_REPLY => self.has_sequence_adjustment = true,
            CTA_SYNPROXY => self.is_synproxy = true,
            CTA_PROTOINFO => self.tcp = find(value, CTA_PROTOINFO_TCP).and_then(tcp),
            _ => {}
        }
    }
}

/// A tuple, and its zone if only this direction has it.
fn tuple(bytes: &[u8]) -> Option<(Tuple, u16)> {
    let (address, layer4) = (find(bytes, CTA_TUPLE_IP)?, find(bytes, CTA_TUPLE_PROTO)?);
    let zone = find(bytes, CTA_TUPLE_ZONE).map_or(0, |value| big16(value).unwrap_or(u16::MAX));
    let (source, destination) = addresses(address)?;
    let port = |kind| find(layer4, kind).map_or(Some(0), big16);
    let tuple = Tuple {
        source,
        destination,
        protocol: *find(layer4, CTA_PROTO_NUM)?.first()?,
        source_port: port(CTA_PROTO_SRC_PORT)?,
        destination_port: port(CTA_PROTO_DST_PORT)?,
    };
    Some((tuple, zone))
}

fn addresses(bytes: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let v4 = |kind| Some(Ipv4Addr::from(<[u8; 4]>::try_from(find(bytes, kind)?).ok()?));
    let v6 = |kind| Some(Ipv6Addr::from(<[u8; 16]>::try_from(find(bytes, kind)?).ok()?));
    match (v4(CTA_IP_V4_SRC), v4(CTA_IP_V4_DST)) {
        (Some(source), Some(destination)) => Some((source.into(), destination.into())),
        _ => Some((v6(CTA_IP_V6_SRC)?.into(), v6(CTA_IP_V6_DST)?.into())),
    }
}

fn tcp(bytes: &[u8]) -> Option<Tcp> {
    let byte = |kind| find(bytes, kind).and_then(|value| value.first().copied());
    Some(Tcp {
        state: byte(CTA_PROTOINFO_TCP_STATE)?,
        wscale_original: byte(CTA_PROTOINFO_TCP_WSCALE_ORIGINAL).unwrap_or_default(),
        wscale_reply: byte(CTA_PROTOINFO_TCP_WSCALE_REPLY).unwrap_or_default(),
    })
}

fn big32(bytes: &[u8]) -> Option<u32> {
    number(bytes).map(u32::from_be)
}

fn big16(bytes: &[u8]) -> Option<u16> {
    number16(bytes).map(u16::from_be)
}

/// New values of a connection. One without any only asks whether the connection is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Time of the kernel's timer, in seconds.
    pub timeout: Option<u32>,
    /// Has the kernel accept any TCP segment of the connection, and forget the highest acknowledgement that it has seen.
    pub loosen: bool,
}

/// Request for all connections of both families.
pub fn dump(sequence: u32) -> Vec<u8> {
    netlink::message(CONNECTION_GET, REQUEST | DUMP, sequence, &[0; NFGENMSG])
}

/// Request that changes a connection that is there, and is acknowledged; `original` is its first tuple.
pub fn update(sequence: u32, original: &Tuple, update: Update) -> Vec<u8> {
    let family = if original.source.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut body = vec![0; NFGENMSG];
    body[0] = u8::try_from(family).unwrap_or_default();
    nest(&mut body, CTA_TUPLE_ORIG, &tuple_attributes(original));
    if let Some(seconds) = update.timeout {
        put(&mut body, CTA_TIMEOUT, &seconds.to_be_bytes());
    }
    if update.loosen && Check::ConnectionLiberal.is_made() {
        let is_first = update.timeout.is_none();
        let forgotten = if is_first || Check::ConnectionAcknowledged.is_made() { MAXACK_SET } else { 0 };
        let mut tcp = Vec::new();
        for kind in [CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, CTA_PROTOINFO_TCP_FLAGS_REPLY] {
            put(&mut tcp, kind, &[BE_LIBERAL, BE_LIBERAL | forgotten]);
        }
        let mut protocol = Vec::new();
        nest(&mut protocol, CTA_PROTOINFO_TCP, &tcp);
        nest(&mut body, CTA_PROTOINFO, &protocol);
    }
    netlink::message(CONNECTION_NEW, REQUEST | NLM_F_ACK, sequence, &body)
}

fn tuple_attributes(tuple: &Tuple) -> Vec<u8> {
    let (mut address, mut layer4, mut attributes) = (Vec::new(), Vec::new(), Vec::new());
    let [source, destination] = match tuple.source {
        IpAddr::V4(_) => [CTA_IP_V4_SRC, CTA_IP_V4_DST],
        IpAddr::V6(_) => [CTA_IP_V6_SRC, CTA_IP_V6_DST],
    };
    for (kind, value) in [(source, tuple.source), (destination, tuple.destination)] {
        match value {
            IpAddr::V4(value) => put(&mut address, kind, &value.octets()),
            IpAddr::V6(value) => put(&mut address, kind, &value.octets()),
        }
    }
    put(&mut layer4, CTA_PROTO_NUM, &[tuple.protocol]);
    put(&mut layer4, CTA_PROTO_SRC_PORT, &tuple.source_port.to_be_bytes());
    put(&mut layer4, CTA_PROTO_DST_PORT, &tuple.destination_port.to_be_bytes());
    nest(&mut attributes, CTA_TUPLE_IP, &address);
    nest(&mut attributes, CTA_TUPLE_PROTO, &layer4);
    attributes
}

fn nest(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    put(body, kind | NLA_F_NESTED, value);
}

/// Number of bytes of `struct nfgenmsg`.
const NFGENMSG: usize = 4;
/// linux/netlink.h.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
pub(super) const NLM_F_MULTI: u16 = 0x002;
const NLM_F_ACK: u16 = 0x004;
const NLA_F_NESTED: u16 = 0x8000;
/// Types: `NFNL_SUBSYS_CTNETLINK` and `IPCTNL_MSG_CT_*`.
pub(super) const CONNECTION_NEW: u16 = 0x100;
const CONNECTION_GET: u16 = 0x101;
pub(super) const CONNECTION_DELETE: u16 = 0x102;
/// linux/netfilter/nfnetlink_conntrack.h.
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
pub(super) const CTA_STATUS: u16 = 3;
const CTA_PROTOINFO: u16 = 4;
const CTA_HELP: u16 = 5;
const CTA_TIMEOUT: u16 = 7;
const CTA_MARK: u16 = 8;
const CTA_ID: u16 = 12;
const CTA_SEQ_ADJ_ORIG: u16 = 15;
const CTA_SEQ_ADJ_REPLY: u16 = 16;
const CTA_ZONE: u16 = 18;
pub(super) const CTA_SYNPROXY: u16 = 24;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_TUPLE_ZONE: u16 = 3;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;
const CTA_PROTOINFO_TCP: u16 = 1;
const CTA_PROTOINFO_TCP_STATE: u16 = 1;
const CTA_PROTOINFO_TCP_WSCALE_ORIGINAL: u16 = 2;
const CTA_PROTOINFO_TCP_WSCALE_REPLY: u16 = 3;
const CTA_PROTOINFO_TCP_FLAGS_ORIGINAL: u16 = 4;
const CTA_PROTOINFO_TCP_FLAGS_REPLY: u16 = 5;
/// `IP_CT_TCP_FLAG_*` of linux/netfilter/nf_conntrack_tcp.h.
const BE_LIBERAL: u8 = 0x08;
const MAXACK_SET: u8 = 0x20;

#[cfg(test)]
mod tests;
