//! `[buffers]`: how packet memory is divided, and which techniques look after it.

use super::super::buffers::{Buffers, Headroom};
use super::super::section::{At, Kind, Refusal, Section};
use super::super::values::{boolean, integer, word_or};
use polder_buffers::HEADROOM;
use toml::de::DeValue;

/// The keys of the buffers.
pub(super) const KIND: Kind = Kind {
    noun: "the buffers",
    keys: &[
        "control_percent",
        "fragments_mib",
        "reserve_percent",
        "reload_below_percent",
        "idle_seconds",
        "copy_break",
        "refill_below_percent",
        "headroom",
        "pool_frames",
        "pool_fragments",
        "reload",
        "split_reload",
        "reuse",
        "reset_when_alone",
        "large_blocks",
        "biased_count",
        "single_pages",
        "own_fragments",
        "held_blocks",
        "never_cross",
    ],
};

/// `[buffers]` as it stands in the file, with what depends on other sections kept apart.
#[derive(Debug, Default)]
pub(in super::super) struct BuffersDraft {
    /// Everything else, with defaults filled in.
    pub(in super::super) rest: Buffers,
    pub(in super::super) fragments_mib: Option<u32>,
    pub(in super::super) copy_break: Option<At<u16>>,
    pub(in super::super) headroom: Option<At<Headroom>>,
}

/// Reads the section, which may be left out.
pub(super) fn read(root: &Section<'_>) -> BuffersDraft {
    let Some(section) = root.open_key("buffers", "[buffers]".to_owned(), KIND) else {
        return BuffersDraft::default();
    };
    let usual = Buffers::default();
    let flag = |key, usual| section.read(key, boolean).map_or(usual, |at| at.value);
    let percent = |key, least: u8, most: u8, usual| {
        section.read(key, integer(least..=most, "percent")).map_or(usual, |at| at.value)
    };
    let rest = Buffers {
        control_percent: percent("control_percent", 1, 50, usual.control_percent),
        reserve_percent: percent("reserve_percent", 1, 100, usual.reserve_percent),
        reload_below_percent: percent("reload_below_percent", 1, 100, usual.reload_below_percent),
        refill_below_percent: percent("refill_below_percent", 1, 100, usual.refill_below_percent),
        idle_seconds: section
            .read("idle_seconds", word_or("never", None, seconds))
            .map_or(usual.idle_seconds, |at| at.value),
        pool_frames: flag("pool_frames", usual.pool_frames),
        pool_fragments: flag("pool_fragments", usual.pool_fragments),
        reload: flag("reload", usual.reload),
        split_reload: flag("split_reload", usual.split_reload),
        reuse: flag("reuse", usual.reuse),
        reset_when_alone: flag("reset_when_alone", usual.reset_when_alone),
        large_blocks: flag("large_blocks", usual.large_blocks),
        biased_count: flag("biased_count", usual.biased_count),
        single_pages: flag("single_pages", usual.single_pages),
        own_fragments: flag("own_fragments", usual.own_fragments),
        held_blocks: section
            .read("held_blocks", integer(1_u8..=64, "blocks"))
            .map_or(usual.held_blocks, |at| at.value),
        never_cross: section.read("never_cross", never_cross).map_or(usual.never_cross, |at| at.value),
        ..usual
    };
    BuffersDraft {
        rest,
        fragments_mib: section.read("fragments_mib", integer(1_u32..=4096, "MiB")).map(|at| at.value),
        copy_break: section.read("copy_break", integer(0_u16..=1024, "bytes")),
        headroom: section.read("headroom", headroom),
    }
}

fn seconds(value: &DeValue<'_>) -> Result<Option<u16>, Refusal> {
    integer(1_u16..=3600, "seconds")(value).map(Some)
}

fn headroom(value: &DeValue<'_>) -> Result<Headroom, Refusal> {
    if value.as_str() == Some("off") {
        return Ok(Headroom::Off);
    }
    let bytes = |value: &DeValue<'_>| integer(0..=HEADROOM, "bytes")(value).map(Headroom::Bytes);
    word_or("auto", Headroom::Auto, bytes)(value)
}

fn never_cross(value: &DeValue<'_>) -> Result<u32, Refusal> {
    let bytes = integer(0_u32..=u32::MAX, "bytes")(value)?;
    match bytes {
        2048 | 4096 | 8192 | 16_384 | 32_768 => Ok(bytes),
        _ => Err(Refusal::new(format!("cannot be {bytes}"))
            .remedy("take 4096, or another power of two from 2048 to 32768")),
    }
}
