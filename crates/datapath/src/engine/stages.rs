//! States and tables of all stages, as the list of stages has them.

use super::Journey;
use super::batches::alive;
use super::state::{Extra, Scratch};
use crate::capture::Captures;
use crate::counters::{Stage, WorkerCounters, with_stages};
use crate::drops::Context;
use crate::fast_path::FastPaths;
use crate::offload::Outlet;
use crate::stage::{Inbound, StageState};
use crate::transmit::Egress;
use crate::units::Nanos;
use polder_buffers::{Batch, PortId};

/// A stage's own table.
macro_rules! table {
    ($tables:expr) => {
        &()
    };
    ($tables:expr, $table:ident) => {
        &$tables.$table
    };
}

macro_rules! define {
    ($($variant:ident, $state:ident: $module:ident::$State:ident
        $(, reads $table:ident: $Table:ident $content:literal $(, $inbound:ident)?)?;)+) => {
        /// Forwarding tables of the configuration; immutable, replaced as a whole.
        #[derive(Debug)]
        pub struct Tables {
            $($(#[doc = $content] pub $table: crate::$module::$Table,)?)+
            /// Longest frame that is accepted, in bytes, Ethernet header included, FCS excluded.
            pub longest_frame: usize,
            /// Ports that carry out decisions by themselves.
            pub fast_paths: FastPaths,
            /// By port: how packets leave by it. A port without an entry, such as a tunnel, takes complete packets
            /// alone.
            pub outlets: Vec<Outlet>,
        }

        impl Default for Tables {
            /// No bridge, tunnel, router or rule, and frames of Ethernet.
            fn default() -> Self {
                Self {
                    $($($table: Default::default(),)?)+
                    longest_frame: 1518,
                    fast_paths: FastPaths::default(),
                    outlets: Vec::new(),
                }
            }
        }

        impl Tables {
            /// The same tables with copies of all that stages write to.
            pub(crate) fn image(&self) -> Self {
                Self {
                    $($($table: self.$table.image(),)?)+
                    longest_frame: self.longest_frame,
                    fast_paths: FastPaths::default(),
                    outlets: self.outlets.iter().map(Outlet::image).collect(),
                }
            }

            /// Reason why the kernel carries no flows of a port or tunnel past some stage; `None` if it may.
            pub fn obstacle(&self, port: PortId) -> Option<&'static str> {
                let obstacles =
                    [$(<crate::$module::$State as StageState>::obstacle(table!(self $(, $table)?), port),)+];
                obstacles.into_iter().flatten().next()
            }
        }

        /// State of each stage, in the order of the journey, and space that stages share.
        #[derive(Debug)]
        pub(super) struct Stages {
            $(pub(super) $state: crate::$module::$State,)+
            pub(super) scratch: Scratch,
            pub(super) extra: Extra,
            pub(super) captures: Option<Box<Captures>>,
        }

        impl Stages {
            /// The states of the worker with this number.
            pub(super) fn begin(worker: usize, tables: &Tables, counters: &WorkerCounters) -> Self {
                Self {
                    $($state: StageState::begin(worker, table!(tables $(, $table)?), counters),)+
                    scratch: Scratch::new(tables),
                    extra: Extra::default(),
                    captures: None,
                }
            }

            /// The tables have been replaced.
            pub(super) fn adopt(&mut self, tables: &Tables) {
                $(self.$state.adopt(table!(tables $(, $table)?));)+
                self.scratch.reserve(tables);
            }

            /// The earliest time at which a stage is to look after packets that it holds.
            pub(super) fn next_deadline(&self) -> Option<Nanos> {
                [$(self.$state.next_deadline(),)+].into_iter().flatten().min()
            }

            /// Does the work that is due by time alone.
            pub(super) fn expire(&mut self, context: &mut Context<'_>) {
                $(self.$state.expire(context);)+
            }

            /// Drops held packets.
            pub(super) fn clear(&mut self, context: &mut Context<'_>) {
                $(self.$state.clear(context);)+
            }
        }

        impl<E: Egress, C: FnMut() -> Nanos> Journey<'_, E, C> {
            /// From decapsulation to the router, with `left` packets that are still on their way; returns how many of
            /// them are left.
            #[inline]
            pub(super) fn come_in(&mut self, batch: &mut Batch, ingress: PortId, mut left: usize) -> usize {
                $($($(if <crate::$module::$State as Inbound>::is_met(&self.tables.$table, ingress) {
                    self.stages.$state.receive(batch, &self.tables.$table, &mut self.context);
                    left = self.$inbound(Stage::$variant, batch, left);
                })?)?)+
                left
            }
        }
    };
}

with_stages!(define);

impl<E: Egress, C: FnMut() -> Nanos> Journey<'_, E, C> {
    /// An inbound stage has worked on a batch that had `count` packets on their way; returns how many are left. Not in
    /// line, so that the path without such stages is as short as if there were none.
    #[inline(never)]
    fn inbound(&mut self, stage: Stage, batch: &Batch, count: usize) -> usize {
        self.meter.lap(stage, count);
        self.egress.passed(stage, batch);
        if stage == Stage::Decapsulate
            && let Some(captures) = &mut self.stages.captures
        {
            captures.decapsulated(batch, self.context.now);
        }
        alive(batch)
    }
}
