//! Pages by task (`docs/tasks`), run command by command as a reader would.
//!
//! ```text
//!  page ─▶ steps ─▶ machines: a namespace of network, processes and files each ─▶ verdict
//! ```
//!
//! * A block `sh` has commands for the first machine of the page, a block `console` has `machine$ command`.
//!   `# exits with 1` behind a command is the code that is expected.
//! * Output in the page, in a block `text` below the commands or in a block `console`, is compared with what the last
//!   command printed: each line has to be there, in that order, and `…` is any text.
//! * A block that begins with `# /path`, or `# /path on machine`, is a file that is written.
//! * `polder run` in a terminal of its own, or with `&`, is waited for until it answers.
//! * A block below `<!-- not run: reason -->` is left out, with that reason.
//!
//! A page ends as it began: interfaces, addresses, routes and rules are compared, and no gateway runs.

mod machine;
mod machines;
mod page;
mod run;

pub use page::{Action, Page, Step};
pub use run::{Failure, Verdict, run};

use crate::examination::{Need, require};

/// One page of the documentation: name, text, machines.
macro_rules! entry {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../../docs/tasks/", $name, ".md")),
            include_str!(concat!("machines/", $name, ".txt")),
        )
    };
}

/// Pages with their machines: name, text, machines.
pub const ALL: [(&str, &str, &str); 12] = [
    entry!("bridge"),
    entry!("router"),
    entry!("vpn"),
    entry!("containers"),
    entry!("access-point"),
    entry!("firewalls"),
    entry!("nat"),
    entry!("nat-programs"),
    entry!("two-uplinks"),
    entry!("short-queues"),
    entry!("losses"),
    entry!("service"),
];

/// Programs that the pages call.
const PROGRAMS: [&str; 11] = [
    "ip",
    "bridge",
    "ping",
    "iperf3",
    "nft",
    "iptables-nft",
    "unshare",
    "nsenter",
    "tcpdump",
    "curl",
    "sysctl",
];

/// Finds out if pages can run on this machine.
///
/// # Errors
/// Says what is missing.
pub fn available() -> anyhow::Result<()> {
    require(&[Need::Root], &PROGRAMS)
}

/// The pages of this build, parsed.
///
/// # Errors
/// When a page cannot be read as steps.
pub fn all() -> anyhow::Result<Vec<Page>> {
    ALL.iter().map(|(name, text, machines)| Page::parse(name, text, machines)).collect()
}
