//! Hand-over of a stopped worker's queues: packets in flight are finished by one thread.
//!
//! All worker threads have ended by then, each between two rounds. Packets in the rings between workers go
//! through the stages here, in ring order, before another packet is received.

use super::{SendPath, Worker};
use polder_buffers::PortId;
use polder_datapath::port::{Armed, RxQueue};

/// State that a stopped worker hands over.
#[derive(Default)]
pub struct HandOver {
    /// Receive queues, each with its port and its number on the port.
    pub rx: Vec<(PortId, u16, Box<dyn RxQueue>)>,
    /// The worker's send paths, by port.
    pub tx: Vec<(PortId, SendPath)>,
}

impl Worker {
    /// Number of the worker.
    pub fn number(&self) -> usize {
        self.number_and_count.0
    }

    /// Takes packets in rings through the stages, and sends packets from port queues. Returns true if there
    /// were any; other workers may have new work then.
    pub fn finish_up(&mut self) -> bool {
        let now = self.clock.now();
        self.senders.now = now;
        let mut busy = false;
        for index in 0..self.incoming.len() {
            busy |= self.take_over(index, now);
        }
        busy |= self.take_last_part(now) | self.let_in(now, |_| true);
        busy | self.senders.round(&mut self.pool)
    }

    /// True if devices have sent all packets.
    pub fn is_quiet(&self) -> bool {
        self.senders.is_quiet()
    }

    /// Returns the worker's queues. Packets that are still held are dropped and counted; packets in a port
    /// queue go with it if `stays`, because the same worker gets the queue back.
    pub fn hand_back(mut self, stays: bool) -> HandOver {
        while let Ok(command) = self.commands.try_recv() {
            self.apply_command(command);
        }
        let now = self.clock.now();
        self.senders.now = now;
        self.let_go_of_the_rest(now);
        self.engine.close(now, &mut self.pool);
        let mut hand_over = HandOver::default();
        let queues = self.receivers.drain(..).map(|queue| (queue.port, queue.number, queue.rx));
        hand_over.rx.extend(queues);
        for (port, path) in self.senders.take_all() {
            match path {
                SendPath::Through(_) => {}
                SendPath::Queued(outlet) if !stays => {
                    let tx = outlet.into_tx(&mut self.pool, &self.counters);
                    hand_over.tx.push((port, SendPath::Own(tx)));
                }
                own @ (SendPath::Own(_) | SendPath::Queued(_)) => hand_over.tx.push((port, own)),
            }
        }
        if !stays {
            // All packets were sent or dropped: devices' programs stop holding packets back.
            hand_over.rx.iter_mut().for_each(|(_, _, rx)| complete(&mut **rx));
        }
        self.counters.cached_frames.set(0);
        hand_over
    }
}

/// Tells a device that all packets of a queue were sent.
fn complete(rx: &mut dyn RxQueue) {
    if let Some(control) = rx.control() {
        control.hold_completed(false);
    }
    let _: Armed = rx.arm();
}
