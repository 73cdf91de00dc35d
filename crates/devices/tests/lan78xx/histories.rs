//! Random histories of traffic and faults: whatever the adapter does, it ends in a counted drop or a
//! closed port; nothing leaks, nothing is made up, and a port that is open works again.

use crate::bench::Stand;
use crate::hand::frame;
use polder_buffers::{Batch, Packet};
use polder_datapath::port::Turn;
use polder_datapath::units::Nanos;
use polder_devices::Receiving;
use polder_devices::conformance::Wire;
use polder_devices::lan78xx::model::{self, Fault, Partner};
use polder_devices::lan78xx::{Options, Techniques};
use polder_devices::usb::Speed;
use proptest::prelude::*;

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// Frames of these lengths come from the wire.
    Arrive(Vec<usize>),
    /// A turn of the worker.
    Turn(u32),
    /// Packets of these lengths are sent.
    Send(Vec<usize>),
    /// The wire takes the sent frames.
    Take,
    /// The next transfer goes wrong.
    Plan(Fault),
    /// The cable is plugged in or out.
    Cable(bool),
    /// Milliseconds pass.
    Pass(u64),
    /// The device is taken away.
    Unplug,
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        (0_usize..2000).prop_map(Fault::Cut),
        (any::<usize>(), 1_u8..).prop_map(|(at, bits)| Fault::Corrupt { at, bits }),
        (1_usize..40).prop_map(Fault::Misalign),
        any::<u32>().prop_map(Fault::ErrorBits),
        any::<u16>().prop_map(Fault::Length),
        Just(Fault::Checksum),
        Just(Fault::Oversized),
        Just(Fault::Babble),
        Just(Fault::StallIn),
        Just(Fault::StallOut),
        (0_usize..3000).prop_map(Fault::ShortOut),
        (0_usize..3000).prop_map(Fault::ErrorOut),
        Just(Fault::StallControl),
        Just(Fault::BusError),
        Just(Fault::Empty),
        Just(Fault::LoseInterrupt),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let lengths = || prop::collection::vec(14_usize..1515, 1..25);
    prop_oneof![
        4 => lengths().prop_map(Step::Arrive),
        6 => (0_u32..70).prop_map(Step::Turn),
        3 => lengths().prop_map(Step::Send),
        2 => Just(Step::Take),
        3 => fault().prop_map(Step::Plan),
        1 => any::<bool>().prop_map(Step::Cable),
        1 => (0_u64..3000).prop_map(Step::Pass),
    ]
}

fn techniques() -> impl Strategy<Value = Techniques> {
    any::<[bool; 5]>().prop_map(|[poll_cycle, urb_pools, pending_queue, resubmit_in_cycle, frame_is_unit]| {
        Techniques { poll_cycle, urb_pools, pending_queue, resubmit_in_cycle, frame_is_unit }
    })
}

/// True if a fault can change the bytes of a frame without the driver being able to see it.
fn changes_bytes(fault: &Fault) -> bool {
    matches!(fault, Fault::Corrupt { .. } | Fault::Misalign(_) | Fault::Length(_))
}

/// State of a history.
struct History {
    stand: Stand,
    number: u32,
    arrived: Vec<Vec<u8>>,
    sent: Vec<Vec<u8>>,
    delivered: Vec<Vec<u8>>,
    left: Vec<Vec<u8>>,
    taken: u64,
    changed: bool,
    unplugged: bool,
    closed: bool,
}

impl History {
    fn new(model: model::Options, options: &Options) -> Self {
        Self {
            stand: Stand::new(model, options),
            number: 0,
            arrived: Vec::new(),
            sent: Vec::new(),
            delivered: Vec::new(),
            left: Vec::new(),
            taken: 0,
            changed: false,
            unplugged: false,
            closed: false,
        }
    }

    /// A frame unlike every other.
    fn fresh(&mut self, length: usize) -> Vec<u8> {
        self.number += 1;
        let mut frame = frame([2; 6], length.max(18));
        frame[14..18].copy_from_slice(&self.number.to_be_bytes());
        frame
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Arrive(lengths) => {
                for &length in lengths {
                    let frame = self.fresh(length);
                    self.stand.side.inject(&frame);
                    self.arrived.push(frame);
                }
            }
            Step::Turn(budget) => {
                let (_, frames) = self.stand.receive(*budget);
                self.delivered.extend(frames);
            }
            Step::Send(lengths) => self.send(lengths),
            Step::Take => self.left.extend(self.stand.sent()),
            Step::Plan(fault) => {
                self.changed |= changes_bytes(fault);
                self.stand.side.lock().bench.adapter.plan(fault.clone());
            }
            Step::Cable(plugged) => self.stand.side.lock().bench.adapter.set_link(*plugged),
            Step::Pass(millis) => self.stand.side.pass(Nanos::from_millis(*millis)),
            Step::Unplug => {
                self.unplugged = true;
                self.stand.side.unplug();
            }
        }
    }

    fn send(&mut self, lengths: &[usize]) {
        let frames: Vec<_> = lengths.iter().map(|&length| self.fresh(length)).collect();
        let mut batch = Batch::new();
        for frame in &frames {
            batch.push(Packet::copy_from(frame, &mut self.stand.pool).unwrap()).unwrap();
        }
        let before = batch.len();
        self.stand.port.queue.tx.transmit(&mut batch, &mut self.stand.pool);
        let taken = before - batch.len();
        self.taken += taken as u64;
        self.sent.extend(frames.into_iter().take(taken));
        self.stand.pool.release(&mut batch);
        let _ = self.stand.port.queue.tx.reclaim(&mut self.stand.pool);
    }

    /// Everything goes well again: the port works, or is closed for good.
    fn recover(&mut self) {
        self.apply(&Step::Cable(true));
        let mut closed = false;
        for _ in 0..40 {
            self.apply(&Step::Pass(100));
            self.apply(&Step::Take);
            let (turn, frames) = self.stand.receive(64);
            self.delivered.extend(frames);
            let _ = self.stand.port.queue.tx.reclaim(&mut self.stand.pool);
            closed = turn == Turn::Closed;
        }
        self.closed = closed;
        assert!(!self.unplugged || closed, "an unplugged port is closed");
        if closed {
            assert_eq!(self.stand.receive(64), (Turn::Closed, Vec::new()), "for good");
            return;
        }
        // One frame after the other, so that faults that still wait find something to hit.
        let (mut came, mut went) = (0, 0);
        for _ in 0..80 {
            let (delivered, left) = (self.delivered.len(), self.left.len());
            self.apply(&Step::Arrive(vec![100]));
            self.apply(&Step::Send(vec![100]));
            for _ in 0..8 {
                self.apply(&Step::Turn(64));
                self.apply(&Step::Take);
                self.apply(&Step::Pass(150));
            }
            came = if self.delivered.len() > delivered { came + 1 } else { 0 };
            went = if self.left.len() > left { went + 1 } else { 0 };
            if came > 2 && went > 2 {
                break;
            }
        }
        assert!(came > 2, "the receiving side is stuck");
        assert!(went > 2, "the sending side is stuck");
        let status = &self.stand.port.status;
        assert!(status.receiving.get() > 0, "URBs are in flight");
        // The memory of each transfer is in one place.
        let of_received = status.receive_memory.free.get() + status.receiving.get() + status.filled.get();
        assert_eq!(status.receive_memory.all.get(), of_received);
        let of_sent = status.send_memory.free.get() + status.sending.get();
        assert_eq!(status.send_memory.all.get(), of_sent);
    }

    fn check(mut self) {
        let (rx, tx) = (&self.stand.port.queue.rx, &self.stand.port.queue.tx);
        let (rx, tx) = (rx.counters().clone(), tx.counters().clone());
        assert_eq!(rx.received.get(), self.delivered.len() as u64 + rx.drops.total());
        let held = u64::from(self.stand.port.queue.tx.held());
        assert_eq!(tx.in_flight.get(), held);
        assert_eq!(tx.transmitted.get() + tx.drops.total() + held, self.taken);
        if !self.changed {
            assert_subsequence(&self.delivered, &self.arrived);
        }
        self.apply(&Step::Take);
        assert_subsequence(&self.left, &self.sent);
        if !self.closed {
            assert_eq!(tx.transmitted.get(), self.left.len() as u64, "sent is what the device took");
        }
        let Stand { port, region, pool, side } = self.stand;
        drop(port);
        assert_eq!(tx.transmitted.get() + tx.drops.total(), self.taken, "nothing is held for ever");
        drop((pool, side));
        assert_eq!(region.free_slots(), region.slots(), "every frame is home");
    }
}

/// Asserts that `part` is `whole` without some packets, in order. Short frames are padded on the way.
fn assert_subsequence(part: &[Vec<u8>], whole: &[Vec<u8>]) {
    let mut rest = whole.iter();
    for frame in part {
        let found = rest.any(|sent| frame.starts_with(sent) && frame.len() == sent.len().max(60));
        assert!(found, "a frame of {} bytes that nobody sent, or out of order", frame.len());
    }
}

fn run(model: model::Options, options: &Options, steps: &[Step]) {
    let mut history = History::new(model, options);
    for step in steps {
        history.apply(step);
    }
    history.recover();
    history.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_adapter_does(
        steps in prop::collection::vec(step(), 1..60),
        unplug in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        high in any::<bool>(),
        pause in any::<bool>(),
        techniques in techniques(),
        vlan_offload in any::<bool>(),
        refill_below_percent in prop_oneof![Just(100_u8), 1_u8..100],
    ) {
        let mut steps = steps;
        if let Some(at) = unplug {
            steps.insert(at.index(steps.len()), Step::Unplug);
        }
        let model = model::Options {
            speed: if high { Speed::High } else { Speed::Super },
            partner: Partner { pause, ..Partner::default() },
            ..model::Options::default()
        };
        let receiving = Receiving { refill_below_percent, ..Receiving::default() };
        run(model, &Options { techniques, vlan_offload, receiving, ..Options::default() }, &steps);
    }
}

/// A device that says that every transfer has failed is given up.
#[test]
fn a_device_that_only_fails_is_closed() {
    let mut history = History::new(model::Options::default(), &Options::default());
    for _ in 0..200 {
        history.apply(&Step::Plan(Fault::BusError));
        history.apply(&Step::Arrive(vec![100]));
        history.apply(&Step::Turn(64));
    }
    assert_eq!(history.stand.receive(64).0, Turn::Closed);
    history.check();
}

/// All URBs in flight end with a halt that is one; found by the property above, once in 40 000 histories.
#[test]
fn one_halt_is_one_failure_whatever_it_ends() {
    let model = model::Options { speed: Speed::High, ..model::Options::default() };
    let options = Options { techniques: Techniques::OFF, ..Options::default() };
    let sends = [
        vec![1197, 813, 1437, 277, 1049, 733, 73],
        vec![489, 73],
        vec![1365, 833, 1365, 301, 729, 1393, 14, 14, 14, 14, 14, 14, 14],
        vec![14; 16],
    ];
    let mut steps = sends.map(Step::Send).to_vec();
    steps.extend([Step::Plan(Fault::Babble), Step::Send(vec![14; 11])]);
    steps.extend([Step::Plan(Fault::StallOut), Step::Send(vec![14; 19]), Step::Plan(Fault::StallIn)]);
    run(model, &options, &steps);
}

/// Unplugged in the middle of bringing it up, at every request.
#[test]
fn unplugged_while_it_is_brought_up() {
    use polder_devices::lan78xx::{self, OpenError};
    for requests in [1, 2, 3, 5, 10, 20, 40, 80] {
        let (local, side) = crate::bench::plug_in(model::Options::default());
        side.lock().unplug_after(requests);
        match lan78xx::open(Box::new(local), &Options::default()) {
            Err(OpenError::Gone { .. } | OpenError::Init { .. }) => {}
            other => panic!("after {requests} requests: {other:?}"),
        }
    }
}

/// Descriptors with a byte changed: brought up all the same, or refused with a reason.
#[test]
fn wrong_descriptors_are_refused_or_do_no_harm() {
    use polder_devices::lan78xx;
    for at in 0..45 {
        for value in [0, 1, 7, 0x7f, 0x80, 0xff] {
            let (local, side) = crate::bench::plug_in(model::Options::default());
            side.lock().bench.adapter.plan(Fault::Descriptor { at, value });
            drop(lan78xx::open(Box::new(local), &Options::default()));
        }
    }
}
