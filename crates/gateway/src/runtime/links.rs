//! Waiting for links at the start.

use super::gateway::{Gateway, PortState};
use super::shared::lock;
use super::signals::{Signal, Signals, timespec};
use crate::device::AwaitedLink;
use crate::supervise::{LostThread, Supervisor};
use anyhow::Result;
use polder_datapath::units::Nanos;
use std::sync::Mutex;

/// Waits until links are up again that were up before their program was attached, and links of hardware,
/// which a predecessor's end may have reset. Returns `false` when a signal ends the wait.
pub(super) fn wait_for_links(
    gateway: &Mutex<Gateway>,
    signals: &mut Signals,
    supervisor: &Supervisor,
) -> Result<bool, LostThread> {
    let clock = lock(gateway).clock;
    let begun = clock.now();
    wait_while_down(
        || clock.now().since(begun),
        |waited| links_down(&lock(gateway), waited),
        || {
            supervisor.check()?;
            // The file has just been read, so SIGHUP changes nothing.
            let signal = signals.wait(timespec(CARRIER_PAUSE), [supervisor.event(), None, None]);
            Ok(!matches!(signal, Some(Signal::End)))
        },
    )
}

/// Waits until `down` returns no port, or for the maximum time. `pause` returns `false` to end the wait.
pub(super) fn wait_while_down(
    waited: impl Fn() -> Nanos,
    down: impl Fn(Nanos) -> Vec<String>,
    mut pause: impl FnMut() -> Result<bool, LostThread>,
) -> Result<bool, LostThread> {
    loop {
        let waited = waited();
        let down = down(waited);
        if down.is_empty() {
            return Ok(true);
        }
        if waited >= CARRIER_WAIT {
            let seconds = CARRIER_WAIT.0 / Nanos::SECOND.0;
            tracing::warn!("no carrier {seconds} s after the start: {}", down.join(", "));
            return Ok(true);
        }
        if !pause()? {
            return Ok(false);
        }
    }
}

/// Ports whose links are down after `waited` and that the start still waits for.
pub(super) fn links_down(gateway: &Gateway, waited: Nanos) -> Vec<String> {
    let is_awaited = |link: AwaitedLink| is_awaited(link.had_carrier, link.is_hardware, waited);
    let is_down = |state: &&PortState| {
        let link = state.handle().and_then(|handle| handle.awaited_link());
        link.is_some_and(is_awaited)
    };
    let name = |state: &PortState| {
        let port = &state.configuration;
        format!("port {} ({})", port.name, port.device.name())
    };
    gateway.ports.iter().filter(is_down).map(name).collect()
}

/// True for a port whose link was up before, and for a shorter time for hardware.
pub(super) fn is_awaited(had_carrier: bool, is_hardware: bool, waited: Nanos) -> bool {
    had_carrier || (is_hardware && waited < UNPLUGGED_WAIT)
}

/// Maximum wait for links that were up before; below, for hardware that may not be plugged in.
const CARRIER_WAIT: Nanos = Nanos(10 * Nanos::SECOND.0);

const UNPLUGGED_WAIT: Nanos = Nanos(5 * Nanos::SECOND.0);

/// Interval between two checks.
const CARRIER_PAUSE: Nanos = Nanos(20_000_000);

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Time at which the wait ends, where a port has one property or the other and its link comes at `up`.
    fn ends_at(had_carrier: bool, is_hardware: bool, up: Nanos) -> Nanos {
        let now = Cell::new(Nanos(0));
        let down = |waited| {
            let is_down = waited < up && is_awaited(had_carrier, is_hardware, waited);
            if is_down { vec!["port lan (eth0)".to_owned()] } else { Vec::new() }
        };
        let pause = || {
            now.set(Nanos(now.get().0 + CARRIER_PAUSE.0));
            Ok(true)
        };
        assert!(wait_while_down(|| now.get(), down, pause).is_ok_and(|ready| ready));
        now.get()
    }

    #[test]
    fn a_start_waits_for_carrier_for_a_bounded_time() {
        let never = Nanos::from_seconds(3600);
        assert_eq!(ends_at(true, true, never), CARRIER_WAIT);
        assert_eq!(ends_at(true, false, never), Nanos::from_seconds(10));
        assert_eq!(ends_at(false, true, never), Nanos::from_seconds(5), "perhaps not plugged in");
        assert_eq!(ends_at(false, false, never), Nanos(0), "nothing is awaited");
        assert_eq!(
            ends_at(true, true, Nanos::from_seconds(2)),
            Nanos::from_seconds(2),
            "no longer than needed"
        );
        let ended = wait_while_down(|| Nanos(0), |_| vec![String::new()], || Ok(false));
        assert!(ended.is_ok_and(|ready| !ready), "a signal ends it");
    }
}
