//! The kernel's connection tracking, followed by ctnetlink.
//!
//! ```text
//!   socket ── datagrams ──▶ message ── events ──▶ connections ── entries to make and to remove ──▶ the port's programs
//!      ◀────────────────────── requests ───────────────┘
//! ```
//!
//! [`message`] reads what the kernel tells and writes updates, [`connections`] decides which connections may be
//! carried and when the kernel's timers are set again; neither knows a socket or a clock. [`socket`] is the socket,
//! [`settings`] are the sysctls, [`AllEvents`] the one that is changed. Sources: linux/netfilter/nfnetlink_conntrack.h, linux/netfilter/nf_conntrack_common.h,
//! linux/netfilter/nf_conntrack_tcp.h, the kernel's Documentation/networking/nf_conntrack-sysctl.rst.

mod all_events;
pub mod connections;
pub mod message;
pub mod settings;
pub mod socket;

pub use all_events::{AllEvents, restore_left};
pub use connections::{Change, Connection, ConnectionId, Connections, Counters, Limits, Tuples};
pub use message::{Event, Record, Tuple, events};
pub use settings::timeouts;
pub use socket::{Reading, Socket, load};
