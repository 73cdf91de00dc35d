//! Both routers, and the thread that asks them.

use super::packet::{Ends, Odd, Transport, ends_of, packet};
use super::twin::{Side, Twin};
use anyhow::ensure;
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::peers::polder;
use polder_testbed::topology::pin_here;
use polder_testbed::{clock, interrupt};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;
use std::time::Duration;

/// Both routers, with their stations.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) kernel: Twin,
    pub(super) polder: Twin,
    /// The gateway, once it runs.
    pub(super) gateway: Option<Gateway>,
    /// True if the gateway lacks a check, so that it may keep connections that have ended.
    pub(super) is_faulty: bool,
}

impl Pair {
    /// Ends all connections of both kernels, and waits until the gateway has none: events come after the answer.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        self.kernel.flush()?;
        self.polder.flush()?;
        interrupt::sleep(HEARS)?;
        let Some(gateway) = self.gateway.as_ref().filter(|_| !self.is_faulty) else { return Ok(()) };
        // A gateway that keeps them is found by the packets that follow.
        let _ = interrupt::retry(AWAKENS, ENTERS, || {
            let shown = gateway.show("connections")?;
            let entered = polder::find(&shown, "entered").and_then(Value::as_u64);
            ensure!(entered.unwrap_or(0) == 0, "the gateway still has {entered:?} connections");
            Ok(())
        });
        Ok(interrupt::check()?)
    }
}

/// The calling thread runs on one core as long as this is there: frames come in their order.
pub(super) struct Pinned(CpuSet);

impl Pinned {
    pub(super) fn here() -> anyhow::Result<Self> {
        let before = sched_getaffinity(None)?;
        pin_here((0..CpuSet::MAX_CPU).find(|&cpu| before.is_set(cpu)).unwrap_or_default())?;
        Ok(Self(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // A thread that stays on one core is no harm.
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Waits until a connection of its own is carried: from then on the gateway follows the kernel.
pub(super) fn awaken(pair: &mut Pair) -> anyhow::Result<()> {
    let (source, destination) = ([10, 84, 1, 3].into(), [198, 51, 100, 7].into());
    let ends = Ends { source, destination, ports: [39_999, 5353] };
    greet(pair, &ends)?;
    interrupt::sleep(ENTERS)?;
    let end = clock::now() + AWAKENS;
    while pair.gateway.is_some() && clock::now() < end {
        let before = pair.polder.forwarded()?;
        let left = greet(pair, &ends)?;
        if pair.polder.forwarded()? - before < left {
            break;
        }
        interrupt::sleep(ENTERS)?;
    }
    Ok(())
}

/// Sends one packet and its answer through both routers; returns how many of them the second one has forwarded.
fn greet(pair: &mut Pair, ends: &Ends) -> anyhow::Result<u64> {
    let mut left = 0;
    for twin in [&mut pair.kernel, &mut pair.polder] {
        let seen = twin.ask((Side::Left, 3), &packet(ends, None, 8, Odd::Plain), false)?;
        left = seen.len() as u64;
        if let Some(far) = seen.first().and_then(|seen| ends_of(&seen.frame)) {
            let answer = packet(&far.reversed(), None, 8, Odd::Plain);
            left += twin.ask((Side::Right, 2), &answer, false)?.len() as u64;
        }
        twin.assure(ends, Transport::Udp)?;
    }
    Ok(left)
}

/// Longest time until the heartbeat has begun.
const AWAKENS: Duration = Duration::from_millis(1500);
/// Time in which a connection is entered.
const ENTERS: Duration = Duration::from_millis(4);
/// Time in which events of ended connections are heard.
pub(super) const HEARS: Duration = Duration::from_millis(20);
