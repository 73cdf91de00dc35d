//! TAP ports against the kernel, in a network namespace of their own.

use crate::common::{self, RawPeer};
use polder_buffers::{Batch, Pool, Region, RegionOptions};
use polder_datapath::port::{Budget, RxQueue, Turn, TxQueue};
use polder_devices::tap::{self, Offloads, Options, Tap};

/// A region, a TAP with `offloads` that is up, and a raw socket on the kernel's side of it.
fn set_up(offloads: Offloads) -> (Region, Tap, RawPeer) {
    common::enter_namespace();
    let region = Region::new(RegionOptions { slots: 1024, slot_bytes: 2048 }).expect("memory for a test");
    let options = Options { offloads, mtu: Some(1500), ..Options::new("pdt%d") };
    let tap = tap::open(&options, &region).expect("root opens a TAP");
    common::ip(&format!("link set {} up", tap.interface.name));
    let peer = RawPeer::open(&tap.interface.name);
    (region, tap, peer)
}

fn receive(tap: &mut Tap, batch: &mut Batch, pool: &mut Pool) -> Turn {
    tap.queues[0].rx.receive(&mut Budget::new(64), batch, pool)
}

fn frame(length: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend([0x88, 0xb5]);
    frame.extend((0..length - 14).map(|index| index.to_le_bytes()[0]));
    frame
}

#[test]
fn frames_cross_both_ways_and_the_header_is_gone() {
    if !common::is_root("tap::frames_cross_both_ways_and_the_header_is_gone") {
        return;
    }
    let (region, mut tap, peer) = set_up(Offloads::None);
    let (mut pool, mut batch) = (region.pool(), Batch::new());
    assert_eq!(tap.interface.mtu, 1500);
    assert_ne!(tap.interface.index, 0);

    assert!(peer.send(&frame(60)));
    assert!(peer.send(&frame(1514)));
    assert_eq!(receive(&mut tap, &mut batch, &mut pool), Turn::Drained);
    let bytes = batch.iter().map(|packet| packet.bytes().to_vec()).collect::<Vec<_>>();
    assert_eq!(bytes, [frame(60), frame(1514)]);
    assert_eq!(batch[0].headroom(), 256);

    tap.queues[0].tx.transmit(&mut batch, &mut pool);
    assert!(batch.is_empty());
    assert_eq!(peer.receive(), Some(frame(60)));
    assert_eq!(peer.receive(), Some(frame(1514)));
    assert_eq!(peer.receive(), None);
    drop((tap, pool));
    assert_eq!(region.home(), 1024);
}
