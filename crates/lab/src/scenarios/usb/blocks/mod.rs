//! Source C's table on the blocks of an NCM function: each technique of the buffers on and off, in turn, while blocks of
//! 16 and 32 KiB come in, each with tens of datagrams.
//!
//! | file | what it measures |
//! |---|---|
//! | `datagrams` | the reader of blocks with pools, and with the platform's allocator |
//! | `port` | the whole port: URBs, reader, packets, the ring of URBs |
//! | `pressure` `group` | both in a group of processes whose memory is short |

mod buffers;
mod datagrams;
mod group;
mod port;
mod pressure;

pub use pressure::inside;

use crate::scenarios::Run;
use crate::scenarios::contrast::{contrast, contrast_all, is_any_wanted};
use crate::scenarios::tables::verdict::{self, Verdict, verdict};
use crate::scenarios::testbed::cores;
use datagrams::{Queue, Ready, Sharing};
use polder_buffers::Switches;
use polder_devices::cdc::model::{Style, encode};
use port::{EVERY_POLL, Ring, TWO_THIRDS};
use std::time::Duration;

/// Bytes of datagrams, long and short in turn.
const LENGTHS: [usize; 2] = [1400, 100];
/// Longest datagram that is copied into a fragment.
const SHORT: u16 = 256;
/// Datagrams in queues at a time.
const LIVE: usize = 512;

/// Size of blocks.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Part of the names of its rows.
    name: &'static str,
    bytes: usize,
}

const SIZES: [Size; 2] = [Size { name: "16k", bytes: 16 << 10 }, Size { name: "32k", bytes: 32 << 10 }];

impl Size {
    fn named(name: &str) -> Option<Self> {
        SIZES.into_iter().find(|size| size.name == name)
    }
}

/// Length of one side of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Amount {
    /// Blocks that are received.
    blocks: usize,
    /// Time after a burst, and that of control traffic beside data.
    rest: Duration,
}

const QUICK: Amount = Amount { blocks: 600, rest: Duration::from_millis(120) };
const WHOLE: Amount = Amount { blocks: 6000, rest: Duration::from_millis(800) };

impl Amount {
    const fn of(is_quick: bool) -> Self {
        if is_quick { QUICK } else { WHOLE }
    }
}

/// Effect of a technique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Pools,
    Frames,
    Fragments,
    Burst,
    ColdPages,
    Reuse,
    Reload,
    Reloaders,
    GiveBack,
    ContentionOnePool,
    ContentionNoPool,
    Ring,
    RingNoPool,
    UrbPool,
}

/// An effect, both of its sides, and the statement that a gain proves.
struct Case {
    effect: Effect,
    name: &'static str,
    sides: [&'static str; 2],
    proves: &'static str,
}

const CASES: [Case; 14] = [
    Case {
        effect: Effect::Pools,
        name: "pools",
        sides: [
            "a datagram, read, copied and released; long ones in ready frames, short ones in ready fragments; 512 wait",
            "`malloc` for each datagram",
        ],
        proves: "both pools together cost less than one `malloc` a datagram",
    },
    Case {
        effect: Effect::Frames,
        name: "frames",
        sides: ["the same, long ones in ready frames, `malloc` for short ones", "`malloc` for each datagram"],
        proves: "the pool of frames alone costs less than `malloc`",
    },
    Case {
        effect: Effect::Fragments,
        name: "fragments",
        sides: [
            "the same, short ones in ready fragments, `malloc` for long ones",
            "`malloc` for each datagram",
        ],
        proves: "the pool of fragments alone costs less than `malloc`",
    },
    Case {
        effect: Effect::Burst,
        name: "burst",
        sides: [
            "a datagram of a burst of 4096, all released at its end; both pools",
            "`malloc` for each datagram, which returns memory to the system after a burst",
        ],
        proves: "pools keep memory between bursts that `malloc` takes from the system each time",
    },
    Case {
        effect: Effect::ColdPages,
        name: "cold_pages",
        sides: [
            "a datagram through the whole port, 512 wait",
            "each released frame and block of fragments goes back to the system, and the next one faults",
        ],
        proves: "memory that is kept costs less than pages from the system, which are nobody's baseline",
    },
    Case {
        effect: Effect::Reuse,
        name: "reuse",
        sides: ["a datagram through the whole port, 512 wait", "a released buffer is taken after all others"],
        proves: "memory that was used lately costs less than memory that was not, so that reuse is a part of the pools' gain",
    },
    Case {
        effect: Effect::Reload,
        name: "reload",
        sides: [
            "a datagram of a burst of three reserves at 400 MB/s; two reloaders below 2/3",
            "the reserve is filled once, later by the thread that receives",
        ],
        proves: "reloading below 2/3 by two reloaders takes page faults off the receiving thread",
    },
    Case {
        effect: Effect::Reloaders,
        name: "reloaders",
        sides: [
            "allocations of control that succeed while received datagrams take all frames of data",
            "one reloader for both, first come, first served",
        ],
        proves: "with a reloader of its own control has memory while bulk data take all",
    },
    Case {
        effect: Effect::GiveBack,
        name: "give_back",
        sides: [
            "memory of the process after a burst of three reserves, as a part of that before",
            "nothing is given back",
        ],
        proves: "memory of a burst goes back to the system",
    },
    Case {
        effect: Effect::ContentionOnePool,
        name: "contention_one_pool",
        sides: ["two threads that read blocks, a pool each", "one pool behind a lock, one call a buffer"],
        proves: "a pool for each thread avoids the contention of a shared one",
    },
    Case {
        effect: Effect::ContentionNoPool,
        name: "contention_no_pool",
        sides: ["two threads that read blocks, a pool each", "`malloc`, which has an arena for each thread"],
        proves: "with two threads pools cost less than `malloc`",
    },
    Case {
        effect: Effect::Ring,
        name: "ring",
        sides: [
            "a datagram through the whole port; the ring of URBs is refilled below 67 %",
            "refilled after every poll",
        ],
        proves: "a refill threshold makes receiving cheaper where URBs have a pool",
    },
    Case {
        effect: Effect::RingNoPool,
        name: "ring_no_pool",
        sides: [
            "the same with `malloc` for each URB; the ring is refilled below 67 %",
            "`malloc` for each URB, refilled after every poll",
        ],
        proves: "a refill threshold does without a pool what a pool does",
    },
    Case {
        effect: Effect::UrbPool,
        name: "urb_pool",
        sides: [
            "a datagram through the whole port; URBs of a pool, refilled after every poll",
            "`malloc` for each URB, refilled after every poll",
        ],
        proves: "a pool of URBs makes receiving cheaper than `malloc` for each URB",
    },
];

/// Effects that are measured under memory pressure, too.
const UNDER_PRESSURE: [Effect; 4] = [Effect::Burst, Effect::Reload, Effect::GiveBack, Effect::RingNoPool];

impl Effect {
    fn case(self) -> &'static Case {
        // Cases are in the order of the effects.
        &CASES[self as usize]
    }

    fn name(self) -> &'static str {
        self.case().name
    }

    fn named(name: &str) -> Option<Self> {
        CASES.iter().find(|case| case.name == name).map(|case| case.effect)
    }
}

/// Fills the rows.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    let amount = Amount::of(run.is_quick());
    for size in SIZES {
        let block = block(size.bytes);
        for case in &CASES {
            let base = format!("usb.c.{}.{}", case.name, size.name);
            one(run, case, &base, |is_on| sample(case.effect, size, &block, is_on, amount))?;
        }
        for effect in UNDER_PRESSURE {
            let base = format!("usb.c.pressure_{}.{}", effect.name(), size.name);
            one(run, effect.case(), &base, |is_on| pressure::measure(effect, size, is_on, amount))?;
        }
    }
    Ok(())
}

/// Fills the rows of C5: the ring of URBs, with the larger blocks.
pub(in crate::scenarios) fn ring(run: &mut Run, technique: &str) -> anyhow::Result<()> {
    let (case, size, amount) = (Effect::Ring.case(), SIZES[1], Amount::of(run.is_quick()));
    let block = block(size.bytes);
    let cost = |is_on| sample(case.effect, size, &block, is_on, amount);
    contrast(run, technique, || cost(true), || cost(false), case.sides)
}

/// Measures one effect in turn on and off, and records its rows.
fn one(
    run: &mut Run,
    case: &Case,
    base: &str,
    sample: impl Fn(bool) -> anyhow::Result<f64>,
) -> anyhow::Result<()> {
    if !is_any_wanted(run, base) {
        return Ok(());
    }
    run.place("C on blocks: receiving", cores().0, "thread, pinned");
    run.place("C on blocks: reloaders, the second thread, cached pages", cores().1, "threads, pinned");
    contrast_all(run, base, || sample(true), || sample(false), case.sides)?;
    state(run, base, case.proves);
    Ok(())
}

/// Adds to the gain the sentence that it proves or not, and to the planted loss that it was seen or not.
fn state(run: &mut Run, base: &str, proves: &str) {
    let effect = |ending: &str| run.row(&format!("{base}.{ending}")).and_then(verdict::Effect::of);
    let (gain, planted) = (effect("gain"), effect("planted"));
    let Some((of_gain, of_planted)) = gain.zip(planted) else { return };
    let said = match verdict(gain, planted) {
        Verdict::Gain => "shown",
        Verdict::Loss => "the opposite is shown",
        Verdict::NoEffect => "not so: no effect",
        Verdict::Unmeasured => "not decided",
    };
    let gain = format!("{proves}: {said}; half-width {:.1} %", of_gain.half_width());
    let seen = if of_planted.is_below_zero() { "is seen" } else { "is not seen" };
    let planted = format!("a loss of 5 % {seen}; half-width {:.1} %", of_planted.half_width());
    run.remark(&format!("{base}.gain"), gain);
    run.remark(&format!("{base}.planted"), planted);
}

/// Measures one side of an effect.
fn sample(effect: Effect, size: Size, block: &[u8], is_on: bool, amount: Amount) -> anyhow::Result<f64> {
    let all = Switches::default();
    let ready = |on| datagrams::cost(if is_on { on } else { Ready::NONE }, Queue::STEADY, block, amount);
    let steady = |off: Switches| port::steady(if is_on { &all } else { &off }, Ring::USUAL, block, amount);
    let shared = |off| datagrams::contended(if is_on { Sharing::OwnPools } else { off }, block, amount);
    let ring = |on: Ring, off: Ring| port::steady(&all, if is_on { on } else { off }, block, amount);
    let refilled = |refill_below_percent, urb_pools| Ring { refill_below_percent, urb_pools };
    match effect {
        Effect::Pools => ready(Ready::BOTH),
        Effect::Frames => ready(Ready::FRAMES),
        Effect::Fragments => ready(Ready::FRAGMENTS),
        Effect::Burst => {
            let ready = if is_on { Ready::BOTH } else { Ready::NONE };
            datagrams::cost(ready, Queue::burst(size.bytes), block, amount)
        }
        Effect::ColdPages => steady(Switches { pools_frames: false, pools_fragments: false, ..all }),
        Effect::Reuse => steady(Switches { reuses: false, ..all }),
        Effect::Reload => port::burst(&Switches { reloads: is_on, ..all }, block),
        Effect::Reloaders => port::control_beside_data(is_on, block, amount),
        Effect::GiveBack => port::left_after_burst(is_on, block, amount),
        Effect::ContentionOnePool => shared(Sharing::OnePool),
        Effect::ContentionNoPool => shared(Sharing::NoPool),
        Effect::Ring => ring(refilled(TWO_THIRDS, true), refilled(EVERY_POLL, true)),
        Effect::RingNoPool => ring(refilled(TWO_THIRDS, false), refilled(EVERY_POLL, false)),
        Effect::UrbPool => ring(refilled(EVERY_POLL, true), refilled(EVERY_POLL, false)),
    }
}

/// A block of `bytes` full of datagrams, written by the function's model.
fn block(bytes: usize) -> Vec<u8> {
    let (mut frames, mut block) = (Vec::new(), Vec::new());
    for (number, length) in (0..=u8::MAX).zip(LENGTHS.into_iter().cycle()) {
        frames.push(vec![number; length]);
        let longer = encode(&frames, &Style::default());
        if longer.len() > bytes {
            break;
        }
        block = longer;
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Better;
    use polder_testbed::screen::Screen;
    use std::collections::BTreeSet;

    #[test]
    fn cases_are_in_the_order_of_effects_and_have_their_rows() {
        let rows = crate::scenarios::usb::SCENARIO.promises().iter().map(|row| row.name);
        let rows = rows.filter(|row| row.starts_with("usb.c.")).collect::<BTreeSet<_>>();
        for (at, case) in CASES.iter().enumerate() {
            assert_eq!((case.effect as usize, Effect::named(case.name)), (at, Some(case.effect)));
            for size in SIZES {
                assert!(rows.contains(format!("usb.c.{}.{}.gain", case.name, size.name).as_str()));
            }
        }
        for effect in UNDER_PRESSURE {
            assert!(rows.contains(format!("usb.c.pressure_{}.16k.on", effect.name()).as_str()));
        }
        assert_eq!(rows.len(), (CASES.len() + UNDER_PRESSURE.len()) * SIZES.len() * 4);
    }

    /// Equal sides are no gain, and a loss of 5 % is seen beside them.
    #[test]
    fn rows_say_what_they_prove() {
        let promises = crate::scenarios::usb::SCENARIO.promises();
        let mut run = Run::start(Screen::new(), "usb", promises, (true, &[])).unwrap();
        assert_eq!(run.better("usb.c.pools.16k.on"), Some(Better::Lower));
        for (base, off, said) in [
            ("usb.c.pools.16k", 100.0, "not so: no effect; half-width 0.0 %"),
            ("usb.c.pools.32k", 120.0, "shown; half-width 0.0 %"),
            ("usb.c.frames.16k", 80.0, "the opposite is shown; half-width 0.0 %"),
        ] {
            one(&mut run, &CASES[0], base, |is_on| Ok(if is_on { 100.0 } else { off })).unwrap();
            let remark = |ending: &str| {
                run.row(&format!("{base}.{ending}")).and_then(|row| row.reason.clone()).unwrap()
            };
            assert_eq!(remark("gain"), format!("{}: {said}", CASES[0].proves));
            assert_eq!(remark("planted"), "a loss of 5 % is seen; half-width 0.0 %");
        }
    }
}
