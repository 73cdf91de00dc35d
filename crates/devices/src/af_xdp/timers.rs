//! Cost of a timer on this machine. In a virtual machine each setting may be an exit to the hypervisor, in
//! some of 10 µs.

use polder_datapath::units::Nanos;
use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use std::sync::OnceLock;

/// Number of measurements; the median counts.
const SETTINGS: usize = 15;
/// Time to which the timer is set: before the next tick, so that the processor's own timer is programmed, and
/// after the measurement.
const AHEAD: Nanos = Nanos(200_000);

/// Returns the time that setting a timer takes, measured at the first call in less than a millisecond; 0 if
/// the kernel creates none.
pub fn timer_cost() -> Nanos {
    static COST: OnceLock<Nanos> = OnceLock::new();
    *COST.get_or_init(|| measure().unwrap_or_default())
}

fn measure() -> Result<Nanos, Errno> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let set = |nanos| {
        let at = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
        let value = Itimerspec { it_interval: at(0), it_value: at(nanos) };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &value)
    };
    let mut times = [Nanos(0); SETTINGS];
    for time in &mut times {
        let start = now();
        set(AHEAD.0.cast_signed())?;
        *time = now().since(start);
        set(0)?;
    }
    times.sort_unstable();
    Ok(times[SETTINGS / 2])
}

fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    let part = |part| u64::try_from(part).unwrap_or(0);
    Nanos(part(time.tv_sec) * Nanos::SECOND.0 + part(time.tv_nsec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_a_timer_takes_some_time() {
        let cost = measure().expect("a timer");
        assert!(cost > Nanos(50) && cost < Nanos::from_millis(1), "{cost:?}");
        assert_eq!(timer_cost(), timer_cost());
    }
}
