//! Kernel state that a gateway may leave in a namespace: programs on interfaces, sockets, names in the BPF
//! file system, scheduling of NAPI threads, and polling of devices.

use anyhow::Context as _;
use polder_testbed::command;
use polder_testbed::topology::Namespace;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// Directory of pinned programs.
const PINNED: &str = "/sys/fs/bpf/polder";

/// Items found, each as a line.
#[derive(Clone, Debug, Default)]
pub(super) struct Left {
    things: BTreeSet<String>,
}

impl Left {
    /// Looks at a namespace and its interfaces `ports`.
    pub(super) fn look(namespace: &Namespace, ports: &[String]) -> anyhow::Result<Self> {
        let mut things = BTreeSet::new();
        let links = namespace.ip(&["-json", "-details", "link", "show"])?;
        let links = serde_json::from_str::<Value>(&links).context("`ip -json` prints no JSON")?;
        for link in links.as_array().into_iter().flatten() {
            let name = link["ifname"].as_str().unwrap_or_default();
            if !link["xdp"].is_null() {
                things.insert(format!("a program on {name}"));
            }
            if link["promiscuity"].as_u64() > Some(0) {
                things.insert(format!("{name} is promiscuous"));
            }
        }
        let read = |file: &'static str| namespace.inside(move || fs::read_to_string(file));
        let sockets = read("/proc/thread-self/net/protocols")??;
        for number in 0..count(&sockets, "XDP") {
            things.insert(format!("AF_XDP socket {number}"));
        }
        for number in 1..read("/proc/thread-self/net/packet")??.lines().count() {
            things.insert(format!("packet socket {number}"));
        }
        let pinned = fs::read_dir(PINNED).into_iter().flatten().flatten();
        things.extend(pinned.map(|entry| format!("pinned {}", entry.file_name().to_string_lossy())));
        things.extend(threads(ports)?);
        things.extend(polling(namespace, ports)?);
        Ok(Self { things })
    }

    /// Number of things that there are that were not there `before`.
    pub(super) fn since(&self, before: &Self) -> u32 {
        u32::try_from(self.things.difference(&before.things).count()).unwrap_or(u32::MAX)
    }
}

/// Sockets of a protocol, by `/proc/net/protocols`: name, size of one, sockets.
fn count(protocols: &str, name: &str) -> u32 {
    let line = protocols.lines().find(|line| line.split_whitespace().next() == Some(name));
    line.and_then(|line| line.split_whitespace().nth(2)?.parse().ok()).unwrap_or(0)
}

/// Settings of the kernel's polling of these interfaces, a line for each.
fn polling(namespace: &Namespace, ports: &[String]) -> anyhow::Result<Vec<String>> {
    // Unlike a change of the namespace alone, `ip netns exec` shows its interfaces in /sys.
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace.name(), "grep", "-H", ""]);
    for port in ports {
        let settings = ["threaded", "gro_flush_timeout", "napi_defer_hard_irqs"];
        command.args(settings.map(|setting| format!("/sys/class/net/{port}/{setting}")));
    }
    let found = command::run(&mut command).context("how the kernel polls the interfaces is not known")?;
    Ok(found.lines().map(str::to_owned).collect())
}

/// NAPI threads of these interfaces that are not ordinary.
fn threads(ports: &[String]) -> anyhow::Result<Vec<String>> {
    let mut odd = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot read /proc")? {
        let path = entry?.path();
        // A process that ends meanwhile is none of ours.
        let Ok(name) = fs::read_to_string(path.join("comm")) else { continue };
        let is_of = |port: &String| name.starts_with(&format!("napi/{port}-"));
        if !ports.iter().any(is_of) {
            continue;
        }
        let Ok(stat) = fs::read_to_string(path.join("stat")) else { continue };
        if let Some((nice, policy)) = scheduling(&stat).filter(|&found| found != ("0", "0")) {
            odd.push(format!("{} has policy {policy} and nice {nice}", name.trim()));
        }
    }
    Ok(odd)
}

/// The nice value and the policy of a thread, fields 19 and 41 of `/proc/TID/stat` (proc_pid_stat(5)).
fn scheduling(stat: &str) -> Option<(&str, &str)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields = rest.split_whitespace().collect::<Vec<_>>();
    Some((fields.get(16)?, fields.get(38)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_counted_by_their_protocol() {
        let text = "protocol  size sockets  memory press maxhdr\nXDP       1088      3      -1   NI       0\nUDP 1 7 0\n";
        assert_eq!((count(text, "XDP"), count(text, "UDP"), count(text, "TCP")), (3, 7, 0));
    }

    #[test]
    fn a_thread_says_how_it_is_scheduled() {
        let own = fs::read_to_string("/proc/thread-self/stat").unwrap();
        assert_eq!(scheduling(&own).map(|(_, policy)| policy), Some("0"));
        let fields = (3..=52).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(scheduling(&format!("17 (napi/a) b-1) {fields}")), Some(("19", "41")));
    }

    #[test]
    fn what_was_there_before_is_not_left() {
        let left = |things: &[&str]| Left { things: things.iter().map(|&thing| thing.to_owned()).collect() };
        assert_eq!(left(&["a", "b", "c"]).since(&left(&["b"])), 2);
        assert_eq!(left(&["b"]).since(&left(&["a", "b"])), 0);
    }
}
