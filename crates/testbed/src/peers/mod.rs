//! Forwarders, measured beside each other: started and stopped by the lab, skipped loudly when absent.
//!
//! A [`Device`] stands at a [`Site`]: a namespace with an interface where packets come in and one where
//! they go out, and a core. It says which threads work for it.

pub mod asks;
pub mod bare;
pub mod echo;
pub mod frr;
pub mod gateway;
pub mod kernel;
pub mod neighbour;
pub mod ovs;
pub mod polder;
pub mod switch;
pub mod testpmd;
pub mod vpp;

use crate::meters::cpu::thread_time;
use crate::topology::{Namespace, put_first};
use crate::traffic::packet::Mac;
use std::net::Ipv4Addr;
use std::time::Duration;

/// An end of a tunnel, or a station.
pub type Party = (Mac, Ipv4Addr);

/// The stations on both sides of the device.
pub const CLIENT: Party = ([0x02, 0, 0, 0, 1, 0x01], Ipv4Addr::new(10, 1, 0, 1));
/// MAC and IPv4 address that packets are sent to.
pub const SERVER: Party = ([0x02, 0, 0, 0, 2, 0x01], Ipv4Addr::new(10, 2, 0, 1));
/// The tunnel's end at the device; the link-layer address is that of its interface.
pub const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 168, 10, 1);
/// The tunnel's other end, and the next hop on the way to it.
pub const REMOTE: Party = ([0x02, 0, 0, 0, 3, 0x01], Ipv4Addr::new(192, 168, 20, 1));
/// The device's address on the link to the next hop.
pub const LINK_LOCAL: Ipv4Addr = Ipv4Addr::new(172, 20, 0, 1);
/// The next hop's address on that link.
pub const LINK_REMOTE: Ipv4Addr = Ipv4Addr::new(172, 20, 0, 2);
/// The network identifier of VXLAN.
pub const NETWORK: u32 = 1;

/// Task of a device with incoming packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Hand frames for the server on.
    Bridge,
    /// Route packets to the server.
    Route,
    /// Put frames for the server into a tunnel.
    Encapsulate,
    /// Take frames for the server out of a tunnel.
    Decapsulate,
}

impl Task {
    /// The task in a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Route => "route",
            Self::Encapsulate => "encapsulate",
            Self::Decapsulate => "decapsulate",
        }
    }
}

/// Encapsulation of a device's tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tunnel {
    /// VXLAN.
    Vxlan,
    /// GRE with Ethernet inside.
    Gretap,
}

/// Place of a device in the testbed: namespace, interfaces, core and task.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// The namespace that is its own.
    pub namespace: &'a Namespace,
    /// Interface by which packets enter.
    pub input: &'a str,
    /// Its address.
    pub input_mac: Mac,
    /// Interface by which packets leave.
    pub output: &'a str,
    /// Its address.
    pub output_mac: Mac,
    /// The core that is its own.
    pub core: usize,
    /// Task of the device.
    pub task: Task,
    /// Encapsulation of its tunnel, if the task has one.
    pub tunnel: Tunnel,
    /// Time for which the input's receive work may be put off, in microseconds; Polder's own default when `None`.
    pub moderation_us: Option<u16>,
    /// Supply of Polder's receive rings; its own defaults when `None`.
    pub receiving: Option<Receiving>,
}

/// Supply of Polder's receive rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiving {
    /// Percentage of posted frames below which a ring is refilled.
    pub refill_below_percent: u8,
    /// Maximum length of packets that are copied out of their frames.
    pub copy_break: u16,
}

impl Site<'_> {
    /// The interface that leads to the tunnel's other end.
    pub fn underlay(&self) -> &str {
        if self.task == Task::Decapsulate { self.input } else { self.output }
    }

    /// The interface that is a member of the bridge, when there is a tunnel.
    pub fn member(&self) -> &str {
        if self.task == Task::Decapsulate { self.output } else { self.input }
    }
}

/// A forwarder under test.
pub trait Device: Send {
    /// Threads that work for it, kernel threads included; empty when its work is done by the sender.
    fn threads(&self) -> &[i32];

    /// Begins to forward, if it does not do so all the time.
    ///
    /// # Errors
    /// When it does not answer.
    fn go(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Leaves the core to others, if it does not do so when idle.
    ///
    /// # Errors
    /// When it does not answer.
    fn halt(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Puts those of its threads that sleep when there is nothing to do before all ordinary ones of their
    /// core. One that polls without pause stays as it is: nothing else would run.
    ///
    /// # Errors
    /// When there is no right to do it.
    fn put_first(&self) -> anyhow::Result<()> {
        self.threads().iter().try_for_each(|&thread| put_first(thread))
    }

    /// Packets that its counters do not account for, once none is in flight; `None` without counters.
    ///
    /// # Errors
    /// When it does not answer.
    fn unaccounted(&self) -> anyhow::Result<Option<i64>> {
        Ok(None)
    }

    /// The payload of requests to it, where it answers nothing else.
    ///
    /// # Errors
    /// When the peer's start message lacks the data of a request.
    fn request(&self) -> anyhow::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// Counters as text; empty without counters.
    ///
    /// # Errors
    /// When it does not answer.
    fn says(&mut self) -> anyhow::Result<String> {
        Ok(String::new())
    }

    /// Number of packets that programs of its ports have carried in the kernel; `None` for a device without such programs.
    ///
    /// # Errors
    /// When it does not answer.
    fn carried(&self) -> anyhow::Result<Option<u64>> {
        Ok(None)
    }

    /// CPU time that its threads have used.
    ///
    /// # Errors
    /// When one of them has ended.
    fn cpu(&self) -> anyhow::Result<Duration> {
        self.threads().iter().map(|&thread| thread_time(thread)).sum()
    }
}
