//! Routes: the longest prefix, the hop behind it, and what an IP router does to a packet.
//!
//! [`Fib`] is one table of one family, written by a control thread; workers look up through a
//! [`FibReader`], which no update ever stops. What a look-up finds is a [`WayId`]; [`Ways`] says what that
//! is: a hop, a group of hops that share flows, or an end. A way outlives the routes that lead to it, so a
//! next hop that changes touches no table. Ids of tables (VRFs) are the caller's: a router has one `Fib` a
//! table and family.
//!
//! The data structure, who owns it and its memory order are in `docs/adr/0011-fib.md`.

mod arena;
mod branch;
mod fib;
mod view;
mod ways;

pub use fib::{BadPrefix, Fib, FibReader, Prefix};
pub use view::View;
pub use ways::{Group, GroupError, Hop, Way, Ways};

/// What a look-up finds; an index of [`Ways`]. 31 bits; 0 is "no route".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WayId(u32);

impl WayId {
    /// No route leads there.
    pub const NONE: Self = Self(0);

    /// The way of that number; `None` from 2³¹ on.
    pub const fn new(number: u32) -> Option<Self> {
        if number < arena::NODE { Some(Self(number)) } else { None }
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }
}
