//! Packet memory: allocated ahead of use, each buffer with exactly one owner, released in bulk.
//!
//! A [`Region`] is one mapping, divided into slots of equal size. A [`Frame`] is the owner of one slot: it
//! can be moved but not copied. A [`Packet`] is a chain of frames with metadata; a [`Batch`] is up to
//! [`BATCH`] packets in order. Each worker owns a [`Pool`], a cache of free slots that exchanges whole
//! magazines with other workers.
//!
//! ```
//! use polder_buffers::{Batch, Packet, Region, RegionOptions};
//!
//! let region = Region::new(RegionOptions { slots: 128, slot_bytes: 2048 })?;
//! let mut pool = region.pool();
//! let mut packet = Packet::new(pool.take().expect("128 slots are free"));
//! packet.append(5)?.copy_from_slice(b"hello");
//! packet.prepend(4)?.copy_from_slice(b"gre:");
//! assert_eq!(packet.bytes(), b"gre:hello");
//!
//! let mut batch = Batch::new();
//! batch.push(packet).expect("an empty batch has room");
//! pool.release(&mut batch);
//! drop(pool);
//! assert_eq!(region.free_slots(), 128);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Smaller buffers come from a [`FragmentMemory`]: a fragment is a [`Frame`] too, so packets are made,
//! chained and released alike with either kind of memory.
//!
//! # For auditors
//! `unsafe` is used in six files: `mapping` (memory from the system), `frame/table` (addresses of frames),
//! `batch` (packets written in place and moved), `ring` (cells of the hand-over ring), `work_queue` (boxes in
//! a queue that any thread empties) and `prefetch` (hints). All other code is safe.
//!
//! # Ownership
//! A slot is in exactly one place: in a pool or a magazine (free), in a driver's table (posted to a device),
//! in a packet, in a ring between workers, or asleep without memory. Moving a [`Frame`] moves the slot. A
//! frame may be dropped anywhere: its slot returns over a list to which any thread may push. Such late frees
//! are counted in [`Region::late_frees`], because the packet path releases in bulk.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("Polder is for 64-bit machines: filters of system calls are not available for others");

mod batch;
mod bits;
mod blocks;
mod depot;
#[cfg(all(test, not(loom)))]
mod emulated;
mod eventcount;
mod fragment;
mod frame;
mod gauge;
mod lend;
mod manager;
mod mapping;
mod packet;
mod policy;
mod pool;
mod pool_counters;
mod prefetch;
mod rates;
mod region;
mod region_error;
mod release;
mod reload;
mod remote_free;
pub mod reorder;
mod reserve;
pub mod ring;
mod slot_reserve;
pub mod snapshot;
mod stack;
mod switches;
mod sync;
mod trace;
pub mod work_queue;

pub use batch::{BATCH, Batch, Deal};
pub use depot::MAGAZINE;
pub use eventcount::EventCount;
pub use fragment::{FragmentMemory, FragmentOptions, Fragments, SharedFragments};
pub use frame::{Frame, SHARED_FRAMES};
pub use gauge::Gauge;
pub use lend::{Lender, Loan, NotLent};
pub use manager::{
    Acting, BUFFER_PLACES, BufferManager, BufferOptions, BufferPlace, BufferStats, ClassBuffers, Kind,
};
pub use mapping::large_vec;
pub use packet::{
    ChecksumState, Fronts, HEADROOM, NO_PORT, NoRoom, OuterHeaders, Packet, PortId, Segment, Segmentation,
    SegmentationKind, Segments, Tail, wire_packets,
};
pub use policy::{AllocationPolicy, ReserveOptions};
pub use pool::Pool;
pub use prefetch::prefetch;
pub use rates::Rates;
pub use region::{CLASSES, Class, ClassOptions, Region, RegionOptions};
pub use region_error::RegionError;
pub use reload::{Reloader, Waker};
pub use reserve::{Marks, ReserveCounts};
pub use switches::Switches;
