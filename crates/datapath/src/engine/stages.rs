//! States and tables of all stages, generated from the list of stages.

use crate::capture::Captures;
use crate::counters::{WorkerCounters, with_stages};
use crate::drops::Context;
use crate::fast_path::FastPaths;
use crate::offload::{Outlet, complete, takes_of};
use crate::stage::StageState;
use crate::tunnel::Tunnel;
use crate::units::Nanos;
use polder_buffers::{Batch, Packet, PortId, SegmentationKind};

/// Table of a stage, or `()`.
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
            /// Ports with a fast path.
            pub fast_paths: FastPaths,
            /// By port: offloads of the egress. A port without an entry, such as a tunnel, has none.
            pub outlets: Vec<Outlet>,
        }

        impl Default for Tables {
            /// No bridge, tunnel, router or rule; Ethernet's maximum frame.
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
            /// The same tables with copies of everything that stages write.
            pub(crate) fn image(&self) -> Self {
                Self {
                    $($($table: self.$table.image(),)?)+
                    longest_frame: self.longest_frame,
                    fast_paths: FastPaths::default(),
                    outlets: self.outlets.iter().map(Outlet::image).collect(),
                }
            }

            /// Reason why the kernel must not forward flows of a port or tunnel past some stage; `None` if it
            /// may.
            pub fn obstacle(&self, port: PortId) -> Option<&'static str> {
                let obstacles =
                    [$(<crate::$module::$State as StageState>::obstacle(table!(self $(, $table)?), port),)+];
                obstacles.into_iter().flatten().next()
            }
        }

        /// State of each stage in order, and shared scratch memory.
        #[derive(Debug)]
        pub(super) struct Stages {
            $(pub(super) $state: crate::$module::$State,)+
            pub(super) scratch: Scratch,
            pub(super) extra: Extra,
            pub(super) captures: Option<Box<Captures>>,
        }

        impl Stages {
            /// States of worker number `worker`.
            pub(super) fn begin(worker: usize, tables: &Tables, counters: &WorkerCounters) -> Self {
                Self {
                    $($state: StageState::begin(worker, table!(tables $(, $table)?), counters),)+
                    scratch: Scratch::new(tables),
                    extra: Extra::default(),
                    captures: None,
                }
            }

            /// Adapts the states to new tables.
            pub(super) fn adopt(&mut self, tables: &Tables) {
                $(self.$state.adopt(table!(tables $(, $table)?));)+
                self.scratch.reserve(tables);
            }

            /// Earliest time at which a stage must maintain held packets.
            pub(super) fn next_deadline(&self) -> Option<Nanos> {
                [$(self.$state.next_deadline(),)+].into_iter().flatten().min()
            }

            /// Does the work of all stages that is due at this time.
            pub(super) fn expire(&mut self, context: &mut Context<'_>) {
                $(self.$state.expire(context);)+
            }

            /// Drops the packets that stages hold.
            pub(super) fn clear(&mut self, context: &mut Context<'_>) {
                $(self.$state.clear(context);)+
            }
        }
    };
}

with_stages!(define);

/// Additional stage of the caller: works on the batch in place, before the bridge.
pub type ExtraStage = Box<dyn FnMut(&mut Batch) + Send>;

/// The additional stage, if any.
#[derive(Default)]
pub(super) struct Extra(pub(super) Option<ExtraStage>);

impl core::fmt::Debug for Extra {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_tuple("Extra").field(&self.0.is_some()).finish()
    }
}

/// Packets of a batch that has grown, and the part that is being processed.
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

/// Scratch memory for packets while their batch is divided or has grown.
#[derive(Debug)]
pub(super) struct Scratch {
    pub(super) flooded: Grown,
    pub(super) fragments: Grown,
    /// Packets of a batch that the router fragmented or of which some wait.
    pub(super) routed: Grown,
    /// Segments of packets that neither their egress nor their tunnel takes whole.
    pub(super) cut: Batch,
    /// Segments of packets that their tunnel's underlay does not take whole.
    pub(super) cut_encapsulated: Batch,
    pub(super) replies: Batch,
    /// Packets of a work batch while stages process them.
    pub(super) work: Batch,
    /// Packets that another worker must sequence.
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

    /// Reserves memory for the packets that stages with these tables may make of a batch.
    pub(super) fn reserve(&mut self, tables: &Tables) {
        let Tables { bridges, tunnels, routers, longest_frame, .. } = tables;
        self.routed.packets.reserve(routers.longest_expansion(*longest_frame));
        self.flooded.packets.reserve(bridges.longest_expansion());
        self.fragments.packets.reserve(tunnels.longest_expansion());
    }
}

/// Completes the packet's checksum if its egress, or its tunnel's underlay, does not take partial checksums.
/// Returns false, and does nothing, for a packet that must be segmented first.
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
        // An encapsulated packet is segmented as late as possible.
        return match tunnel {
            Some(tunnel) => tunnel.takes_uncut(packet, context),
            None => takes.takes(packet),
        };
    }
    complete(packet, takes, context);
    true
}
