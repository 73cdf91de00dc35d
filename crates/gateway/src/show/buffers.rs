//! `polder show buffers`.

use super::family::Unit::{Bytes, Frames, Plain};
use super::family::{Family, Labels};
use super::layout::Layout;
use super::row::rows;
use super::table::Table;
use serde::{Deserialize, Serialize};

rows! {
    /// All buffers.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct Buffers {
        /// Bytes of a frame.
        pub frame_bytes: u32 => gauge("buffer_frame_size", Bytes),
        /// Bytes in front of packets that a driver places itself.
        pub headroom: u16 => gauge("buffer_headroom", Bytes),
        /// Each pool: kind and class.
        pub pools: Vec<PoolRow> => rows(),
        /// Places of the frames.
        pub places: Places,
        /// Memory of the transfers of USB adapters.
        #[serde(default)]
        pub transfers: Vec<TransferRow> => rows(),
        /// Frames and fragments that were dropped instead of released.
        ///
        /// 0, or an error in Polder.
        pub strays: u64 => total("buffer_strays", Plain),
    }
    also &[
        Family::gauges(("buffer_place", Frames), "Frames by place; each frame is in one place.", |row| {
            let Places { total: _, free, reserve, posted, held, shared, lent, path } = row.places;
            let counts = [
                ("free", free),
                ("reserve", reserve),
                ("posted", posted),
                ("held", held),
                ("shared", shared),
                ("lent", lent),
            ];
            let counts = counts.map(|(place, frames)| (Labels::one("place", place), frames.into()));
            counts.into_iter().chain([(Labels::one("place", "path"), path.into())]).collect()
        }),
        Family::gauges(("buffer_all", Frames), "Frames of both classes.", |row| {
            vec![(Labels::default(), row.places.total.into())]
        }),
    ];

    /// Buffers of one kind for one class, and their counters. Counts are frames, or blocks of fragments;
    /// `taken` and `exhausted` count fragments there.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct PoolRow {
        /// `frames` or `blocks`.
        pub kind: String => key() label("kind"),
        /// `control` or `data`.
        pub class: String
            => key() label("class") left_of(0, "pool", |row, _| format!("{} {}", row.class, row.kind)),
        /// Buffers of the pool.
        pub total: u64 => gauge("pool_buffers", Plain) right(2, "all"),
        /// Buffers without memory behind them.
        pub cold: u64 => gauge("pool_cold_buffers", Plain) right(3, "cold"),
        /// Memory behind the pool's buffers.
        #[serde(default)]
        pub bytes: u64 => gauge("pool_memory", Bytes) left_of(1, "memory", |row, _| row.memory().to_owned()),
        /// Buffers ready for any worker.
        pub reserve: u64 => gauge("pool_reserve_buffers", Plain) right(4, "reserve"),
        /// Buffers ready in workers' own caches.
        ///
        /// Or blocks that they carve.
        pub cached: u64 => gauge("pool_cached_buffers", Plain) right(5, "cached"),
        /// Buffers in use.
        ///
        /// Posted, on their way, or held.
        pub out: u64 => gauge("pool_used_buffers", Plain) right(6, "out"),
        /// Buffers taken.
        pub taken: u64 => counter("pool_allocations", Plain) right(8, "taken"),
        /// True if buffers are ready before they are needed.
        #[serde(default)]
        pub ready_ahead: bool,
        /// True if more are brought in when few are left.
        #[serde(default)]
        pub reloaded: bool,
        /// True if buffers that stay unused go back to the system.
        #[serde(default)]
        pub gives_back: bool,
        /// Allocations a second since the last view; `null` at the first view.
        pub rate: Option<f64>,
        /// Reloads of the reserve.
        pub reloads: u64 => counter("pool_reloads", Plain) right(9, "reloads"),
        /// Buffers that reloads brought in.
        pub loaded: u64 => counter("pool_loaded_buffers", Plain) right(10, "brought in"),
        /// Reloads that the system had no memory for.
        pub failures: u64 => counter("pool_failed_reloads", Plain),
        /// Buffers that went back to the system.
        pub given_back: u64 => counter("pool_returned_buffers", Plain) right(11, "given back"),
        /// Buffers that the packet path itself took from the system.
        ///
        /// 0 with reload workers.
        pub on_demand: u64 => counter("pool_on_demand_buffers", Plain),
        /// Fewest buffers that were ready.
        pub lowest: u64 => gauge("pool_lowest_ready_buffers", Plain) right(7, "lowest"),
        /// Allocations that failed.
        pub exhausted: u64 => counter("pool_failed_allocations", Plain),
    }

    /// Memory of the transfers of a USB adapter in one direction: each buffer is free, in flight or held.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct TransferRow {
        /// The adapter's port.
        pub port: String => label("port"),
        /// `in` or `out`.
        pub direction: String => label("direction"),
        /// Bytes of a transfer's buffer, at most.
        pub buffer_bytes: u64 => gauge("transfer_buffer_size", Bytes),
        /// Buffers of transfers.
        pub total: u64 => gauge("transfer_buffers", Plain),
        /// Buffers with no transfer.
        pub free: u64 => gauge("transfer_free_buffers", Plain),
        /// Buffers with the bus.
        pub in_flight: u64 => gauge("transfer_in_flight_buffers", Plain),
        /// Received buffers with frames that wait.
        pub held: u64 => gauge("transfer_held_buffers", Plain),
    }
}

/// Places of the frames of both classes: each frame is in exactly one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// All frames.
    pub total: u64,
    /// Free in workers' caches, or without memory.
    pub free: u64,
    /// Free and ready for any worker.
    pub reserve: u64,
    /// In a ring of a device.
    pub posted: u64,
    /// In a queue or in reassembly.
    pub held: u64,
    /// Shared by several packets, wherever these are.
    pub shared: u64,
    /// Lent to another process.
    pub lent: u64,
    /// On the way through workers and rings between them: the remainder. While packets move, the other places
    /// are read at slightly different times.
    pub path: i64,
}

impl Places {
    /// Computes the remainder.
    #[must_use]
    pub fn finish(mut self) -> Self {
        let elsewhere = self.free + self.reserve + self.posted + self.held + self.shared + self.lent;
        self.path = self.total.cast_signed() - elsewhere.cast_signed();
        self
    }
}

impl Buffers {
    pub(super) fn draw(&self, layout: Layout) -> String {
        let mut table = Table::of::<PoolRow>(layout);
        for pool in &self.pools {
            table.add(pool);
            pool.notes(layout).into_iter().for_each(|note| table.note(note));
        }
        let mut text = table.draw();
        text.push_str(&self.places.draw(self.frame_bytes));
        self.transfers.iter().for_each(|row| text.push_str(&row.draw()));
        text.push_str(&self.sum());
        if self.strays > 0 {
            let line = format!(
                "{} frames were dropped without release, which is a bug in Polder: please \
                                report it",
                self.strays
            );
            text.push_str(&format!("{} {line}\n", layout.bad("✗")));
        }
        text
    }
}

impl Buffers {
    /// Sum of all packet memory, by kind.
    fn sum(&self) -> String {
        let of = |kind| {
            self.pools.iter().filter(move |pool| pool.kind == kind).map(|pool| pool.bytes).sum::<u64>()
        };
        let of_transfers = self.transfers.iter().map(|row| row.total * row.buffer_bytes).sum::<u64>();
        let parts = [("frames", of("frames")), ("pieces", of("blocks")), ("USB transfers", of_transfers)];
        let all = mib(parts.iter().map(|(_, bytes)| bytes).sum());
        let parts = parts.into_iter().filter(|&(_, bytes)| bytes > 0);
        let parts = parts.map(|(name, bytes)| format!("{name} {}", mib(bytes))).collect::<Vec<_>>();
        if parts.is_empty() {
            String::new()
        } else {
            format!("{all} MiB of memory = {}\n", parts.join(" + "))
        }
    }
}

/// Bytes in MiB, with one decimal.
fn mib(bytes: u64) -> String {
    let tenths = (bytes * 10 + (1 << 19)) >> 20;
    format!("{}.{}", tenths / 10, tenths % 10)
}

impl TransferRow {
    fn draw(&self) -> String {
        let Self { port, direction, buffer_bytes, total, free, in_flight, held } = self;
        let held = if direction == "in" { format!(" + held {held}") } else { String::new() };
        format!(
            "{total} transfers {direction} of {buffer_bytes} bytes ({port}) = free {free} + in flight {in_flight}{held}\n"
        )
    }
}

impl PoolRow {
    /// Source of the pool's memory, and whether it is released.
    fn memory(&self) -> &'static str {
        match (self.ready_ahead, self.reloaded, self.gives_back) {
            (false, _, _) => "on demand",
            (true, false, _) => "fixed",
            (true, true, false) => "grows",
            (true, true, true) => "grows, shrinks",
        }
    }

    fn notes(&self, layout: Layout) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |count: u64, text: &str| {
            if count > 0 {
                notes.push(format!("{} {} {text}", layout.odd("!"), layout.count(count)));
            }
        };
        let more = if self.kind == "frames" { "memory_mib" } else { "fragments_mib" };
        note(self.exhausted, &format!("times none was free when one was needed: raise `{more}`"));
        note(self.failures, "refills failed because the system had no memory");
        note(self.on_demand, "were mapped by a worker, not by the refill threads");
        notes
    }
}

impl Places {
    fn draw(&self, frame_bytes: u32) -> String {
        let Self { total, free, reserve, posted, held, shared, lent, path } = self;
        let some = |name, count| if count > 0 { format!(" + {name} {count}") } else { String::new() };
        let (shared, lent) = (some("shared", *shared), some("lent", *lent));
        format!(
            "{total} frames of {frame_bytes} bytes = free {free} + reserve {reserve} + posted {posted} + in \
             processing {path} + held {held}{shared}{lent}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_no_place_is_on_its_way() {
        let places = Places { total: 100, free: 10, reserve: 40, posted: 30, held: 3, ..Places::default() };
        assert_eq!(places.finish().path, 17);
    }

    #[test]
    fn all_memory_is_summed_up() {
        let pool = |kind: &str, bytes| PoolRow { kind: kind.to_owned(), bytes, ..PoolRow::default() };
        let of_usb = TransferRow {
            port: "usb0".to_owned(),
            direction: "in".to_owned(),
            buffer_bytes: 32_768,
            total: 32,
            free: 1,
            in_flight: 29,
            held: 2,
        };
        let pools = vec![pool("frames", 3 << 20), pool("frames", 1 << 20), pool("blocks", (1 << 20) / 2)];
        let text = Buffers { pools, transfers: vec![of_usb], ..Buffers::default() }.draw(Layout::PLAIN);
        let transfers = "32 transfers in of 32768 bytes (usb0) = free 1 + in flight 29 + held 2";
        for part in [transfers, "5.5 MiB of memory = frames 4.0 + pieces 0.5 + USB transfers 1.0"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn trouble_is_said_with_its_remedy() {
        let pool = PoolRow { kind: "frames".to_owned(), exhausted: 17, ..PoolRow::default() };
        let buffers = Buffers { pools: vec![pool], strays: 5, ..Buffers::default() };
        let text = buffers.draw(Layout::PLAIN);
        for part in ["17 times none was free", "`memory_mib`", "5 frames were dropped"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
