//! Odd packets at hot entries: what leaves a gateway whose programs carry flows, beside what leaves one without a fast path.
//!
//! Each [`Bench`] is a gateway between two ends that this process plays. It makes flows hot, sends one packet at a time, and
//! behind each a marker, which is carried. What has come at either end until then is the result of the packet. The
//! results of a gateway with `fast_path = "off"` are the reference. A program that [lacks a check](Check) is found if one
//! of its results differs from that.

mod bridge;
mod examine;
mod packets;
mod route_packets;
mod routes;
mod sink;
mod tunnel_packets;
mod tunnels;

pub use examine::{Examination, MUTANTS};
pub use packets::udp;
pub use route_packets::{Flow, frame, packet, v4};
pub use routes::{FLOWS, HOP, RouteStand, neighbour};
pub use sink::Sink;
pub use tunnels::{KINDS, Kind, TunnelStand};

use anyhow::{Context as _, ensure};
use polder_devices::checks::{Check, Part};

/// Frames that have come at either end.
pub type Frames = [Vec<Vec<u8>>; 2];

/// Receiver of the results of packets, by name: false when it has seen enough.
pub type Tell<'t> = &'t mut dyn FnMut(&str, Frames) -> bool;

/// Gateway that is examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A gateway without a fast path.
    Slow,
    /// A gateway with a fast path.
    Fast,
    /// A gateway whose programs lack a check.
    Lacking(Check),
}

impl Subject {
    /// Keys of its ports.
    fn keys(self) -> &'static str {
        if self == Self::Slow { "fast_path = \"off\"" } else { "" }
    }

    /// The check that its programs lack.
    fn lacking(self) -> Option<Check> {
        if let Self::Lacking(check) = self { Some(check) } else { None }
    }
}

/// Gateway between two ends.
pub trait Stand {
    /// Makes the flows hot, unless the gateway has no fast path.
    ///
    /// # Errors
    /// When they do not become so.
    fn warm(&mut self) -> anyhow::Result<()>;

    /// Sends the packets, and tells of the frames that come of each, until that has seen enough.
    ///
    /// # Errors
    /// When a marker does not come.
    fn run(&mut self, tell: Tell<'_>) -> anyhow::Result<()>;

    /// Packets that programs have carried.
    ///
    /// # Errors
    /// When the gateway does not answer.
    fn carried(&self) -> anyhow::Result<u64>;

    /// Ends the gateway.
    ///
    /// # Errors
    /// When it has not accounted for every packet, or does not end.
    fn end(self: Box<Self>) -> anyhow::Result<()>;
}

/// Place of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A bridge with VLANs.
    Bridge,
    /// A tunnel, by its place in [`KINDS`].
    Tunnel(usize),
    /// A router.
    Routes,
}

/// Kind of stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bench {
    /// Place of the programs.
    pub place: Place,
    /// Mode of the gateway's ports.
    pub mode: &'static str,
}

/// Modes of ports whose programs carry flows: at the TCX hook, and at that of XDP in the driver.
pub const MODES: [&str; 2] = ["skb", "native"];

/// Results of a gateway without a fast path, in the order of the packets.
#[derive(Clone, Debug)]
pub struct Reference {
    results: Vec<(String, Frames)>,
}

/// Findings about a gateway with a fast path.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Packets that were looked at.
    pub packets: usize,
    /// Number of packets whose result differs from the reference.
    pub different: Vec<String>,
}

impl Reference {
    /// Number of packets of which something has come at the second end.
    pub fn answered(&self) -> usize {
        self.results.iter().filter(|(_, [_, answers])| !answers.is_empty()).count()
    }
}

impl Bench {
    /// All benches of a mode.
    pub fn all(mode: &'static str) -> [Self; 5] {
        let [first, second, third] = [0, 1, 2].map(Place::Tunnel);
        [Place::Bridge, first, second, third, Place::Routes].map(|place| Self { place, mode })
    }

    /// True if programs of this bench have checks of that part.
    pub fn has(self, part: Part) -> bool {
        match part {
            Part::All => true,
            Part::Bridge => self.place == Place::Bridge,
            Part::Routes => self.place == Place::Routes,
            Part::Connections => false,
            Part::IntoTunnels | Part::OutOfTunnels => matches!(self.place, Place::Tunnel(_)),
        }
    }

    /// Lays wires and starts a gateway, whose flows are made hot.
    fn lay(self, subject: Subject) -> anyhow::Result<Box<dyn Stand>> {
        let mut stand: Box<dyn Stand> = match self.place {
            Place::Bridge => Box::new(bridge::BridgeStand::lay(self.mode, subject)?),
            Place::Tunnel(kind) => Box::new(TunnelStand::lay(&KINDS[kind], self.mode, subject)?),
            Place::Routes => Box::new(RouteStand::lay(self.mode, subject)?),
        };
        stand.warm().with_context(|| format!("{self:?}, {subject:?}"))?;
        Ok(stand)
    }

    /// Results of a gateway without a fast path.
    ///
    /// # Errors
    /// When there is none.
    pub fn reference(self) -> anyhow::Result<Reference> {
        let mut stand = self.lay(Subject::Slow)?;
        let mut results = Vec::new();
        stand.run(&mut |name, frames| {
            results.push((name.to_owned(), frames));
            true
        })?;
        ensure!(stand.carried()? == 0, "{self:?}: packets were carried without a fast path");
        stand.end()?;
        Ok(Reference { results })
    }

    /// Compares the results of a gateway with a fast path with the reference.
    ///
    /// # Errors
    /// When a gateway does not start or does not carry anything; and when an honest one loses packets.
    pub fn examine(self, reference: &Reference, subject: Subject) -> anyhow::Result<Findings> {
        let mut stand = self.lay(subject)?;
        let before = stand.carried()?;
        let (mut findings, mut expected) = (Findings::default(), reference.results.iter());
        let is_honest = subject.lacking().is_none();
        let ran = stand.run(&mut |name, frames| {
            findings.packets += 1;
            let is_same = expected.next().is_some_and(|(known, slow)| known == name && *slow == frames);
            if !is_same {
                findings.different.push(name.to_owned());
            }
            // One difference finds a program that is wrong.
            is_honest || is_same
        });
        if is_honest {
            ran?;
            ensure!(expected.next().is_none(), "{self:?}: packets were left out");
            ensure!(stand.carried()? > before, "{self:?}: no packet was carried");
            stand.end()?;
        } else if let Err(error) = ran {
            findings.different.push(format!("{error:#}"));
        }
        Ok(findings)
    }
}
