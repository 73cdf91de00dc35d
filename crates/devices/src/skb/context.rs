//! Offsets in the context of a program (`struct __sk_buff`) that the readers of frames share.

/// Bytes of the packet.
pub(super) const LENGTH: i16 = 0;
/// EtherType of the packet, in network byte order.
pub(super) const PROTOCOL: i16 = 16;
/// Start of the packet's linear bytes.
pub(super) const DATA: i16 = 76;
/// End of the packet's linear bytes.
pub(super) const DATA_END: i16 = 80;
