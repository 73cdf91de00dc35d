//! Rows and texts about USB functions.

use crate::show::adapter::BlockRow;
use polder_datapath::counters::QueueCounters;
use polder_devices::cdc::ntb::Fault;
use polder_devices::cdc::{BlockCounters, Ntb};

/// Row of a function's transfer blocks (NTBs).
pub(super) fn blocks(ntb: &Ntb, counters: &BlockCounters, sent: &QueueCounters) -> BlockRow {
    let faults = Fault::ALL.into_iter().map(|fault| (fault.name().to_owned(), counters.faults(fault)));
    BlockRow {
        format: ntb.format.name().to_owned(),
        crc: ntb.has_crc,
        in_bytes: ntb.in_bytes,
        out_bytes: ntb.out_bytes,
        received_frames: counters.datagrams.get(),
        sent_frames: sent.transmitted.get(),
        wrong_crc: counters.wrong_crc.get(),
        faults: faults.filter(|(_, count)| *count > 0).collect(),
    }
}

/// Vendor and product id as text, such as `0525:a4a1`.
pub(super) fn numbers((vendor, product): (u16, u16)) -> String {
    format!("{vendor:04x}:{product:04x}")
}
