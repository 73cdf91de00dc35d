//! Authentication of control packets by keyed SHA1. Source: RFC 5880, 4.4 and 6.7.4.
//!
//! Sequence numbers prevent replays: with the meticulous type each packet has a new number, so none is
//! accepted twice.

use super::packet::Packet;
use polder_datapath::units::Nanos;
use serde::{Deserialize, Serialize};
use sha1::{Digest as _, Sha1};
use std::fmt;

/// Length of a hash, and of a zero-padded key, in bytes.
const HASH: usize = 20;
/// Length of the authentication section in bytes.
const SECTION: usize = 8 + HASH;
/// Offset of the hash in a packet.
const HASH_AT: usize = Packet::LENGTH + SECTION - HASH;
/// Length of an authenticated packet in bytes.
pub const SEALED_LENGTH: usize = Packet::LENGTH + SECTION;

/// Form of the authentication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuthenticationType {
    /// Keyed SHA1: a packet may be repeated until the next change.
    KeyedSha1,
    /// Meticulous keyed SHA1: each packet has a number of its own.
    #[default]
    MeticulousKeyedSha1,
}

impl AuthenticationType {
    fn code(self) -> u8 {
        match self {
            Self::KeyedSha1 => 4,
            Self::MeticulousKeyedSha1 => 5,
        }
    }
}

/// Key of a session.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    id: u8,
    secret: [u8; HASH],
}

impl Key {
    /// Maximum length of a secret in bytes.
    pub const LONGEST: usize = HASH;

    /// Key with an id; `None` if the secret is empty or longer than [`Key::LONGEST`].
    pub fn new(id: u8, secret: &[u8]) -> Option<Self> {
        let mut padded = [0; HASH];
        padded.get_mut(..secret.len())?.copy_from_slice(secret);
        (!secret.is_empty()).then_some(Self { id, secret: padded })
    }

    /// Hash of an authenticated packet, with the secret in place of the hash.
    fn hash(&self, octets: &[u8; SEALED_LENGTH]) -> [u8; HASH] {
        let mut hash = Sha1::new();
        hash.update(&octets[..HASH_AT]);
        hash.update(self.secret);
        hash.finalize().into()
    }
}

/// Prints the id without the secret.
impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Key {}", self.id)
    }
}

/// Sequence numbers of a session, for a successor process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceNumbers {
    /// Number of the last packet sent.
    pub sent: u32,
    /// Number of the last packet accepted; `None` if unknown.
    pub received: Option<u32>,
}

/// Keys and sequence numbers of the local end of a session.
#[derive(Clone, Debug)]
pub struct Authentication {
    kind: AuthenticationType,
    keys: Vec<Key>,
    numbers: SequenceNumbers,
    /// Time until which the received number is valid.
    until: Nanos,
}

impl Authentication {
    /// Authentication that continues after `numbers`. The first key is used for sending; all keys are
    /// accepted.
    pub fn new(kind: AuthenticationType, keys: Vec<Key>, numbers: SequenceNumbers, until: Nanos) -> Self {
        Self { kind, keys, numbers, until }
    }

    /// Replaces the type and the keys.
    pub fn set(&mut self, kind: AuthenticationType, keys: &[Key]) {
        self.kind = kind;
        self.keys.clear();
        self.keys.extend_from_slice(keys);
    }

    /// Current sequence numbers.
    pub fn numbers(&self) -> SequenceNumbers {
        self.numbers
    }

    /// Adds the authentication section to a packet; `None` without a key.
    pub fn seal(&mut self, packet: &Packet) -> Option<[u8; SEALED_LENGTH]> {
        let key = self.keys.first()?;
        // Also for the plain type, which may repeat a number but need not.
        self.numbers.sent = self.numbers.sent.wrapping_add(1);
        let mut octets = [0; SEALED_LENGTH];
        let (head, section) = octets.split_at_mut(Packet::LENGTH);
        head.copy_from_slice(&packet.write());
        head[1] |= Packet::AUTHENTICATION;
        head[3] = length(SEALED_LENGTH);
        section[..4].copy_from_slice(&[self.kind.code(), length(SECTION), key.id, 0]);
        section[4..8].copy_from_slice(&self.numbers.sent.to_be_bytes());
        let hash = key.hash(&octets);
        octets[HASH_AT..].copy_from_slice(&hash);
        Some(octets)
    }

    /// Sequence number of a valid packet; `None` for a wrong key, hash or sequence number.
    pub fn verify(&self, octets: &[u8], now: Nanos) -> Option<u32> {
        let octets: &[u8; SEALED_LENGTH] = octets.first_chunk()?;
        let [flags, multiplier, whole] = [octets[1], octets[2], octets[3]];
        let [kind, own, id, _, a, b, c, d] = *octets[Packet::LENGTH..].first_chunk()?;
        let is_sealed = flags & Packet::AUTHENTICATION != 0;
        let is_alike = [whole, kind, own] == [length(SEALED_LENGTH), self.kind.code(), length(SECTION)];
        let key = self.keys.iter().find(|key| key.id == id).filter(|_| is_sealed && is_alike)?;
        let number = u32::from_be_bytes([a, b, c, d]);
        self.is_next(number, multiplier, now).then_some(())?;
        let pairs = key.hash(octets).into_iter().zip(octets[HASH_AT..].iter());
        // All bytes are compared, in constant time.
        let differing = pairs.fold(0, |differing, (ours, theirs)| differing | (ours ^ theirs));
        (differing == 0).then_some(number)
    }

    /// Records the number of an accepted packet, valid until `until`.
    pub fn note(&mut self, number: u32, until: Nanos) {
        (self.numbers.received, self.until) = (Some(number), until);
    }

    fn is_next(&self, number: u32, multiplier: u8, now: Nanos) -> bool {
        let Some(last) = self.numbers.received.filter(|_| now < self.until) else { return true };
        let first = u32::from(self.kind == AuthenticationType::MeticulousKeyedSha1);
        (first..=3 * u32::from(multiplier)).contains(&number.wrapping_sub(last))
    }
}

/// Converts the length of a packet's part, which fits in a byte.
const fn length(octets: usize) -> u8 {
    octets.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use AuthenticationType::{KeyedSha1, MeticulousKeyedSha1};
    use proptest::prelude::*;

    const PACKET: Packet = Packet {
        diagnostic: super::super::Diagnostic::NONE,
        state: super::super::State::Down,
        poll: false,
        is_final: false,
        control_plane_independent: false,
        is_authenticated: false,
        demand: false,
        multiplier: 3,
        my_discriminator: 1,
        your_discriminator: 0,
        desired_min_tx: 1_000_000,
        required_min_rx: 300_000,
        required_min_echo_rx: 0,
    };

    fn key(id: u8, secret: &str) -> Key {
        Key::new(id, secret.as_bytes()).expect("a secret that fits")
    }

    fn end(kind: AuthenticationType, keys: &[Key], sent: u32) -> Authentication {
        let numbers = SequenceNumbers { sent, received: None };
        Authentication::new(kind, keys.to_vec(), numbers, Nanos(0))
    }

    /// Takes a packet as a session does.
    fn take(end: &mut Authentication, octets: &[u8], now: Nanos) -> bool {
        let number = end.verify(octets, now);
        number.into_iter().for_each(|number| end.note(number, now + Nanos(100)));
        number.is_some()
    }

    /// The hash is that of `sha1sum` over the packet with the padded key.
    #[test]
    fn fields_stand_where_the_rfc_has_them() {
        let mut end = end(MeticulousKeyedSha1, &[key(7, "geheim")], 0x0102_0304);
        let octets = end.seal(&PACKET).expect("a key");
        assert_eq!(octets[..4], [0x20, 0x44, 3, 52]);
        assert_eq!(octets[24..32], [5, 28, 7, 0, 1, 2, 3, 5]);
        assert_eq!(octets[32..], GEHEIM, "{:02x?}", &octets[32..]);
        let read = Packet::read(&octets).expect("valid");
        assert_eq!(read, Packet { is_authenticated: true, ..PACKET });
    }

    /// `sha1sum` of the packet above.
    const GEHEIM: [u8; HASH] = [
        0xf0, 0x5d, 0x97, 0x5c, 0x92, 0x2b, 0xa2, 0x79, 0xeb, 0x26, 0x55, 0x38, 0xbf, 0x03, 0xcf, 0xbd, 0x0b,
        0xbf, 0x6c, 0x55,
    ];

    #[test]
    fn secrets_have_a_length() {
        assert!(Key::new(1, b"").is_none() && Key::new(1, &[7; HASH + 1]).is_none());
        assert!(Key::new(1, &[7; HASH]).is_some());
        assert_eq!(format!("{:?}", key(3, "geheim")), "Key 3");
    }

    #[test]
    fn a_recorded_packet_is_refused() {
        for (kind, is_repeated_refused) in [(KeyedSha1, false), (MeticulousKeyedSha1, true)] {
            let keys = [key(1, "a")];
            let (mut ours, mut theirs) = (end(kind, &keys, 9), end(kind, &keys, u32::MAX - 1));
            let packets = [0; 12].map(|_| theirs.seal(&PACKET).expect("a key"));
            let now = Nanos(1);
            assert!(take(&mut ours, &packets[1], now));
            assert_eq!(!take(&mut ours, &packets[1], now), is_repeated_refused);
            assert!(!take(&mut ours, &packets[0], now), "one of before");
            assert!(!take(&mut ours, &packets[11], now), "ten behind, where nine are the most");
            assert!(take(&mut ours, &packets[10], now), "nine behind, past the largest number");
            assert!(!take(&mut ours, &packets[2], Nanos(100)) && take(&mut ours, &packets[2], Nanos(101)));
        }
    }

    #[test]
    fn keys_take_turns() {
        let (old, new) = (key(1, "old"), key(2, "new"));
        let mut ours = end(MeticulousKeyedSha1, std::slice::from_ref(&old), 0);
        let mut theirs = end(MeticulousKeyedSha1, &[new.clone(), old.clone()], 0);
        let packet = theirs.seal(&PACKET).expect("a key");
        assert!(!take(&mut ours, &packet, Nanos(0)));
        ours.set(MeticulousKeyedSha1, &[old, new]);
        assert!(take(&mut ours, &packet, Nanos(0)));
        let answer = ours.seal(&PACKET).expect("a key");
        assert!(take(&mut theirs, &answer, Nanos(0)));
        assert!(end(KeyedSha1, &[], 0).seal(&PACKET).is_none());
    }

    proptest! {
        /// Whatever octet changes, and whatever bit of it, the packet is refused.
        #[test]
        fn a_packet_that_was_changed_is_refused(at in 0..SEALED_LENGTH, bit in 0..8_u8, secret in "[a-z]{1,20}") {
            let keys = [key(1, &secret)];
            let mut theirs = end(MeticulousKeyedSha1, &keys, 5);
            let ours = end(MeticulousKeyedSha1, &keys, 0);
            let mut octets = theirs.seal(&PACKET).expect("a key");
            prop_assert_eq!(ours.verify(&octets, Nanos(0)), Some(6));
            prop_assert_eq!(ours.verify(&octets[..SEALED_LENGTH - 1], Nanos(0)), None);
            octets[at] ^= 1 << bit;
            prop_assert_eq!(ours.verify(&octets, Nanos(0)), None);
        }
    }
}
