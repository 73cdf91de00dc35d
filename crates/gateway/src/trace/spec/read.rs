//! Parsing of descriptions.

use super::error::SpecError;
use super::layer::{Arp, Eth, Frag, Gre, Icmp, Ip, Layer, Tcp, Udp, Vlan, Vxlan};
use super::layers::LAYERS;
use super::tokens::tokens;
use super::words::{Words, nearest};
use super::{LONGEST, Spec};
use crate::trace::from_digits;
use polder_datapath::wire;
use std::net::{IpAddr, Ipv4Addr};

/// TCP flags by letter; bit 0 is FIN.
pub(super) const FLAGS: &str = "FSRPAUEC";

impl Spec {
    /// Parses a description.
    ///
    /// # Errors
    /// The first invalid word, and the words that are valid there.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let tokens = tokens(text);
        let end = text.trim_end().len();
        let mut words = Words { tokens: &tokens, at: 0, end, layer: "", seen: Vec::new() };
        let mut layers = Vec::new();
        loop {
            layers.push(words.layer()?);
            match words.next() {
                None => break,
                Some(token) if token.text == "/" => {}
                Some(token) => return Err(words.unknown(&token)),
            }
        }
        let spec = Self(layers);
        match spec.0.iter().map(Layer::least_bytes).sum::<usize>() {
            bytes if bytes > LONGEST => Err(SpecError::new(
                0..end,
                format!("the packet has {bytes} bytes"),
                format!("at most {LONGEST} bytes"),
            )),
            _ => Ok(spec),
        }
    }
}

impl Layer {
    fn least_bytes(&self) -> usize {
        match self {
            Self::Payload(bytes) => *bytes,
            Self::Hex(bytes) => bytes.len(),
            Self::Eth(_)
            | Self::Vlan(_)
            | Self::Arp(_)
            | Self::Ip(_)
            | Self::Frag(_)
            | Self::Udp(_)
            | Self::Tcp(_)
            | Self::Icmp(_)
            | Self::Gre(_)
            | Self::Vxlan(_) => 0,
        }
    }
}

impl Words<'_> {
    fn layer(&mut self) -> Result<Layer, SpecError> {
        let names = || LAYERS.iter().map(|(name, _)| *name);
        let expected = format!("a layer: {}", names().collect::<Vec<_>>().join(", "));
        let Some(token) = self.more() else {
            let at = self.tokens.get(self.at).map_or(self.end..self.end, |token| token.span.clone());
            return Err(SpecError::new(at, "a layer is missing", expected));
        };
        let Some(layer) = names().find(|name| *name == token.text) else {
            let near = nearest(token.text, names()).map(|near| format!(": is `{near}` meant?"));
            let message = format!("`{}` is not a layer{}", token.text, near.unwrap_or_default());
            return Err(SpecError::new(token.span, message, expected));
        };
        (self.layer, self.seen) = (layer, Vec::new());
        match layer {
            "eth" => self.eth(),
            "vlan" => self.vlan(),
            "arp" => self.arp(),
            "ip" => self.of_ip(None),
            "ip4" => self.of_ip(Some(false)),
            "ip6" => self.of_ip(Some(true)),
            "frag" => self.frag(),
            "udp" => self.udp(),
            "tcp" => self.tcp(),
            "icmp" => self.icmp(),
            "gre" => self.gre(),
            "vxlan" => self.vxlan(),
            "payload" => {
                let most = u32::try_from(LONGEST).unwrap_or(u32::MAX);
                Ok(Layer::Payload(self.number("payload", most)? as usize))
            }
            _ => self.hex(),
        }
    }

    fn eth(&mut self) -> Result<Layer, SpecError> {
        let mut eth = Eth::default();
        while let Some(key) = self.key()? {
            match key.text {
                "src" => eth.src = self.mac("src")?,
                "dst" => eth.dst = self.mac("dst")?,
                "type" => eth.ether_type = self.u16("type")?,
                _ => return Err(self.unknown(&key)),
            }
        }
        Ok(Layer::Eth(eth))
    }

    fn vlan(&mut self) -> Result<Layer, SpecError> {
        let id = self.number("vlan", 4095)?;
        let mut vlan = Vlan { id: u16::try_from(id).unwrap_or_default(), ..Vlan::default() };
        while let Some(key) = self.key()? {
            match key.text {
                "prio" => vlan.priority = self.u8("prio", 7)?,
                "type" => vlan.ether_type = self.u16("type")?,
                _ => return Err(self.unknown(&key)),
            }
        }
        Ok(Layer::Vlan(vlan))
    }

    fn arp(&mut self) -> Result<Layer, SpecError> {
        let expected = "`request` or `reply`";
        let word = self.value("arp", expected)?;
        let is_reply = match word.text {
            "request" => false,
            "reply" => true,
            other => return Err(SpecError::new(word.span, format!("`arp` cannot be `{other}`"), expected)),
        };
        let (mut arp, mut target) = (
            Arp { is_reply, sender_mac: None, sender: None, target_mac: None, target: Ipv4Addr::UNSPECIFIED },
            None,
        );
        while let Some(key) = self.key()? {
            const ADDRESS: &str = "an address, as 192.0.2.1";
            match key.text {
                "sender" => arp.sender = self.parse("sender", ADDRESS)?,
                "target" => target = self.parse("target", ADDRESS)?,
                "sender-mac" => arp.sender_mac = self.mac("sender-mac")?,
                "target-mac" => arp.target_mac = self.mac("target-mac")?,
                _ => return Err(self.unknown(&key)),
            }
        }
        match target {
            Some(target) => Ok(Layer::Arp(Arp { target, ..arp })),
            None => Err(SpecError::new(word.span, "`arp` has no target address", "`target ADDRESS`")),
        }
    }

    /// An address of the given family; sets the family if it is not known yet.
    fn of_family(&mut self, of: &str, family: &mut Option<bool>) -> Result<Option<IpAddr>, SpecError> {
        let address = self.ip(of)?;
        let is_v6 = address.map(|address| address.is_ipv6());
        if family.is_none() {
            *family = is_v6;
        }
        if *family == is_v6 {
            return Ok(address);
        }
        let expected = if *family == Some(true) { "an address of IPv6" } else { "an address of IPv4" };
        let span = self.tokens[self.at - 1].span.clone();
        Err(SpecError::new(span, "all addresses of a packet have one family", expected))
    }

    fn of_ip(&mut self, is_v6: Option<bool>) -> Result<Layer, SpecError> {
        let mut ip = Ip { is_v6, ..Ip::default() };
        let mut family = is_v6;
        while let Some(key) = self.key()? {
            match key.text {
                "src" => ip.src = self.of_family("src", &mut family)?,
                "dst" => ip.dst = self.of_family("dst", &mut family)?,
                "ttl" => ip.ttl = self.u8("ttl", u8::MAX)?,
                "dscp" => ip.dscp = self.u8("dscp", 63)?,
                "ecn" => ip.ecn = self.u8("ecn", 3)?,
                "flow" => ip.flow = self.number("flow", 0xf_ffff).map(Some)?,
                "id" => ip.id = self.u16("id")?,
                "df" => ip.df = true,
                "mf" => ip.mf = true,
                "offset" => ip.offset = self.u16("offset")?,
                "proto" => ip.protocol = self.u8("proto", u8::MAX)?,
                "len" => ip.length = self.u16("len")?,
                "checksum" => ip.checksum = self.u16("checksum")?,
                _ => return Err(self.unknown(&key)),
            }
        }
        Ok(Layer::Ip(ip))
    }

    fn frag(&mut self) -> Result<Layer, SpecError> {
        let mut frag = Frag::default();
        while let Some(key) = self.key()? {
            match key.text {
                "offset" => frag.offset = self.u16("offset")?,
                "mf" => frag.mf = true,
                "id" => frag.id = self.u32("id")?,
                "proto" => frag.protocol = self.u8("proto", u8::MAX)?,
                _ => return Err(self.unknown(&key)),
            }
        }
        Ok(Layer::Frag(frag))
    }

    fn udp(&mut self) -> Result<Layer, SpecError> {
        let mut udp = Udp::default();
        while let Some(key) = self.key()? {
            match key.text {
                "sport" => udp.sport = self.u16("sport")?,
                "dport" => udp.dport = self.u16("dport")?,
                "len" => udp.length = self.u16("len")?,
                "checksum" => udp.checksum = self.u16("checksum")?,
                _ => return Err(self.unknown(&key)),
            }
        }
        Ok(Layer::Udp(udp))
    }

    fn tcp(&mut self) -> Result<Layer, SpecError> {
        let mut tcp = Tcp::default();
        while let Some(key) = self.key()? {
            match key.text {
                "sport" => tcp.sport = self.u16("sport")?,
                "dport" => tcp.dport = self.u16("dport")?,
                "flags" => tcp.flags = Some(self.flags()?),
                "seq" => tcp.seq = self.u32("seq")?,
                "ack" => tcp.ack = self.u32("ack")?,
                "window" => tcp.window = self.u16("window")?,
                "mss" => tcp.mss = self.u16("mss")?,
                "opts" => tcp.options = Some(self.options(tcp.mss.is_some())?),
                "checksum" => tcp.checksum = self.u16("checksum")?,
                _ => return Err(self.unknown(&key)),
            }
        }
        Ok(Layer::Tcp(tcp))
    }

    /// TCP options as hexadecimal digits, a multiple of four bytes.
    fn options(&mut self, has_mss: bool) -> Result<Vec<u8>, SpecError> {
        let room = if has_mss { 36 } else { 40 };
        let expected = format!("digits of 4 to {room} bytes, four or a multiple of it, as 01010402");
        let token = self.value("opts", &expected)?;
        from_digits(token.text)
            .filter(|bytes| (4..=room).contains(&bytes.len()) && bytes.len() % 4 == 0)
            .ok_or_else(|| SpecError::new(token.span, format!("`opts` cannot be `{}`", token.text), expected))
    }

    fn flags(&mut self) -> Result<u8, SpecError> {
        let expected =
            format!("some of the letters {FLAGS} (FIN, SYN, RST, PSH, ACK, URG, ECE, CWR), or `.` for none");
        let token = self.value("flags", &expected)?;
        if token.text == "." {
            return Ok(0);
        }
        let bit = |letter| FLAGS.find(letter).map(|place| 1 << place);
        let bits = token.text.chars().map(bit).collect::<Option<Vec<u8>>>();
        let bits = bits.ok_or_else(|| {
            SpecError::new(token.span, format!("`flags` cannot be `{}`", token.text), expected)
        })?;
        Ok(bits.into_iter().fold(0, |all, bit| all | bit))
    }

    fn icmp(&mut self) -> Result<Layer, SpecError> {
        let mut icmp = Icmp::default();
        while let Some(key) = self.key()? {
            match key.text {
                "type" => icmp.kind = self.u8("type", u8::MAX)?,
                "code" => icmp.code = self.u8("code", u8::MAX)?,
                "id" => icmp.id = self.u16("id")?,
                "seq" => icmp.seq = self.u16("seq")?,
                "checksum" => icmp.checksum = self.u16("checksum")?,
                _ => return Err(self.unknown(&key)),
            }
        }
        Ok(Layer::Icmp(icmp))
    }

    fn gre(&mut self) -> Result<Layer, SpecError> {
        let mut gre = Gre::default();
        while let Some(key) = self.key()? {
            match key.text {
                "key" => gre.key = self.u32("key")?,
                "seq" => gre.seq = self.u32("seq")?,
                "checksum" => gre.checksum = true,
                "type" => gre.ether_type = self.u16("type")?,
                _ => return Err(self.unknown(&key)),
            }
        }
        Ok(Layer::Gre(gre))
    }

    fn vxlan(&mut self) -> Result<Layer, SpecError> {
        let mut vxlan = Vxlan::default();
        while let Some(key) = self.key()? {
            match key.text {
                "vni" => vxlan.vni = Some(self.number("vni", wire::Vxlan::MAX_VNI)?),
                _ => return Err(self.unknown(&key)),
            }
        }
        Ok(Layer::Vxlan(vxlan))
    }

    /// Bytes as hexadecimal digits, with spaces allowed.
    fn hex(&mut self) -> Result<Layer, SpecError> {
        const EXPECTED: &str = "two digits of 0 to 9 and a to f for each byte";
        let mut digits = Vec::new();
        let mut token = self.value("hex", EXPECTED)?;
        loop {
            let is_digit = |character: &char| character.is_ascii_hexdigit();
            if let Some((at, wrong)) = token.text.char_indices().find(|(_, character)| !is_digit(character)) {
                let start = token.span.start + at;
                let span = start..start + wrong.len_utf8();
                return Err(SpecError::new(span, format!("`{wrong}` is not a digit"), EXPECTED));
            }
            digits.extend(token.text.chars().filter_map(|digit| digit.to_digit(16)));
            let span = token.span;
            match self.more() {
                Some(next) => token = next,
                None if digits.len() % 2 == 1 => {
                    return Err(SpecError::new(span, "half a byte is missing", EXPECTED));
                }
                None => break,
            }
        }
        let byte = |pair: &[u32; 2]| u8::try_from(pair[0] << 4 | pair[1]).unwrap_or_default();
        Ok(Layer::Hex(digits.as_chunks::<2>().0.iter().map(byte).collect()))
    }
}
