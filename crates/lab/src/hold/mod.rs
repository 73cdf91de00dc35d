//! Holding a thread of another process, wherever it is, for a while: what a hypervisor or a busy
//! scheduler does to a worker.
//!
//! A process cannot trace its own threads, so the lab starts itself once more to do it.

mod sys;

use crate::command::Running;
use anyhow::{Context as _, ensure};
use std::process::Command;
use std::time::Duration;

/// Holds thread `thread` `times` times for `hold`, with `pause` in between. For a process of its own.
///
/// # Errors
/// When the thread cannot be traced: that takes the same user and a system that allows it, or root.
pub fn hold(thread: i32, times: u32, hold: Duration, pause: Duration) -> anyhow::Result<()> {
    for _ in 0..times {
        std::thread::sleep(pause);
        sys::hold(thread, hold).with_context(|| {
            format!("thread {thread} cannot be held; run as root, or allow it: kernel.yama.ptrace_scope = 0")
        })?;
    }
    Ok(())
}

/// Has thread `thread` of this process held as [`hold`] says; returns when it is over.
///
/// # Errors
/// When it cannot be traced, or when interrupted.
pub fn have_held(thread: i32, times: u32, hold: Duration, pause: Duration) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("cannot find the lab's own program")?;
    let mut command = Command::new(own);
    command.arg("hold").arg(thread.to_string()).arg(times.to_string());
    command.arg(hold.as_millis().to_string()).arg(pause.as_millis().to_string());
    let mut holder = Running::start("hold", &mut command)?;
    let limit = (hold + pause) * times + Duration::from_secs(5);
    let status = holder.wait(limit)?;
    ensure!(status.success(), "{}", holder.said().trim());
    Ok(())
}
