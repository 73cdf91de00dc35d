//! Threaded NAPI: receive work of an interface on a thread of its own, pinned to one core.
//!
//! A veth receives in softirq on its *sender's* core unless told otherwise. For a measurement of
//! one gateway the work belongs on the gateway's core.

use super::Namespace;
use crate::command;
use crate::interrupt;
use anyhow::{Context as _, ensure};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Time for which the kernel may take to start its threads.
const DEADLINE: Duration = Duration::from_secs(2);

impl Namespace {
    /// Gives `interface` a NAPI thread and pins it to core `cpu`; returns the thread.
    ///
    /// veth has a NAPI instance only while GRO or an XDP program is on: do one of them first.
    ///
    /// # Errors
    /// When the interface has no NAPI instance, or the thread cannot be found or pinned.
    pub fn pin_napi(&self, interface: &str, cpu: usize) -> anyhow::Result<Vec<i32>> {
        let file = format!("/sys/class/net/{interface}/threaded");
        let before = threads_of(interface)?;
        let script = format!("cat {file} && echo 1 > {file}");
        let was = command::run(self.command("sh").args(["-c", &script])).with_context(|| {
            format!("{interface} has no NAPI instance to move to a thread; veth needs GRO or an XDP program")
        })?;
        // An interface of another namespace may have that name: one is taken down some time after its own name has gone.
        let others = if was.trim() == "1" { Vec::new() } else { before };
        let threads = wait_for_threads(interface, &others)?;
        for &thread in &threads {
            pin(thread, cpu)?;
        }
        Ok(threads)
    }

    /// Lets a timer begin the receive work of `interface`, `nanos` nanoseconds after it last ended, in
    /// place of each packet. After `patience` empty polls, a packet begins it again.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn moderate(&self, interface: &str, nanos: u32, patience: u32) -> anyhow::Result<()> {
        let folder = format!("/sys/class/net/{interface}");
        let script = format!(
            "echo {nanos} > {folder}/gro_flush_timeout && echo {patience} > {folder}/napi_defer_hard_irqs"
        );
        command::run(self.command("sh").args(["-c", &script])).map(drop)
    }
}

/// Pins a thread of any process to one core.
///
/// # Errors
/// When there is no such core or no right to do it.
pub fn pin(thread: i32, cpu: usize) -> anyhow::Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(Pid::from_raw(thread), &cpus)
        .with_context(|| format!("cannot pin thread {thread} to core {cpu}"))
}

/// Pins the calling thread to one core.
///
/// # Errors
/// When there is no such core.
pub fn pin_here(cpu: usize) -> anyhow::Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).with_context(|| format!("cannot run on core {cpu}"))
}

/// Lets a thread run before all ordinary ones of its core: a sink must not wait for the generator.
///
/// # Errors
/// When there is no right to do it.
pub fn put_first(thread: i32) -> anyhow::Result<()> {
    put_before(thread, 1)
}

/// Gives a thread priority over all ordinary threads of its core, and over threads that got priority by a smaller
/// number (`SCHED_FIFO`).
///
/// # Errors
/// When there is no right to do it.
pub fn put_before(thread: i32, number: u8) -> anyhow::Result<()> {
    let (number, thread) = (number.to_string(), thread.to_string());
    command::run(Command::new("chrt").args(["--fifo", "--pid", &number, &thread])).map(drop)
}

fn wait_for_threads(interface: &str, others: &[i32]) -> anyhow::Result<Vec<i32>> {
    interrupt::retry(DEADLINE, Duration::from_millis(5), || {
        let mut threads = threads_of(interface)?;
        threads.retain(|thread| !others.contains(thread));
        ensure!(!threads.is_empty(), "no thread napi/{interface}-… has appeared");
        Ok(threads)
    })
}

/// Kernel threads named `napi/INTERFACE-NUMBER`. Interfaces in all namespaces share these names, so
/// those of a device under test are unique on the machine.
fn threads_of(interface: &str) -> anyhow::Result<Vec<i32>> {
    let prefix = format!("napi/{interface}-");
    let mut threads = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot read /proc")? {
        let Ok(thread) = entry?.file_name().to_string_lossy().parse::<i32>() else { continue };
        // A process that ends meanwhile is none of ours.
        let Ok(name) = fs::read_to_string(format!("/proc/{thread}/comm")) else { continue };
        if name.strip_prefix(&prefix).is_some_and(|rest| rest.trim().parse::<u32>().is_ok()) {
            threads.push(thread);
        }
    }
    Ok(threads)
}
