//! Stages of the packet path: one list, from which counters, the picture in documents, and the engine's
//! states and tables are generated.
//!
//! A new stage is a row here, a file, and a line in `lib.rs`. The row ends with the stage's state in a
//! worker, and with the stage's table in the configuration, if any. The file implements
//! [`StageState`](crate::stage::StageState) for that state. A stage marked `inbound` also implements
//! [`Inbound`](crate::stage::Inbound): received packets pass these stages in the order of the list. Drop
//! reasons are rows of [`DropReason`](crate::drops::DropReason).

macro_rules! stages {
    ($d:tt $($variant:ident, $name:literal, $source:literal, [$($file:literal),* $(,)?], $about:literal
        $(, $state:ident: $module:ident::$State:ident
            $(, reads $table:ident: $Table:ident $content:literal $(, $inbound:ident)?)?)?;)+) => {
        /// Stages of the packet path, in order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Stage {
            $(#[doc = $about] $variant,)+
        }

        impl Stage {
            /// All stages, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Name in tables and metrics; drop reasons name their stage by it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// File or directory of the stage in this crate's `src`.
            pub const fn source(self) -> &'static str {
                match self { $(Self::$variant => $source,)+ }
            }

            /// Files that process a packet that is bridged into a tunnel, relative to the directory `crates`,
            /// in order; empty for a stage that such a packet does not pass. `cargo xtask journey` counts
            /// them.
            pub const fn files(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &[$($file),*],)+ }
            }

            /// Description of the stage, as a phrase.
            pub const fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)+ }
            }
        }

        /// Passes the rows of stages with a state to a macro.
        macro_rules! with_stages {
            ($d with:ident) => {
                $d with! {
                    $($($variant, $state: $module::$State
                        $(, reads $table: $Table $content $(, $inbound)?)?;)?)+
                }
            };
        }
        pub(crate) use with_stages;
    };
}

stages! { $
    Receive, "receive", "scheduler", [
        "devices/src/af_xdp/rx.rs",
        "devices/src/af_xdp/ring/mod.rs",
        "devices/src/af_xdp/posted.rs",
        "buffers/src/pool/mod.rs",
        "buffers/src/packet/mod.rs",
        "gateway/src/runtime/worker/round.rs",
        "datapath/src/port.rs",
        "datapath/src/scheduler/run_queue.rs",
        "datapath/src/engine.rs",
        "datapath/src/engine/batches.rs",
    ], "packets taken from a device, within a budget";
    Parse, "parse", "parse.rs", [
        "datapath/src/parse.rs",
    ], "link header checked";
    Decapsulate, "decapsulate", "tunnel/decapsulate.rs", [], "outer headers checked and removed, fragments reassembled",
        decapsulate: tunnel::DecapsulateState, reads tunnels: Tunnels "Tunnels and the ports they go over.", inbound;
    Filter, "filter", "filter", [], "rules applied, on the way in and on the way out",
        filter: filter::FilterState, reads filters: Filters "Filter rules, if configured.", inbound;
    Route, "route", "route", [], "next hop looked up, where there is a router",
        route: route::RouteState, reads routers: Routers "Routers, if configured.";
    Bridge, "bridge", "forward", [
        "datapath/src/forward/bridge.rs",
        "datapath/src/forward/bridge/header.rs",
        "datapath/src/forward/table.rs",
        "datapath/src/forward/vlan.rs",
        "datapath/src/wire/mac.rs",
        "datapath/src/forward/fdb/mod.rs",
    ], "egress port looked up, or flooded",
        bridge: forward::BridgeState, reads bridges: Bridges "Bridges and their members.";
    Segment, "segment", "segment.rs", [], "super-packets segmented for ports that take none";
    Encapsulate, "encapsulate", "tunnel/encapsulate.rs", [
        "datapath/src/tunnel/encapsulate.rs",
        "datapath/src/tunnel/table.rs",
        "datapath/src/tunnel/lane.rs",
        "datapath/src/tunnel/inner.rs",
        "datapath/src/tunnel/template.rs",
        "datapath/src/wire/checksum.rs",
    ], "outer headers written into headroom, IP identification, MSS clamped",
        encapsulate: tunnel::EncapsulateState;
    Reorder, "reorder", "reorder.rs", [], "order of arrival restored, where several workers share a flow";
    Sequence, "sequence", "sequence.rs", [
        "datapath/src/sequence.rs",
    ], "GRE sequence numbers assigned",
        sequence: sequence::SequenceState;
    Coalesce, "coalesce", "coalesce", [], "segments merged for ports that take super-packets";
    Queue, "queue", "queue", [], "packets queued for a port with a queue";
    Transmit, "transmit", "transmit.rs", [
        "datapath/src/transmit.rs",
        "gateway/src/runtime/worker/senders.rs",
        "devices/src/af_xdp/tx.rs",
    ], "a batch handed to a device",
        dispatch: transmit::Dispatch;
}

impl Stage {
    /// Number of stages.
    pub const COUNT: usize = Self::ALL.len();

    /// Picture of the packet path in two lines, for documents.
    pub fn picture() -> String {
        let (first, second) = Self::ALL.split_at(Self::COUNT.div_ceil(2));
        let arrows =
            |stages: &[Self]| stages.iter().map(|stage| stage.name()).collect::<Vec<_>>().join(" ─▶ ");
        format!("device rx ─▶ {}\n          ─▶ {} ─▶ device tx\n", arrows(first), arrows(second))
    }

    /// List of the stages for documents, one line each: name and description.
    pub fn list() -> String {
        Self::ALL.iter().map(|stage| format!("{:<12} {}\n", stage.name(), stage.about())).collect()
    }
}
