//! States and tables of all stages, as the list of stages has them.

use crate::capture::Captures;
use crate::counters::{WorkerCounters, with_stages};
use crate::drops::Context;
use crate::fast_path::FastPaths;
use crate::offload::{Outlet, complete, takes_of};
use crate::stage::StageState;
use crate::tunnel::Tunnel;
use crate::units::Nanos;
use polder_buffers::{Batch, Packet, PortId, SegmentationKind};

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
    };
}

with_stages!(define);

/// Stage from outside: it works on the batch in place, before the bridge.
pub type ExtraStage = Box<dyn FnMut(&mut Batch) + Send>;

/// An extra stage, if there is one.
#[derive(Default)]
pub(super) struct Extra(pub(super) Option<ExtraStage>);

impl core::fmt::Debug for Extra {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_tuple("Extra").field(&self.0.is_some()).finish()
    }
}

/// Packets of a batch that has grown, and the part of them that is on its way.
#[derive(Debug, Default)]
pub(super) struct Grown {
    pub(super) packets: Vec<Packet>,
    pub(super) part: Batch,
}

impl Grown {
    fn new() -> Self {
        Self { packets: Vec::new(), part: Batch::new() }
    }
}

/// Space for packets while their batch has grown.
#[derive(Debug)]
pub(super) struct Scratch {
    pub(super) flooded: Grown,
    pub(super) fragments: Grown,
    /// Packets of a batch some of which were cut by the router, or waited.
    pub(super) routed: Grown,
    /// Segments of packets that go neither by their port nor into their tunnel whole.
    pub(super) cut: Batch,
    /// Segments of packets that their tunnel's underlay does not take whole.
    pub(super) cut_encapsulated: Batch,
    pub(super) replies: Batch,
    /// A work batch's packets while stages work on them.
    pub(super) work: Batch,
    /// Packets that another worker sequences.
    pub(super) unsequenced: Batch,
}

impl Scratch {
    pub(super) fn new(tables: &Tables) -> Self {
        let mut scratch = Self {
            flooded: Grown::new(),
            fragments: Grown::new(),
            routed: Grown::new(),
            cut: Batch::new(),
            cut_encapsulated: Batch::new(),
            replies: Batch::new(),
            work: Batch::new(),
            unsequenced: Batch::new(),
        };
        scratch.reserve(tables);
        scratch
    }

    /// Makes room for what stages with these tables may make of a batch.
    pub(super) fn reserve(&mut self, tables: &Tables) {
        let Tables { bridges, tunnels, routers, longest_frame, .. } = tables;
        self.routed.packets.reserve(routers.longest_expansion(*longest_frame));
        self.flooded.packets.reserve(bridges.longest_expansion());
        self.fragments.packets.reserve(tunnels.longest_expansion());
    }
}

/// Completes the checksum of a packet for its port, or for the one behind its tunnel, if that takes none that is partial.
/// `false` for a packet that is to be cut first; then nothing was done.
#[inline(never)]
pub(super) fn goes_on(
    packet: &mut Packet,
    tunnel: Option<&Tunnel>,
    tables: &Tables,
    context: &mut Context<'_>,
) -> bool {
    let port = tunnel.map_or(packet.egress, |tunnel| tunnel.underlay().port);
    let takes = takes_of(port, &tables.outlets);
    if packet.segmentation.kind != SegmentationKind::None {
        // Encapsulated, it is cut as late as can be.
        return match tunnel {
            Some(tunnel) => tunnel.takes_uncut(packet, context),
            None => takes.takes(packet.segmentation),
        };
    }
    complete(packet, takes, context);
    true
}
