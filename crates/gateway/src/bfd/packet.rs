//! The BFD control packet. Source: RFC 5880, 4.1.

use serde::{Deserialize, Serialize};
use std::fmt;

/// State of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Disabled by an operator.
    AdminDown,
    /// No packets are received, or the remote end receives none.
    #[default]
    Down,
    /// Packets are received, and the remote end does not receive this end's yet.
    Init,
    /// Both ends receive each other's packets.
    Up,
}

impl State {
    const ALL: [Self; 4] = [Self::AdminDown, Self::Down, Self::Init, Self::Up];

    /// Name of the state.
    pub fn name(self) -> &'static str {
        match self {
            Self::AdminDown => "admin down",
            Self::Down => "down",
            Self::Init => "init",
            Self::Up => "up",
        }
    }
}

/// Diagnostic code: the reason of a session's last change of state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic(pub u8);

impl Diagnostic {
    /// No diagnostic.
    pub const NONE: Self = Self(0);
    /// No packet was received for the detection time.
    pub const TIME_EXPIRED: Self = Self(1);
    /// The remote end has reported Down.
    pub const NEIGHBOR_DOWN: Self = Self(3);
    /// Disabled by an operator.
    pub const ADMIN_DOWN: Self = Self(7);
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.0 {
            0 => "no diagnostic",
            1 => "control detection time expired",
            2 => "echo function failed",
            3 => "neighbor signaled session down",
            4 => "forwarding plane reset",
            5 => "path down",
            6 => "concatenated path down",
            7 => "administratively down",
            8 => "reverse concatenated path down",
            _ => "reserved diagnostic",
        })
    }
}

/// A control packet without its authentication. Times are in microseconds, as in the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Packet {
    /// Diagnostic of the sender's last change of state.
    pub diagnostic: Diagnostic,
    /// State of the sender's session.
    pub state: State,
    /// True if the sender wants a packet with the Final bit.
    pub poll: bool,
    /// True if this packet answers a poll.
    pub is_final: bool,
    /// True if the sender's BFD is independent of its control plane.
    pub control_plane_independent: bool,
    /// True if an authentication section follows.
    pub is_authenticated: bool,
    /// True if the sender wants no periodic packets while both ends are up.
    pub demand: bool,
    /// Detection multiplier.
    pub multiplier: u8,
    /// Discriminator of the sender.
    pub my_discriminator: u32,
    /// Discriminator of the receiver, as far as the sender knows it; otherwise 0.
    pub your_discriminator: u32,
    /// Desired minimum transmit interval of the sender.
    pub desired_min_tx: u32,
    /// Required minimum receive interval of the sender; 0 if it wants no periodic packets.
    pub required_min_rx: u32,
    /// Required minimum interval of echo packets; 0 if the sender accepts none.
    pub required_min_echo_rx: u32,
}

/// Reason for discarding a packet. Source: RFC 5880, 6.8.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The packet is shorter than the minimum, or than its length field.
    #[error("the BFD packet is too short")]
    Short,
    /// A version other than 1.
    #[error("the BFD version is not 1")]
    Version,
    /// The multipoint bit is set.
    #[error("the BFD packet has the multipoint bit set")]
    Multipoint,
    /// A detection multiplier of 0.
    #[error("the BFD detection multiplier is 0")]
    Multiplier,
    /// A discriminator of 0.
    #[error("the BFD discriminator of the sender is 0")]
    Discriminator,
}

impl Packet {
    /// Length of a packet without authentication, in bytes.
    pub const LENGTH: usize = 24;
    const VERSION: u8 = 1;
    /// Minimum length of an authentication section in bytes: type and length.
    const LEAST_SECTION: usize = 2;
    const POLL: u8 = 1 << 5;
    const FINAL: u8 = 1 << 4;
    const CONTROL_PLANE: u8 = 1 << 3;
    pub(super) const AUTHENTICATION: u8 = 1 << 2;
    const DEMAND: u8 = 1 << 1;
    const MULTIPOINT: u8 = 1;

    /// Parses a packet; bytes after its length are ignored.
    ///
    /// # Errors
    /// When it must be discarded for any session.
    pub fn read(octets: &[u8]) -> Result<Self, Malformed> {
        let header: &[u8; Self::LENGTH] = octets.first_chunk().ok_or(Malformed::Short)?;
        let [first, flags, multiplier, length, ..] = *header;
        if first >> 5 != Self::VERSION {
            return Err(Malformed::Version);
        }
        let least = Self::LENGTH + if flags & Self::AUTHENTICATION != 0 { Self::LEAST_SECTION } else { 0 };
        if usize::from(length) < least || usize::from(length) > octets.len() {
            return Err(Malformed::Short);
        }
        if multiplier == 0 {
            return Err(Malformed::Multiplier);
        }
        if flags & Self::MULTIPOINT != 0 {
            return Err(Malformed::Multipoint);
        }
        let word = |place: usize| {
            let octets = header.get(place..place + 4).and_then(|octets| octets.first_chunk());
            u32::from_be_bytes(octets.copied().unwrap_or_default())
        };
        if word(4) == 0 {
            return Err(Malformed::Discriminator);
        }
        Ok(Self {
            diagnostic: Diagnostic(first & 0x1f),
            state: State::ALL[usize::from(flags >> 6)],
            poll: flags & Self::POLL != 0,
            is_final: flags & Self::FINAL != 0,
            control_plane_independent: flags & Self::CONTROL_PLANE != 0,
            is_authenticated: flags & Self::AUTHENTICATION != 0,
            demand: flags & Self::DEMAND != 0,
            multiplier,
            my_discriminator: word(4),
            your_discriminator: word(8),
            desired_min_tx: word(12),
            required_min_rx: word(16),
            required_min_echo_rx: word(20),
        })
    }

    /// Bytes of the packet without authentication.
    pub fn write(&self) -> [u8; Self::LENGTH] {
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let state = State::ALL.iter().position(|state| *state == self.state).unwrap_or_default();
        let flags = bit(self.poll, Self::POLL)
            | bit(self.is_final, Self::FINAL)
            | bit(self.control_plane_independent, Self::CONTROL_PLANE)
            | bit(self.demand, Self::DEMAND)
            | u8::try_from(state << 6).unwrap_or_default();
        let mut octets = [0; Self::LENGTH];
        let first = Self::VERSION << 5 | self.diagnostic.0 & 0x1f;
        octets[..4].copy_from_slice(&[first, flags, self.multiplier, 24]);
        let words = [
            self.my_discriminator,
            self.your_discriminator,
            self.desired_min_tx,
            self.required_min_rx,
            self.required_min_echo_rx,
        ];
        for (place, word) in octets[4..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Octets as FRR's bfdd sends them while it is down, and as it answers a poll.
    #[test]
    fn fields_stand_where_the_rfc_has_them() {
        let octets = [
            0x20, 0x40, 3, 24, 0, 0, 0, 0x11, 0, 0, 0, 0, 0, 0x0f, 0x42, 0x40, 0, 0x04, 0x93, 0xe0, 0, 0,
            0xc3, 0x50,
        ];
        let packet = Packet::read(&octets).expect("valid");
        let expected = Packet {
            state: State::Down,
            multiplier: 3,
            my_discriminator: 0x11,
            desired_min_tx: 1_000_000,
            required_min_rx: 300_000,
            required_min_echo_rx: 50_000,
            ..Packet::default()
        };
        assert_eq!(packet, expected);
        assert_eq!(packet.write(), octets);
        let mut up = octets;
        (up[0], up[1]) = (0x23, 0b1101_1010);
        let packet = Packet::read(&up).expect("valid");
        assert_eq!((packet.state, packet.diagnostic), (State::Up, Diagnostic::NEIGHBOR_DOWN));
        assert!(packet.is_final && !packet.poll && packet.control_plane_independent && packet.demand);
    }

    #[test]
    fn what_is_to_be_discarded_is() {
        let good = Packet { multiplier: 3, my_discriminator: 1, ..Packet::default() }.write();
        let with = |place: usize, octet: u8| {
            let mut octets = good;
            octets[place] = octet;
            Packet::read(&octets).expect_err("to be discarded")
        };
        assert_eq!(with(0, 0), Malformed::Version);
        assert_eq!(with(0, 0x40), Malformed::Version);
        assert_eq!(with(2, 0), Malformed::Multiplier);
        assert_eq!(with(3, 23), Malformed::Short);
        assert_eq!(with(3, 25), Malformed::Short, "more than there is");
        assert_eq!(with(7, 0), Malformed::Discriminator);
        assert_eq!(with(1, 0x41), Malformed::Multipoint);
        assert_eq!(with(1, 0x44), Malformed::Short, "no room for an authentication section");
        assert_eq!(Packet::read(&good[..23]), Err(Malformed::Short));
        let mut longer = good.to_vec();
        longer.push(0xff);
        assert!(Packet::read(&longer).is_ok(), "what stands behind the packet is none of it");
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_alike(octets: [u8; Packet::LENGTH]) {
            if let Ok(packet) = Packet::read(&octets) {
                let mut written = packet.write();
                written[3] = octets[3];
                written[1] |= octets[1] & Packet::AUTHENTICATION;
                prop_assert_eq!(written, octets);
            }
        }
    }
}
