//! Faults of drivers, each imitated between the driver and USB/IP, and the check that has to find it.

use crate::examination::Mutant;
use polder_datapath::port::Armed;
use polder_datapath::units::Nanos;
use polder_devices::usb::{Completion, Speed, Status, Transport, Urb};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A fault of the driver.
#[derive(Clone, Copy)]
pub(super) enum Fault {
    /// Bulk-out transfers have another byte at an offset.
    Out(usize, u8),
    /// Bulk-out transfers are shorter by some bytes.
    CutOut(usize),
    /// Every so many bulk-out transfers one is not sent, and counts as sent.
    LoseOut(u32),
    /// Transfers of whole packets are not ended, neither by a packet without data nor by a byte of padding.
    NoEnd,
    /// Bulk-in transfers are shorter by some bytes.
    CutIn(usize),
    /// Bulk-in URBs ask for so many bytes.
    ShortIn(usize),
    /// Bulk-out URBs go in the other direction.
    WrongWay,
    /// Interrupt URBs have another interval.
    Interval(u32),
    /// URBs are never cancelled.
    KeepUrbs,
    /// A control request is not sent, and counts as done.
    Forget(u8),
}

/// Broken drivers of NCM.
pub(super) const NCM: &[Mutant<Fault>] = &[
    Mutant("signs blocks wrongly", "one echo", Fault::Out(0, 0x01)),
    Mutant("gives a wrong header length", "one echo", Fault::Out(4, 0x04)),
    Mutant("gives a wrong block length", "one echo", Fault::Out(9, 0x40)),
    Mutant("puts the table elsewhere", "one echo", Fault::Out(10, 0x02)),
    Mutant("signs tables wrongly", "one echo", Fault::Out(12, 0x02)),
    Mutant("changes a byte of a frame", "one echo", Fault::Out(100, 0x10)),
    Mutant("cuts blocks", "one echo", Fault::CutOut(1)),
    Mutant("cuts received blocks", "one echo", Fault::CutIn(1)),
    Mutant("loses a block", "volume", Fault::LoseOut(50)),
    Mutant("asks for no interval", "opens", Fault::Interval(0)),
    Mutant("selects no data", "one echo", Fault::Forget(11)),
    Mutant("sets no format", "32 bits", Fault::Forget(0x84)),
    Mutant("sets no checksums", "checksums", Fault::Forget(0x8a)),
    Mutant("ends no transfer of whole packets", "whole packets", Fault::NoEnd),
];

/// Broken drivers of ECM.
pub(super) const ECM: &[Mutant<Fault>] = &[
    Mutant("ends no transfer of whole packets", "whole packets", Fault::NoEnd),
    Mutant("changes a byte of a frame", "one echo", Fault::Out(70, 0x10)),
    Mutant("asks for no interval", "opens", Fault::Interval(0)),
    Mutant("selects no data", "one echo", Fault::Forget(11)),
    Mutant("cuts frames", "one echo", Fault::CutOut(1)),
    Mutant("cuts received frames", "one echo", Fault::CutIn(1)),
    Mutant("loses a frame", "volume", Fault::LoseOut(50)),
];

/// Broken drivers of LAN78xx.
pub(super) const LAN78XX: &[Mutant<Fault>] = &[
    Mutant("asks for no interval", "opens", Fault::Interval(0)),
    Mutant("asks for another interval", "interval", Fault::Interval(1)),
    Mutant("sends in the wrong direction", "one frame", Fault::WrongWay),
    Mutant("ends no transfer of whole packets", "whole packets", Fault::NoEnd),
    Mutant("cuts transfers", "one frame", Fault::CutOut(1)),
    Mutant("cuts received transfers", "one frame", Fault::CutIn(1)),
    Mutant("asks for short transfers", "longest frames", Fault::ShortIn(512)),
    Mutant("leaves transfers with the host", "at rest", Fault::KeepUrbs),
    Mutant("gives a wrong length of a frame", "one frame", Fault::Out(0, 0x01)),
    Mutant("changes a byte of a frame", "one frame", Fault::Out(60, 0x10)),
    Mutant("loses transfers", "volume", Fault::LoseOut(5)),
    Mutant("writes no register", "registers", Fault::Forget(0xa0)),
    Mutant("reads no statistics", "statistics", Fault::Forget(0xa2)),
];

/// Bit of an endpoint's address.
const IN: u8 = 0x80;
/// Bytes of a bulk packet at high speed.
const PACKET: usize = 512;

/// The transport of a driver with a fault.
pub(super) struct Wrapped {
    inner: Box<dyn Transport>,
    fault: Fault,
    sent: u32,
    done: VecDeque<Completion>,
}

impl Wrapped {
    pub(super) fn new(inner: Box<dyn Transport>, fault: Fault) -> Self {
        Self { inner, fault, sent: 0, done: VecDeque::new() }
    }

    fn pretend(&mut self, urb: Urb) {
        let actual = urb.length;
        self.done.push_back(Completion { urb, status: Status::Done, actual });
    }
}

impl Transport for Wrapped {
    fn speed(&self) -> Speed {
        self.inner.speed()
    }

    fn submit(&mut self, mut urb: Urb) {
        let is_bulk_out = urb.endpoint != 0 && urb.endpoint & IN == 0;
        match self.fault {
            Fault::Out(at, bits) if is_bulk_out && at < urb.length => urb.buffer.bytes_mut()[at] ^= bits,
            Fault::CutOut(bytes) if is_bulk_out => urb.length -= bytes,
            Fault::LoseOut(every) if is_bulk_out => {
                self.sent += 1;
                if self.sent.is_multiple_of(every) {
                    return self.pretend(urb);
                }
            }
            Fault::NoEnd if is_bulk_out => {
                urb.zero_packet = false;
                if urb.length % PACKET == 1 {
                    urb.length -= 1;
                }
            }
            Fault::ShortIn(bytes) if urb.endpoint & IN != 0 && urb.interval == 0 => urb.length = bytes,
            Fault::WrongWay if is_bulk_out => urb.endpoint |= IN,
            Fault::Interval(interval) if urb.interval != 0 => urb.interval = interval,
            Fault::Forget(request) if urb.endpoint == 0 && urb.setup.request == request => {
                return self.pretend(urb);
            }
            Fault::Out(..)
            | Fault::CutOut(_)
            | Fault::LoseOut(_)
            | Fault::NoEnd
            | Fault::CutIn(_)
            | Fault::ShortIn(_)
            | Fault::WrongWay
            | Fault::Interval(_)
            | Fault::KeepUrbs
            | Fault::Forget(_) => {}
        }
        self.inner.submit(urb);
    }

    fn cancel(&mut self, endpoint: u8) {
        if !matches!(self.fault, Fault::KeepUrbs) {
            self.inner.cancel(endpoint);
        }
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn complete(&mut self) -> Option<Completion> {
        if let Some(done) = self.done.pop_front() {
            return Some(done);
        }
        let mut done = self.inner.complete()?;
        match self.fault {
            Fault::CutIn(bytes) if done.urb.endpoint & IN != 0 && done.urb.interval == 0 => {
                done.actual = done.actual.saturating_sub(bytes);
            }
            Fault::CutOut(bytes) if done.urb.endpoint != 0 && done.urb.endpoint & IN == 0 => {
                done.actual += bytes;
                done.urb.length += bytes;
            }
            Fault::Out(..)
            | Fault::CutOut(_)
            | Fault::LoseOut(_)
            | Fault::NoEnd
            | Fault::CutIn(_)
            | Fault::ShortIn(_)
            | Fault::WrongWay
            | Fault::Interval(_)
            | Fault::KeepUrbs
            | Fault::Forget(_) => {}
        }
        Some(done)
    }

    fn wait(&mut self, limit: Duration) {
        if self.done.is_empty() {
            self.inner.wait(limit);
        }
    }

    fn arm(&mut self) -> Armed {
        if self.done.is_empty() { self.inner.arm() } else { Armed::Raced }
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        self.inner.event()
    }

    fn now(&self) -> Nanos {
        self.inner.now()
    }

    fn is_gone(&self) -> bool {
        self.inner.is_gone()
    }

    fn place(&self) -> String {
        self.inner.place()
    }
}
