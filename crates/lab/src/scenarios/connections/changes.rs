//! Changes of the kernel's rules, routes and policies: packets that Polder carries after the command has returned.
//!
//! Each packet has the time at which it was sent. After a change the kernel drops all of them, so one that arrives and was sent
//! after the command's return was carried past the change.

use super::router::{ALLOWED, CARRIED_WITHIN, Forwarder, LEFT, RIGHT, Router, Rules, Wires};
use super::stream::Stream;
use super::{Books, Run};
use crate::yielding::beside_busy_cores;
use anyhow::{Context as _, ensure};
use polder_testbed::clock;
use polder_testbed::command;
use polder_testbed::interrupt;
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

const LEAKED: &str = "connections.after_rule.leaked";
const LONGEST: &str = "connections.after_rule.longest_ms";
const STOPPED: &str = "connections.stopped_control.leaked_after_ms";

/// Time for which packets are sent before the command, after its return, and after that of a process that stands still.
const BEFORE: Duration = Duration::from_millis(40);
const AFTER: Duration = Duration::from_millis(60);
const AFTER_STOPPED: Duration = Duration::from_millis(300);

/// A change after which the kernel drops the packets of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    RuleInserted,
    ElementDeleted,
    Flushed,
    RoutingRule,
    Route,
    Policy,
}

/// Result of a try.
struct Try {
    /// Packets that were sent after the command's return and arrived.
    leaked: usize,
    /// Time from the return to the last packet that arrived, in nanoseconds; negative where that was sent before.
    last: i64,
}

impl Change {
    const ALL: [Self; 6] = [
        Self::RuleInserted,
        Self::ElementDeleted,
        Self::Flushed,
        Self::RoutingRule,
        Self::Route,
        Self::Policy,
    ];

    /// Script that makes the change.
    fn script(self) -> String {
        match self {
            Self::RuleInserted => format!("nft insert rule inet fw forward udp dport {ALLOWED} drop"),
            Self::ElementDeleted => format!("nft delete element inet fw allowed '{{ {ALLOWED} }}'"),
            Self::Flushed => "nft flush chain inet fw forward".to_owned(),
            Self::RoutingRule => format!("ip rule add from {LEFT} lookup 77"),
            Self::Route => format!("ip route add blackhole {RIGHT}"),
            Self::Policy => format!("ip xfrm policy add {POLICY} action block"),
        }
    }

    /// Script that takes it back.
    fn undo(self) -> String {
        match self {
            Self::RuleInserted | Self::Flushed => {
                format!("nft -f - <<END\nflush chain inet fw forward\n{}END", added(Rules::Three))
            }
            Self::ElementDeleted => format!("nft add element inet fw allowed '{{ {ALLOWED} }}'"),
            Self::RoutingRule => format!("ip rule del from {LEFT} lookup 77"),
            Self::Route => format!("ip route del blackhole {RIGHT}"),
            Self::Policy => format!("ip xfrm policy delete {POLICY}"),
        }
    }
}

const POLICY: &str = "dir fwd src 172.20.1.0/24 dst 172.20.2.0/24";

/// Commands that add the rules to their chain.
fn added(rules: Rules) -> String {
    rules.admitting().lines().map(|rule| format!("add rule inet fw forward {rule}\n")).collect()
}

/// A router with a stream that it carries.
struct Site {
    router: Router,
    stream: Stream,
}

/// Fills the rows.
pub(super) fn measure(run: &mut Run, books: &mut Books) -> anyhow::Result<()> {
    if run.is_due(&[LEAKED, LONGEST]) {
        after_changes(run, books)?;
    }
    if run.is_due(&[STOPPED]) {
        stopped(run, books)?;
    }
    Ok(())
}

fn after_changes(run: &mut Run, books: &mut Books) -> anyhow::Result<()> {
    let each = run.quick_or(1, 17);
    let mut sites = [Site::lay(Rules::Three)?, Site::lay(Rules::Set)?];
    let mut tries = |how: &str| -> anyhow::Result<Vec<(Change, Try)>> {
        let mut all = Vec::new();
        for change in Change::ALL {
            run.says(&format!("{change:?}, {each} times, {how}"));
            let site = &mut sites[usize::from(change == Change::ElementDeleted)];
            for _ in 0..each {
                let one = site.change(change).with_context(|| format!("{change:?}"))?;
                all.push((change, one));
            }
        }
        Ok(all)
    };
    let mut all = tries("idle")?;
    all.extend(beside_busy_cores(|| tries("beside busy cores"))?);
    run.record_one(LEAKED, super::count(all.iter().map(|(_, one)| one.leaked).sum()));
    let leaky = all.iter().filter(|(_, one)| one.leaked > 0).map(|(change, _)| format!("{change:?}"));
    let leaky = leaky.collect::<Vec<_>>().join(", ");
    run.remark(LEAKED, format!("{} tries, half of them beside two busy threads {leaky}", all.len()));
    let longest = all.iter().map(|(_, one)| one.last).max().unwrap_or_default();
    run.record_one(LONGEST, longest as f64 / 1e6);
    run.remark(LONGEST, "from the command's return to the last packet carried, negative before it");
    for site in sites {
        books.unaccounted += site.router.stop()?;
    }
    Ok(())
}

/// A process that stands still hears of no change.
fn stopped(run: &mut Run, books: &mut Books) -> anyhow::Result<()> {
    let tries = run.quick_or(2, 10);
    let mut site = Site::lay(Rules::Three)?;
    let mut all = Vec::new();
    for number in 1..=tries {
        run.says(&format!("a process that stands still, {number} of {tries}"));
        all.push(site.stopped()?);
    }
    let longest = all.iter().map(|one| one.last).max().unwrap_or_default();
    run.record_one(STOPPED, longest as f64 / 1e6);
    let leaked = all.iter().map(|one| one.leaked).sum::<usize>();
    run.remark(
        STOPPED,
        format!("the longest of {tries}; {leaked} packets in all, which the meter of leaks sees"),
    );
    books.unaccounted += site.router.stop()?;
    Ok(())
}

impl Site {
    fn lay(rules: Rules) -> anyhow::Result<Self> {
        let router = Router::lay(Forwarder::Polder, rules, Wires::Whole, "")?;
        router.device.ip(&["route", "add", "blackhole", "default", "table", "77"])?;
        let stream = Stream::open(&router)?;
        Ok(Self { router, stream })
    }

    fn shell(&self, script: &str) -> anyhow::Result<()> {
        command::run(self.router.device.command("sh").args(["-e", "-c", script])).map(drop)
    }

    fn change(&mut self, change: Change) -> anyhow::Result<Try> {
        let tried = self.attempt(AFTER, |site| site.shell(&change.script()))?;
        self.shell(&change.undo())?;
        Ok(tried)
    }

    fn stopped(&mut self) -> anyhow::Result<Try> {
        let gateway = self.router.gateway.as_ref().context("Polder has a gateway")?;
        let process = i32::try_from(gateway.id()).ok().and_then(Pid::from_raw).context("a process")?;
        let change = Change::RuleInserted;
        let tried = self.attempt(AFTER_STOPPED, |site| {
            kill_process(process, Signal::STOP)?;
            site.shell(&change.script())
        });
        kill_process(process, Signal::CONT)?;
        let tried = tried?;
        self.shell(&change.undo())?;
        Ok(tried)
    }

    /// Sends while something changes the kernel.
    fn attempt(
        &mut self,
        after: Duration,
        change: impl FnOnce(&Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<Try> {
        self.stream.wait_until_carried(&self.router)?;
        let before = self.router.carried()?;
        let site = &*self;
        let ((returned, end), seen) = site.stream.during(|| {
            let end = clock::now() + CARRIED_WITHIN;
            while site.router.carried()? <= before {
                ensure!(clock::now() < end, "nothing is carried before the change");
                interrupt::sleep(BEFORE)?;
            }
            change(site)?;
            let returned = clock::nanos();
            interrupt::sleep(after)?;
            Ok((returned, clock::nanos()))
        })?;
        let leaked = seen.stamps.iter().filter(|&stamp| (returned..end).contains(stamp)).count();
        let last = seen.stamps.iter().filter(|&&stamp| stamp < end).max().context("nothing arrives")?;
        Ok(Try { leaked, last: last.cast_signed() - returned.cast_signed() })
    }
}
