//! Gateways whose workers share their work, between in-memory cables: every flow in order, nothing
//! lost, whoever did it.

#![expect(clippy::disallowed_methods, reason = "a test looks at the real clock to give up")]

#[path = "cables/cable.rs"]
mod cable;

use cable::{configuration, frame, opener, read};
use polder::runtime::accounts::Accounts;
use polder::runtime::gateway::Gateway;
use polder_buffers::{Batch, BufferManager, BufferOptions, Packet, Region};
use polder_datapath::counters::WorkerCounters;
use polder_datapath::port::{Budget, RxQueue as _, TxQueue as _};
use polder_devices::Queue;
use polder_devices::pair::{self, End, Options, PairRx, PairTx};
use std::sync::Arc;
use std::time::{Duration, Instant};

type PairQueue = Queue<PairRx, PairTx>;

/// Packets on the way at most: fewer than any ring between workers holds.
const WINDOW: u64 = 240;

struct Bench {
    region: Region,
    gateway: Gateway,
    near: PairQueue,
    far: End,
}

impl Bench {
    /// Two bridged ports with one queue each, whose packets find their worker in this order.
    fn new(order: &str, workers: u16) -> Self {
        let rest = "[port.b]\ntap = \"b\"\n[bridge.br0]\nmembers = [\"a\", \"b\"]\n";
        Self::with(order, workers, 1, rest)
    }

    /// A bridged port, and an underlay with a queue for each worker, which carries a tunnel with
    /// sequence numbers.
    fn tunnel(order: &str, workers: u16) -> Self {
        let rest = "[port.b]\ninterface = \"b\"\nrole = \"underlay\"\n\
                    [tunnel.t]\nkind = \"gretap\"\nlocal = \"192.0.2.1\"\nremote = \"192.0.2.2\"\n\
                    port = \"b\"\nsequence = true\nnext_hop_mac = \"02:00:00:00:09:09\"\n\
                    [bridge.br0]\nmembers = [\"a\", \"t\"]\n";
        Self::with(order, workers, usize::from(workers), rest)
    }

    fn with(order: &str, workers: u16, far_queues: usize, rest: &str) -> Self {
        let text = format!(
            "version = 1\n\
             [gateway]\nname = \"sharing\"\nworkers = {workers}\n\
             [port.a]\ntap = \"a\"\norder = \"{order}\"\n{rest}"
        );
        let memory = Arc::new(BufferManager::new(BufferOptions::fixed(2048, 512, 16_384)).expect("memory"));
        let cable = |queues| pair::cable(Options { queues, ring: 512, ..Options::default() });
        let (mut near, a) = cable(1).expect("a cable");
        let (b, far) = cable(far_queues).expect("a cable");
        let ends = [("a", a), ("b", b)].map(|(name, end)| (name.to_owned(), end));
        let gateway = Gateway::start_on(configuration(&text), &memory, opener(ends)).expect("it starts");
        Self { region: memory.region().clone(), gateway, near: near.pop().expect("one queue"), far }
    }

    /// Sends `count` frames of `flows` flows from port a to port b, and checks their order by flow.
    fn forward(&mut self, count: u64, flows: u64) {
        self.forward_and(count, flows, |packet, _| read(packet, 0));
    }

    /// The same; `check` reads what arrives, and from which queue.
    fn forward_and(&mut self, count: u64, flows: u64, mut check: impl FnMut(&Packet, usize) -> (u64, u64)) {
        let mut pool = self.region.pool();
        let mut batch = Batch::new();
        let mut next = vec![0; usize::try_from(flows).expect("few")];
        let (mut sent, mut seen) = (0, 0);
        let mut deadline = Instant::now() + Duration::from_secs(20);
        while seen < count {
            assert!(Instant::now() < deadline, "{sent} sent, {seen} seen: {:?}", self.accounts());
            while sent < count && sent - seen < WINDOW && !batch.is_full() {
                batch.push(frame(sent % flows, sent / flows, 58, &mut pool)).expect("there is room");
                sent += 1;
            }
            self.near.tx.transmit(&mut batch, &mut pool);
            assert!(batch.is_empty(), "the cable holds what is on its way");
            let before = seen;
            for (queue, end) in self.far.iter_mut().enumerate() {
                let _ = end.rx.receive(&mut Budget::new(64), &mut batch, &mut pool);
                batch
                    .iter()
                    .map(|packet| check(packet, queue))
                    .for_each(|arrived| expect(&mut next, arrived));
                seen += batch.len() as u64;
                pool.release(&mut batch);
            }
            if seen > before {
                deadline = Instant::now() + Duration::from_secs(20);
            }
        }
    }

    fn accounts(&self) -> Accounts {
        self.gateway.accounts()
    }

    /// The sum of a counter over all workers.
    fn sum(&self, read: impl Fn(&WorkerCounters) -> u64) -> u64 {
        self.gateway.worker_counters().iter().map(|counters| read(counters)).sum()
    }

    /// Stops everything and checks that nothing was lost.
    fn finish(mut self) {
        self.gateway.stop();
        let accounts = self.accounts();
        assert_eq!((accounts.unaccounted(), accounts.held, accounts.dropped), (0, 0, 0), "{accounts:?}");
        let Self { region, gateway, near, far } = self;
        drop((gateway, near, far));
        assert_eq!((region.free_slots(), region.late_frees()), (region.slots(), 0));
    }
}

/// Takes note of a packet of a flow, which has to be the flow's next.
fn expect(next: &mut [u64], (flow, number): (u64, u64)) {
    let flow = usize::try_from(flow).expect("few");
    assert_eq!(number, next[flow], "flow {flow}");
    next[flow] += 1;
}

#[test]
fn flows_find_their_worker_and_keep_their_order() {
    let mut bench = Bench::new("hash", 3);
    bench.forward(20_000, 50);
    assert_eq!(bench.sum(|worker| worker.order.tickets.get()), 0, "nothing is spread");
    let steered = bench.sum(|worker| worker.order.steered.get());
    assert!((5_000..19_000).contains(&steered), "{steered} of 20000 are for two of three workers");
    bench.finish();
}

#[test]
fn one_flow_is_shared_and_keeps_its_order() {
    let mut bench = Bench::new("spread", 3);
    for flows in [1, 40] {
        bench.forward(20_000, flows);
    }
    assert!(bench.sum(|worker| worker.order.tickets.get()) > 300);
    assert_eq!(bench.sum(|worker| worker.order.restored.get()), 40_000);
    assert_eq!(bench.sum(|worker| worker.order.expired.get()), 0);
    bench.finish();
}

#[test]
fn what_may_be_spread_keeps_its_order() {
    let mut bench = Bench::new("auto", 2);
    for flows in [1, 7] {
        bench.forward(20_000, flows);
    }
    bench.finish();
}

#[test]
fn one_worker_has_nobody_to_share_with() {
    let mut bench = Bench::new("spread", 1);
    bench.forward(5_000, 3);
    assert_eq!(bench.sum(|worker| worker.order.given.get() + worker.order.steered.get()), 0);
    bench.finish();
}

#[test]
fn sequence_numbers_are_in_the_order_on_the_wire() {
    for order in ["hash", "spread"] {
        let mut bench = Bench::tunnel(order, 3);
        let mut sequence = 0;
        bench.forward_and(20_000, 40, |packet, queue| {
            // Ethernet, IPv4 and four bytes of GRE stand before the number.
            let number = packet.bytes()[38..42].try_into().expect("four bytes");
            assert_eq!((u32::from_be_bytes(number), queue), (sequence, 0), "{order}");
            sequence += 1;
            read(packet, 42)
        });
        assert!(bench.sum(|worker| worker.handed_over.get()) > 5_000, "others send through the sequencer");
        bench.finish();
    }
}
