//! Bits of [`Packet::flags`](polder_buffers::Packet::flags), by which a stage informs later stages.

/// The GRE sequence number must be filled in.
pub const NEEDS_SEQUENCE: u8 = 1 << 0;

/// The packet is a copy of a flooded frame. Its destination may be on any bridge port, so the gateway sends
/// no ICMP error about it.
pub const FLOODED: u8 = 1 << 1;

/// A flooded frame that is not sent by its ingress, a hairpin port, because the port's limit is used up.
pub const NOT_REFLECTED: u8 = 1 << 3;

/// A message that the gateway sends in a station's name; the bridge does not learn from it. A batch contains
/// only own messages or none.
pub const OWN_MESSAGE: u8 = 1 << 2;
