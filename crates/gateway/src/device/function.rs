//! Rows and texts about USB functions.

use crate::config::model::Port;
use crate::show::adapter::BlockRow;
use crate::shutdown::shutdown_flag;
use polder_datapath::counters::QueueCounters;
use polder_datapath::offload::Takes;
use polder_devices::Receiving;
use polder_devices::cdc::ntb::Fault;
use polder_devices::cdc::{BlockCounters, Cdc, Ntb, Options};

/// Packets that a function takes.
pub(super) const TAKES: Takes = Takes {
    partial_checksums: Cdc::ABILITIES.partial_checksums,
    segments: false,
    only_ipv4_segments: false,
    udp_segments: false,
    tunnel_segments: false,
    longest: None,
};

/// Options with which the function of a port is opened.
pub(super) fn options(port: &Port, receiving: Receiving) -> Options {
    let usual = Options::default();
    // A device has few transfers in flight, each of many packets: each goes back when it was read.
    let refill_below_percent = usual.receiving.refill_below_percent;
    Options {
        mtu: port.mtu,
        mac: port.mac.map(|mac| mac.0),
        receiving: Receiving { refill_below_percent, ..receiving },
        cancelled: shutdown_flag(),
        ..usual
    }
}

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
