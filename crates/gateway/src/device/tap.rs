//! TAPs: the kernel's own stack at the other end.

use super::interface::interface_name;
use super::{Driver, Facts, Finding, Handle, Link, OpenPort, PartsKind, Severity, receiving};
use crate::config::model::{Configuration, Port, Queues};
use anyhow::Result;
use polder_buffers::Region;
use polder_datapath::offload::Takes;
use polder_datapath::wire::MacAddress;
use polder_devices::{Queue, tap};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A TAP of that name.
pub(super) struct Tap<'a>(pub(super) &'a str);

/// An open TAP.
struct OpenTap {
    /// The kernel's number of its interface.
    index: u32,
    /// Longest packet that its buffers hold, in bytes, Ethernet header excluded.
    longest: u32,
    files: Vec<Arc<OwnedFd>>,
}

impl Driver for Tap<'_> {
    fn open(&self, port: &Port, configuration: &Configuration, region: &Region) -> Result<OpenPort> {
        Ok(described(tap::open(&self.options(port, configuration), region)?, port))
    }

    fn inspect(&self, _: &Port, _: &Configuration) -> Vec<Finding> {
        unavailable().into_iter().collect()
    }

    fn describe(&self) -> String {
        format!("the TAP {}", self.0)
    }
}

impl Tap<'_> {
    /// Goes on with the TAP, of which another process has these files.
    pub(super) fn adopt(
        &self,
        (port, configuration): (&Port, &Configuration),
        region: &Region,
        files: Vec<OwnedFd>,
    ) -> Result<OpenPort> {
        Ok(described(tap::adopt(files, &self.options(port, configuration), region)?, port))
    }

    fn options(&self, port: &Port, configuration: &Configuration) -> tap::Options {
        let queues = match port.queues {
            Queues::All => 1,
            Queues::Count(count) => usize::from(count),
        };
        let offloads = if port.segments { tap::Offloads::Segments } else { tap::Offloads::Checksum };
        let (receiving, mtu) = (receiving(configuration), port.mtu.map(u32::from));
        tap::Options { queues, receiving, mtu, offloads, ..tap::Options::new(self.0) }
    }
}

/// An open port with its facts.
fn described(tap: tap::Tap, port: &Port) -> OpenPort {
    let facts = Facts {
        interface: tap.interface.name,
        index: Some(tap.interface.index),
        mac: MacAddress(tap.interface.mac),
        mtu: tap.interface.mtu,
        // What the kernel takes from us it may also give to us.
        takes: Takes {
            partial_checksums: true,
            segments: true,
            only_ipv4_segments: false,
            udp_segments: tap.udp_segments,
            tunnel_segments: tap.tunnel_segments,
        },
        queues: tap.queues.len(),
        mode: "TAP with virtio-net headers".to_owned(),
        mode_reason: None,
        link_addresses: None,
    };
    let queues = tap.queues.into_iter().map(Queue::boxed).collect();
    let handle: Box<dyn Handle> =
        Box::new(OpenTap { index: tap.interface.index, longest: facts.mtu, files: tap.files });
    OpenPort { handle: Some(handle), ..OpenPort::in_memory(port.id, facts, queues) }
}

/// A reason why no TAP can be made, if that can be seen.
pub(super) fn unavailable() -> Option<Finding> {
    tap::unavailable().map(|error| Finding::new(Severity::Problem, "rights", error.to_string()))
}

impl Handle for OpenTap {
    /// A TAP that is gone says so by its queues.
    fn refresh(&self, facts: &mut Facts, _: Option<u32>) -> Result<Option<Link>, Errno> {
        if let Some(mac) = self.files.first().and_then(|file| tap::mac(file).ok()) {
            facts.mac = MacAddress(mac);
        }
        if let Ok(name) = interface_name(self.index) {
            facts.interface = name;
        }
        facts.mtu = tap::mtu(&facts.interface).map_or(facts.mtu, |mtu| mtu.min(self.longest));
        Ok(None)
    }

    fn parts(&self) -> Option<(PartsKind, Vec<BorrowedFd<'_>>)> {
        Some((PartsKind::Tap, self.files.iter().map(|file| file.as_fd()).collect()))
    }
}
