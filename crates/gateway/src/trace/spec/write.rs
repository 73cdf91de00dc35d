//! Writing of descriptions as text.

use super::Spec;
use super::layer::{Arp, Eth, Frag, Gre, Icmp, Ip, Layer, Tcp, Udp, Vlan, Vxlan};
use super::read::FLAGS;
use crate::trace::to_digits;
use std::fmt::{self, Display, Formatter};

impl Display for Spec {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        for (place, layer) in self.0.iter().enumerate() {
            if place > 0 {
                formatter.write_str(" / ")?;
            }
            layer.fmt(formatter)?;
        }
        Ok(())
    }
}

impl Spec {
    /// A copy in which long payload bytes are replaced by their length.
    pub fn brief(&self) -> Self {
        const LONG: usize = 16;
        let brief = |layer: &Layer| {
            let long = if let Layer::Hex(bytes) = layer { Some(bytes.len()) } else { None };
            long.filter(|&bytes| bytes > LONG).map_or_else(|| layer.clone(), Layer::Payload)
        };
        Self(self.0.iter().map(brief).collect())
    }
}

impl Display for Layer {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let mut words = Words(formatter);
        match self {
            Self::Eth(Eth { src, dst, ether_type }) => {
                words.word("eth")?;
                words.say("src", src.as_ref())?;
                words.say("dst", dst.as_ref())?;
                words.hex("type", *ether_type)
            }
            Self::Vlan(Vlan { id, priority, ether_type }) => {
                write!(words.0, "vlan {id}")?;
                words.say("prio", priority.as_ref())?;
                words.hex("type", *ether_type)
            }
            Self::Arp(arp) => words.arp(arp),
            Self::Ip(ip) => words.ip(ip),
            Self::Frag(Frag { offset, mf, id, protocol }) => {
                words.word("frag")?;
                words.say("offset", offset.as_ref())?;
                words.flag("mf", *mf)?;
                words.say("id", id.as_ref())?;
                words.say("proto", protocol.as_ref())
            }
            Self::Udp(Udp { sport, dport, length, checksum }) => {
                words.word("udp")?;
                words.say("sport", sport.as_ref())?;
                words.say("dport", dport.as_ref())?;
                words.say("len", length.as_ref())?;
                words.hex("checksum", *checksum)
            }
            Self::Tcp(tcp) => words.tcp(tcp),
            Self::Icmp(Icmp { kind, code, id, seq, checksum }) => {
                words.word("icmp")?;
                words.say("type", kind.as_ref())?;
                words.say("code", code.as_ref())?;
                words.say("id", id.as_ref())?;
                words.say("seq", seq.as_ref())?;
                words.hex("checksum", *checksum)
            }
            Self::Gre(Gre { key, seq, checksum, ether_type }) => {
                words.word("gre")?;
                words.say("key", key.as_ref())?;
                words.say("seq", seq.as_ref())?;
                words.flag("checksum", *checksum)?;
                words.hex("type", *ether_type)
            }
            Self::Vxlan(Vxlan { vni }) => {
                words.word("vxlan")?;
                words.say("vni", vni.as_ref())
            }
            Self::Payload(bytes) => write!(words.0, "payload {bytes}"),
            Self::Hex(bytes) => {
                words.word("hex ")?;
                bytes.iter().try_for_each(|byte| write!(words.0, "{byte:02x}"))
            }
        }
    }
}

struct Words<'a, 'b>(&'a mut Formatter<'b>);

impl Words<'_, '_> {
    fn word(&mut self, word: &str) -> fmt::Result {
        self.0.write_str(word)
    }

    fn say(&mut self, key: &str, value: Option<&impl Display>) -> fmt::Result {
        value.map_or(Ok(()), |value| write!(self.0, " {key} {value}"))
    }

    fn hex(&mut self, key: &str, value: Option<u16>) -> fmt::Result {
        value.map_or(Ok(()), |value| write!(self.0, " {key} {value:#06x}"))
    }

    fn flag(&mut self, key: &str, value: bool) -> fmt::Result {
        if value { write!(self.0, " {key}") } else { Ok(()) }
    }

    fn arp(&mut self, arp: &Arp) -> fmt::Result {
        self.word(if arp.is_reply { "arp reply" } else { "arp request" })?;
        self.say("sender-mac", arp.sender_mac.as_ref())?;
        self.say("sender", arp.sender.as_ref())?;
        self.say("target-mac", arp.target_mac.as_ref())?;
        self.say("target", Some(&arp.target))
    }

    fn ip(&mut self, ip: &Ip) -> fmt::Result {
        self.word(match ip.is_v6 {
            None => "ip",
            Some(false) => "ip4",
            Some(true) => "ip6",
        })?;
        self.say("src", ip.src.as_ref())?;
        self.say("dst", ip.dst.as_ref())?;
        self.say("ttl", ip.ttl.as_ref())?;
        self.say("dscp", ip.dscp.as_ref())?;
        self.say("ecn", ip.ecn.as_ref())?;
        self.say("flow", ip.flow.as_ref())?;
        self.say("id", ip.id.as_ref())?;
        self.flag("df", ip.df)?;
        self.flag("mf", ip.mf)?;
        self.say("offset", ip.offset.as_ref())?;
        self.say("proto", ip.protocol.as_ref())?;
        self.say("len", ip.length.as_ref())?;
        self.hex("checksum", ip.checksum)
    }

    fn tcp(&mut self, tcp: &Tcp) -> fmt::Result {
        self.word("tcp")?;
        self.say("sport", tcp.sport.as_ref())?;
        self.say("dport", tcp.dport.as_ref())?;
        self.say("flags", tcp.flags.map(letters).as_ref())?;
        self.say("seq", tcp.seq.as_ref())?;
        self.say("ack", tcp.ack.as_ref())?;
        self.say("window", tcp.window.as_ref())?;
        self.say("mss", tcp.mss.as_ref())?;
        self.say("opts", tcp.options.as_deref().map(to_digits).as_ref())?;
        self.hex("checksum", tcp.checksum)
    }
}

fn letters(flags: u8) -> String {
    let letters = FLAGS.chars().enumerate().filter(|(bit, _)| flags >> bit & 1 == 1);
    let letters = letters.map(|(_, letter)| letter).collect::<String>();
    if letters.is_empty() { ".".to_owned() } else { letters }
}
