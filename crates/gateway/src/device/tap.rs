//! TAPs: the kernel's own stack at the other end.

use super::{Driver, Facts, Finding, Handle, Link, OpenPort, Severity, receiving};
use crate::config::model::{Configuration, Port, Queues};
use anyhow::Result;
use polder_buffers::Region;
use polder_datapath::offload::Takes;
use polder_datapath::wire::MacAddress;
use polder_devices::{Queue, tap};
use rustix::io::Errno;

/// A TAP of that name.
pub(super) struct Tap<'a>(pub(super) &'a str);

/// An open TAP, whose buffers hold packets of so many bytes at most, Ethernet header excluded.
struct OpenTap(u32);

impl Driver for Tap<'_> {
    fn open(&self, port: &Port, configuration: &Configuration, region: &Region) -> Result<OpenPort> {
        let queues = match port.queues {
            Queues::All => 1,
            Queues::Count(count) => usize::from(count),
        };
        let offloads = if port.segments { tap::Offloads::Segments } else { tap::Offloads::Checksum };
        let (receiving, mtu) = (receiving(configuration), port.mtu.map(u32::from));
        let options = tap::Options { queues, receiving, mtu, offloads, ..tap::Options::new(self.0) };
        let tap = tap::open(&options, region)?;
        let facts = Facts {
            interface: tap.interface.name,
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
        let handle: Box<dyn Handle> = Box::new(OpenTap(facts.mtu));
        Ok(OpenPort { handle: Some(handle), ..OpenPort::in_memory(port.id, facts, queues) })
    }

    fn inspect(&self, _: &Port, _: &Configuration) -> Vec<Finding> {
        unavailable().into_iter().collect()
    }

    fn describe(&self) -> String {
        format!("the TAP {}", self.0)
    }
}

/// A reason why no TAP can be made, if that can be seen.
pub(super) fn unavailable() -> Option<Finding> {
    tap::unavailable().map(|error| Finding::new(Severity::Problem, "rights", error.to_string()))
}

impl Handle for OpenTap {
    /// A TAP that is gone says so by its queues.
    fn refresh(&self, facts: &mut Facts, _: Option<u32>) -> Result<Option<Link>, Errno> {
        facts.mtu = tap::mtu(&facts.interface).map_or(facts.mtu, |mtu| mtu.min(self.0));
        Ok(None)
    }
}
