//! Flushing of the device's ring: while no frame is posted, the kernel drops packets before it copies them.

use super::Receiver;
use crate::af_xdp::drive::BUDGET;
use polder_buffers::Pool;
use polder_datapath::drops::DropReason;
use polder_datapath::scheduler::RingFlush;
use rustix::thread::{Timespec, nanosleep};

impl<const COPIES: bool> Receiver<COPIES> {
    /// Flushes the device's ring.
    #[cold]
    pub(super) fn flush_ring(&mut self, pool: &mut Pool) {
        self.flush_due = false;
        if self.driver.is_held() {
            self.throw_away_napping(pool);
        } else if self.driver.is_polled() {
            self.throw_away_polling(pool);
        }
    }

    /// Drops received packets beyond the reduced target: they were received when more frames were posted.
    #[cold]
    pub(super) fn drop_stale(&mut self, pool: &mut Pool) {
        let stale = u64::from(self.received.available().saturating_sub(self.reduced_target));
        self.drop_received(stale, pool);
    }

    /// Flushes by the kernel's thread, which has the core while the worker sleeps.
    fn throw_away_napping(&mut self, pool: &mut Pool) {
        // Earlier losses are not part of this flush.
        self.settle();
        self.driver.sleeps();
        let (mut flushing, mut nap) = (RingFlush::default(), Some(RingFlush::FIRST));
        while let Some(long) = nap {
            let before = self.driver.thread_time();
            // A sleep that ends early drops less.
            let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: i64::try_from(long.0).unwrap_or(0) });
            // A thread without a CPU time counts as idle.
            let busy = before.zip(self.driver.thread_time()).map(|(before, now)| now.since(before));
            // Frames that are still posted are used up first.
            let packets = self.drop_received(u64::MAX, pool) + self.settle();
            nap = flushing.next(packets, busy.unwrap_or_default(), long);
        }
        self.ageing.emptied(flushing);
        (self.arrived, self.flushed_since_napi, self.device_empty) = (0, true, false);
        self.driver.wakes();
    }

    /// Flushes the device's ring, poll by poll.
    fn throw_away_polling(&mut self, pool: &mut Pool) {
        self.bound(usize::MAX);
        for _ in 0..MOST_LOOKS {
            self.look();
            if self.drop_received(u64::MAX, pool) + self.settle() < LOOK {
                break;
            }
        }
    }

    /// Drops at most `most` packets of the RX ring, oldest first; returns their number.
    fn drop_received(&mut self, most: u64, pool: &mut Pool) -> u64 {
        let mut packets = 0;
        while packets < most
            && let Some(packet) = self.next(pool)
        {
            pool.release_packet(packet);
            packets += 1;
        }
        self.received.release();
        self.counters.received.add(packets);
        self.counters.drops.count(DropReason::RxOverrun, packets);
        self.ageing.came(packets);
        packets
    }
}

/// Maximum number of packets of one poll, and number of polls after which a device counts as empty.
const LOOK: u64 = 2 * BUDGET as u64;
const MOST_LOOKS: u32 = 40;
