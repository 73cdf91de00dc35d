//! Packets that the program of an interface takes from the kernel: tables, and the program itself.

use super::assembler::{Assembler, Register};
use super::classify::{self, RouterMaps, Target};
use super::endpoints::{Tables, TunnelEndpointMap};
use super::flows::hook::Hook;
use super::flows::{FlowMaps, Frames, decapsulate, program::carry, route};
use super::locals::Locals;
use super::take::{Ingress, LocalPrefixes, Take, TunnelEndpoint};
use super::yielded::{YieldWord, if_yielded};
use Register::{R1, R6};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Tables of what one port takes; for a port that takes everything there are none.
#[derive(Debug)]
pub(crate) struct TakenMaps {
    endpoints: Option<TunnelEndpointMap>,
    locals: Option<Locals>,
    yielding: Option<Arc<YieldWord>>,
}

/// The same for a program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken<'a> {
    /// Everything.
    Whole,
    /// Packets of tunnels.
    Tunnels(Tables<'a>),
    /// Those, and packets that a router forwards unless the word leaves them to the kernel.
    Routed(RouterMaps<'a>, BorrowedFd<'a>),
}

impl TakenMaps {
    /// Tables with the end points of `take`.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub(crate) fn new(take: &Take) -> Result<Self, Errno> {
        let (wanted, routes) = match take {
            Take::Whole => return Ok(Self { endpoints: None, locals: None, yielding: None }),
            Take::Tunnels(wanted) => (wanted, false),
            Take::Routed(wanted) => (wanted, true),
        };
        let endpoints = TunnelEndpointMap::new()?;
        endpoints.replace(wanted)?;
        let locals = routes.then(Locals::new).transpose()?;
        let yielding = routes.then(YieldWord::new).transpose()?.map(Arc::new);
        Ok(Self { endpoints: Some(endpoints), locals, yielding })
    }

    /// Makes `endpoints` those of the port: what is not among them stays with the kernel. What was there before, and still
    /// is, is taken all the time.
    ///
    /// # Errors
    /// Errors of the kernel; `NODEV` for a port that takes everything.
    pub(crate) fn set_endpoints(&self, endpoints: &[TunnelEndpoint]) -> Result<(), Errno> {
        self.endpoints.as_ref().ok_or(Errno::NODEV)?.replace(endpoints)
    }

    /// Makes `ingresses` those of a router's port, and `local` what of that which comes through them stays with the kernel.
    ///
    /// # Errors
    /// Errors of the kernel; `NODEV` for a port that does not route.
    pub(crate) fn set_router(&self, ingresses: &[Ingress], local: &[LocalPrefixes]) -> Result<(), Errno> {
        self.locals.as_ref().ok_or(Errno::NODEV)?.replace(ingresses, local)
    }

    /// Word by which the packets of a router's port are left to the kernel; `None` for another port.
    pub(crate) fn yield_word(&self) -> Option<&Arc<YieldWord>> {
        self.yielding.as_ref()
    }

    /// The tables, for a program.
    pub(crate) fn taken(&self) -> Taken<'_> {
        match (&self.endpoints, &self.locals, &self.yielding) {
            (None, ..) => Taken::Whole,
            (Some(endpoints), Some(locals), Some(word)) => {
                Taken::Routed(locals.maps(endpoints.tables()), word.map())
            }
            (Some(endpoints), ..) => Taken::Tunnels(endpoints.tables()),
        }
    }
}

impl Taken<'_> {
    /// Name of the program.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Whole => "polder_whole",
            Self::Tunnels(_) => "polder_claims",
            Self::Routed(..) => "polder_router",
        }
    }

    /// Frames whose flows the program can carry itself.
    pub(crate) fn frames(self) -> Frames {
        match self {
            Self::Whole => Frames::Bridged,
            Self::Tunnels(_) => Frames::Tunnelled,
            Self::Routed(..) => Frames::Routed,
        }
    }

    /// The program: flows that it carries itself, if `hook` is given, are looked at in front of what goes to `target`.
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
                Self::Whole => carry(&mut program, flows, hook, rest),
                Self::Tunnels(_) => decapsulate::carry(&mut program, flows, hook, rest),
                Self::Routed(..) => route::carry(&mut program, flows, hook, rest),
            }
            program.place(rest);
        }
        match self {
            Self::Whole => target.take(&mut program),
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
