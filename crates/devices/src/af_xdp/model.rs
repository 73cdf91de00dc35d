//! Model of the kernel's side of one socket, honest or not, and tests of the queue on it.
//!
//! The model sees what the kernel sees, addresses, and moves no bytes; what bytes do is tested
//! against the kernel itself.

use super::drive::QueueIdentity;
use super::posted::Posted;
use super::ring::{Consumer, Descriptor, HeapRing, Producer, RingMemory};
use super::rx::{ReceiveOptions, Receiver};
use super::socket::Core;
use super::socket::Statistics;
use super::tx::{Limits, Transmitter};
use crate::Receiving;
use core::sync::atomic::AtomicU32;
use polder_buffers::{Batch, Packet, Pool, Region, RegionOptions};
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Armed, Budget, RxQueue, Turn, TxQueue};
use proptest::prelude::*;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

const SLOTS: u32 = 256;
const RING: usize = 64;

/// The other ends of the four rings.
struct Kernel {
    fill: Consumer<u64>,
    receive: Producer<Descriptor>,
    transmit: Consumer<Descriptor>,
    completion: Producer<u64>,
    /// Frames that it was given to fill.
    free: VecDeque<u64>,
    /// Frames that it has to send.
    sending: VecDeque<u64>,
}

struct Stand {
    region: Region,
    pool: Pool,
    rx: Receiver<false>,
    tx: Transmitter,
    kernel: Kernel,
    core: Arc<Core>,
    statistics: Arc<Mutex<Statistics>>,
}

fn ends<A, B>(
    words: usize,
    producer: impl Fn(RingMemory) -> A,
    consumer: impl Fn(RingMemory) -> B,
) -> (A, B) {
    let ring = HeapRing::new(words);
    (producer(RingMemory::heap(&ring)), consumer(RingMemory::heap(&ring)))
}

fn stand() -> Stand {
    stand_that(true)
}

fn stand_that(multi_buffer: bool) -> Stand {
    stand_with(2048, multi_buffer, None)
}

/// A zero-copy port without multi-buffer has the link's `longest` packet.
fn stand_with(slot_bytes: u32, multi_buffer: bool, longest: Option<u32>) -> Stand {
    let region = Region::new(RegionOptions { slots: SLOTS, slot_bytes }).expect("memory for a test");
    let statistics = Arc::default();
    let core = Core::model(&region, &statistics);
    let (fill, kernel_fill) = ends(RING, Producer::new, Consumer::new);
    let (receive, received) = ends(2 * RING, Producer::new, Consumer::new);
    let (transmit, kernel_transmit) = ends(2 * RING, Producer::new, Consumer::new);
    let (kernel_completion, completion) = ends(RING, Producer::new, Consumer::new);
    let wants = ReceiveOptions {
        place: QueueIdentity::default(),
        target: 64,
        busy_poll: false,
        adapts: false,
        local_senders: false,
        numbered: false,
        softirq: None,
        multi_buffer,
        longest,
        receiving: Receiving::default(),
    };
    let rx = Receiver::new(received, fill, wants, (Arc::clone(&core), Posted::new(&region)));
    let limits = Limits { mtu: Arc::new(AtomicU32::new(1500)), segments: 4, capacity: 64, copies: true };
    let tx = Transmitter::new((transmit, completion), limits, (Arc::clone(&core), Posted::new(&region)));
    let kernel = Kernel {
        fill: kernel_fill,
        receive,
        transmit: kernel_transmit,
        completion: kernel_completion,
        free: VecDeque::new(),
        sending: VecDeque::new(),
    };
    Stand { pool: region.pool(), region, rx, tx, kernel, core, statistics }
}

impl Kernel {
    fn look(&mut self) {
        self.free.extend(core::iter::from_fn(|| self.fill.take()));
        self.fill.release();
        self.sending.extend(core::iter::from_fn(|| self.transmit.take()).map(|sent| sent.address));
        self.transmit.release();
    }

    /// Delivers a packet of `parts` parts if it has the frames.
    fn deliver(&mut self, parts: usize) -> bool {
        self.look();
        if self.free.len() < parts {
            return false;
        }
        for part in 1..=parts {
            let address = self.free.pop_front().expect("counted") + 256;
            self.receive.put(Descriptor { address, length: 100, continues: part < parts });
        }
        self.receive.publish();
        true
    }

    /// Resets the device as a change of its link does: what it had under way is lost, and the frames are used again, in
    /// another order.
    fn reset(&mut self, turn: usize) {
        self.look();
        if !self.free.is_empty() {
            let turn = turn % self.free.len();
            self.free.rotate_left(turn);
        }
    }

    fn complete(&mut self, count: usize) {
        self.look();
        for _ in 0..count.min(self.sending.len()) {
            // The kernel gives the address back without the distance from the slot's start, or with it.
            self.completion.put(self.sending.pop_front().expect("counted") / 2048 * 2048);
        }
        self.completion.publish();
    }
}

impl Stand {
    fn receive(&mut self, batch: &mut Batch) -> Turn {
        self.rx.receive(&mut Budget::new(64), batch, &mut self.pool)
    }

    /// Closes everything; every frame has to be home, none as a stray.
    fn close(self) {
        let Self { region, pool, rx, tx, core, .. } = self;
        drop((rx, tx, core, pool));
        assert_eq!((region.free_slots(), region.late_frees()), (SLOTS, 0));
    }
}

proptest! {
    /// Whatever the history, packets are counted once and every frame is somewhere.
    #[test]
    fn any_history_keeps_every_frame(steps in proptest::collection::vec((0..5_u8, 1..20_usize), 1..120)) {
        let mut stand = stand();
        let mut batch = Batch::new();
        let (mut delivered, mut received, mut taken) = (0, 0, 0);
        for (step, amount) in steps {
            match step {
                0 => delivered += (0..amount).filter(|_| stand.kernel.deliver(1)).count(),
                1 => delivered += usize::from(stand.kernel.deliver(1 + amount % 5)),
                2 => {
                    let before = batch.len();
                    prop_assert_ne!(stand.receive(&mut batch), Turn::Closed);
                    received += batch.len() - before;
                }
                3 => {
                    let before = batch.len();
                    stand.tx.transmit(&mut batch, &mut stand.pool);
                    taken += before - batch.len();
                }
                _ => {
                    stand.kernel.complete(amount);
                    prop_assert_ne!(stand.tx.reclaim(&mut stand.pool), Turn::Closed);
                }
            }
            let counters = stand.tx.counters();
            prop_assert_eq!(counters.transmitted.get() + counters.drops.total(), taken as u64);
            prop_assert!(received <= delivered);
        }
        while stand.receive(&mut batch) != Turn::Drained || !batch.is_empty() {
            received += batch.len();
            stand.pool.release(&mut batch);
        }
        stand.kernel.complete(RING);
        let _ = stand.tx.reclaim(&mut stand.pool);
        prop_assert_eq!(stand.tx.held(), 0);
        prop_assert!(received >= delivered, "{} received, {} delivered", received, delivered);
        stand.close();
    }
}

#[test]
fn a_descriptor_that_cannot_be_right_closes_the_queue() {
    let lies: [fn(u64) -> Descriptor; 5] = [
        |posted| Descriptor { address: posted, length: 2049, continues: false },
        |posted| Descriptor { address: posted + 2047, length: 2, continues: false },
        |posted| Descriptor { address: posted, length: u32::MAX, continues: true },
        |_| Descriptor { address: u64::MAX, length: 60, continues: false },
        |_| Descriptor { address: 2048 * u64::from(SLOTS), length: 60, continues: false },
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let mut stand = stand();
        let mut batch = Batch::new();
        assert_eq!(stand.receive(&mut batch), Turn::Drained);
        assert!(stand.kernel.deliver(1));
        let posted = *stand.kernel.free.front().expect("63 frames");
        stand.kernel.receive.put(lie(posted));
        stand.kernel.receive.publish();
        assert_eq!(stand.receive(&mut batch), Turn::Closed, "lie {number}");
        assert_eq!(stand.receive(&mut batch), Turn::Closed);
        let counters = stand.rx.counters();
        assert_eq!((counters.received.get(), counters.drops.get(DropReason::DeviceError)), (2, 1));
        assert_eq!(batch.len(), 1, "what came before was right");
        stand.pool.release(&mut batch);
        stand.close();
    }
}

/// Hands over one packet as the driver would that has buffers of `buffer` bytes; `marks` says that it continues.
fn deliver_cut(kernel: &mut Kernel, mut length: u32, buffer: u32, marks: bool) {
    kernel.look();
    while length > 0 {
        let part = length.min(buffer);
        length -= part;
        let address = kernel.free.pop_front().expect("frames are posted") + 256;
        kernel.receive.put(Descriptor { address, length: part, continues: marks && length > 0 });
    }
    kernel.receive.publish();
}

proptest! {
    /// A driver that gives less room than asked for and hands rests over as packets, or marks them unasked:
    /// no rest becomes a packet, each packet is counted once, and every frame comes home.
    #[test]
    fn a_driver_that_cuts_injects_nothing(
        packets in proptest::collection::vec((60..9000_u32, 2..4_u32, any::<bool>()), 1..40),
    ) {
        let mut stand = stand_with(4096, false, Some(1522));
        let mut batch = Batch::new();
        for &(length, grains, marks) in &packets {
            prop_assert_eq!(stand.receive(&mut batch), Turn::Drained);
            stand.pool.release(&mut batch);
            let buffer = grains * 1024;
            deliver_cut(&mut stand.kernel, length, buffer, marks);
            prop_assert_eq!(stand.receive(&mut batch), Turn::Drained);
            let lengths = batch.iter().map(Packet::len).collect::<Vec<_>>();
            let ends_a_buffer = length.is_multiple_of(1024) && length > 1522;
            let whole = length < buffer && length <= 3071 && !ends_a_buffer;
            prop_assert_eq!(lengths, if whole { vec![length as usize] } else { Vec::new() });
            // What ends where a buffer ends is taken for cut, and the next packet pays for it.
            if ends_a_buffer && !(marks && length > buffer) {
                deliver_cut(&mut stand.kernel, 60, buffer, false);
                prop_assert_eq!(stand.receive(&mut batch), Turn::Drained);
            }
            stand.pool.release(&mut batch);
        }
        let counters = Arc::clone(stand.rx.counters());
        let dropped = counters.drops.get(DropReason::FrameTooLong) + counters.drops.get(DropReason::DeviceError);
        prop_assert_eq!(counters.drops.total(), dropped);
        prop_assert_eq!(counters.received.get(), packets.len() as u64);
        stand.close();
    }
}

proptest! {
    /// A device that resets while it is bound loses nothing that it has handed over, and its queue goes on. One whose
    /// queue is unbound for good is closed, with every frame at home, whatever was under way.
    #[test]
    fn a_device_that_resets_while_bound_keeps_every_frame(
        steps in proptest::collection::vec((0..5_u8, 1..20_usize), 1..80),
    ) {
        let mut stand = stand();
        let mut batch = Batch::new();
        let (mut delivered, mut received) = (0, 0);
        for (step, amount) in steps {
            match step {
                0 => delivered += (0..amount).filter(|_| stand.kernel.deliver(1)).count(),
                1 => stand.kernel.reset(amount),
                2 => {
                    prop_assert_ne!(stand.receive(&mut batch), Turn::Closed, "a reset is no end");
                    received += batch.len();
                    stand.pool.release(&mut batch);
                }
                3 => {
                    batch.push(Packet::copy_from(&[0; 60], &mut stand.pool).expect("256 slots")).expect("room");
                    stand.tx.transmit(&mut batch, &mut stand.pool);
                    stand.pool.release(&mut batch);
                }
                _ => {
                    stand.kernel.complete(amount);
                    prop_assert_ne!(stand.tx.reclaim(&mut stand.pool), Turn::Closed);
                }
            }
        }
        while stand.receive(&mut batch) != Turn::Drained || !batch.is_empty() {
            received += batch.len();
            stand.pool.release(&mut batch);
        }
        prop_assert!(received >= delivered, "{} received, {} delivered", received, delivered);
        // From here on the kernel has unbound the queue.
        stand.core.set_answer(Err(Errno::NXIO));
        prop_assert_eq!(stand.rx.arm(), Armed::Raced);
        prop_assert_eq!(stand.receive(&mut batch), Turn::Closed);
        prop_assert_eq!(stand.receive(&mut batch), Turn::Closed);
        stand.pool.release(&mut batch);
        stand.close();
    }
}

#[test]
fn a_frame_that_comes_twice_closes_the_queue() {
    let mut stand = stand();
    let mut batch = Batch::new();
    assert_eq!(stand.receive(&mut batch), Turn::Drained);
    stand.kernel.look();
    let address = stand.kernel.free.pop_front().expect("64 frames");
    for _ in 0..2 {
        stand.kernel.receive.put(Descriptor { address, length: 60, continues: false });
    }
    stand.kernel.receive.publish();
    assert_eq!(stand.receive(&mut batch), Turn::Closed);
    assert_eq!(batch.len(), 1);
    stand.pool.release(&mut batch);
    stand.close();
}

#[test]
fn a_completion_of_what_was_not_sent_closes_the_queue() {
    let mut stand = stand();
    let mut batch = Batch::new();
    batch.push(Packet::copy_from(&[0; 60], &mut stand.pool).expect("256 slots")).expect("room");
    stand.tx.transmit(&mut batch, &mut stand.pool);
    stand.kernel.complete(1);
    stand.kernel.completion.put(7 * 2048);
    stand.kernel.completion.publish();
    assert_eq!(stand.tx.reclaim(&mut stand.pool), Turn::Closed);
    assert_eq!((stand.tx.held(), stand.tx.counters().drops.total()), (0, 0), "no packet was lost");
    stand.close();
}

#[test]
fn what_the_kernel_has_not_taken_is_a_drop_at_the_end() {
    let mut stand = stand();
    let mut batch = Batch::new();
    for length in [60, 61, 62] {
        let packet = Packet::copy_from(&vec![0; length], &mut stand.pool).expect("256 slots");
        batch.push(packet).expect("room");
    }
    let mut chain = Packet::copy_from(&[0; 30], &mut stand.pool).expect("256 slots");
    chain.join(Packet::copy_from(&[0; 40], &mut stand.pool).expect("256 slots"));
    stand.tx.transmit(&mut batch, &mut stand.pool);
    stand.kernel.complete(2);
    let mut batch = Batch::new();
    batch.push(chain).expect("room");
    stand.tx.transmit(&mut batch, &mut stand.pool);
    let counters = Arc::clone(stand.tx.counters());
    assert_eq!((counters.transmitted.get(), counters.transmitted_bytes.get()), (4, 60 + 61 + 62 + 70));
    assert_eq!(counters.in_flight.get(), 4);
    stand.close();
    assert_eq!((counters.transmitted.get(), counters.drops.get(DropReason::TxError)), (3, 1));
    assert_eq!((counters.transmitted_bytes.get(), counters.in_flight.get()), (60 + 61 + 62, 0));
}

/// Packets in front of a device that is full would be overtaken by what the kernel sends by itself.
#[test]
fn packets_that_a_full_device_leaves_are_unsent_until_it_takes_them() {
    let mut stand = stand();
    stand.kernel.transmit.want_calls();
    let mut send = |answer| {
        stand.core.set_answer(answer);
        let mut batch = Batch::new();
        batch.push(Packet::copy_from(&[0; 60], &mut stand.pool).expect("256 slots")).expect("room");
        stand.tx.transmit(&mut batch, &mut stand.pool);
        stand.tx.has_unsent()
    };
    assert_eq!([send(Ok(())), send(Err(Errno::AGAIN)), send(Err(Errno::AGAIN))], [false, true, true]);
    stand.core.set_answer(Ok(()));
    let _ = stand.tx.reclaim(&mut stand.pool);
    assert!(!stand.tx.has_unsent());
}

/// Packets that the kernel has lost are counted as received and dropped, once, under the right reason.
#[test]
fn losses_of_the_kernel_are_counted_once() {
    for (multi_buffer, overrun, too_long) in [(true, 12 + 5, 0), (false, 4 + 5, 8)] {
        let mut stand = stand_that(multi_buffer);
        let mut batch = Batch::new();
        assert_eq!(stand.receive(&mut batch), Turn::Drained);
        let lost = Statistics { dropped: 12, receive_ring_full: 5, fill_ring_empty: 4, invalid: 0 };
        *stand.statistics.lock().expect("no panic holds it") = lost;
        for _ in 0..2 {
            assert!(stand.kernel.deliver(1));
            assert_eq!(stand.receive(&mut batch), Turn::Drained);
            assert_eq!(stand.rx.arm(), Armed::Waiting);
            let counters = stand.rx.counters();
            let by_reason = (
                counters.drops.get(DropReason::RxOverrun),
                counters.drops.get(DropReason::FrameTooLong),
                counters.received.get() - batch.len() as u64,
            );
            assert_eq!(by_reason, (overrun, too_long, 17));
        }
        stand.pool.release(&mut batch);
        stand.close();
    }
}

/// A chain of more parts than the device takes leaves in fewer frames; one that cannot is a drop.
#[test]
fn a_chain_of_many_parts_is_put_together() {
    let mut stand = stand();
    let chain = |stand: &mut Stand, parts: u8| {
        let mut chain = Packet::copy_from(&[0; 14], &mut stand.pool).expect("256 slots");
        for part in 1..parts {
            chain.join(Packet::copy_from(&[part; 10], &mut stand.pool).expect("256 slots"));
        }
        chain
    };
    let mut batch = Batch::new();
    for parts in [1, 4, 5, 30] {
        batch.push(chain(&mut stand, parts)).expect("room");
    }
    let last = chain(&mut stand, 5);
    stand.tx.transmit(&mut batch, &mut stand.pool);
    assert!(batch.is_empty());
    let sent = core::iter::from_fn(|| stand.kernel.transmit.take());
    let sent = sent.map(|descriptor| (descriptor.length, descriptor.continues)).collect::<Vec<_>>();
    let four = [(14, true), (10, true), (10, true), (10, false)];
    assert_eq!(sent, [&[(14, false)][..], &four, &[(54, false), (304, false)]].concat());
    assert_eq!(stand.tx.held(), 4);

    let taken = core::iter::from_fn(|| stand.pool.take()).collect::<Vec<_>>();
    batch.push(last).expect("room");
    stand.tx.transmit(&mut batch, &mut stand.pool);
    assert_eq!((batch.len(), stand.tx.held()), (0, 4));
    assert_eq!(stand.tx.counters().drops.get(DropReason::TxTooLong), 1);
    taken.into_iter().for_each(|frame| stand.pool.release_frame(frame));
    stand.close();
}

/// Completions come one a frame; a packet is held until its last frame is back.
#[test]
fn a_packet_is_held_until_its_last_frame_is_back() {
    let mut stand = stand();
    let mut chain = Packet::copy_from(&[0; 14], &mut stand.pool).expect("256 slots");
    chain.join(Packet::copy_from(&[1; 10], &mut stand.pool).expect("256 slots"));
    let mut batch = Batch::new();
    batch.push(chain).expect("room");
    stand.tx.transmit(&mut batch, &mut stand.pool);
    for held in [1, 0] {
        stand.kernel.complete(1);
        assert_eq!(stand.tx.reclaim(&mut stand.pool), Turn::Drained);
        assert_eq!((stand.tx.held(), stand.tx.counters().in_flight.get()), (held, u64::from(held)));
    }
    stand.close();
}
