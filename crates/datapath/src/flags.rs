//! Bits of [`Packet::flags`](polder_buffers::Packet::flags), by which one stage tells later ones about a packet.

/// The GRE sequence number is to be filled in.
pub const NEEDS_SEQUENCE: u8 = 1 << 0;

/// One of several copies of a flooded frame. Its destination may be on any member, so the gateway answers it with no
/// message of its own.
pub const FLOODED: u8 = 1 << 1;

/// A flooded frame that does not leave by the hairpin port that it came in by: the port's limit is used up.
pub const NOT_REFLECTED: u8 = 1 << 3;

/// A message that the gateway made in a station's name. The bridge learns nothing from it. A batch consists of such
/// packets or has none.
pub const OWN_MESSAGE: u8 = 1 << 2;
