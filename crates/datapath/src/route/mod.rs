//! Routes: the longest prefix, the hop behind it, and what an IP router does to a packet.
//!
//! ```text
//!  control thread                                  │ worker, for each batch
//!                                                  │
//!  Router ── insert, remove ──▶ Fib (v4, v6) ──────┼─▶ which way       in place, readers never stop
//!    │  ──── add_next_hop, replace_next_hop ─▶ Next hops ─────────┼─▶ which hop       replaced whole
//!  Neighbours ── set ──▶ NextHop ──────────────────┼─▶ which address   one atomic word
//!    ▲                                             │
//!    └───── Notices: wanted, heard, silent ◀───────┼── packets wait, few of them
//!  Routers in Tables (interfaces) ─────────────────┼─▶ what is mine    replaced whole, with a reload
//! ```
//!
//! # For who writes it
//!
//! One [`Router`] a VRF, made once and kept over reloads; all calls come from one control thread.
//!
//! ```
//! use polder_buffers::PortId;
//! use polder_datapath::route::{
//!     Interface, InterfaceId, Neighbours, OwnAddress, Owner, Prefix, Router, RouterId, Routers, SourceCheck, NextHopEntry,
//! };
//! use polder_datapath::units::Nanos;
//! use polder_datapath::wire::MacAddress;
//!
//! let lan = Interface {
//!     id: InterfaceId::untagged(PortId(0)),
//!     router: RouterId(0),
//!     mac: MacAddress([2, 0, 0, 0, 0, 1]),
//!     mtu: 1500,
//!     addresses: vec![OwnAddress { address: [192, 168, 1, 1].into(), bits: 24 }],
//!     owner: Owner::Polder,
//!     sources: SourceCheck::default(),
//! };
//! let (mut router, mut neighbours) = (Router::new(), Neighbours::new());
//!
//! // Into `Tables` goes what workers need; a table with the same `access` continues with the same routes.
//! let routers = Routers::new([router.access()], [lan.clone()])?;
//!
//! // The interface's network and addresses, as the kernel's own tables have them.
//! router.connect(&lan);
//!
//! // A default route by a gateway. The hop works from the moment that its address is known.
//! let gateway = [192, 168, 1, 254].into();
//! let way = router.add_next_hop(NextHopEntry::Hop(neighbours.hop(&lan, gateway))).expect("fewer than 2³¹");
//! router.insert(Prefix::new([0, 0, 0, 0].into(), 0)?, way);
//! neighbours.set(&mut router, &lan, gateway, MacAddress([2, 0, 0, 0, 0, 9]), (Nanos(0), true));
//!
//! // Now and then, and when `Notices::set_waker` says so:
//! for notice in router.notices().take() {
//!     neighbours.handle(&mut router, &lan, notice, Nanos(0));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * **What the kernel says, and what it is here.** A route with one gateway: `NextHopEntry::Hop`. Without a gateway,
//!   `scope link`: [`NextHopEntry::Connected`]. Nexthop group: hops added one by one, then [`NextHopEntry::Group`];
//!   [`NextHopGroup::with_members`] keeps flows where they are. `blackhole`, `unreachable`, `prohibit`: the same.
//!   Type `local`: [`NextHopEntry::Local`]. Type `broadcast`, `anycast`: [`NextHopEntry::Broadcast`], [`NextHopEntry::Local`].
//!   Many routes by one gateway share one way.
//! * **Neighbours.** A kernel's neighbour that becomes `REACHABLE`, `STALE`, `DELAY`, `PROBE` or
//!   `PERMANENT`: [`Neighbours::set`] with `is_permanent`; one that goes or fails: [`Neighbours::forget`].
//!   [`Notice::Wanted`] on an interface of the kernel's: make the kernel ask (an empty datagram to the
//!   address, or `RTM_NEWNEIGH` with `NUD_NONE` and `NTF_USE`).
//! * **When an interface changes**, hops have to be made anew, because they carry its address and MTU.
//! * **Interfaces of the kernel's** get all that is for the machine or for groups from the port `host`, if
//!   there is one; else it is dropped as `to-host`, because the XDP program has left it to the kernel before.
//! * **Tunnels without Ethernet** are interfaces as well. Inside the gateway their packets have an Ethernet
//!   header of 14 bytes: destination is the interface's `mac`, source zero, type that of the packet. The
//!   neighbour's `NextHop` of such an interface is known from the start, and may be zero.
//!
//! # What the stage does
//!
//! [`route`] works on packets that came in by a router's interface and leaves all others alone. What it
//! refuses and why is in [`drops`](crate::drops), stage `route`; what it decides is in
//! `docs/adr/0014-routing-stage.md`. The structure of the tables is in `docs/adr/0011-fib.md`.

mod interface;
mod prefix;
mod routers;
mod specials;

mod explain;

mod arena;
mod branch;
mod fib;
mod next_hops;
mod view;

mod neighbours;
mod notices;
mod router;

mod check;
mod decide;
mod discover;
mod echo;
mod error;
mod fragment;
mod local;
mod lookups;
mod multipath;
mod options;
mod send;
mod sources;
mod waiting;

mod state;

mod stage;

mod hold;
mod onward;
mod plain;
mod sort;

mod publish;

pub use explain::{Found, Lookup};
pub use fib::{Fib, FibHandle, FibReader};
pub use interface::{
    Interface, InterfaceId, LEAST_MTU, OwnAddress, Owner, ReversePath, RouterId, SourceCheck,
};
pub use multipath::HashPolicy;
pub use neighbours::{Neighbour, Neighbours};
pub use next_hops::{Hop, KernelRoute, NextHopEntry, NextHopGroup, NextHopGroupError, NextHopTable};
pub use notices::{Notice, Notices};
pub use onward::Sent;
pub use prefix::{BadPrefix, Prefix};
pub use publish::{PairDecisions, PairTables};
pub use router::{Router, RouterAccess};
pub use routers::{Routers, RoutersError};
pub use specials::Special;
pub use stage::route;
pub use state::RouteState;
pub use view::View;

/// Result of a look-up; an index of [`NextHopTable`]. 31 bits; 0 is "no route".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NextHopId(u32);

impl NextHopId {
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
