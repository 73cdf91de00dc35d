//! Copies of the kernel's network tables, and the packet hooks that affect ports.
//!
//! ```text
//!              ┌────────────── socket ◀───────────── dumps, notices, "notices were lost"
//!   requests   │ datagrams
//!              ▼
//!          follower ── items ──▶ mirror ── changes ──▶ router
//! ```
//!
//! [`message`] parses messages, [`mirror`] stores their items, [`follower`] decides which tables to dump: first all, then
//! tables that notices leave in doubt, and all again after notices were lost. These three do no I/O; [`socket`] does.
//! Sources: rtnetlink(7), netlink(7), linux/rtnetlink.h, linux/nexthop.h, linux/fib_rules.h, linux/neighbour.h.

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
