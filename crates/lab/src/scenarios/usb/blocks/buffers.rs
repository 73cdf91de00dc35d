//! Packet buffers of a gateway that is a modem's: frames and fragments that grow, and their two reload workers.

use crate::scenarios::buffers::short::{on_core, with_reloaders};
use crate::scenarios::testbed::cores;
use polder_buffers::{
    AllocationPolicy, BufferManager, BufferOptions, ClassBuffers, ClassOptions, FragmentOptions, Marks,
    ReserveOptions, Switches,
};
use std::time::Duration;

/// Bytes of a frame.
pub(super) const SLOT_BYTES: u32 = 2048;
/// Frames, for a burst whose short datagrams find no fragment, and the number of them that is kept ready.
const SLOTS: u32 = 32_768;
pub(super) const READY: u32 = 4096;
/// Blocks of fragments, and the number of them that is kept ready: as many datagrams as the ready frames hold.
const BLOCKS: u32 = 256;
const READY_BLOCKS: u32 = 32;

/// Buffers with these techniques.
pub(super) fn options(switches: &Switches) -> BufferOptions {
    let growing = |target| AllocationPolicy::Growing(Marks::for_target(target));
    let frames = |slots, ready| ClassOptions {
        slots,
        policy: growing(ready),
        reserve_options: ReserveOptions::default(),
    };
    let fragments =
        FragmentOptions { blocks: BLOCKS, policy: growing(READY_BLOCKS), ..FragmentOptions::default() };
    let options = BufferOptions {
        control: ClassBuffers { frames: frames(64, 64), fragments: None },
        data: ClassBuffers { frames: frames(SLOTS, READY), fragments: Some(fragments) },
        ..BufferOptions::fixed(SLOT_BYTES, 0, 0)
    };
    options.with_switches(switches)
}

/// Runs `work` on the core of the device, beside the reload workers of its buffers.
pub(super) fn with<R: Send>(
    switches: &Switches,
    work: impl FnOnce(&BufferManager) -> anyhow::Result<R> + Send,
) -> anyhow::Result<R> {
    of(options(switches), work)
}

/// Runs `work` with memory that returns to the system after `patience`.
pub(super) fn with_patience<R: Send>(
    switches: &Switches,
    patience: Duration,
    work: impl FnOnce(&BufferManager) -> anyhow::Result<R> + Send,
) -> anyhow::Result<R> {
    of(
        BufferOptions { patience: Some(patience), ..options(&Switches::default()) }.with_switches(switches),
        work,
    )
}

fn of<R: Send>(
    options: BufferOptions,
    work: impl FnOnce(&BufferManager) -> anyhow::Result<R> + Send,
) -> anyhow::Result<R> {
    let manager = BufferManager::new(options)?;
    let (core, other) = cores();
    with_reloaders(&manager, other, || on_core(core, || work(&manager))?)
}
