//! Table D: fragments, technique by technique, each with the use that it is for; and uses for which none of them is.

use super::windows::WINDOW;
use super::{ablation, apart, own, patterns};
use crate::scenarios::Run;
use crate::scenarios::contrast::contrast;
use polder_buffers::{FragmentOptions, Switches};

/// Blocks of a default gateway's data class.
const BLOCKS: u32 = 128;
const PIECE: u32 = 1024;
/// The length of a jumbo frame.
const JUMBO: u32 = 9000;
/// Pieces of a burst, of which the blocks that are free hold a half.
const BURST: usize = 128;

/// The switches of D off, all others as they are.
pub(super) fn without_all(switches: Switches) -> Switches {
    Switches {
        resets_when_alone: false,
        large_blocks: false,
        biased_count: false,
        single_pages: false,
        held_blocks: 1,
        ..switches
    }
}

/// Fills the rows of table D that need no gateway.
pub(super) fn measure(run: &mut Run, cores: (usize, usize)) -> anyhow::Result<()> {
    let objects = run.quick_or(100, 500) * WINDOW;
    let all = FragmentOptions { blocks: BLOCKS, ..FragmentOptions::default() };
    let cost = |pattern, options| apart(|| patterns::cost(pattern, objects, options));
    let stream = "a fragment of 1792 bytes, taken, its headers written, released with its batch";
    contrast(
        run,
        "D.D1",
        || cost(patterns::STREAM, all),
        || cost(patterns::STREAM, FragmentOptions { reset_when_alone: false, ..all }),
        [stream, "a block is used up before it starts again"],
    )?;
    contrast(
        run,
        "D.D2",
        || cost(patterns::SLOWER_STREAM, all),
        || cost(patterns::SLOWER_STREAM, FragmentOptions { large_blocks: false, ..all }),
        ["fragments of 1792 bytes, of which 24 wait", "blocks of 4 KiB"],
    )?;
    let across = |options| apart(|| own::fragments_across(objects, cores, PIECE, options));
    contrast(
        run,
        "D.D3",
        || across(all),
        || across(FragmentOptions { biased_count: false, ..all }),
        [
            "a fragment of 1024 bytes, taken on one core and released by another",
            "the shared count changes with each fragment",
        ],
    )?;
    let few = FragmentOptions { blocks: 2, spare_pages: 16, ..all };
    contrast(
        run,
        "D.D4",
        || patterns::had_percent(BURST, few),
        || patterns::had_percent(BURST, FragmentOptions { spare_pages: 0, ..few }),
        ["part of a burst that is had where blocks for a half of it are free", "no single pages"],
    )?;
    let batches = run.quick_or(500, 2000);
    let alloc = |switches: Switches| ablation::nanos(&switches, 1, batches, cores);
    let switches = Switches::default();
    contrast(
        run,
        "D.D5",
        || alloc(switches),
        || alloc(Switches { owns_fragments: false, ..switches }),
        [
            "half frames and half fragments of 1 KiB, one thread",
            "the variant for any thread: one block behind a lock",
        ],
    )?;
    contrast(
        run,
        "D.D6",
        || cost(patterns::SLOWER_STREAM, all),
        || cost(patterns::SLOWER_STREAM, FragmentOptions { held_blocks: 1, ..all }),
        ["fragments of 1792 bytes, of which 24 wait; eight blocks", "one block"],
    )?;
    controls(run, objects, all)?;
    counts(run, all)
}

/// Uses that have nothing of D1 and D6, and must not lose by them.
fn controls(run: &mut Run, objects: usize, all: FragmentOptions) -> anyhow::Result<()> {
    let without = FragmentOptions { reset_when_alone: false, held_blocks: 1, ..all };
    let [udp, routing, long_posted] = patterns::PATTERNS;
    let cases = [
        ("D.control_udp", udp, "datagrams of 192 to 704 bytes, of which 256 wait"),
        ("D.control_routing", routing, "routed packets of 320 to 1792 bytes, of which 128 wait"),
        ("D.control_long_posted", long_posted, "1024 buffers that were posted long before"),
        ("D.control_coalescing", patterns::MERGED, "buffers of 4096 bytes, of which 64 wait"),
    ];
    for (technique, pattern, on) in cases {
        let cost = |options| apart(|| patterns::cost(pattern, objects, options));
        contrast(run, technique, || cost(all), || cost(without), [on, "D1 and D6 off"])?;
    }
    Ok(())
}

/// Part of the blocks that were alone, and jumbo frames.
fn counts(run: &mut Run, all: FragmentOptions) -> anyhow::Result<()> {
    let rounds = run.quick_or(40, 200) * WINDOW;
    for (row, held_blocks) in
        [("tables.D.alone.one_block", 1), ("tables.D.alone.several_blocks", all.held_blocks)]
    {
        if !run.wants(row) {
            continue;
        }
        let options = FragmentOptions { held_blocks, ..all };
        run.record_one(row, patterns::alone_percent(patterns::SLOWER_STREAM, rounds, options)?);
        let always = patterns::alone_percent(patterns::STREAM, rounds, options)?;
        run.remark(
            row,
            format!("{held_blocks} held; fragments of which 24 wait; {always:.1} % where none waits"),
        );
    }
    let whole = FragmentOptions { never_cross: 32_768, ..all };
    let pages = FragmentOptions { large_blocks: false, ..whole };
    for (row, options) in [("tables.D.jumbo_in_32_kib.on", whole), ("tables.D.jumbo_in_32_kib.off", pages)] {
        if run.wants(row) {
            run.record_one(row, patterns::in_a_block(JUMBO, options)?);
            run.remark(row, "frames of 9000 bytes; a default gateway's fragments do not cross 4 KiB (E7)");
        }
    }
    if run.wants("tables.D.jumbo_per_second") {
        let nanos = apart(|| patterns::cost(patterns::JUMBO, rounds, whole))?;
        run.record_one("tables.D.jumbo_per_second", 1e9 / nanos);
    }
    Ok(())
}
