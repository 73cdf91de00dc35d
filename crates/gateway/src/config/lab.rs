//! `[lab]`: techniques that are on, and can be turned off by themselves for measurements.

use super::keys::Reload::Restart;
use super::notation::{Boolean, Integer, OneOf};

const LAID_OUT: &str = "the packet memory is allocated at the start";
const FLOWS: &str = "flows in progress would change their worker and be reordered";
const TURNS: &str = "a worker cannot change how it divides its time while it runs";

section! {
    /// Techniques, for measurements; a gateway in use leaves all of them on.
    pub struct Lab("the options for measurements", "[lab]") {
        keys:
        /// True if packets of a flow that is spread leave in the order in which they came.
        restore_order: bool = true, Boolean => Restart(FLOWS);
        /// True if queues have turns of bounded time, with back-pressure.
        balance: bool = true, Boolean => Restart(TURNS);
        /// True if a worker leaves in a device what its destinations have no room for.
        back_pressure: bool = true, Boolean => Restart(TURNS);
        /// Part of the memory that grows which is kept ready.
        reserve_percent: u8 = 25, Integer(1..=100, "percent") => Restart(LAID_OUT);
        /// Part of the reserve below which a reload worker fills it up again.
        reload_below_percent: u8 = 67, Integer(1..=100, "percent") => Restart(LAID_OUT);
        /// Part of a receive ring below which it is refilled; 100, after every poll, is off.
        refill_below_percent: u8 = 67, Integer(1..=100, "percent") => Restart(LAID_OUT);
        /// Released frames are kept ready; off, they go back to the system.
        pool_frames: bool = true, Boolean => Restart(LAID_OUT);
        /// The same for the blocks of small pieces.
        pool_fragments: bool = true, Boolean => Restart(LAID_OUT);
        /// Reserves are filled by reload workers; off, once at the start, then by the packet path.
        reload: bool = true, Boolean => Restart(LAID_OUT);
        /// Control and data have a reload worker each, control with the higher priority; off, one for both.
        split_reload: bool = true, Boolean => Restart(LAID_OUT);
        /// Buffers that were released last are taken first; off, last.
        reuse: bool = true, Boolean => Restart(LAID_OUT);
        /// A block starts again as soon as nobody uses it; off, when it is used up.
        reset_when_alone: bool = true, Boolean => Restart(LAID_OUT);
        /// Blocks of 32 KiB; off, of 4 KiB; no smaller than a page of the kernel.
        large_blocks: bool = true, Boolean => Restart(LAID_OUT);
        /// The shared count is touched once a block; off, by each piece.
        biased_count: bool = true, Boolean => Restart(LAID_OUT);
        /// Single pages stand in when there is no block; off, nothing does.
        single_pages: bool = true, Boolean => Restart(LAID_OUT);
        /// Each worker carves blocks of its own; off, all of them one, behind a lock.
        own_fragments: bool = true, Boolean => Restart(LAID_OUT);
        /// Blocks that a worker holds at a time; 1 is off.
        held_blocks: u8 = 8, Integer(1..=64, "blocks") => Restart(LAID_OUT);
        /// Addresses whose multiples no small piece crosses; frames never cross 4096; 32768 is off.
        never_cross: u32 = 4096, OneOf(&[2048, 4096, 8192, 16_384, 32_768], "bytes") => Restart(LAID_OUT);
    }
}
