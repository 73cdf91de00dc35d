//! A gateway between two in-memory cables, with senders and receivers at the far ends.

use crate::cable::{configuration, frame, opener, read};
use polder::runtime::accounts::Accounts;
use polder::runtime::gateway::Gateway;
use polder_buffers::{Batch, BufferManager, BufferOptions, Pool, Region};
use polder_datapath::counters::WorkerCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Budget, RxQueue as _, TxQueue as _};
use polder_devices::pair::{self, End, Options};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A running gateway; packets come in by `near` and leave by `far`.
pub(crate) struct Bench {
    pub(crate) region: Region,
    pub(crate) memory: Arc<BufferManager>,
    pub(crate) gateway: Gateway,
    pub(crate) near: End,
    pub(crate) far: End,
    pool: Pool,
    /// The first flow that is sent.
    pub(crate) first: u64,
    /// The number that each flow's next packet has, and the one that is to arrive next at least.
    flows: HashMap<u64, (u64, u64)>,
    pub(crate) sent: u64,
    pub(crate) seen: u64,
    pub(crate) overtaken: u64,
}

impl Bench {
    /// The gateway that `text` describes; its ports `a` and `b` have so many queues.
    pub(crate) fn new(text: &str, queues: [usize; 2]) -> Self {
        let memory = Arc::new(BufferManager::new(BufferOptions::fixed(2048, 512, 16_384)).expect("memory"));
        let region = memory.region().clone();
        let cable =
            |queues| pair::cable(Options { queues, ring: 8192, ..Options::default() }).expect("a cable");
        let ((near, a), (b, far)) = (cable(queues[0]), cable(queues[1]));
        let ends = [("a", a), ("b", b)].map(|(name, end)| (name.to_owned(), end));
        let gateway = Gateway::start_on(configuration(text), &memory, opener(ends)).expect("it starts");
        let pool = region.pool();
        Self {
            region,
            memory,
            gateway,
            near,
            far,
            pool,
            first: 0,
            flows: HashMap::new(),
            sent: 0,
            seen: 0,
            overtaken: 0,
        }
    }

    /// Sends frames of `bytes` bytes, of each flow one after the other, by the queues in turn.
    pub(crate) fn send(&mut self, count: u64, flows: u64, bytes: usize) {
        let queues = self.near.len();
        let mut batch = Batch::new();
        for number in 0..count {
            let flow = self.first + number % flows;
            let next = &mut self.flows.entry(flow).or_default().0;
            batch.push(frame(flow, *next, bytes, &mut self.pool)).expect("there is room");
            *next += 1;
            self.sent += 1;
            if batch.is_full() || number + 1 == count {
                // With several queues a flow comes in by one alone only when it is the only one.
                let queue = usize::try_from(flow).expect("few") % queues;
                self.near[queue].tx.transmit(&mut batch, &mut self.pool);
                assert!(batch.is_empty(), "the cable holds what is on its way");
            }
        }
    }

    /// Receives arrived packets; counts those that were overtaken.
    pub(crate) fn receive(&mut self) -> u64 {
        let (mut batch, before) = (Batch::new(), self.seen);
        for end in &mut self.far {
            let _ = end.rx.receive(&mut Budget::new(64), &mut batch, &mut self.pool);
            for packet in batch.iter() {
                let (flow, number) = read(packet, 0);
                let least = &mut self.flows.get_mut(&flow).expect("it was sent").1;
                self.overtaken += u64::from(number < *least);
                *least = (*least).max(number + 1);
                self.seen += 1;
            }
            self.pool.release(&mut batch);
        }
        self.seen - before
    }

    /// Sends arrived packets again, as the next packets of the first flow: less work than the
    /// gateway has with it.
    pub(crate) fn circulate(&mut self) {
        let (next, least) = self.flows.get_mut(&self.first).expect("it was sent");
        let mut batch = Batch::new();
        let _ = self.far[0].rx.receive(&mut Budget::new(64), &mut batch, &mut self.pool);
        for packet in batch.iter_mut() {
            let (_, number) = read(packet, 0);
            self.overtaken += u64::from(number < *least);
            *least = (*least).max(number + 1);
            packet.bytes_mut()[50..58].copy_from_slice(&next.to_be_bytes());
            *next += 1;
        }
        self.seen += batch.len() as u64;
        self.sent += batch.len() as u64;
        self.near[0].tx.transmit(&mut batch, &mut self.pool);
        assert!(batch.is_empty(), "the cable holds what is on its way");
    }

    /// Receives until all packets but the dropped ones have come.
    pub(crate) fn settle(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.seen + self.accounts().dropped < self.sent {
            let accounts = self.accounts();
            assert!(Instant::now() < deadline, "{} sent, {} seen: {accounts:?}", self.sent, self.seen);
            self.receive();
        }
    }

    pub(crate) fn accounts(&self) -> Accounts {
        self.gateway.accounts()
    }

    /// The sum of a counter over all workers that there have been.
    pub(crate) fn sum(&self, read: impl Fn(&WorkerCounters) -> u64) -> u64 {
        self.gateway.worker_counters().iter().map(|counters| read(counters)).sum()
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.sum(|worker| worker.drops.get(reason))
    }

    /// Stops everything, and checks that everything is accounted for and all memory comes home.
    pub(crate) fn finish(mut self) -> Accounts {
        self.gateway.stop();
        while self.receive() > 0 {}
        let accounts = self.accounts();
        assert_eq!((accounts.unaccounted(), accounts.held), (0, 0), "{accounts:?}");
        let Self { region, memory, gateway, near, far, pool, .. } = self;
        drop((gateway, near, far, pool, memory));
        assert_eq!((region.free_slots(), region.late_frees()), (region.slots(), 0));
        accounts
    }
}
