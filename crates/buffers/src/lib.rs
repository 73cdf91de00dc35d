//! Packet memory: ready before it is needed, owned by exactly one name, released in bulk.
//!
//! A [`Region`] is one mapping that is cut into slots of equal size. A [`Frame`] is the only live
//! name of one slot: it can be moved, never copied. A [`Packet`] is a chain of frames with the
//! metadata of a journey; a [`Batch`] is up to [`BATCH`] packets in order. Each worker owns a
//! [`Pool`], a cache of free slots that exchanges whole magazines with the other workers.
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
//! assert_eq!(region.home(), 128);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Small pieces come from a [`FragmentMemory`]: a fragment is a [`Frame`] as well, so packets are
//! made, chained and released alike, whatever they lie in.
//!
//! # What an auditor reads
//! `unsafe` stands in six files: `mapping` (memory from the system), `frame/table` (addresses of frames),
//! `batch` (packets are written where they stay, and moved from there), `ring` (cells of the hand-off ring), `work_queue` (boxes in
//! a queue that any thread empties) and `prefetch` (hints). Everything else is safe code over them.
//!
//! # Ownership in one paragraph
//! A slot is in exactly one place: in a pool or a magazine (free), in a driver's table (posted to a
//! device), in a packet (in the path), in a ring between workers, or asleep without memory. The move of a [`Frame`] is the
//! move of the slot. Dropping a frame is legal anywhere and sends the slot home over a list that any
//! thread may push to; it is counted in [`Region::strays`], because the steady path releases in bulk.

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
    Account, Acting, BufferManager, BufferOptions, ClassBuffers, Kind, WHEREABOUTS, Whereabouts,
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
