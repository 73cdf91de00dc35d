//! Rings, interrupts, offloads and NAPI threads of an interface.

use super::finding::{Finding, Host, State};
use polder_devices::af_xdp::{Settings, XdpSupport, settings, xdp_support};

/// Number of receive descriptors that cover a sleeping worker's wake-up.
const ENOUGH: u32 = 1024;
/// Interrupt delay from which on latency suffers, in microseconds.
const FELT_US: u32 = 100;

pub(super) fn examine(host: &Host, name: &str) -> Vec<Finding> {
    if !host.path(&format!("sys/class/net/{name}")).exists() {
        return vec![Finding::unknown(name, "interface", "There is no interface with this name.")];
    }
    let settings = settings(name).unwrap_or_default();
    let index = host.read(&format!("sys/class/net/{name}/ifindex")).and_then(|index| index.parse().ok());
    let mut findings = vec![driver(name, &settings), xdp(name, index.and_then(xdp_support))];
    findings.extend(
        [ring(name, &settings), delay(name, &settings), merging(name, &settings)].into_iter().flatten(),
    );
    findings.extend([thread(host, name), interrupts(host, name)].into_iter().flatten());
    findings
}

fn driver(name: &str, settings: &Settings) -> Finding {
    match &settings.driver {
        Some(driver) => {
            Finding::good(name, "driver", format!("{driver}; `polder check` says how a port attaches to it."))
        }
        None => Finding::unknown(name, "driver", "The kernel does not report it."),
    }
}

pub(super) fn xdp(name: &str, support: Option<XdpSupport>) -> Finding {
    const OF: &str = "XDP";
    match support {
        None => {
            Finding::unknown(name, OF, "The driver's XDP support is unknown: Linux reports it from 6.3 on.")
        }
        Some(XdpSupport { native: false, .. }) => Finding::new(
            name,
            OF,
            State::Costly,
            "The driver has no native XDP: the kernel allocates a socket buffer for each packet before \
             Polder receives it.",
        ),
        Some(XdpSupport { zero_copy: false, .. }) => Finding::good(
            name,
            OF,
            "Native, without zero copy: each packet is copied once in each direction.",
        ),
        Some(XdpSupport { zero_copy: true, .. }) => Finding::good(
            name,
            OF,
            "Native, with zero copy where a port has `mode = \"zero-copy\"`; else each packet is copied once in each \
             direction.",
        ),
    }
}

pub(super) fn ring(name: &str, settings: &Settings) -> Option<Finding> {
    let rings = settings.rings?;
    let enough = ENOUGH.min(rings.max_receive);
    if rings.receive >= enough {
        return Some(Finding::good(name, "ring", format!("{} receive descriptors.", rings.receive)));
    }
    Some(Finding::costly(
        name,
        "ring",
        format!("{} receive descriptors: bursts are lost while the core is busy otherwise.", rings.receive),
        &format!("ethtool -G {name} rx {enough}"),
        &format!("ethtool -G {name} rx {}", rings.receive),
    ))
}

pub(super) fn delay(name: &str, settings: &Settings) -> Option<Finding> {
    let delay = settings.receive_delay_us?;
    if delay <= FELT_US {
        return Some(Finding::good(
            name,
            "coalescing",
            format!("An interrupt is delayed by at most {delay} µs."),
        ));
    }
    Some(Finding::costly(
        name,
        "coalescing",
        format!("An interrupt is delayed by up to {delay} µs, which adds latency to packets."),
        &format!("ethtool -C {name} rx-usecs 20"),
        &format!("ethtool -C {name} rx-usecs {delay}"),
    ))
}

/// Large receive offload loses the original packet lengths, so merged packets cannot be segmented as before.
pub(super) fn merging(name: &str, settings: &Settings) -> Option<Finding> {
    settings.features.iter().any(|feature| feature == "rx-lro").then(|| {
        Finding::costly(
            name,
            "lro",
            "Large receive offload merges packets so that they cannot be forwarded unchanged.",
            &format!("ethtool -K {name} lro off"),
            &format!("ethtool -K {name} lro on"),
        )
    })
}

fn thread(host: &Host, name: &str) -> Option<Finding> {
    let is_threaded = host.read(&format!("sys/class/net/{name}/threaded"))? != "0";
    Some(match is_threaded {
        true => Finding::good(
            name,
            "NAPI",
            "In a kernel thread, which the scheduler weighs against other \
                work.",
        ),
        false => Finding::good(name, "NAPI", "In softirq; while an AF_XDP port is open, in a kernel thread."),
    })
}

fn interrupts(host: &Host, name: &str) -> Option<Finding> {
    let table = host.read("proc/interrupts")?;
    let is_own = |line: &&str| line.split_whitespace().skip(1).any(|word| is_of(word, name));
    let numbers =
        table.lines().filter(is_own).filter_map(|line| line.trim().split(':').next()?.parse::<u32>().ok());
    let cores = |number: &u32| host.read(&format!("proc/irq/{number}/smp_affinity_list"));
    let all = numbers.filter_map(|number| cores(&number).map(|cores| (number, cores))).collect::<Vec<_>>();
    let (number, first) = all.first()?;
    let online = host.read("sys/devices/system/cpu/online").unwrap_or_default();
    let is_single = first.parse::<u32>().is_ok() && all.iter().all(|(_, cores)| cores == first);
    if all.len() < 2 || !is_single || online == "0" {
        let count = all.len();
        let plural = if count == 1 { "interrupt" } else { "interrupts" };
        return Some(Finding::good(name, "interrupts", format!("{count} {plural} to receive and send.")));
    }
    Some(Finding::costly(
        name,
        "interrupts",
        format!("All {} are bound to core {first}: one core receives for all queues.", all.len()),
        &format!("echo {online} > /proc/irq/{number}/smp_affinity_list; the same for the other interrupts"),
        &format!("echo {first} > /proc/irq/{number}/smp_affinity_list; the same for the other interrupts"),
    ))
}

/// True for a name such as `eth0` or `eth0-rx-1`, false for `eth01`.
fn is_of(word: &str, name: &str) -> bool {
    word.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}
