//! Frequency, idle states, clock, timers, system calls, hypervisor.

use super::finding::{Finding, Host};
use super::measure::Measured;

const OF: &str = "processor";
const CPUS: &str = "sys/devices/system/cpu";
const CLOCK: &str = "sys/devices/system/clocksource/clocksource0";
/// Wake-up delay that is too long, in microseconds.
const LATE_US: f64 = 200.0;
/// Exit latency of an idle state that affects packets, in microseconds.
const DEEP_US: u32 = 20;
/// Clock reading time that shows a system call or a device access, in nanoseconds.
const SLOW_CLOCK_NS: f64 = 100.0;
/// Timer setting time that is too long, in nanoseconds.
const SLOW_TIMER_NS: f64 = 2_500.0;
/// Share of stolen time that is too much.
const STOLEN: f64 = 0.01;

pub(super) fn examine(host: &Host, measured: &Measured) -> Vec<Finding> {
    let (wakes, calls) = (wake_ups(host, measured), calls(host, measured));
    let mut findings = vec![frequency(host), wakes, clock(host, measured), timers(measured), calls];
    findings.extend(measured.stolen.map(hypervisor));
    findings
}

fn cpus(host: &Host) -> Vec<String> {
    let is_cpu = |name: &String| name.strip_prefix("cpu").is_some_and(|number| number.parse::<u32>().is_ok());
    host.names(CPUS).into_iter().filter(is_cpu).collect()
}

fn frequency(host: &Host) -> Finding {
    let governor = |cpu: &String| host.read(&format!("{CPUS}/{cpu}/cpufreq/scaling_governor"));
    let governors = cpus(host).iter().filter_map(governor).collect::<Vec<_>>();
    let Some(other) = governors.iter().find(|governor| *governor != "performance") else {
        return match governors.is_empty() {
            true => Finding::unknown(
                OF,
                "frequency",
                "The kernel does not set the frequency: firmware or a hypervisor does.",
            ),
            false => Finding::good(OF, "frequency", "Governor performance on all cores."),
        };
    };
    Finding::costly(
        OF,
        "frequency",
        format!(
            "Governor {other}: an idle core starts at a low frequency and takes milliseconds to reach \
                 the full one."
        ),
        "echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        &format!("echo {other} | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"),
    )
}

/// Exit latency of the deepest enabled idle state, in microseconds.
fn deepest(host: &Host) -> Option<u32> {
    let states = |cpu: String| {
        let folder = format!("{CPUS}/{cpu}/cpuidle");
        let names = host.names(&folder).into_iter();
        names.map(move |name| format!("{folder}/{name}"))
    };
    let states = cpus(host).into_iter().flat_map(states);
    let allowed = states.filter(|state| host.read(&format!("{state}/disable")).as_deref() != Some("1"));
    allowed.filter_map(|state| host.read(&format!("{state}/latency"))?.parse().ok()).max()
}

fn wake_ups(host: &Host, measured: &Measured) -> Finding {
    let (median, last) = (measured.wake_p50_us, measured.wake_p99_us);
    let text = format!(
        "A sleep of 1 ms ends {median:.0} µs late (median), 1 % of sleeps {last:.0} µs late \
                        (measured)"
    );
    match deepest(host) {
        Some(latency) if latency > DEEP_US => Finding::costly(
            OF,
            "wake-ups",
            format!(
                "{text}. Leaving an idle state takes up to {latency} µs, which delays the first packet \
                 after a pause."
            ),
            &format!("cpupower idle-set --disable-by-latency {DEEP_US}"),
            "cpupower idle-set --enable-all",
        ),
        _ if last > LATE_US => Finding::new(
            OF,
            "wake-ups",
            super::State::Costly,
            format!("{text}. Other work on this host, or a hypervisor, delays threads."),
        ),
        _ => Finding::good(OF, "wake-ups", format!("{text}.")),
    }
}

fn clock(host: &Host, measured: &Measured) -> Finding {
    let text = format!("Reading it takes {:.0} ns (measured)", measured.clock_ns);
    let (Some(current), Some(available)) = (
        host.read(&format!("{CLOCK}/current_clocksource")),
        host.read(&format!("{CLOCK}/available_clocksource")),
    ) else {
        return Finding::unknown(OF, "clock", format!("{text}; the clock source is unknown."));
    };
    let best = available.split_whitespace().next().unwrap_or_default();
    if measured.clock_ns <= SLOW_CLOCK_NS {
        return Finding::good(OF, "clock", format!("{text}, clock source {current}."));
    }
    let text = format!("{text}, clock source {current}: each batch of packets costs that much more.");
    if best == current || best.is_empty() {
        return Finding::new(OF, "clock", super::State::Costly, text);
    }
    let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    Finding::costly(OF, "clock", text, &format!("echo {best} > {file}"), &format!("echo {current} > {file}"))
}

fn timers(measured: &Measured) -> Finding {
    let text = format!("Setting one takes {:.1} µs (measured)", measured.timer_ns / 1e3);
    if measured.timer_ns <= SLOW_TIMER_NS {
        return Finding::good(OF, "timers", format!("{text}."));
    }
    let text = format!(
        "{text}: timed sleeps, delayed interrupts and shapers cost that much more. A hypervisor may handle \
         each timer."
    );
    Finding::new(OF, "timers", super::State::Costly, text)
}

fn calls(host: &Host, measured: &Measured) -> Finding {
    let folder = format!("{CPUS}/vulnerabilities");
    let is_mitigated = |name: &String| {
        host.read(&format!("{folder}/{name}")).is_some_and(|text| text.starts_with("Mitigation"))
    };
    let mitigated = host.names(&folder).into_iter().filter(is_mitigated).collect::<Vec<_>>();
    let text = format!("A system call that does nothing takes {:.0} ns (measured)", measured.system_call_ns);
    if mitigated.is_empty() {
        return Finding::good(
            OF,
            "system calls",
            format!(
                "{text}; no mitigation of a processor \
                    vulnerability is active."
            ),
        );
    }
    Finding::costly(
        OF,
        "system calls",
        format!(
            "{text}, with mitigations of {}. They protect against other users' programs: disable them only \
             where all code on this host is trusted.",
            mitigated.join(", ")
        ),
        "add mitigations=off to the kernel's command line, and reboot",
        "remove it, and reboot",
    )
}

fn hypervisor(stolen: f64) -> Finding {
    let text = format!("Other guests used {:.1} % of the CPU time during the measurement", stolen * 100.0);
    match stolen > STOLEN {
        true => Finding::new(
            OF,
            "hypervisor",
            super::State::Costly,
            format!("{text}: ask the provider for dedicated cores."),
        ),
        false => Finding::good(OF, "hypervisor", format!("{text}.")),
    }
}
