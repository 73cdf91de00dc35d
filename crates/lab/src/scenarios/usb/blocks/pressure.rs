//! The same effects under memory pressure: a process in a group whose limit is nearly reached by cached pages of a
//! file, so that each new page of memory has to be reclaimed by the process that needs it.

use super::group::{self, Group};
use super::{Amount, Effect, Size, block, sample};
use crate::scenarios::testbed::cores;
use anyhow::{Context as _, anyhow, ensure};
use polder_testbed::clock;
use polder_testbed::command;
use polder_testbed::topology::pin_here;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Limit of the group: a burst in packet memory, this process, and as much again for cached pages.
const LIMIT: u64 = 128 << 20;
/// Bytes of the file whose pages are cached: more than the group has room for.
const FILE: u64 = 2 * LIMIT;
/// Bytes of a read, and the pause after as many of them as make a MiB.
const READ: usize = 256 << 10;
const READS: u64 = 4;
const PAUSE: Duration = Duration::from_millis(1);
/// Percentage of the limit from which memory is short, and the time until then.
const SHORT_FROM: f64 = 95.0;
const START: Duration = Duration::from_secs(10);
/// Directory of a file system that caches pages.
const DIRECTORY: &str = "/var/tmp";

/// Measures one side of an effect in a process and a control group of its own.
pub(super) fn measure(effect: Effect, size: Size, is_on: bool, amount: Amount) -> anyhow::Result<f64> {
    let group = Group::new(LIMIT)?;
    let own = std::env::current_exe().context("cannot find the lab's own program")?;
    let mut command = Command::new(own);
    command.arg("receive-under-pressure").arg(group.path()).arg(effect.name()).arg(size.name);
    if is_on {
        command.arg("--on");
    }
    if amount == super::QUICK {
        command.arg("--quick");
    }
    let told = command::run(&mut command)?;
    told.trim().parse().with_context(|| format!("no number, but `{}`", told.trim()))
}

/// Measures one side of the effect of that name as a process in the group; returns its result.
///
/// # Errors
/// When the group cannot be entered or filled, or the measurement refuses.
pub fn inside(
    group: &Path,
    (effect, size): (&str, &str),
    (is_on, is_quick): (bool, bool),
) -> anyhow::Result<f64> {
    let effect = Effect::named(effect).with_context(|| format!("there is no effect `{effect}`"))?;
    let size = Size::named(size).with_context(|| format!("there is no size `{size}`"))?;
    let block = block(size.bytes);
    group::enter(group)?;
    let file = cached_file()?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(&file, &is_over));
        let result =
            wait_until_short(group).and_then(|()| sample(effect, size, &block, is_on, Amount::of(is_quick)));
        // Relaxed: the flag orders nothing.
        is_over.store(true, Ordering::Relaxed);
        reading.join().map_err(|_| anyhow!("the reader of the file panicked"))??;
        result
    })
}

/// A file without blocks and without a name, whose pages are cached when they are read.
fn cached_file() -> anyhow::Result<File> {
    let path = PathBuf::from(DIRECTORY).join(format!("polder-lab-{}", std::process::id()));
    let options = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let file = options.with_context(|| format!("cannot make {}", path.display()))?;
    fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    file.set_len(FILE)?;
    Ok(file)
}

/// Reads the file again and again, so that its pages take the room that is left.
fn read(file: &File, is_over: &AtomicBool) -> anyhow::Result<()> {
    pin_here(cores().1)?;
    let mut bytes = vec![0; READ];
    for number in 0_u64.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        file.read_exact_at(&mut bytes, number * READ as u64 % FILE)?;
        if number % READS == READS - 1 {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

fn wait_until_short(group: &Path) -> anyhow::Result<()> {
    let end = clock::now() + START;
    while group::used_percent(group)? < SHORT_FROM {
        ensure!(clock::now() < end, "pages of a file in {DIRECTORY} do not fill the group");
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_testbed::skip::skip;
    use std::process::Child;

    /// A process of its own, because the group keeps what enters it.
    #[test]
    fn cached_pages_fill_a_group() {
        let group = match Group::new(32 << 20) {
            Ok(group) => group,
            Err(error) => return skip("cached_pages_fill_a_group", format!("{error:#}")),
        };
        let file = Path::new(DIRECTORY).join(format!("polder-lab-test-{}", std::process::id()));
        File::create(&file).unwrap().set_len(64 << 20).unwrap();
        let script = format!(
            "echo $$ > {}/cgroup.procs; cat {} > /dev/null; sleep 60",
            group.path().display(),
            file.display()
        );
        let mut child: Child = Command::new("sh").arg("-c").arg(script).spawn().unwrap();
        let result = wait_until_short(group.path());
        drop(group);
        let _ = child.wait();
        fs::remove_file(&file).unwrap();
        result.unwrap();
    }
}
