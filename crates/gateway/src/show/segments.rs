//! Packets merged and split for a port.

use super::family::Unit::Packets;
use super::layout::Layout;
use super::row::rows;
use serde::{Deserialize, Serialize};

rows! {
    /// Segments that were merged on their way to a port, and packets that were cut because it, or the tunnel
    /// over it, takes no longer ones.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct SegmentRow {
        /// Packets that became part of longer ones on their way to the port.
        pub merged: u64 => counter("port_merged", Packets),
        /// Longer packets that were merged.
        pub merged_into: u64 => counter("port_merged_into", Packets),
        /// Packets that were cut for the port.
        pub cut: u64 => counter("port_cut", Packets),
        /// Segments that packets were cut into.
        pub segments: u64 => counter("port_cut_segments", Packets),
    }
}

impl SegmentRow {
    /// The counts as a sentence; `None` if all are 0.
    pub(super) fn sentence(&self, layout: Layout) -> Option<String> {
        let part = |verb: &str, from: u64, into: u64, parts: u64, wholes: u64| {
            (wholes > 0).then(|| {
                let (whole, tenth) = (parts / wholes, parts % wholes * 10 / wholes);
                format!(
                    "{verb} {} packets into {}: {whole}.{tenth} each",
                    layout.count(from),
                    layout.count(into)
                )
            })
        };
        let merged = part("merged", self.merged, self.merged_into, self.merged, self.merged_into);
        let cut = part("cut", self.cut, self.segments, self.segments, self.cut);
        let parts = merged.into_iter().chain(cut).collect::<Vec<_>>();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::Row as _;
    use super::*;

    #[test]
    fn averages_are_told() {
        let row = SegmentRow { merged: 450, merged_into: 20, cut: 2, segments: 90 };
        let description = row.sentence(Layout::PLAIN).expect("something has happened");
        assert_eq!(description, "merged 450 packets into 20: 22.5 each; cut 2 packets into 90: 45.0 each");
        assert_eq!(SegmentRow::default().sentence(Layout::PLAIN), None);
        let mut later = SegmentRow { merged: 500, ..row };
        later.difference(&row);
        assert_eq!(later, SegmentRow { merged: 50, ..SegmentRow::default() });
    }
}
