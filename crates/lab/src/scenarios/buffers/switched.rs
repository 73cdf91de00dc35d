//! Table C: pools, reloading and giving back off and on. Off is the platform's allocator, one call a buffer, or what
//! the source had in place of the technique; cold pages are a row of their own.

use super::contention::{self, Supply};
use super::modem::{Modem, STREAM};
use super::receiving::{Ring, USUAL};
use super::windows::WINDOW;
use super::{ablation, apart, own, pieces, short};
use crate::scenarios::Run;
use crate::scenarios::contrast::{between, contrast, is_wanted};
use crate::scenarios::testbed::cores;
use crate::scenarios::usb::blocks;
use polder_buffers::{FragmentOptions, Switches};
use polder_testbed::meters::statistics::Samples;
use polder_testbed::peers::Receiving;
use std::time::Duration;

const SLOT_BYTES: usize = 2048;
const PIECE: u32 = 1024;
/// Bursts of a sample.
const BURSTS: usize = 3;
/// Row with all techniques of source D off at once.
const STREAMS: &str = "D.stream";

/// Fills the rows of tables C and D.
pub(in crate::scenarios) fn measure(run: &mut Run) -> anyhow::Result<()> {
    let cores = cores();
    run.place("C and D: taking, and releasing on the same core", cores.0, "thread, pinned");
    run.place("C and D: releasing on the other core; reloaders", cores.1, "threads, pinned");
    pools(run, cores)?;
    reserves(run, cores)?;
    two_threads(run, cores)?;
    rings(run)?;
    pieces::measure(run, cores)?;
    streams(run)
}

/// C1 by kind, reuse, and cold pages.
fn pools(run: &mut Run, cores: (usize, usize)) -> anyhow::Result<()> {
    let objects = run.quick_or(100, 500) * WINDOW;
    let malloc = "glibc's malloc, one call a buffer";
    let options = FragmentOptions::default();
    contrast(
        run,
        "C.C1",
        || apart(|| own::frames_across(objects, cores)),
        || apart(|| own::mallocs_across(objects, cores, SLOT_BYTES)),
        ["a frame of 2048 bytes, taken on one core and put back by another", malloc],
    )?;
    contrast(
        run,
        "C.C1_fragments",
        || apart(|| own::fragments_across(objects, cores, PIECE, options)),
        || apart(|| own::mallocs_across(objects, cores, 1024)),
        ["a fragment of 1024 bytes, taken on one core and put back by another", malloc],
    )?;
    contrast(
        run,
        "C.C1_one_core",
        || apart(|| Ok(own::frames_alone(objects)?.bulk)),
        || apart(|| Ok(own::mallocs_alone(objects, SLOT_BYTES).bulk)),
        ["a frame of 2048 bytes, taken and put back by one core, 32 at a time", malloc],
    )?;
    let batches = run.quick_or(500, 2000);
    let all = Switches::default();
    let cost = |switches| ablation::nanos(&switches, 1, batches, cores);
    contrast(
        run,
        "C.cold_pages",
        || cost(all),
        || cost(Switches { pools_frames: false, ..all }),
        [
            "half frames and half fragments, 512 in use",
            "frames are cold pages: mapped, and their faults as they come",
        ],
    )?;
    contrast(
        run,
        "C.reuse",
        || cost(all),
        || cost(Switches { reuses: false, ..all }),
        ["the buffer that was released last is taken first", "after all others"],
    )
}

/// C2, C3 and C4: what a reserve is filled by, and when it shrinks.
fn reserves(run: &mut Run, cores: (usize, usize)) -> anyhow::Result<()> {
    let drain = |reloads| {
        let bursts = (0..BURSTS).map(|_| Ok(short::drain(reloads, cores)?.p999));
        Ok(bursts.collect::<anyhow::Result<Samples>>()?.median().unwrap_or(f64::NAN))
    };
    contrast(
        run,
        "C.C2",
        || drain(true),
        || drain(false),
        [
            "p99.9 of an allocation in a burst of three reserves, a frame a microsecond",
            "the reserve is filled once at the start, later by whoever takes a frame",
        ],
    )?;
    let time = Duration::from_millis(run.quick_or(400, 1500));
    let greed = |splits| Ok(short::greed(splits, time, cores)?.taken_percent());
    contrast(
        run,
        "C.C3",
        || greed(true),
        || greed(false),
        [
            "allocations of the control class that succeed beside data that takes all it can get",
            "one reloader for both classes, first come, first served",
        ],
    )?;
    let (patience, wait) = run.quick_or((200, 500), (500, 1500));
    let (patience, wait) = (Duration::from_millis(patience), Duration::from_millis(wait));
    let left = |gives_back| {
        let memory = short::memory_after_burst(wait, (gives_back, patience), cores)?;
        Ok(100.0 * memory.after / memory.before)
    };
    contrast(
        run,
        "C.C4",
        || left(true),
        || left(false),
        ["memory of the process after a burst, as a part of that before", "nothing is given back"],
    )
}

/// Contention, which the reviewer of C asked for.
fn two_threads(run: &mut Run, cores: (usize, usize)) -> anyhow::Result<()> {
    let batches = run.quick_or(500, 3000);
    let cost = |supply| contention::cost(supply, batches, cores);
    let own = "two threads with a pool each, one call a buffer";
    contrast(
        run,
        "C.contention_one_pool",
        || cost(Supply::OwnPools),
        || cost(Supply::OnePool),
        [own, "two threads with one pool behind a lock"],
    )?;
    contrast(
        run,
        "C.contention_no_pool",
        || cost(Supply::OwnPools),
        || cost(Supply::NoPool),
        [own, "two threads with glibc's malloc, which has an arena for each"],
    )
}

/// C5: when a receive ring is refilled, of a modem's URBs and of AF_XDP.
fn rings(run: &mut Run) -> anyhow::Result<()> {
    blocks::ring(run, "C.C5")?;
    if !is_wanted(run, "C.C5_af_xdp") {
        return Ok(());
    }
    let time = Duration::from_millis(run.quick_or(200, 1000));
    let sides = [Ring::lay(USUAL), Ring::lay(Receiving { refill_below_percent: 100, ..USUAL })];
    let on = "CPU time of a packet in bursts of 128 through an AF_XDP bridge; refilled below 67 %";
    between(run, "C.C5_af_xdp", sides, |ring| ring.nanos(time), [on, "refilled after every poll"])
}

/// Techniques of D on the path of a gateway: one TCP stream between two TAPs.
fn streams(run: &mut Run) -> anyhow::Result<()> {
    let all = Switches::default();
    let off = Switches::OFF;
    let cases = [
        (STREAMS, Switches { owns_fragments: false, ..pieces::without_all(all) }, "D1 to D6 off"),
        (
            "D.stream_D1",
            Switches { resets_when_alone: false, ..all },
            "a block is used up before it starts again",
        ),
        ("D.stream_D2", Switches { large_blocks: false, ..all }, "blocks of 4 KiB"),
        (
            "D.stream_D3",
            Switches { biased_count: false, ..all },
            "the shared count changes with each fragment",
        ),
        ("D.stream_D5", Switches { owns_fragments: off.owns_fragments, ..all }, "one block behind a lock"),
        ("D.stream_D6", Switches { held_blocks: off.held_blocks, ..all }, "one block"),
    ];
    for (technique, without, remark) in cases {
        if !is_wanted(run, technique) {
            continue;
        }
        if run.is_quick() && technique != STREAMS {
            run.leave_out(format!("{technique}: one stream through a gateway"));
            continue;
        }
        run.place("D: polder between two TAPs", cores().0, "worker, pinned");
        run.place("D: iperf3, one stream", 0, "processes, pinned");
        let time = Duration::from_secs(1);
        let sides = [Modem::start(&all, &[cores().0]), Modem::start(&without, &[cores().0])];
        let nanos = |modem: &mut Modem| Ok(modem.flows(STREAM, time)?.nanos_per_packet);
        let on = "CPU time of the worker and reload workers a packet, copy_break = 256";
        between(run, technique, sides, nanos, [on, remark])?;
    }
    Ok(())
}
