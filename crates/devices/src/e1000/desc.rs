//! Descriptors, defined once for driver and model: two words of 64 bits each.
//!
//! The first word of a descriptor with data is a buffer's I/O address; this file has the second words, and
//! both words of a context. A second word is read in one load, so that its fields are consistent.
//!
//! Source: 8254x SDM, 3.2.3 (receive), 3.3.3 (legacy transmit), 3.3.6 (context), 3.3.7 (data).

/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 16;
/// Maximum length of one transmit buffer in bytes (3.3.3).
pub const LONGEST_BUFFER: u16 = 16_288;

/// Second word of a receive descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxWord(pub u64);

/// Status bits of a receive descriptor (3.2.3.1).
pub mod rx_status {
    /// The descriptor has been written back.
    pub const DONE: u8 = 0x01;
    /// The frame ends here.
    pub const END: u8 = 0x02;
    /// No checksum was checked.
    pub const NO_CHECKSUM: u8 = 0x04;
    /// A tag has been removed.
    pub const VLAN: u8 = 0x08;
    /// The TCP or UDP checksum was checked.
    pub const TRANSPORT: u8 = 0x20;
    /// The IPv4 header checksum was checked.
    pub const IP: u8 = 0x40;
}

/// Error bits of a receive descriptor (3.2.3.2).
pub mod rx_error {
    /// The frame was damaged on the wire: FCS, symbol, sequence, carrier extension, data.
    pub const DAMAGED: u8 = 0x01 | 0x02 | 0x04 | 0x10 | 0x80;
    /// The TCP or UDP checksum is wrong.
    pub const TRANSPORT: u8 = 0x20;
    /// The IPv4 header checksum is wrong.
    pub const IP: u8 = 0x40;
}

impl RxWord {
    /// Creates a word of these fields.
    pub fn new(length: u16, status: u8, errors: u8, tag: u16) -> Self {
        let word = u64::from(status) << 32 | u64::from(errors) << 40 | u64::from(tag) << 48;
        Self(word | u64::from(length))
    }

    /// Returns the number of bytes in this buffer.
    #[inline(always)]
    pub fn length(self) -> u16 {
        let [low, high, ..] = self.0.to_le_bytes();
        u16::from_le_bytes([low, high])
    }

    /// Returns the status bits.
    #[inline(always)]
    pub fn status(self) -> u8 {
        self.0.to_le_bytes()[4]
    }

    /// Returns the error bits.
    #[inline(always)]
    pub fn errors(self) -> u8 {
        self.0.to_le_bytes()[5]
    }

    /// Returns the removed tag.
    #[inline(always)]
    pub fn tag(self) -> u16 {
        let [.., low, high] = self.0.to_le_bytes();
        u16::from_le_bytes([low, high])
    }

    /// True if the device has written the descriptor back.
    #[inline(always)]
    pub fn is_done(self) -> bool {
        self.status() & rx_status::DONE != 0
    }

    /// True if the frame ends in this buffer.
    #[inline(always)]
    pub fn is_end(self) -> bool {
        self.status() & rx_status::END != 0
    }
}

/// Command bits of a transmit descriptor, in bits 24 to 31 of its second word.
pub mod tx_command {
    /// The packet ends here.
    pub const END: u64 = 0x01 << 24;
    /// The device appends the FCS.
    pub const INSERT_FCS: u64 = 0x02 << 24;
    /// The packet is segmented (data and context).
    pub const SEGMENT: u64 = 0x04 << 24;
    /// The device reports completion of this descriptor.
    pub const REPORT: u64 = 0x08 << 24;
    /// A data or context descriptor.
    pub const EXTENDED: u64 = 0x20 << 24;
    /// A tag is inserted (legacy and data).
    pub const VLAN: u64 = 0x40 << 24;
    /// The packet is TCP (context).
    pub const TCP: u64 = 0x01 << 24;
    /// The packet is IPv4 (context).
    pub const IPV4: u64 = 0x02 << 24;
}

/// Type field of an extended descriptor.
pub const TX_TYPE: u64 = 0xf << 20;
/// Type of a data descriptor.
pub const TX_DATA: u64 = 1 << 20;
/// Status: the descriptor is completed.
pub const TX_DONE: u64 = 1 << 32;
/// Option of a data descriptor: the IPv4 header checksum is inserted.
pub const TX_INSERT_IP: u64 = 1 << 40;
/// Option of a data descriptor: the transport checksum is inserted.
pub const TX_INSERT_TRANSPORT: u64 = 2 << 40;
/// Length field of a legacy descriptor.
pub const TX_LEGACY_LENGTH: u64 = 0xffff;
/// Length field of a data or context descriptor.
pub const TX_LENGTH: u64 = 0xf_ffff;

/// Offsets of checksums, and segment sizes (3.3.6). All offsets are in bytes from the start of the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Start of the IPv4 header.
    pub ip_start: u8,
    /// Offset of the IPv4 checksum.
    pub ip_field: u8,
    /// Offset of the IPv4 header's last byte.
    pub ip_end: u16,
    /// Start of the transport header.
    pub transport_start: u8,
    /// Offset of the transport checksum.
    pub transport_field: u8,
    /// Payload bytes of a segment; 0 for a packet that is not segmented.
    pub segment: u16,
    /// Bytes of all headers of a super-packet.
    pub headers: u8,
    /// Payload bytes of a super-packet.
    pub payload: u32,
    /// True for IPv4.
    pub is_ipv4: bool,
    /// True for TCP.
    pub is_tcp: bool,
}

impl Context {
    /// Returns the two words of the descriptor.
    pub fn words(&self) -> [u64; 2] {
        let first = u64::from(self.ip_start)
            | u64::from(self.ip_field) << 8
            | u64::from(self.ip_end) << 16
            | u64::from(self.transport_start) << 32
            | u64::from(self.transport_field) << 40;
        let mut second = tx_command::EXTENDED | u64::from(self.payload) & TX_LENGTH;
        second |= u64::from(self.headers) << 40 | u64::from(self.segment) << 48;
        second |= if self.segment > 0 { tx_command::SEGMENT } else { 0 };
        second |= if self.is_ipv4 { tx_command::IPV4 } else { 0 };
        second |= if self.is_tcp { tx_command::TCP } else { 0 };
        [first, second]
    }

    /// Parses two words.
    pub fn parse([first, second]: [u64; 2]) -> Self {
        let [ip_start, ip_field, end_low, end_high, transport_start, transport_field, ..] =
            first.to_le_bytes();
        let [.., headers, segment_low, segment_high] = second.to_le_bytes();
        let is_cut = second & tx_command::SEGMENT != 0;
        Self {
            ip_start,
            ip_field,
            ip_end: u16::from_le_bytes([end_low, end_high]),
            transport_start,
            transport_field,
            segment: if is_cut { u16::from_le_bytes([segment_low, segment_high]) } else { 0 },
            headers,
            payload: u32::try_from(second & TX_LENGTH).unwrap_or(0),
            is_ipv4: second & tx_command::IPV4 != 0,
            is_tcp: second & tx_command::TCP != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_where_the_manual_has_them() {
        let word = RxWord::new(0x1234, rx_status::DONE | rx_status::VLAN, rx_error::IP, 0x0fed);
        assert_eq!(word.0, 0x0fed_4009_0000_1234);
        assert_eq!((word.length(), word.tag(), word.errors()), (0x1234, 0x0fed, rx_error::IP));
        assert!(word.is_done() && !word.is_end());
        let context = Context {
            ip_start: 14,
            ip_field: 24,
            ip_end: 33,
            transport_start: 34,
            transport_field: 50,
            segment: 1460,
            headers: 54,
            payload: 65_000,
            is_ipv4: true,
            is_tcp: true,
        };
        assert_eq!(context.words(), [0x0000_3222_0021_180e, 0x05b4_3600_2700_fde8]);
    }

    proptest! {
        #[test]
        fn contexts_survive_the_way_through_memory(
            (ip_start, ip_field, ip_end) in any::<(u8, u8, u16)>(),
            (transport_start, transport_field) in any::<(u8, u8)>(),
            (segment, headers, payload) in (any::<u16>(), any::<u8>(), 0_u32..1 << 20),
            (is_ipv4, is_tcp) in any::<(bool, bool)>(),
        ) {
            let context = Context {
                ip_start, ip_field, ip_end, transport_start, transport_field, segment, headers, payload, is_ipv4, is_tcp,
            };
            prop_assert_eq!(Context::parse(context.words()), context);
        }
    }
}
