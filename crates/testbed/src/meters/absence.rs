//! Times at which other threads had a core: the scheduler's switches, from a trace buffer of the
//! kernel's.
//!
//! A wire between two interfaces holds some hundred packets. Whoever has the device's core for longer
//! than these take to come makes the wire lose packets, whatever the device does: on a kernel that
//! does not preempt its own code, threads that come before all others wait for it, too.

use anyhow::Context as _;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const TRACING: &str = "/sys/kernel/tracing/instances";
/// Room for the switches of some seconds; the oldest give way.
const BUFFER_KIB: &str = "65536";

/// A watch on one core, until it is dropped.
#[derive(Debug)]
pub struct Watch {
    folder: PathBuf,
}

/// Time for which another thread had the core.
#[derive(Clone, Debug, PartialEq)]
pub struct Absence {
    /// The thread's name.
    pub who: String,
    /// Time for which it had the core.
    pub time: Duration,
}

impl Watch {
    /// Watches a core.
    ///
    /// # Errors
    /// When the kernel has no tracing, or this is not root.
    pub fn core(core: usize) -> anyhow::Result<Self> {
        let folder = PathBuf::from(TRACING).join(format!("pdl-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let watch = Self { folder };
        let mask = format!("{:x}", 1_u64 << core);
        for (file, value) in [
            ("buffer_size_kb", BUFFER_KIB),
            ("tracing_cpumask", &mask),
            ("trace_clock", "mono"),
            ("events/sched/sched_switch/enable", "1"),
        ] {
            fs::write(watch.folder.join(file), value).with_context(|| format!("cannot set {file}"))?;
        }
        Ok(watch)
    }

    /// Ends the watch: turns of at least `least` of threads whose names do not begin with one of `own`.
    ///
    /// # Errors
    /// When the buffer cannot be read.
    pub fn absences(self, own: &[&str], least: Duration) -> anyhow::Result<Vec<Absence>> {
        fs::write(self.folder.join("tracing_on"), "0").context("cannot end tracing")?;
        let trace = fs::read(self.folder.join("trace")).context("cannot read the trace")?;
        Ok(absences_in(&String::from_utf8_lossy(&trace), own, least))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A folder that stays costs memory until the next boot, and nothing else.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Threads that held the core for longer than a wire can buffer packets, in words.
pub fn told(absences: Option<&[Absence]>) -> String {
    let Some(absences) = absences else { return "the kernel does not tell who else had its core".to_owned() };
    if absences.is_empty() {
        return "nobody else had its core for long enough to fill a wire".to_owned();
    }
    let mut by = BTreeMap::<&str, (usize, Duration)>::new();
    for Absence { who, time } in absences {
        let (count, longest) = by.entry(who).or_default();
        *count += 1;
        *longest = (*longest).max(*time);
    }
    let each = by.iter().map(|(who, (count, longest))| {
        format!("{who} {count} times, for {:.1} ms at most", longest.as_secs_f64() * 1e3)
    });
    format!("its core was held for longer than a wire bears by {}", each.collect::<Vec<_>>().join(", "))
}

fn absences_in(trace: &str, own: &[&str], least: Duration) -> Vec<Absence> {
    let mut absences = Vec::new();
    let mut last: Option<(f64, &str)> = None;
    for (at, next) in trace.lines().filter_map(switch_in) {
        if let Some((since, who)) = last {
            let time = Duration::from_secs_f64((at - since).max(0.0));
            let other = !who.starts_with("swapper") && !own.iter().any(|own| who.starts_with(own));
            if other && time >= least {
                absences.push(Absence { who: who.to_owned(), time });
            }
        }
        last = Some((at, next));
    }
    absences
}

/// `… 23505.810501: sched_switch: prev_comm=… ==> next_comm=NAME next_pid=… next_prio=…`
fn switch_in(line: &str) -> Option<(f64, &str)> {
    let (front, rest) = line.split_once(": sched_switch: ")?;
    let at = front.split_whitespace().last()?.parse().ok()?;
    let (_, next) = rest.split_once("==> next_comm=")?;
    Some((at, next.rsplit_once(" next_pid=")?.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    #[test]
    fn seventeen_turns_of_somebody_else_are_seventeen() {
        let mut trace = "# tracer: nop\n".to_owned();
        let mut at = 100.0;
        let mut run = |who: &str, millis: f64| {
            let _ = writeln!(
                trace,
                "  x-1 [001] d..2. {at:.6}: sched_switch: prev_comm=x prev_pid=1 prev_prio=120 prev_state=S \
                 ==> next_comm={who} next_pid=2 next_prio=120"
            );
            at += millis / 1e3;
        };
        for _ in 0..17 {
            run("worker-0", 3.0);
            run("tokio worker", 1.5);
            run("swapper/1", 9.0);
            run("kworker/1:0", 0.2);
        }
        run("worker-0", 0.0);
        let found = absences_in(&trace, &["worker", "napi/"], Duration::from_millis(1));
        assert_eq!((found.len(), found[0].who.as_str()), (17, "tokio worker"));
        assert!(found.iter().all(|turn| (1_400..1_600).contains(&turn.time.as_micros())), "{found:?}");
    }
}
