//! Version and options of the kernel, and settings of its network stack.

use super::finding::{Finding, Host};

const OF: &str = "kernel";
const JIT: &str = "proc/sys/net/core/bpf_jit_enable";
/// Kernel versions with the features they add.
const VERSIONS: [((u32, u32), &str); 3] = [
    ((6, 6), "TCX hooks, whose programs are removed when their process ends, unlike those at clsact"),
    ((6, 9), "threads that sleep without twenty wake-ups per second"),
    ((6, 17), "64 KiB packets through VXLAN without segmentation"),
];
/// Kernel options that ports need, with the feature they enable.
const OPTIONS: [(&str, &str); 4] = [
    ("CONFIG_BPF_SYSCALL", "BPF programs"),
    ("CONFIG_XDP_SOCKETS", "AF_XDP ports"),
    ("CONFIG_NET_XGRESS", "TCX hooks"),
    ("CONFIG_TUN", "TAPs"),
];

pub(super) fn examine(host: &Host) -> Vec<Finding> {
    vec![version(host), options(host), compiler(host), buffers(host)]
}

fn release(host: &Host) -> Option<String> {
    host.read("proc/sys/kernel/osrelease")
}

/// Major and minor number of a release such as `6.1.0-13-amd64`.
fn numbers(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

fn version(host: &Host) -> Finding {
    let Some((release, version)) =
        release(host).and_then(|text| numbers(&text).map(|version| (text, version)))
    else {
        return Finding::unknown(OF, "version", "The kernel does not report its release.");
    };
    let absent = VERSIONS.iter().filter(|(since, _)| version < *since);
    let absent =
        absent.map(|((major, minor), what)| format!("{what} (Linux {major}.{minor})")).collect::<Vec<_>>();
    match absent.is_empty() {
        true => Finding::good(OF, "version", format!("Linux {release} has all features that Polder uses.")),
        false => Finding::new(
            OF,
            "version",
            super::State::Costly,
            format!("Linux {release} lacks {}.", absent.join("; ")),
        ),
    }
}

fn options(host: &Host) -> Finding {
    let text = release(host).and_then(|release| host.read(&format!("boot/config-{release}")));
    let Some(text) = text else {
        return Finding::unknown(
            OF,
            "options",
            "No file in /boot has the options; `polder check` tests what a port needs.",
        );
    };
    let is_set = |option: &str| {
        ["=y", "=m"].iter().any(|value| text.lines().any(|line| line == format!("{option}{value}")))
    };
    let absent = OPTIONS.iter().filter(|(option, _)| !is_set(option));
    let absent = absent.map(|(option, what)| format!("{option} ({what})")).collect::<Vec<_>>();
    match absent.is_empty() {
        true => Finding::good(OF, "options", "The kernel has all options that ports need."),
        false => Finding::new(
            OF,
            "options",
            super::State::Costly,
            format!("The kernel was built without {}.", absent.join(", ")),
        ),
    }
}

fn compiler(host: &Host) -> Finding {
    match host.read(JIT).as_deref() {
        Some("0") => Finding::costly(
            OF,
            "BPF compiler",
            "It is off: the kernel interprets the eBPF programs of ports for each packet.",
            "sysctl -w net.core.bpf_jit_enable=1",
            "sysctl -w net.core.bpf_jit_enable=0",
        ),
        Some(_) => match host.read("proc/sys/net/core/bpf_jit_harden").as_deref() {
            Some("2") => Finding::costly(
                OF,
                "BPF compiler",
                "It blinds constants in all programs, including those that root loads, which makes them \
                 slower.",
                "sysctl -w net.core.bpf_jit_harden=1",
                "sysctl -w net.core.bpf_jit_harden=2",
            ),
            _ => Finding::good(OF, "BPF compiler", "It is on."),
        },
        None => Finding::unknown(
            OF,
            "BPF compiler",
            "It cannot be switched here: it is always on, or not \
                built in.",
        ),
    }
}

fn buffers(host: &Host) -> Finding {
    match host.read("proc/sys/net/core/rmem_max") {
        Some(most) => Finding::good(
            OF,
            "rmem_max",
            format!(
                "A socket's receive buffer is limited to {most} bytes; a gateway's own sockets are exempt."
            ),
        ),
        None => Finding::unknown(OF, "rmem_max", "The kernel does not report it."),
    }
}
