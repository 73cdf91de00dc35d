//! The thread that hears of changes in the kernel, and leaves the packets of ports to it before anything is known of them.
//!
//! It runs before all ordinary threads where the kernel lets it: between a notice and the store that it causes stands
//! nothing but its wake-up.

use super::watch::Shared;
use crate::kernel::hooks::{Precedence, Subscription, run_first};
use rustix::event::{PollFd, PollFlags, poll};

/// Listens until the watch is over.
pub(super) fn listen(shared: &Shared, mut subscription: Subscription) {
    match run_first() {
        Precedence::RealTime => {
            tracing::debug!("kernel-notices runs before all ordinary threads (SCHED_FIFO)")
        }
        Precedence::Nice => {
            tracing::info!("kernel-notices runs at nice -20: the system permits no SCHED_FIFO")
        }
        Precedence::Ordinary => tracing::warn!(
            "kernel-notices runs as an ordinary thread, so that a busy core delays what it has to do: grant CAP_SYS_NICE"
        ),
    }
    let mut known = shared.yields.words();
    while wait(shared, &subscription) {
        shared.yields.refresh(&mut known);
        let noticed = subscription.read(|interface| known.is_port(interface));
        if noticed.hook || noticed.route {
            shared.yields.notice(noticed, &mut known);
        }
        if noticed.any {
            shared.wake();
        }
    }
}

/// Waits for notices; false at the end.
fn wait(shared: &Shared, subscription: &Subscription) -> bool {
    let mut files = vec![PollFd::new(&shared.end, PollFlags::IN)];
    files.extend(subscription.sockets().map(|socket| PollFd::new(socket, PollFlags::IN)));
    // An interrupted wait ends early; reading finds nothing then.
    let _: Result<usize, rustix::io::Errno> = poll(&mut files, None);
    files.first().is_some_and(|end| end.revents().is_empty())
}
