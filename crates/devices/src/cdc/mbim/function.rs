//! An MBIM function on the USB port: the modem's dialogue, notifications, layout of transfers.

use super::super::descriptor::NetworkFunction;
use super::super::init::{InitError, Settings, ask_status};
use super::super::ntb::{Block, Packer, Shape, Signatures};
use super::super::request::{NOTIFICATION, RESPONSE_AVAILABLE};
use super::frames::{PacketReader, PacketWriter, SHORTEST};
use super::init::{self, DeviceProperties};
use super::session::{Session, Wanted};
use super::status::{ModemStatus, PortStatus};
use crate::Link;
use crate::usb::Speed;
use crate::usb::control::{ControlError, Pipe};
use crate::usb::function::{Dialogue, Function, Transfers};
use polder_datapath::units::Nanos;
use std::sync::Arc;

/// Maximum number of datagrams of a block if the device has no limit.
const MOST_DATAGRAMS: usize = 256;
/// Bytes of an Ethernet header with a tag, which is not transmitted.
const TAGGED: usize = 18;
/// Maximum number of announced answers; more are an error of the function.
const MOST_ANSWERS: u32 = 64;
/// Assumed link speed in Mbit/s if the network has reported none.
const UNKNOWN_SPEED: u16 = 100;

/// An MBIM function.
pub(super) struct MbimFunction {
    function: NetworkFunction,
    identity: (u16, u16),
    settings: Settings,
    mtu: Option<u16>,
    mac: [u8; 6],
    speed: Speed,
    session: Session,
    /// Number of answers that the function has announced.
    announced: u32,
    /// The link state last reported.
    link: Link,
}

/// Result of a dialogue while the function is up.
pub(super) enum Report {
    /// Nothing to record.
    Done,
    /// Bytes that the function sent to the host.
    Received(Vec<u8>, Nanos),
}

impl MbimFunction {
    pub(super) fn new(
        function: NetworkFunction,
        identity: (u16, u16),
        (settings, wanted): (Settings, Wanted),
        (mtu, mac): (Option<u16>, [u8; 6]),
        speed: Speed,
    ) -> Self {
        let session = Session::new(wanted, init::message_bytes(&function));
        let link = Link::default();
        Self { function, identity, settings, mtu, mac, speed, session, announced: 0, link }
    }

    /// Returns the link state by the modem's state, if it has changed.
    fn changed_link(&mut self, status: &PortStatus) -> Option<Link> {
        if !self.session.takes_change() {
            return None;
        }
        let state = self.session.state();
        status.function.set_state(state);
        let up = state.carries();
        let told =
            state.packet_service.map_or(0, |service| service.speeds.0.max(service.speeds.1) / 1_000_000);
        let told = u16::try_from(told).unwrap_or(u16::MAX);
        let speed = if told == 0 { UNKNOWN_SPEED } else { told };
        let link =
            if up { Link { up, speed, full_duplex: true, ..Link::default() } } else { Link::default() };
        (link != self.link).then(|| {
            self.link = link;
            link
        })
    }
}

impl Function for MbimFunction {
    type DeviceProperties = DeviceProperties;
    type Report = Report;
    type Error = InitError;
    type Status = ModemStatus;
    type Reader = PacketReader;
    type Writer = PacketWriter;

    fn configuration(&self) -> u8 {
        self.function.configuration
    }

    fn interfaces(&self) -> Vec<u8> {
        vec![self.function.control, self.function.data]
    }

    fn bring_up(&self, pipe: Pipe, speed: Speed) -> Dialogue<DeviceProperties, InitError> {
        let wanted = (self.settings, self.mtu, self.mac);
        Box::pin(init::bring_up(pipe, self.function, self.identity, wanted, speed))
    }

    fn is_up(&mut self, found: &DeviceProperties, _now: Nanos, status: &PortStatus) {
        status.function.set_found(self.identity, found.ntb, found.mtu);
    }

    fn transfers(&self, found: &DeviceProperties, speed: Speed) -> Transfers {
        Transfers {
            endpoints: found.function.endpoints,
            receive_bytes: (found.ntb.in_bytes as usize).next_multiple_of(speed.bulk_packet()),
            send_bytes: found.ntb.out_bytes as usize,
            longest: usize::from(found.mtu) + TAGGED,
        }
    }

    fn reader(&self, found: &DeviceProperties, status: &PortStatus) -> PacketReader {
        PacketReader {
            block: Block { format: found.ntb.format, signatures: Signatures::Mbim, shortest: SHORTEST },
            longest: usize::from(found.mtu),
            stations: found.stations,
            counters: Arc::clone(&status.function.blocks),
        }
    }

    fn writer(&self, found: &DeviceProperties) -> PacketWriter {
        let (divisor, remainder, alignment) = found.ntb.parameters.out_shape();
        let most = usize::from(found.ntb.parameters.out_datagrams);
        let packer = Packer::new(Shape {
            format: found.ntb.format,
            has_crc: false,
            divisor,
            remainder,
            alignment,
            most_datagrams: if most == 0 { MOST_DATAGRAMS } else { most.min(MOST_DATAGRAMS) },
            largest: found.ntb.parameters.out_bytes as usize,
            packet: self.speed.bulk_packet(),
            zero_packet: found.quirks.zero_packet,
            table_at_end: found.quirks.table_at_end,
        });
        PacketWriter { packer, longest: usize::from(found.mtu) }
    }

    /// The modem's answers give the link state, not the notifications of a connection.
    fn notified(&mut self, bytes: &[u8], _link: &mut Link) -> bool {
        if let [NOTIFICATION, RESPONSE_AVAILABLE, ..] = *bytes {
            self.announced = (self.announced + 1).min(MOST_ANSWERS);
        }
        false
    }

    fn look(
        &mut self,
        pipe: Pipe,
        _found: &DeviceProperties,
        _speed: Speed,
    ) -> Dialogue<Report, ControlError> {
        Box::pin(async move { ask_status(pipe).await.map(|()| Report::Done) })
    }

    fn next_task(
        &mut self,
        pipe: Pipe,
        now: Nanos,
        status: &PortStatus,
    ) -> Option<Dialogue<Report, ControlError>> {
        if let Some(connects) = status.function.take_order() {
            self.session.order(connects, now);
        }
        let function = self.function;
        if self.announced > 0 {
            self.announced -= 1;
            return Some(Box::pin(async move {
                let bytes = init::fetch(pipe.clone(), function).await?;
                Ok(Report::Received(bytes, pipe.now()))
            }));
        }
        if let Some(fragment) = self.session.poll(now) {
            return Some(Box::pin(async move {
                init::send(pipe, function, fragment).await.map(|()| Report::Done)
            }));
        }
        // A failure without an answer has changed the state too.
        if self.session.has_changed() {
            return Some(Box::pin(async { Ok(Report::Done) }));
        }
        None
    }

    fn reported(&mut self, report: Report, status: &PortStatus) -> Option<Link> {
        if let Report::Received(bytes, now) = report
            && !bytes.is_empty()
        {
            self.session.received(&bytes, now);
        }
        self.changed_link(status)
    }

    fn stop_device(&self, pipe: Pipe, found: &DeviceProperties) -> Dialogue<(), ControlError> {
        Box::pin(init::stop_device(pipe, found.function))
    }

    fn most_frames(bytes: usize) -> usize {
        bytes.div_ceil(SHORTEST)
    }
}
