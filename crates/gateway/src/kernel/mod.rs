//! The kernel's view of the network, followed as it changes.
//!
//! ```text
//!              ┌────────────── socket ◀───────────── dumps, notices, "you missed some"
//!   requests   │ datagrams
//!              ▼
//!          follower ── items ──▶ mirror ── changes ──▶ who routes by it
//! ```
//!
//! [`message`] reads what the kernel says, [`mirror`] keeps it, [`follower`] decides what to ask: first
//! everything, then what notices leave in doubt, and everything again when some were lost. None of these
//! three knows a socket; [`socket`] does. Sources: rtnetlink(7), netlink(7), linux/rtnetlink.h,
//! linux/nexthop.h, linux/fib_rules.h, linux/neighbour.h.

pub mod conntrack;
pub mod follower;
pub mod hold;
pub mod hooks;
pub mod message;
pub mod mirror;
pub mod namespaces;
pub(crate) mod notices;
pub mod request;
pub mod socket;
pub mod sockets;

pub use follower::Follower;
pub use mirror::{Changes, Mirror};
