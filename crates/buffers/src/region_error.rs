//! Errors of making a region.

/// Regions that one process may have at a time. Identity 0 is never used.
pub(crate) const REGIONS: usize = 256;

/// Error of making a region.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// A slot size that is not a power of two from 512 to 32 768.
    #[error("slots of {0} bytes: the size has to be a power of two from 512 to 32768")]
    SlotBytes(u32),
    /// No slots, or more than 2²⁴.
    #[error("{0} slots: a region has 1 to 16777216")]
    Slots(u32),
    /// Pages that the system does not have, or that are larger than any system's.
    #[error("pages of {0} bytes: the size has to be a power of two from the system's page size to 65536")]
    PageBytes(usize),
    /// The system has no memory for it.
    #[error("cannot map {bytes} bytes of packet memory: {source}; lower the memory setting or free memory")]
    Map {
        /// Bytes that were asked for.
        bytes: usize,
        /// Error of the system.
        source: rustix::io::Errno,
    },
    /// The process has too many regions.
    #[error("a process has at most {} regions at a time", REGIONS - 1)]
    TooMany,
    /// No blocks for fragments, or more than 2¹⁹.
    #[error("{0} blocks for fragments: a memory has 1 to 524288")]
    Blocks(u32),
    /// More blocks for one worker than it can look through.
    #[error("{0} blocks held by a worker: 1 to 64")]
    HeldBlocks(u8),
    /// A limit that fragments cannot keep.
    #[error("fragments that never cross {0}: it has to be a power of two from 64 to 32768")]
    NeverCross(u32),
}
