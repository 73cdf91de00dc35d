//! Throwing away what waits in a device: with no frame posted the kernel drops packets before it copies them.

use super::Receiver;
use crate::af_xdp::drive::BUDGET;
use polder_buffers::Pool;
use polder_datapath::drops::DropReason;
use rustix::thread::{Timespec, nanosleep};

impl<const COPIES: bool> Receiver<COPIES> {
    /// Throws away what the device has.
    #[cold]
    pub(super) fn throw_all_away(&mut self, pool: &mut Pool) {
        self.due = false;
        if self.driver.is_held() {
            self.throw_away_napping(pool);
        } else if self.driver.is_polled() {
            self.throw_away_polling(pool);
        }
    }

    /// Only the kernel's thread can do it, which has the core while the worker naps.
    fn throw_away_napping(&mut self, pool: &mut Pool) {
        self.driver.sleeps();
        let mut nap = FIRST_NAP;
        for _ in 0..MOST_NAPS {
            // A nap that ends early throws away less.
            let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: nap });
            // Frames that were left posted are used up first.
            if self.throw_away(pool) + self.settle() < ENOUGH && nap == NAP {
                break;
            }
            nap = NAP;
        }
        self.driver.wakes();
    }

    /// Throws away what the device has, poll by poll.
    fn throw_away_polling(&mut self, pool: &mut Pool) {
        self.bound(usize::MAX);
        for _ in 0..MOST_LOOKS {
            self.look();
            if self.throw_away(pool) + self.settle() < LOOK {
                break;
            }
        }
    }

    /// Throws away what is in the ring; how many packets that were.
    fn throw_away(&mut self, pool: &mut Pool) -> u64 {
        let mut packets = 0;
        while let Some(packet) = self.next(pool) {
            pool.release_packet(packet);
            packets += 1;
        }
        self.received.release();
        self.counters.received.add(packets);
        self.counters.drops.count(DropReason::RxOverrun, packets);
        packets
    }
}

/// Nanoseconds of the first nap and of all others, the packets that the kernel's thread throws away in one of those when there are many, and naps
/// after which a device counts as empty.
const FIRST_NAP: i64 = 40_000;
const NAP: i64 = 15_000;
const ENOUGH: u64 = 64;
const MOST_NAPS: u32 = 8;
/// Packets that one look brings in when there are many, and looks after which a device counts as empty.
const LOOK: u64 = 2 * BUDGET as u64;
const MOST_LOOKS: u32 = 40;
