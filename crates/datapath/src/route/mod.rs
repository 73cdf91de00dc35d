//! Routing: longest-prefix match, next hops, and the changes that an IP router makes to a packet.
//!
//! ```text
//!  control thread                                  │ worker, for each batch
//!                                                  │
//!  Router ── insert, remove ──▶ Fib (v4, v6) ──────┼─▶ route look-up   changed in place, readers never stop
//!    │  ──── add, replace_next_hop ──▶ Next hops ──┼─▶ next hop        replaced whole
//!  Neighbours ── set ──▶ NextHop ──────────────────┼─▶ MAC address     one atomic word
//!    ▲                                             │
//!    └───── Notices: wanted, heard, silent ◀───────┼── few waiting packets
//!  Routers in Tables (interfaces) ─────────────────┼─▶ own interfaces  replaced whole, with a reload
//! ```
//!
//! # For the control thread
//!
//! One [`Router`] per VRF, created once and kept over reloads; all calls come from one control thread.
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
//! // `Tables` get the workers' view; a table with the same `access` continues with the same routes.
//! let routers = Routers::new([router.access()], [lan.clone()])?;
//!
//! // The interface's network and addresses, as the kernel's own tables have them.
//! router.connect(&lan);
//!
//! // A default route by a gateway. Packets wait until its MAC address is known.
//! let gateway = [192, 168, 1, 254].into();
//! let way = router.add_next_hop(NextHopEntry::Hop(neighbours.hop(&lan, gateway))).expect("fewer than 2³¹");
//! router.insert(Prefix::new([0, 0, 0, 0].into(), 0)?, way);
//! neighbours.set(&mut router, &lan, gateway, MacAddress([2, 0, 0, 0, 0, 9]), (Nanos(0), true));
//!
//! // Periodically, and when the waker of `Notices::set_waker` is called:
//! for notice in router.notices().take() {
//!     neighbours.handle(&mut router, &lan, notice, Nanos(0));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * **Routes of the kernel.** One gateway: `NextHopEntry::Hop`. No gateway, `scope link`:
//!   [`NextHopEntry::Connected`]. Nexthop group: hops added one by one, then [`NextHopEntry::Group`];
//!   [`NextHopGroup::with_members`] keeps flows on their hops. `blackhole`, `unreachable`, `prohibit`:
//!   entries of the same name. Type `local`: [`NextHopEntry::Local`]. Type `broadcast`, `anycast`:
//!   [`NextHopEntry::Broadcast`], [`NextHopEntry::Local`]. Routes by the same gateway share one next hop.
//! * **Neighbours of the kernel.** State `REACHABLE`, `STALE`, `DELAY`, `PROBE` or `PERMANENT`:
//!   [`Neighbours::set`] with `is_permanent`; deleted or `FAILED`: [`Neighbours::forget`]. [`Notice::Wanted`]
//!   on a kernel interface: make the kernel resolve the address (by an empty datagram, or `RTM_NEWNEIGH` with
//!   `NUD_NONE` and `NTF_USE`).
//! * **After a change of an interface**, hops must be created again, because they contain its address and
//!   MTU.
//! * **Kernel interfaces**: packets for this machine or for groups go to the port `host` if there is one;
//!   otherwise they are dropped as `to-host`, because the XDP program passes them to the kernel before.
//! * **Tunnels without Ethernet** are interfaces as well. Inside the gateway their packets have an Ethernet
//!   header of 14 bytes: destination is the interface's `mac`, source zero, type that of the packet. The
//!   `NextHop` of such an interface's neighbour is known from the start, and may be zero.
//!
//! # The stage
//!
//! [`route`] processes packets whose ingress is a router interface and passes all others. Its drop reasons
//! are in [`drops`](crate::drops), stage `route`; `docs/adr/0014-routing-stage.md` explains its decisions,
//! `docs/adr/0011-fib.md` the structure of the tables.

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

/// Result of a look-up: an index of [`NextHopTable`] of 31 bits; 0 is "no route".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NextHopId(u32);

impl NextHopId {
    /// There is no route.
    pub const NONE: Self = Self(0);

    /// The next hop with this index; `None` from 2³¹ on.
    pub const fn new(number: u32) -> Option<Self> {
        if number < arena::NODE { Some(Self(number)) } else { None }
    }

    /// The index.
    pub const fn get(self) -> u32 {
        self.0
    }
}
