//! A CDC network function on the USB port: dialogues, notifications, layout of transfers.

use super::descriptor::NetworkFunction;
use super::frames::{FrameReader, FrameWriter, SHORTEST};
use super::init::{self, DeviceProperties, InitError, Wanted};
use super::ntb::{Block, Packer, Shape, Signatures};
use super::request::Notifications;
use super::status::{FunctionStatus, PortStatus};
use crate::Link;
use crate::usb::control::{ControlError, Pipe};
use crate::usb::function::{Dialogue, Function, Transfers};
use crate::usb::{HEADERS, Speed};
use polder_datapath::units::Nanos;
use std::sync::Arc;

/// Assumed link speed in Mbit/s if the function has reported none.
const UNKNOWN_SPEED: u16 = 100;
/// Maximum number of datagrams of a block if the device has no limit.
const MOST_DATAGRAMS: usize = 256;

/// A CDC network function.
pub(super) struct CdcFunction {
    function: NetworkFunction,
    identity: (u16, u16),
    wanted: Wanted,
    notifications: Notifications,
    speed: Speed,
}

impl CdcFunction {
    pub(super) fn new(function: NetworkFunction, identity: (u16, u16), wanted: Wanted, speed: Speed) -> Self {
        Self { function, identity, wanted, notifications: Notifications::default(), speed }
    }
}

/// Returns the maximum frame length of a function, including a tag if it fits.
fn longest(found: &DeviceProperties) -> usize {
    usize::from(found.function.longest.min(found.mtu + HEADERS))
}

impl Function for CdcFunction {
    type DeviceProperties = DeviceProperties;
    type Report = ();
    type Error = InitError;
    type Status = FunctionStatus;
    type Reader = FrameReader;
    type Writer = FrameWriter;

    fn configuration(&self) -> u8 {
        self.function.configuration
    }

    fn interfaces(&self) -> Vec<u8> {
        vec![self.function.control, self.function.data]
    }

    fn bring_up(&self, pipe: Pipe, speed: Speed) -> Dialogue<DeviceProperties, InitError> {
        Box::pin(init::bring_up(pipe, self.function, self.identity, self.wanted.clone(), speed))
    }

    fn is_up(&mut self, found: &DeviceProperties, _now: Nanos, status: &PortStatus) {
        status.function.set_found(found);
    }

    fn transfers(&self, found: &DeviceProperties, speed: Speed) -> Transfers {
        let packet = speed.bulk_packet();
        let longest = longest(found);
        let (receive_bytes, send_bytes) = match found.ntb {
            Some(ntb) => ((ntb.in_bytes as usize).next_multiple_of(packet), ntb.out_bytes as usize),
            // One byte more than the longest frame, so that a short packet ends every transfer.
            None => ((longest + 1).next_multiple_of(packet), longest),
        };
        Transfers { endpoints: found.function.endpoints, receive_bytes, send_bytes, longest }
    }

    fn reader(&self, found: &DeviceProperties, status: &PortStatus) -> FrameReader {
        let block = found.ntb.map(|ntb| Block {
            format: ntb.format,
            signatures: Signatures::Ncm,
            shortest: SHORTEST,
        });
        FrameReader { block, longest: longest(found), counters: Arc::clone(&status.function.blocks) }
    }

    fn writer(&self, found: &DeviceProperties) -> FrameWriter {
        let packer = found.ntb.map(|ntb| {
            let (divisor, remainder, alignment) = ntb.parameters.out_shape();
            let most = usize::from(ntb.parameters.out_datagrams);
            Packer::new(Shape {
                format: ntb.format,
                has_crc: ntb.has_crc,
                divisor,
                // The remainder applies to the bytes after the Ethernet header (NCM 1.0, 3.3.4).
                remainder: (remainder + divisor - SHORTEST % divisor) % divisor,
                alignment,
                most_datagrams: if most == 0 { MOST_DATAGRAMS } else { most.min(MOST_DATAGRAMS) },
                largest: ntb.parameters.out_bytes as usize,
                packet: self.speed.bulk_packet(),
                zero_packet: found.quirks.zero_packet,
                table_at_end: found.quirks.table_at_end,
            })
        });
        FrameWriter { packer }
    }

    fn notified(&mut self, bytes: &[u8], link: &mut Link) -> bool {
        self.notifications.take(bytes, link);
        if link.up && link.speed == 0 {
            (link.speed, link.full_duplex) = (UNKNOWN_SPEED, true);
        }
        // No request is needed: the notification has the whole link state.
        false
    }

    fn look(&mut self, pipe: Pipe, _found: &DeviceProperties, _speed: Speed) -> Dialogue<(), ControlError> {
        Box::pin(init::ask_status(pipe))
    }

    fn next_task(
        &mut self,
        _pipe: Pipe,
        _now: Nanos,
        _status: &PortStatus,
    ) -> Option<Dialogue<(), ControlError>> {
        None
    }

    fn reported(&mut self, (): (), _status: &PortStatus) -> Option<Link> {
        None
    }

    fn stop_device(&self, pipe: Pipe, found: &DeviceProperties) -> Dialogue<(), ControlError> {
        Box::pin(init::stop_device(pipe, found.function))
    }

    fn most_frames(bytes: usize) -> usize {
        bytes.div_ceil(SHORTEST)
    }
}
