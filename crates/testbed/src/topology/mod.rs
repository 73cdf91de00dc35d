//! Network namespaces and wires, taken down on every way out.
//!
//! A [`Topology`] is a guard. It writes the name of each thing into a record before it makes it
//! (`state`), so that the next run takes down what a killed one has left. All names
//! start with `pdl`.
//!
//! A wire is a veth pair with every offload off at both ends: AF_XDP loses the mark of a partial
//! checksum and a hardware-accelerated VLAN tag, and a super-packet is not a frame. Wires with all offloads are for
//! what people get.

mod cable;
mod napi;
mod state;

pub use cable::{Cable, CableEnd};
pub use napi::{pin, pin_here, put_before, put_first};

use crate::{command, interrupt};
use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Offloads that a wire does not have: ethtool's short names and the long ones that it prints.
const OFFLOADS: &[(&str, &str)] = &[
    ("tx", "tx-checksumming"),
    ("rx", "rx-checksumming"),
    ("gso", "generic-segmentation-offload"),
    ("gro", "generic-receive-offload"),
    ("tso", "tcp-segmentation-offload"),
    ("txvlan", "tx-vlan-offload"),
    ("rxvlan", "rx-vlan-offload"),
];

/// Time for which an interface may take until it carries packets.
const CARRIES_WITHIN: Duration = Duration::from_secs(20);

/// True if this process may make namespaces and links.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// All that one run has made.
#[derive(Debug)]
pub struct Topology {
    directory: PathBuf,
    state: state::State,
}

/// The name of a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    name: String,
}

/// One end of a wire.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// Namespace of the interface.
    pub namespace: &'a Namespace,
    /// The interface's name there.
    pub interface: &'a str,
}

impl Topology {
    /// Removes the objects of dead runs, and starts with none.
    ///
    /// # Errors
    /// When not root, or when the record cannot be written.
    pub fn new() -> anyhow::Result<Self> {
        ensure!(is_root(), "namespaces need root");
        let run = Path::new("/run");
        let base = if run.is_dir() { run.to_owned() } else { std::env::temp_dir() };
        let mut state = state::State::open(&base.join("polder-lab"))?;
        let directory = base.join(format!("pdl-{}", state.tag()));
        state.record_path(&directory)?;
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(Self { directory, state })
    }

    /// A directory for files of this run, removed with it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// An interface name that no other run uses.
    pub fn interface(&self, role: &str) -> String {
        format!("pdl{}{role}", self.state.tag())
    }

    /// Makes a namespace; IPv6 is off in it, so that only the test talks.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn namespace(&mut self, role: &str) -> anyhow::Result<Namespace> {
        let name = format!("pdl-{}-{role}", self.state.tag());
        self.state.record_namespace(&name)?;
        command::run(Command::new("ip").args(["netns", "add", &name]))?;
        let namespace = Namespace { name };
        namespace.inside(|| {
            for scope in ["all", "default"] {
                // A kernel without IPv6 has no such file, and nothing to switch off.
                let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
            }
        })?;
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Lays a wire between two interfaces: both up, offloads off and checked.
    ///
    /// # Errors
    /// When `ip` or `ethtool` fails, or an offload stays on.
    pub fn wire(&self, a: End<'_>, b: End<'_>, mtu: u32) -> anyhow::Result<()> {
        self.lay(a, b, mtu)?;
        [a, b].into_iter().try_for_each(End::switch_offloads_off)?;
        [a, b].into_iter().try_for_each(End::wait_for_carrier)
    }

    /// Lays a wire between two interfaces as the kernel makes them, with all offloads.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn wire_with_offloads(&self, a: End<'_>, b: End<'_>, mtu: u32) -> anyhow::Result<()> {
        self.lay(a, b, mtu)?;
        [a, b].into_iter().try_for_each(End::wait_for_carrier)
    }

    fn lay(&self, a: End<'_>, b: End<'_>, mtu: u32) -> anyhow::Result<()> {
        let mtu = mtu.to_string();
        #[rustfmt::skip]
        a.namespace.ip(&[
            "link", "add", a.interface, "mtu", &mtu, "type", "veth",
            "peer", "name", b.interface, "mtu", &mtu, "netns", b.namespace.name(),
        ])?;
        let up = |end: End<'_>| end.namespace.ip(&["link", "set", end.interface, "up"]).map(drop);
        [a, b].into_iter().try_for_each(up)
    }
}

impl End<'_> {
    /// Lets this end of a veth take frames that an XDP program redirects to it, and compute checksums of what it sends, with tags
    /// in them. It has one
    /// queue then for these frames and what sockets send by the `other` end, which gives up segmentation for that.
    ///
    /// # Errors
    /// When `ethtool` fails.
    pub fn take_frames(self, other: Self) -> anyhow::Result<()> {
        for (end, offloads) in [
            (self, ["gro", "on", "tx", "off", "txvlan", "off"].as_slice()),
            (other, &["tso", "off", "gso", "off"]),
        ] {
            let mut ethtool = end.namespace.command("ethtool");
            command::run(ethtool.args(["-K", end.interface]).args(offloads))?;
        }
        Ok(())
    }

    /// Waits until packets get through: earlier packets are lost and not counted.
    fn wait_for_carrier(self) -> anyhow::Result<()> {
        interrupt::retry(CARRIES_WITHIN, Duration::from_millis(5), || {
            let link = self.namespace.ip(&["-o", "link", "show", "dev", self.interface])?;
            ensure!(link.contains("state UP"), "{} does not come up", self.interface);
            Ok(())
        })
    }

    fn switch_offloads_off(self) -> anyhow::Result<()> {
        let mut arguments = vec!["-K", self.interface];
        arguments.extend(OFFLOADS.iter().flat_map(|&(short, _)| [short, "off"]));
        command::run(self.namespace.command("ethtool").args(arguments))?;
        let left = self.offloads()?;
        ensure!(left.is_empty(), "{}: {} cannot be switched off", self.interface, left.join(", "));
        Ok(())
    }

    /// Offloads that are on and ought not to be: empty for a wire.
    ///
    /// # Errors
    /// When `ethtool` fails.
    pub fn offloads(self) -> anyhow::Result<Vec<String>> {
        let text = command::run(self.namespace.command("ethtool").args(["-k", self.interface]))?;
        Ok(offloads_in(&text))
    }
}

fn offloads_in(text: &str) -> Vec<String> {
    let on = |name: &str| {
        text.lines().any(|line| {
            line.trim()
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix(": "))
                .is_some_and(|state| state.starts_with("on"))
        })
    };
    OFFLOADS.iter().filter(|(_, name)| on(name)).map(|&(_, name)| name.to_owned()).collect()
}

impl Namespace {
    /// Its name, as `ip netns` shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that runs in the namespace; its process is the program itself.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs `ip` on the namespace.
    ///
    /// # Errors
    /// When it fails.
    pub fn ip(&self, arguments: &[&str]) -> anyhow::Result<String> {
        command::run(Command::new("ip").args(["-n", &self.name]).args(arguments))
    }

    /// Link-layer address of an interface.
    ///
    /// # Errors
    /// When there is no such interface, or it has none.
    pub fn mac(&self, interface: &str) -> anyhow::Result<[u8; 6]> {
        let shown = self.ip(&["-o", "link", "show", "dev", interface])?;
        let text = shown.split_whitespace().skip_while(|&word| word != "link/ether").nth(1);
        let text = text.with_context(|| format!("{interface} has no link-layer address"))?;
        let mut mac = [0; 6];
        for (byte, word) in mac.iter_mut().zip(text.split(':')) {
            *byte = u8::from_str_radix(word, 16)?;
        }
        Ok(mac)
    }

    /// Moves the calling thread into the namespace. Sockets that it opens from here on live there.
    ///
    /// # Errors
    /// When the namespace is gone or this is not root.
    pub fn enter(&self) -> anyhow::Result<()> {
        let path = Path::new("/run/netns").join(&self.name);
        let told = || format!("cannot enter the namespace {}", self.name);
        let file = File::open(&path).with_context(told)?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).with_context(told)
    }

    /// Runs `work` on a thread in the namespace; it should be short.
    ///
    /// # Errors
    /// When the namespace cannot be entered.
    ///
    /// # Panics
    /// When `work` does.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter()?;
                Ok(work())
            });
            match thread.join() {
                Ok(result) => result,
                Err(payload) => std::panic::resume_unwind(payload),
            }
        })
    }
}

/// Ends the processes in a namespace and removes it, and its interfaces with it.
fn remove_namespace(name: &str) -> anyhow::Result<()> {
    ensure!(name.starts_with("pdl-"), "{name} is none of the lab's namespaces");
    if !Path::new("/run/netns").join(name).exists() {
        return Ok(());
    }
    for _ in 0..50 {
        let processes = command::run(Command::new("ip").args(["netns", "pids", name]))?;
        let ids = processes.split_whitespace().filter_map(|id| id.parse().ok().and_then(Pid::from_raw));
        let ids = ids.collect::<Vec<_>>();
        if ids.is_empty() {
            return command::run(Command::new("ip").args(["netns", "del", name])).map(drop);
        }
        for id in ids {
            // A process that ends in this moment is what is wanted.
            let _ = kill_process(id, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bail!("processes in the namespace {name} do not end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offloads_are_found_in_what_ethtool_prints() {
        let text = "Features for x:\nrx-checksumming: off\ntx-checksumming: on\n\ttx-checksum-ip-generic: on\n\
                    generic-segmentation-offload: on\ntx-vlan-offload: on [fixed]\ntcp-segmentation-offload: off\n";
        assert_eq!(offloads_in(text), ["tx-checksumming", "generic-segmentation-offload", "tx-vlan-offload"]);
    }
}
