//! The gateway's packet memory, and the threads that maintain it.
//!
//! Two reload workers, one for control and one for data packets, sleep until the packet path wakes them. They
//! map memory before it is needed and release idle memory (C1 to C4); the control one has higher priority.
//! Where devices register their buffers, the number of frames is fixed and only the fragments grow.

use crate::clock::Clock;
use crate::config::Lab;
use crate::config::buffers::is_registered;
use crate::config::model::{Configuration, Port};
use crate::device::frames;
use crate::sandbox::{self, Role};
use crate::supervise::{Loss, Thread, Threads};
use anyhow::{Context as _, Result};
use polder_buffers::{
    AllocationPolicy, BufferManager, BufferOptions, Class, ClassBuffers, ClassOptions, FragmentOptions,
    Marks, Pool, Rates, Reloader, ReserveOptions, Switches, Waker,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Minimum number of frames in a class, and of its reserve if it grows.
const FEWEST_FRAMES: u32 = 128;
/// Minimum number of fragment blocks in a class.
const FEWEST_BLOCKS: u32 = 8;
/// Reserve of blocks in a class that rarely allocates fragments.
const A_FEW_BLOCKS: u32 = 2;
/// Number of 32 KiB blocks in a MiB.
const BLOCKS_A_MIB: u32 = 32;
/// Number of single pages in each class that replace missing blocks.
const SPARE_PAGES: u32 = 8;
/// Nice values of the reload workers; workers have 0.
const CONTROL_NICE: i32 = -5;
const DATA_NICE: i32 = 5;

/// The gateway's packet memory.
pub struct Memory {
    manager: Arc<BufferManager>,
    reloaders: Vec<ReloadThread>,
    /// Allocation counts at the last reading.
    pub(super) rates: Mutex<Rates>,
}

/// Thread of one reload worker.
struct ReloadThread {
    waker: Waker,
    stop: Arc<AtomicBool>,
    thread: Option<Thread<()>>,
}

impl Memory {
    /// Creates the memory for a configuration, with its reload workers.
    ///
    /// # Errors
    /// When the system has not enough memory, or no thread.
    pub fn new(configuration: &Configuration, clock: Clock, supervised: &Threads) -> Result<Self> {
        let manager = BufferManager::new(options(configuration)).context("cannot allocate packet memory")?;
        let mut memory = Self::of(Arc::new(manager));
        let threads = names(&configuration.lab);
        for (reloader, (name, nice)) in memory.manager.reloaders().into_iter().zip(threads) {
            memory.reloaders.push(ReloadThread::start(reloader, (name, nice), clock, supervised)?);
        }
        Ok(memory)
    }

    /// Wraps a manager that the caller has created and maintains.
    pub fn of(manager: Arc<BufferManager>) -> Self {
        Self { manager, reloaders: Vec::new(), rates: Mutex::default() }
    }

    /// The manager of all buffers.
    pub fn manager(&self) -> &Arc<BufferManager> {
        &self.manager
    }

    /// Wakes the reload workers to look for idle memory. Call it about once a second.
    pub fn look(&self) {
        self.reloaders.iter().for_each(|reloader| reloader.waker.wake());
    }

    /// A worker's pool, for both classes.
    pub fn pool(&self) -> Pool {
        self.manager.pool(Class::Data).with_control(self.manager.pool(Class::Control))
    }
}

impl ReloadThread {
    fn start(
        mut reloader: Reloader,
        (name, nice): (&str, i32),
        clock: Clock,
        supervised: &Threads,
    ) -> Result<Self> {
        let (waker, stop) = (reloader.waker(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = supervised.spawn(name, Loss::Ends, move || {
            set_priority(nice);
            sandbox::enter(Role::Reload);
            // Relaxed: the wake-up that follows the store orders it.
            while !stopped.load(Ordering::Relaxed) {
                reloader.wait();
                reloader.turn(Duration::from_nanos(clock.elapsed().0));
            }
        })?;
        Ok(Self { waker, stop, thread: Some(thread) })
    }
}

impl Drop for ReloadThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        let Some(thread) = self.thread.take() else { return };
        if thread.join().is_none() {
            tracing::error!("a reload worker has panicked; packet memory no longer grows");
        }
    }
}

/// Names and nice values of the reload workers, in the order of the classes.
fn names(lab: &Lab) -> Vec<(&'static str, i32)> {
    if lab.split_reload {
        vec![("reload-control", CONTROL_NICE), ("reload-data", DATA_NICE)]
    } else {
        vec![("reload", 0)]
    }
}

/// Sets the nice value of the calling thread.
fn set_priority(nice: i32) {
    let thread = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(thread), nice) {
        tracing::debug!(nice, %error, "the reload worker keeps normal priority");
    }
}

/// Techniques that the configuration enables.
pub fn switches(configuration: &Configuration) -> Switches {
    let lab = &configuration.lab;
    Switches {
        pools_frames: lab.pool_frames,
        pools_fragments: lab.pool_fragments,
        reloads: lab.reload,
        splits_reload: lab.split_reload,
        gives_back: configuration.buffers.idle_seconds.is_some(),
        refill_below_percent: lab.refill_below_percent,
        reuses: lab.reuse,
        resets_when_alone: lab.reset_when_alone,
        large_blocks: lab.large_blocks,
        biased_count: lab.biased_count,
        single_pages: lab.single_pages,
        owns_fragments: lab.own_fragments,
        held_blocks: lab.held_blocks,
        never_cross: lab.never_cross,
    }
}

/// Buffer options of a configuration.
pub fn options(configuration: &Configuration) -> BufferOptions {
    let Configuration { gateway, buffers, lab, .. } = configuration;
    let frames = frames(configuration);
    let of_control = part(frames, buffers.control_percent, FEWEST_FRAMES);
    let is_fixed = is_registered(configuration);
    let class = |slots: u32, blocks: u32| {
        let policy = if is_fixed { AllocationPolicy::Fixed } else { policy(slots, FEWEST_FRAMES, lab) };
        let frames = ClassOptions { slots, policy, reserve_options: ReserveOptions::default() };
        let fragments = FragmentOptions {
            blocks,
            spare_pages: SPARE_PAGES,
            policy: if takes_pieces(configuration) {
                self::policy(blocks, FEWEST_BLOCKS, lab)
            } else {
                growing(A_FEW_BLOCKS.min(blocks), lab)
            },
            ..FragmentOptions::default()
        };
        ClassBuffers { frames, fragments: Some(fragments) }
    };
    let blocks = buffers.fragments_mib * BLOCKS_A_MIB;
    let control_blocks = part(blocks, buffers.control_percent, FEWEST_BLOCKS);
    let options = BufferOptions {
        control: class(of_control, control_blocks),
        data: class(frames - of_control, blocks - control_blocks),
        patience: buffers.idle_seconds.map(|seconds| Duration::from_secs(seconds.into())),
        ..BufferOptions::fixed(gateway.slot_bytes, 0, 0)
    };
    options.with_switches(&switches(configuration))
}

/// Class of frames received on a port. A TAP beside other devices leads to the host itself, which stays
/// reachable under load: its frames are control frames.
pub fn class(port: &Port, configuration: &Configuration) -> Class {
    let is_machine = |port: &Port| port.device.capabilities().has_kernel_peer;
    let is_beside_others = is_machine(port) && !configuration.ports.iter().all(is_machine);
    if is_beside_others { Class::Control } else { Class::Data }
}

/// `percent` percent of `all`, and at least `fewest`, or half of `all` if that is less.
fn part(all: u32, percent: u8, fewest: u32) -> u32 {
    let part = u64::from(all) * u64::from(percent) / 100;
    u32::try_from(part).unwrap_or(all).max(fewest.min(all / 2))
}

/// True if fragments are allocated at packet rate: for copied packets, and for long TAP packets that are
/// segmented. Between interfaces only flooding and generated messages allocate fragments.
fn takes_pieces(configuration: &Configuration) -> bool {
    let is_in_place = |port: &Port| port.device.capabilities().registers_memory;
    configuration.buffers.copy_break > 0 || !configuration.ports.iter().all(is_in_place)
}

/// Policy of a growing class that keeps a percentage of `count` ready.
fn policy(count: u32, fewest: u32, lab: &Lab) -> AllocationPolicy {
    growing(part(count, lab.reserve_percent, fewest).max(1), lab)
}

/// Policy that keeps `target` buffers ready.
fn growing(target: u32, lab: &Lab) -> AllocationPolicy {
    let reload_below = part(target, lab.reload_below_percent, 1);
    AllocationPolicy::Growing(Marks { reload_below, ..Marks::for_target(target) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use polder_buffers::Frame;
    use std::path::Path;

    fn configuration(buffers: &str) -> Configuration {
        let text = format!(
            "version = 1\n{buffers}\n[port.a]\ntap = \"a\"\n[port.b]\ntap = \"b\"\n[bridge.x]\nmembers = [\"a\", \"b\"]"
        );
        config::parse(&text, Path::new("memory.toml")).expect("valid").configuration
    }

    /// E7, by construction: whatever is taken lies within 4 KiB.
    #[test]
    fn no_buffer_crosses_4096() {
        for (gateway, most) in [("", 1024), ("slot_bytes = 4096", 2048)] {
            let text = format!("[gateway]\nmemory_mib = 8\n{gateway}");
            let memory = Memory::new(&configuration(&text), Clock::start(), &Threads::default())
                .expect("memory for a test");
            let mut pool = memory.pool();
            let sizes = (1..=most).step_by(37).chain([64, 65, most, 4095, 4096]);
            let frames = sizes.filter_map(|bytes| pool.take_for(bytes)).collect::<Vec<_>>();
            assert!(frames.len() > 20);
            for frame in frames {
                let first = frame.offset_in_region();
                let last = first + u64::from(frame.slot_bytes()) - 1;
                assert_eq!(first / 4096, last / 4096, "{first} to {last}");
                pool.release_frame(frame);
            }
        }
    }

    #[test]
    fn small_memory_is_divided_so_that_both_classes_live() {
        let tiny = options(&configuration("[gateway]\nmemory_mib = 4\nslot_bytes = 4096"));
        assert_eq!((tiny.control.frames.slots, tiny.data.frames.slots), (128, 896));
        let blocks = |class: ClassBuffers| class.fragments.expect("both have some").blocks;
        assert_eq!((blocks(tiny.control), blocks(tiny.data)), (8, 24));
    }

    /// Little memory is kept ready for small pieces between interfaces, where few are taken; it
    /// grows all the same.
    #[test]
    fn small_pieces_are_ready_where_they_are_taken() {
        let ready = |buffers: &str, [a, b]: [&str; 2]| {
            let text = format!(
                "version = 1\n{buffers}\n[port.a]\n{a} = \"a\"\n[port.b]\n{b} = \"b\"\n[bridge.x]\nmembers = [\"a\", \"b\"]"
            );
            let configuration = config::parse(&text, Path::new("pieces.toml")).expect("valid").configuration;
            let options = options(&configuration);
            [options.control, options.data].map(|class| {
                match class.fragments.expect("both have some").policy {
                    AllocationPolicy::Growing(marks) => marks.target,
                    AllocationPolicy::Fixed => 0,
                }
            })
        };
        let usual = ready("", ["tap", "tap"]);
        assert!(usual[1] > 10 * A_FEW_BLOCKS, "{usual:?}");
        assert_eq!(ready("", ["interface", "tap"]), usual);
        assert_eq!(ready("[buffers]\ncopy_break = 64", ["interface", "interface"]), usual);
        assert_eq!(ready("", ["interface", "interface"]), [A_FEW_BLOCKS; 2]);
    }

    /// Takes most of the memory at a pace that a reload worker keeps up with.
    fn drain(pool: &mut Pool) -> Vec<Frame> {
        let mut taken = Vec::new();
        while taken.len() < 6000 {
            pool.take_bulk(32, &mut taken);
            // The reload workers have other work than tests.
            if pool.cached() == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        taken
    }

    /// Memory is brought in on the reload workers' threads, and goes back when it is not used.
    #[test]
    fn a_gateways_memory_grows_and_shrinks() {
        let text = "[gateway]\nmemory_mib = 16\n[buffers]\nidle_seconds = 1";
        let memory = Memory::new(&configuration(text), Clock::start(), &Threads::default())
            .expect("memory for a test");
        let data = || memory.manager().accounts()[1];
        let (mut pool, before) = (memory.pool(), data());
        let mut taken = drain(&mut pool);
        // A reload is counted when it is done, which may be after its frames are taken.
        let waits = 600;
        let is_counted = (0..waits).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            data().events.loaded > 3000
        });
        let most = data();
        assert!(is_counted && most.cold < before.cold, "{most:?}");
        assert_eq!(most.events.on_demand, 0, "{most:?}");
        pool.release_bulk(&mut taken);
        pool.give_back();
        let shrinks = (0..waits).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            memory.look();
            data().cold + 64 >= before.cold
        });
        assert!(shrinks, "{before:?} {:?}", data());
    }

    /// C2 off: the same burst is served by who takes the frames.
    #[test]
    fn without_reload_the_taker_brings_memory_in() {
        let text = "[gateway]\nmemory_mib = 16\n[lab]\nreload = false";
        let memory = Memory::new(&configuration(text), Clock::start(), &Threads::default())
            .expect("memory for a test");
        let mut pool = memory.pool();
        let mut taken = drain(&mut pool);
        let events = memory.manager().accounts()[1].events;
        assert!(events.on_demand > 3000 && events.loaded == 0, "{events:?}");
        pool.release_bulk(&mut taken);
    }
}
