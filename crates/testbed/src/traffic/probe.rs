//! Probe in a measured packet: its stream, its number, and the time at which it was due.
//!
//! | bytes | field |
//! |---|---|
//! | 0–1 | mark `0x706c` |
//! | 2–3 | stream |
//! | 4–9 | number |
//! | 10–17 | time, nanoseconds of the monotonic clock |
//!
//! 18 bytes: exactly what UDP over IPv4 leaves of a 64-byte Ethernet frame.

/// Bytes of a probe.
pub const PROBE_BYTES: usize = 18;

pub(super) const MARK: u16 = 0x706c;

/// The head of a measured packet's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Number of the stream.
    pub stream: u16,
    /// Number of the packet in the stream, from 0; 48 bits.
    pub number: u64,
    /// Time at which the packet was to be sent: late senders do not hide latency (coordinated omission).
    pub due: u64,
}

impl Probe {
    /// Writes the probe to the front of `payload`.
    ///
    /// # Panics
    /// When `payload` is shorter than [`PROBE_BYTES`].
    #[inline]
    pub fn write(&self, payload: &mut [u8]) {
        payload[..2].copy_from_slice(&MARK.to_be_bytes());
        payload[2..4].copy_from_slice(&self.stream.to_be_bytes());
        payload[4..10].copy_from_slice(&self.number.to_be_bytes()[2..]);
        payload[10..18].copy_from_slice(&self.due.to_be_bytes());
    }

    /// Reads the probe at the front of `payload`; `None` for any other packet.
    #[inline]
    pub fn read(payload: &[u8]) -> Option<Self> {
        let bytes = payload.first_chunk::<PROBE_BYTES>()?;
        let [m0, m1, s0, s1, n0, n1, n2, n3, n4, n5, due @ ..] = *bytes;
        (u16::from_be_bytes([m0, m1]) == MARK).then_some(Self {
            stream: u16::from_be_bytes([s0, s1]),
            number: u64::from_be_bytes([0, 0, n0, n1, n2, n3, n4, n5]),
            due: u64::from_be_bytes(due),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_read_as_it_was_written() {
        let probe = Probe { stream: 0xabcd, number: 0x1234_5678_9abc, due: u64::MAX - 1 };
        let mut payload = [0; PROBE_BYTES];
        probe.write(&mut payload);
        assert_eq!(Probe::read(&payload), Some(probe));
        payload[0] ^= 1;
        assert_eq!(Probe::read(&payload), None);
        assert_eq!(Probe::read(&payload[..17]), None);
    }
}
