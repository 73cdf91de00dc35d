//! Checks of what the controller does to packets that it sends: checksums and segments.

use super::bench::{Bench, equal};
use anyhow::{Context as _, ensure};
use polder_datapath::wire::{IpProtocol, Ipv4, Tcp};
use polder_devices::e1000::Options;
use polder_devices::e1000::model::frames::{FrameProtocols, KINDS, complete, make_partial, make_super};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// First sequence number of [`complete`], which wraps soon, and first identification.
const SEQUENCE: u32 = 0xffff_f000;
const IDENTIFICATION: usize = 100;

/// Transport checksums that the controller completes.
pub(super) fn checksums(bench: &mut Bench) -> anyhow::Result<()> {
    bench.open(&Options::default())?;
    for kind in KINDS {
        for payload in [1, 2, 777, 1400] {
            let whole = complete(kind, payload);
            let mut packet = bench.packet(&whole)?;
            make_partial(&mut packet, kind);
            equal(&bench.send(vec![packet], 1)?, &[whole])?;
        }
    }
    bench.is_reported()
}

/// Super-packets of IPv4 that the controller cuts. QEMU (7.2) sends an empty segment more where the payload fills the
/// last one, and counts the IPv6 header into the length of IPv6 segments, which a gateway therefore cuts itself.
pub(super) fn segments(bench: &mut Bench) -> anyhow::Result<()> {
    bench.open(&Options::default())?;
    let kind = FrameProtocols { protocol: IpProtocol::TCP, is_ipv6: false };
    for (payload, size) in [(1, 1400), (1399, 1400), (1401, 1400), (10_000, 536), (60_000, 1400)] {
        cut(bench, kind, payload, size).with_context(|| format!("{payload} bytes in segments of {size}"))?;
    }
    bench.is_reported()
}

/// Sends a super-packet of `payload` bytes and checks every segment.
fn cut(bench: &mut Bench, kind: FrameProtocols, payload: usize, size: u16) -> anyhow::Result<()> {
    let whole = complete(kind, payload);
    let mut packet = bench.packet(&whole)?;
    make_super(&mut packet, kind, size);
    let count = payload.div_ceil(usize::from(size));
    let sent = bench.send(vec![packet], count)?;
    ensure!(sent.len() == count, "{} segments, {count} wanted", sent.len());
    let mut received = Vec::new();
    for (index, segment) in sent.iter().enumerate() {
        let ip = Ipv4::parse(&segment[ETHERNET..]).map_err(|_| anyhow::anyhow!("no IPv4 header"))?;
        ip.verify().map_err(|_| anyhow::anyhow!("the header's checksum of segment {index} is wrong"))?;
        ensure!(usize::from(ip.identification()) == IDENTIFICATION + index, "identification of {index}");
        let tcp = Tcp::parse(ip.payload()).map_err(|_| anyhow::anyhow!("no TCP header"))?;
        tcp.verify(ip.pseudo()).map_err(|_| anyhow::anyhow!("the checksum of segment {index} is wrong"))?;
        let before = u32::try_from(received.len())?;
        ensure!(tcp.sequence() == SEQUENCE.wrapping_add(before), "sequence number of segment {index}");
        let is_last = index + 1 == count;
        ensure!((tcp.flags().0 & 0x09 != 0) == is_last, "flags of segment {index}");
        ensure!(tcp.payload().len() == usize::from(size) || is_last, "length of segment {index}");
        received.extend_from_slice(tcp.payload());
    }
    ensure!(received == whole[kind.transport() + Tcp::HEADER_BYTES..], "the payload differs");
    Ok(())
}
