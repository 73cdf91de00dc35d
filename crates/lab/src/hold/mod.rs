//! Holding a thread of another process, wherever it is, for a while: what a hypervisor or a busy
//! scheduler does to a worker. And ending one, as nothing can prepare for.
//!
//! A process cannot trace its own threads, so the lab starts itself once more to do it.

mod sys;

use anyhow::{Context as _, ensure};
use polder_testbed::command::Running;
use std::fs;
use std::os::unix::fs::FileExt as _;
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

/// Ends thread `thread` of another process where it is: it makes the system call `exit`, unwinds nothing and drops
/// nothing.
///
/// # Errors
/// When the thread cannot be traced, or the lab does not know the machine's registers (it knows x86-64).
pub fn end(thread: i32) -> anyhow::Result<()> {
    let call = call_instruction(thread).with_context(|| format!("thread {thread} cannot be looked at"))?;
    sys::end(thread, call).with_context(|| format!("thread {thread} cannot be ended; run as root"))
}

/// Address of a system call instruction in the memory of a process, within the vDSO.
fn call_instruction(thread: i32) -> anyhow::Result<u64> {
    let maps = fs::read_to_string(format!("/proc/{thread}/maps"))?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).context("there is no vDSO")?;
    let (begin, end) =
        line.split_once(' ').and_then(|(range, _)| range.split_once('-')).context("odd maps")?;
    let (begin, end) = (u64::from_str_radix(begin, 16)?, u64::from_str_radix(end, 16)?);
    let mut code = vec![0; usize::try_from(end - begin)?];
    fs::File::open(format!("/proc/{thread}/mem"))?.read_exact_at(&mut code, begin)?;
    let at = code.windows(sys::CALL.len()).position(|bytes| bytes == sys::CALL);
    Ok(begin + u64::try_from(at.context("the vDSO makes no system call")?)?)
}

/// Holds thread `thread` of this process repeatedly, as [`hold`] describes; returns afterwards.
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
