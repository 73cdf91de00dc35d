//! The hash of receive-side scaling (Microsoft, "RSS Hashing Functions"; key of "Verifying the RSS Hash
//! Calculation").
//!
//! Each set bit *i* of the input contributes the 32 key bits from bit *i* on. The contributions of all 256
//! values of each input byte are precomputed, so hashing takes one look-up and one XOR per byte.

/// Maximum length of the input in bytes: two IPv6 addresses and two ports.
pub const LONGEST_INPUT: usize = 36;
/// Length of a key in bytes.
pub const KEY_BYTES: usize = LONGEST_INPUT + 4;

/// Precomputed tables of a key.
#[derive(Clone)]
pub struct Toeplitz {
    places: Box<[[u32; 256]; LONGEST_INPUT]>,
}

impl Toeplitz {
    /// Microsoft's verification key, the default of many drivers.
    pub const VERIFICATION_KEY: [u8; KEY_BYTES] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    /// Key with a period of 16 bits: both directions of a connection have the same hash (Woo and Park,
    /// "Scalable TCP Session Monitoring with Symmetric Receive-side Scaling", 2012).
    pub const SYMMETRIC_KEY: [u8; KEY_BYTES] = {
        let mut key = [0x6d; KEY_BYTES];
        let mut odd = 1;
        while odd < KEY_BYTES {
            key[odd] = 0x5a;
            odd += 2;
        }
        key
    };

    /// Precomputes the tables of a key: 36 KiB.
    pub fn new(key: &[u8; KEY_BYTES]) -> Self {
        let mut places = Box::new([[0; 256]; LONGEST_INPUT]);
        for (place, values) in places.iter_mut().enumerate() {
            // The 40 key bits from which the bits of this byte select.
            let window =
                key[place..place + 5].iter().fold(0_u64, |window, &byte| window << 8 | u64::from(byte));
            for (byte, value) in values.iter_mut().enumerate() {
                let selected = (0..8).filter(|bit| byte >> (7 - bit) & 1 == 1);
                *value = selected.fold(0, |sum, bit| sum ^ word(window >> (8 - bit)));
            }
        }
        Self { places }
    }

    /// Hash of at most [`LONGEST_INPUT`] bytes; further bytes are ignored.
    #[inline]
    pub fn hash<'a>(&self, input: impl IntoIterator<Item = &'a u8>) -> u32 {
        self.places.iter().zip(input).fold(0, |sum, (place, &byte)| sum ^ place[usize::from(byte)])
    }
}

impl core::fmt::Debug for Toeplitz {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Toeplitz").finish_non_exhaustive()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
const fn word(window: u64) -> u32 {
    window as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    /// Microsoft's vectors: destination, source, hash of the addresses, hash with the ports.
    const VECTORS: [(&str, u16, &str, u16, u32, u32); 8] = [
        ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323e_8fc2, 0x51cc_c178),
        ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xd718_262a, 0xc626_b0ea),
        ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xd2d0_a5de, 0x5c2b_394a),
        ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x8298_9176, 0xafc7_327f),
        ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5d18_09c5, 0x10e8_28a2),
        ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2cc1_8cd5, 0x4020_7d3d),
        ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0f0c_461c, 0xdde5_1bbf),
        (
            "fe80::200:f8ff:fe21:67cf",
            38024,
            "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
            44251,
            0x4b61_e985,
            0x02d1_feef,
        ),
    ];

    fn bytes(address: &str) -> Vec<u8> {
        match address.parse().expect("an address") {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        }
    }

    fn input(from: (&str, u16), to: (&str, u16)) -> (Vec<u8>, Vec<u8>) {
        let addresses = [bytes(from.0), bytes(to.0)].concat();
        let ports = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
        (addresses.clone(), [addresses, ports].concat())
    }

    #[test]
    fn microsofts_vectors() {
        let toeplitz = Toeplitz::new(&Toeplitz::VERIFICATION_KEY);
        for (to, to_port, from, from_port, with_addresses, with_ports) in VECTORS {
            let (addresses, all) = input((from, from_port), (to, to_port));
            assert_eq!(toeplitz.hash(&addresses), with_addresses, "{from} to {to}");
            assert_eq!(toeplitz.hash(&all), with_ports, "{from}:{from_port} to {to}:{to_port}");
        }
    }

    #[test]
    fn the_symmetric_key_hashes_both_directions_alike_and_the_other_does_not() {
        let symmetric = Toeplitz::new(&Toeplitz::SYMMETRIC_KEY);
        let other = Toeplitz::new(&Toeplitz::VERIFICATION_KEY);
        for (to, to_port, from, from_port, ..) in VECTORS {
            let (_, there) = input((from, from_port), (to, to_port));
            let (_, back) = input((to, to_port), (from, from_port));
            assert_eq!(symmetric.hash(&there), symmetric.hash(&back));
            assert_ne!(other.hash(&there), other.hash(&back));
        }
    }
}
