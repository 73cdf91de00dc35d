//! Version and options of the kernel, and settings of its network stack.

use super::finding::{Finding, Host};

const OF: &str = "kernel";
const JIT: &str = "proc/sys/net/core/bpf_jit_enable";
/// Kernel versions with the features they add.
const VERSIONS: [((u32, u32), &str); 3] = [
    ((6, 6), "TCX hooks, which take programs away with their process, unlike clsact"),
    ((6, 9), "threads that rest without waking twenty times a second"),
    ((6, 17), "packets of 64 KiB whole through VXLAN"),
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
        return Finding::unknown(OF, "version", "It does not tell its release.");
    };
    let absent = VERSIONS.iter().filter(|(since, _)| version < *since);
    let absent =
        absent.map(|((major, minor), what)| format!("{what} (Linux {major}.{minor})")).collect::<Vec<_>>();
    match absent.is_empty() {
        true => Finding::good(OF, "version", format!("Linux {release} has all that Polder uses.")),
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
            "No file in /boot has them; `polder check` tries out what a port needs.",
        );
    };
    let is_set = |option: &str| {
        ["=y", "=m"].iter().any(|value| text.lines().any(|line| line == format!("{option}{value}")))
    };
    let absent = OPTIONS.iter().filter(|(option, _)| !is_set(option));
    let absent = absent.map(|(option, what)| format!("{option} ({what})")).collect::<Vec<_>>();
    match absent.is_empty() {
        true => Finding::good(OF, "options", "It was built with all that ports need."),
        false => Finding::new(
            OF,
            "options",
            super::State::Costly,
            format!("It was built without {}.", absent.join(", ")),
        ),
    }
}

fn compiler(host: &Host) -> Finding {
    match host.read(JIT).as_deref() {
        Some("0") => Finding::costly(
            OF,
            "BPF compiler",
            "It is off: programs of ports are interpreted, packet by packet.",
            "sysctl -w net.core.bpf_jit_enable=1",
            "sysctl -w net.core.bpf_jit_enable=0",
        ),
        Some(_) => match host.read("proc/sys/net/core/bpf_jit_harden").as_deref() {
            Some("2") => Finding::costly(
                OF,
                "BPF compiler",
                "It blinds the constants of all programs, also of those that root loads.",
                "sysctl -w net.core.bpf_jit_harden=1",
                "sysctl -w net.core.bpf_jit_harden=2",
            ),
            _ => Finding::good(OF, "BPF compiler", "It is on."),
        },
        None => Finding::unknown(OF, "BPF compiler", "It has no switch here: it is always on, or not there."),
    }
}

fn buffers(host: &Host) -> Finding {
    match host.read("proc/sys/net/core/rmem_max") {
        Some(most) => Finding::good(
            OF,
            "rmem_max",
            format!(
                "A socket's receive buffer may have {most} bytes; a gateway's own ones are not bound by it."
            ),
        ),
        None => Finding::unknown(OF, "rmem_max", "It is not told here."),
    }
}
