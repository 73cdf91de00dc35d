//! Errors of creating a region.

/// Maximum number of regions per process, plus one: identity 0 is never used.
pub(crate) const REGIONS: usize = 256;

/// Error of creating a region.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The slot size is not a power of two from 512 to 32 768.
    #[error("invalid slot size of {0} bytes for packet memory: use a power of two from 512 to 32768")]
    SlotBytes(u32),
    /// The number of slots is 0 or exceeds 2²⁴.
    #[error("invalid number of packet memory slots {0}: use 1 to 16777216")]
    Slots(u32),
    /// The page size is not supported by the system, or exceeds 64 KiB.
    #[error(
        "invalid page size of {0} bytes for packet memory: use a power of two from the system's page size to 65536"
    )]
    PageBytes(usize),
    /// The system has too little memory.
    #[error("cannot map {bytes} bytes of packet memory: {source}; lower the memory setting or free memory")]
    Map {
        /// Requested bytes.
        bytes: usize,
        /// Error of the system.
        source: rustix::io::Errno,
    },
    /// The process has too many regions.
    #[error("the process has {} regions of packet memory, the maximum", REGIONS - 1)]
    TooMany,
    /// The number of blocks is 0 or exceeds 2¹⁹.
    #[error("invalid number of fragment blocks {0} in packet memory: use 1 to 524288")]
    Blocks(u32),
    /// The number of blocks held by a worker is out of range.
    #[error("invalid number of fragment blocks per worker {0}: use 1 to 64")]
    HeldBlocks(u8),
    /// The boundary of fragments is out of range.
    #[error("invalid boundary of {0} bytes that no fragment may cross: use a power of two from 64 to 32768")]
    NeverCross(u32),
}
