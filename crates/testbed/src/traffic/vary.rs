//! A field of packets that differs from one to the next, by what was drawn beforehand.

/// Field that differs from packet to packet, of a frame without tags and without a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vary {
    /// Destination of IPv4: four bytes of a draw.
    DestinationV4,
    /// Destination of IPv6: a whole draw.
    DestinationV6,
    /// Destination and source of Ethernet: twelve bytes of a draw.
    Stations,
}

/// Bytes of a packet that differ: of IPv4 destinations, the header's checksum is behind the address.
pub type Draw = [u8; 16];

/// Offset of a checksum of IPv4 in such a frame.
const CHECKSUM_V4: usize = 24;

impl Vary {
    /// Offsets in a draw and in a frame, and numbers of bytes.
    pub fn places(self) -> &'static [(usize, usize, usize)] {
        match self {
            Self::DestinationV4 => &[(0, 30, 4), (4, CHECKSUM_V4, 2)],
            Self::DestinationV6 => &[(0, 38, 8), (8, 46, 8)],
            Self::Stations => &[(0, 0, 8), (8, 8, 4)],
        }
    }

    /// Puts the checksums behind the destinations of draws for packets like `template`, whose destination is 0.0.0.0: a
    /// source copies, and does not compute.
    pub fn complete(self, draws: &mut [Draw], template: &[u8]) {
        if self == Self::DestinationV4 {
            let checksum = u16::from_be_bytes([template[CHECKSUM_V4], template[CHECKSUM_V4 + 1]]);
            draws.iter_mut().for_each(|draw| put_checksum(draw, checksum));
        }
    }
}

fn put_checksum(draw: &mut Draw, checksum: u16) {
    let destination = u32::from_be_bytes([draw[0], draw[1], draw[2], draw[3]]);
    let checksum = polder_datapath::wire::checksum::update_u32(checksum, 0, destination);
    draw[4..6].copy_from_slice(&checksum.to_be_bytes());
}
