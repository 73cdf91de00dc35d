//! Packets that an interface's program takes from the kernel: the tables, and the program.

use super::assembler::{Assembler, Register};
use super::classify::{self, RouterMaps, Target};
use super::endpoints::{Tables, TunnelEndpointMap};
use super::flows::hook::Hook;
use super::flows::{FlowMaps, Frames, decapsulate, program::carry, route};
use super::locals::Locals;
use super::port_frames::{PortFrames, bridge};
use super::take::{Ingress, LocalPrefixes, Take, TunnelEndpoint};
use super::yielded::{YieldWord, if_yielded};
use Register::{R1, R6};
use polder_datapath::forward::ForwardGroups;
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

/// Tables of the packets that one port takes.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a port has one")]
pub(crate) enum TakenMaps {
    /// Every packet except the port's own frames.
    Whole(PortFrames),
    /// Packets of tunnels.
    Tunnels(TunnelEndpointMap),
    /// Packets of tunnels, and packets that a router forwards unless the yield word leaves them to the
    /// kernel.
    Routed(TunnelEndpointMap, Locals, Arc<YieldWord>),
}

/// The tables' descriptors, for a program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken<'a> {
    /// Every packet except the port's own frames, which these words describe.
    Whole(BorrowedFd<'a>),
    /// Packets of tunnels.
    Tunnels(Tables<'a>),
    /// Packets of tunnels, and packets that a router forwards unless the yield word leaves them to the
    /// kernel.
    Routed(RouterMaps<'a>, BorrowedFd<'a>),
}

impl TakenMaps {
    /// Creates tables with the tunnel endpoints of `take`, or the words of a bridge port with that MAC
    /// address and those groups.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub(crate) fn new(take: &Take, (mac, groups): ([u8; 6], ForwardGroups)) -> Result<Self, Errno> {
        let endpoints = |wanted: &[TunnelEndpoint]| {
            let endpoints = TunnelEndpointMap::new()?;
            endpoints.replace(wanted).map(|()| endpoints)
        };
        Ok(match take {
            Take::Whole => Self::Whole(PortFrames::new(mac, groups)?),
            Take::Tunnels(wanted) => Self::Tunnels(endpoints(wanted)?),
            Take::Routed(wanted) => {
                Self::Routed(endpoints(wanted)?, Locals::new()?, Arc::new(YieldWord::new()?))
            }
        })
    }

    /// Makes `endpoints` the port's tunnel endpoints: the kernel keeps all other packets. An endpoint in the
    /// old and the new set is served without interruption.
    ///
    /// # Errors
    /// Errors of the kernel; `NODEV` for a port that takes every packet.
    pub(crate) fn set_endpoints(&self, endpoints: &[TunnelEndpoint]) -> Result<(), Errno> {
        match self {
            Self::Whole(_) => Err(Errno::NODEV),
            Self::Tunnels(known) | Self::Routed(known, ..) => known.replace(endpoints),
        }
    }

    /// Makes `groups` the link-local groups that the port's bridge forwards: the kernel keeps all others. Has
    /// no effect on other ports.
    pub(crate) fn set_forward_groups(&self, groups: ForwardGroups) {
        if let Self::Whole(words) = self {
            words.set_groups(groups);
        }
    }

    /// Sets the interface's MAC address.
    pub(crate) fn set_mac(&self, mac: [u8; 6]) {
        if let Self::Whole(words) = self {
            words.set_mac(mac);
        }
    }

    /// Sets the ingresses of a router's port, and the prefixes `local` that stay with the kernel.
    ///
    /// # Errors
    /// Errors of the kernel; `NODEV` for a port that does not route.
    pub(crate) fn set_router(&self, ingresses: &[Ingress], local: &[LocalPrefixes]) -> Result<(), Errno> {
        match self {
            Self::Whole(_) | Self::Tunnels(_) => Err(Errno::NODEV),
            Self::Routed(_, locals, _) => locals.replace(ingresses, local),
        }
    }

    /// Returns the yield word of a router's port, by which its packets are left to the kernel; `None` for
    /// another port.
    pub(crate) fn yield_word(&self) -> Option<&Arc<YieldWord>> {
        match self {
            Self::Whole(_) | Self::Tunnels(_) => None,
            Self::Routed(.., word) => Some(word),
        }
    }

    /// Returns the tables' descriptors, for a program.
    pub(crate) fn taken(&self) -> Taken<'_> {
        match self {
            Self::Whole(words) => Taken::Whole(words.as_fd()),
            Self::Tunnels(endpoints) => Taken::Tunnels(endpoints.tables()),
            Self::Routed(endpoints, locals, word) => {
                Taken::Routed(locals.maps(endpoints.tables()), word.map())
            }
        }
    }
}

impl Taken<'_> {
    /// Returns the name of the program.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Whole(_) => "polder_whole",
            Self::Tunnels(_) => "polder_claims",
            Self::Routed(..) => "polder_router",
        }
    }

    /// Returns the frames whose flows the program can carry.
    pub(crate) fn frames(self) -> Frames {
        match self {
            Self::Whole(_) => Frames::Bridged,
            Self::Tunnels(_) => Frames::Tunnelled,
            Self::Routed(..) => Frames::Routed,
        }
    }

    /// Returns the program; with `carrying`, it tries the flows that it carries before it sends packets to
    /// `target`.
    pub(crate) fn program(
        self,
        target: &impl Target,
        carrying: Option<(&impl Hook, FlowMaps<'_>)>,
    ) -> Vec<u64> {
        let mut program = Assembler::new();
        program.copy(R6, R1);
        let yielded = program.label();
        if let Self::Routed(_, word) = self {
            target.begin(&mut program);
            if_yielded(&mut program, target, word, yielded);
        }
        if let Some((hook, flows)) = carrying {
            let rest = program.label();
            hook.if_examined(&mut program, rest);
            match self {
                Self::Whole(_) => carry(&mut program, flows, hook, rest),
                Self::Tunnels(_) => decapsulate::carry(&mut program, flows, hook, rest),
                Self::Routed(..) => route::carry(&mut program, flows, hook, rest),
            }
            program.place(rest);
        }
        match self {
            Self::Whole(words) => bridge(&mut program, target, words),
            Self::Tunnels(tables) => classify::claim(&mut program, target, tables),
            Self::Routed(maps, _) => {
                classify::route(&mut program, target, maps);
                program.place(yielded);
                classify::claim(&mut program, target, maps.endpoints);
            }
        }
        program.finish()
    }
}
