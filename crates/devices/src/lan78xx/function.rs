//! The adapter as a USB network function: dialogues, and interrupt transfers.

use super::frame::most_frames;
use super::init::{self, DeviceProperties, InitError, Wanted};
use super::phy;
use super::regs::int_sts;
use super::rx::FrameReader;
use super::status::{AdapterStatus, PortStatus};
use super::tx::FrameWriter;
use crate::Link;
use crate::usb::control::{ControlError, Pipe};
use crate::usb::function::{Dialogue, Function, Transfers};
use crate::usb::{HEADERS, Speed};
use polder_datapath::units::Nanos;

/// Interval of statistics readings: the shortest frames at 1 Gbit/s wrap a counter of 20 bits after 0.70 s,
/// and a link check may delay a reading.
const STATISTICS_PERIOD: Nanos = Nanos::from_millis(400);

/// A LAN78xx.
pub(super) struct Lan78xxFunction {
    wanted: Wanted,
    statistics_read: Nanos,
}

/// Result of a dialogue.
pub(super) enum Report {
    Link(Link),
    Statistics(super::statistics::Block),
}

impl Lan78xxFunction {
    pub(super) const fn new(wanted: Wanted) -> Self {
        Self { wanted, statistics_read: Nanos(0) }
    }

    fn longest(&self) -> usize {
        usize::from(self.wanted.mtu + HEADERS)
    }
}

impl Function for Lan78xxFunction {
    type DeviceProperties = DeviceProperties;
    type Report = Report;
    type Error = InitError;
    type Status = AdapterStatus;
    type Reader = FrameReader;
    type Writer = FrameWriter;

    fn configuration(&self) -> u8 {
        1
    }

    fn interfaces(&self) -> Vec<u8> {
        vec![0]
    }

    fn bring_up(&self, pipe: Pipe, _speed: Speed) -> Dialogue<DeviceProperties, InitError> {
        Box::pin(init::bring_up(pipe, self.wanted.clone()))
    }

    fn is_up(&mut self, found: &DeviceProperties, now: Nanos, status: &PortStatus) {
        self.statistics_read = now;
        status.function.set_found(found);
    }

    fn transfers(&self, found: &DeviceProperties, speed: Speed) -> Transfers {
        let bytes = match speed {
            Speed::High => 16 * 1024,
            Speed::Super => 32 * 1024,
        };
        let (endpoints, longest) = (found.endpoints, self.longest());
        Transfers { endpoints, receive_bytes: bytes, send_bytes: bytes, longest }
    }

    fn reader(&self, _found: &DeviceProperties, status: &PortStatus) -> FrameReader {
        FrameReader::new(self.longest(), self.wanted.strip_tags, &status.function.checksums)
    }

    fn writer(&self, _found: &DeviceProperties) -> FrameWriter {
        FrameWriter { insert_tags: self.wanted.strip_tags }
    }

    fn notified(&mut self, bytes: &[u8], _link: &mut Link) -> bool {
        let word = bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
        word & int_sts::PHY != 0
    }

    fn look(&mut self, pipe: Pipe, found: &DeviceProperties, speed: Speed) -> Dialogue<Report, ControlError> {
        let (chip, pause) = ((found.chip, found.phy), self.wanted.pause);
        Box::pin(async move { phy::look(&pipe, chip, speed, pause).await.map(Report::Link) })
    }

    fn next_task(
        &mut self,
        pipe: Pipe,
        now: Nanos,
        status: &PortStatus,
    ) -> Option<Dialogue<Report, ControlError>> {
        let is_due = now.since(self.statistics_read) > STATISTICS_PERIOD || status.takes_refresh();
        if !is_due {
            return None;
        }
        self.statistics_read = now;
        Some(Box::pin(async move { init::read_statistics(&pipe).await.map(Report::Statistics) }))
    }

    fn reported(&mut self, report: Report, status: &PortStatus) -> Option<Link> {
        match report {
            Report::Link(link) => Some(link),
            Report::Statistics(block) => {
                status.function.update_statistics(block);
                None
            }
        }
    }

    fn stop_device(&self, pipe: Pipe, _found: &DeviceProperties) -> Dialogue<(), ControlError> {
        Box::pin(init::stop_device(pipe))
    }

    fn most_frames(bytes: usize) -> usize {
        most_frames(bytes)
    }
}
