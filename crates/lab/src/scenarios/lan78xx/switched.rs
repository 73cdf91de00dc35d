//! Table A: each technique of the driver off and on, all others on.

use super::frames::Protocol;
use super::harness::Way;
use super::{Run, Testbed, merging, output, per_packet};
use crate::scenarios::contrast::{contrast, is_wanted, skip};
use polder_devices::lan78xx::Techniques;
use std::time::Duration;

/// Flow in which a technique is compared, and the driver without it.
const CASES: [(&str, Way, Techniques, &str); 5] = [
    (
        "A.A1",
        Way::Receive,
        Techniques { poll_cycle: false, ..Techniques::ON },
        "the completion handler processes all that it finds",
    ),
    (
        "A.A2",
        Way::Send,
        Techniques { urb_pools: false, ..Techniques::ON },
        "memory is allocated and freed for each URB",
    ),
    ("A.A3", Way::Send, Techniques { pending_queue: false, ..Techniques::ON }, "one frame in a URB"),
    (
        "A.A4",
        Way::Receive,
        Techniques { resubmit_in_cycle: false, ..Techniques::ON },
        "a URB is submitted again in the completion handler",
    ),
    (
        "A.A5",
        Way::Receive,
        Techniques { frame_is_unit: false, ..Techniques::ON },
        "a URB that was begun is finished, whatever the budget",
    ),
];
const MERGING: &str = "A.A6";

/// Fills the rows of table A.
pub(in crate::scenarios) fn measure(run: &mut Run) -> anyhow::Result<()> {
    let wanted = CASES.iter().filter(|(technique, ..)| is_wanted(run, technique)).collect::<Vec<_>>();
    if wanted.is_empty() && !is_wanted(run, MERGING) {
        return Ok(());
    }
    let stand = Testbed::new(Duration::from_millis(run.quick_or(150, 500)), 1)?;
    run.place("A: the driver's thread", stand.cores[0], "pinned");
    run.place("A: the model and its link partner", stand.cores[1], "pinned, never sleeps");
    for &(technique, way, without, off) in wanted {
        let cost = |techniques| Ok(per_packet(&stand.run((Protocol::Udp, way), techniques)?));
        let direction = if way == Way::Send { "sent" } else { "received" };
        let on = format!("UDP {direction}, all techniques; a URB costs {} ns", stand.urb.0);
        contrast(run, technique, || cost(Techniques::ON), || cost(without), [&on, off])?;
    }
    if !is_wanted(run, MERGING) {
        return Ok(());
    }
    if let Err(error) = output::available() {
        return skip(run, MERGING, &error);
    }
    let seconds = run.quick_or(1, 2);
    contrast(
        run,
        MERGING,
        || merging::rate(&stand, true, seconds),
        || merging::rate(&stand, false, seconds),
        ["TCP from a station into the machine's stack, segments merged", "every frame goes up alone"],
    )
}
