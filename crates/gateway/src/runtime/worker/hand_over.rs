//! A worker whose queues go to others: what is under way is finished, in the hands of one thread.
//!
//! The worker's thread has ended by then, and so have those of all others, in the middle of nothing:
//! between two rounds. What stands in the rings between them is theirs alone; it is taken through the
//! stages here, in the order in which it stands, before anybody receives another packet.

use super::{SendPath, Worker};
use polder_buffers::PortId;
use polder_datapath::port::{Armed, RxQueue};

/// State that a worker hands over.
#[derive(Default)]
pub struct HandOver {
    /// Its receiving queues, with their port and their number there.
    pub rx: Vec<(PortId, u16, Box<dyn RxQueue>)>,
    /// Its own ways to send, by port.
    pub tx: Vec<(PortId, SendPath)>,
}

impl Worker {
    /// Its number.
    pub fn number(&self) -> usize {
        self.place.0
    }

    /// Takes packets in rings through the stages, and gives devices the packets that wait for them.
    /// Returns true if there were any: then other workers may have new work.
    pub fn finish_up(&mut self) -> bool {
        let now = self.clock.now();
        self.senders.now = now;
        let mut busy = false;
        for index in 0..self.incoming.len() {
            busy |= self.take_over(index, now);
        }
        busy |= self.take_last_part(now);
        busy | self.senders.round(&mut self.pool)
    }

    /// True if devices have sent everything.
    pub fn is_quiet(&self) -> bool {
        self.senders.is_quiet()
    }

    /// Hands its queues back. What is still held is dropped, and counted; only what waits in front of
    /// a port goes with its queue, if the worker of this number `stays`.
    pub fn hand_back(mut self, stays: bool) -> HandOver {
        while let Ok(command) = self.commands.try_recv() {
            self.obey(command);
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
            // Nothing waits any more: programs of devices are to know that all was sent.
            hand_over.rx.iter_mut().for_each(|(_, _, rx)| complete(&mut **rx));
        }
        self.counters.cached_frames.set(0);
        hand_over
    }
}

/// Has a device's program know that all packets of a queue were sent.
fn complete(rx: &mut dyn RxQueue) {
    if let Some(control) = rx.control() {
        control.hold_completed(false);
    }
    let _: Armed = rx.arm();
}
