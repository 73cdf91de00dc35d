//! A driver by hand: registers and URBs, one at a time.

use polder_datapath::units::Nanos;
use polder_devices::lan78xx::descriptor::ENDPOINTS;
use polder_devices::lan78xx::frame::{RxCursor, RxStatus, TxCommand};
use polder_devices::lan78xx::model::{Adapter, Options};
use polder_devices::lan78xx::regs::{
    FCT_RX_CTL, FCT_TX_CTL, HW_CFG, INT_EP_CTL, MAC_RX, MAC_TX, MII_ACC, MII_DATA, MII_PHY_SHIFT,
    MII_REGISTER_SHIFT, PhyRegister, READ_REGISTER, RFE_CTL, Register, USB_CFG0, WRITE_REGISTER, fct, hw_cfg,
    int_sts, mac_rx, mac_tx, maf_hi, maf_lo, mii_acc, rfe_ctl, usb_cfg0,
};
use polder_devices::usb::{Completion, Setup, Status, Urb, UrbBuffer};

pub(crate) struct Hand {
    pub(crate) adapter: Adapter,
    next: u32,
    /// True if the next transfer is not ended by a packet without data.
    without_end: bool,
}

impl Hand {
    /// A device in its configuration, with nothing else done.
    pub(crate) fn new(options: Options) -> Self {
        let mut hand = Self { adapter: Adapter::new(options), next: 0, without_end: false };
        let (status, _) = hand.control(Setup { request: 9, value: 1, ..Setup::default() }, &[]);
        assert_eq!(status, Status::Done);
        hand.adapter.advance(Nanos(1));
        hand
    }

    /// A device that sends and receives, with all offloads.
    pub(crate) fn ready(options: Options) -> Self {
        let [a, b, c, d, e, f] = options.mac;
        let mut hand = Self::new(options);
        hand.write(maf_lo(0), u32::from_le_bytes([a, b, c, d]));
        hand.write(maf_hi(0), u32::from_le_bytes([e, f, 0, 0]) | 0x8000_0000);
        hand.write(HW_CFG, hw_cfg::MULTIPLE_FRAMES);
        hand.write(USB_CFG0, usb_cfg0::BURST_CAP_ON | usb_cfg0::NAK_WHEN_EMPTY);
        let sums = rfe_ctl::TRANSPORT_CHECKSUM | rfe_ctl::IP_CHECKSUM;
        hand.write(RFE_CTL, sums | rfe_ctl::BROADCAST | rfe_ctl::PERFECT | rfe_ctl::VLAN_STRIP);
        hand.write(MAC_RX, 1522 << 16 | mac_rx::ENABLE);
        hand.write(MAC_TX, mac_tx::ENABLE);
        hand.write(FCT_RX_CTL, fct::ENABLE);
        hand.write(FCT_TX_CTL, fct::ENABLE);
        hand.write(INT_EP_CTL, int_sts::PHY);
        hand
    }

    pub(crate) fn control(&mut self, setup: Setup, data: &[u8]) -> (Status, Vec<u8>) {
        let length = usize::from(setup.length).max(data.len());
        let mut buffer = UrbBuffer::heap(length.max(1));
        buffer.bytes_mut()[..data.len()].copy_from_slice(data);
        self.submit(0, setup, buffer, length);
        let done = self.adapter.complete().expect("control requests end at once");
        (done.status, done.received().to_vec())
    }

    pub(crate) fn read<E>(&mut self, register: Register<E>) -> u32 {
        let setup =
            Setup { kind: 0xc0, request: READ_REGISTER, value: 0, index: register.address, length: 4 };
        let (status, bytes) = self.control(setup, &[]);
        assert_eq!(status, Status::Done);
        u32::from_le_bytes(bytes.try_into().unwrap())
    }

    pub(crate) fn write<E>(&mut self, register: Register<E>, value: u32) {
        let setup =
            Setup { kind: 0x40, request: WRITE_REGISTER, value: 0, index: register.address, length: 4 };
        assert_eq!(self.control(setup, &value.to_le_bytes()).0, Status::Done);
    }

    pub(crate) fn phy<E>(&mut self, address: u32, register: PhyRegister<E>) -> u16 {
        let place = address << MII_PHY_SHIFT | u32::from(register.number) << MII_REGISTER_SHIFT;
        self.write(MII_ACC, place | mii_acc::BUSY);
        assert_eq!(self.read(MII_ACC) & mii_acc::BUSY, 0);
        u16::try_from(self.read(MII_DATA)).unwrap()
    }

    pub(crate) fn write_phy<E>(&mut self, address: u32, register: PhyRegister<E>, value: u16) {
        self.write(MII_DATA, u32::from(value));
        let place = address << MII_PHY_SHIFT | u32::from(register.number) << MII_REGISTER_SHIFT;
        self.write(MII_ACC, place | mii_acc::WRITE | mii_acc::BUSY);
    }

    fn submit(&mut self, endpoint: u8, setup: Setup, buffer: UrbBuffer, length: usize) -> u32 {
        let id = self.next;
        self.next += 1;
        let zero_packet = !core::mem::take(&mut self.without_end);
        self.adapter.submit(Urb { zero_packet, ..Urb::new(id, endpoint, setup, buffer, length) });
        id
    }

    /// Offers a bulk-in URB.
    pub(crate) fn offer(&mut self, length: usize) -> u32 {
        self.submit(ENDPOINTS.bulk_in, Setup::default(), UrbBuffer::heap(length), length)
    }

    /// Offers an interrupt URB.
    pub(crate) fn listen(&mut self) -> u32 {
        self.submit(ENDPOINTS.interrupt, Setup::default(), UrbBuffer::heap(16), 16)
    }

    /// Sends frames in one bulk-out URB.
    pub(crate) fn send(&mut self, frames: &[(TxCommand, &[u8])]) -> u32 {
        let mut bytes = Vec::new();
        for (command, frame) in frames {
            bytes.resize(usize::next_multiple_of(bytes.len(), 4), 0);
            bytes.extend(command.write());
            bytes.extend_from_slice(frame);
        }
        let length = bytes.len();
        let buffer = UrbBuffer::Heap(bytes.into_boxed_slice());
        self.submit(ENDPOINTS.bulk_out, Setup::default(), buffer, length)
    }

    /// The same, without a packet without data at the end.
    pub(crate) fn send_without_end(&mut self, frames: &[(TxCommand, &[u8])]) -> u32 {
        self.without_end = true;
        self.send(frames)
    }

    /// Lets a frame come in from the wire.
    pub(crate) fn arrive(&mut self, frame: &[u8]) {
        assert!(self.adapter.wire_in(frame, Nanos(0)), "there is a link");
        self.adapter.advance(Nanos(1));
    }

    /// All transfers that have ended.
    pub(crate) fn ended(&mut self) -> Vec<Completion> {
        self.adapter.advance(Nanos(1));
        core::iter::from_fn(|| self.adapter.complete()).collect()
    }

    /// All frames that have left by the wire.
    pub(crate) fn left(&mut self) -> Vec<Vec<u8>> {
        self.adapter.advance(Nanos(1));
        core::iter::from_fn(|| self.adapter.wire_out()).collect()
    }
}

/// Frames in a transfer with the adapter's status words.
pub(crate) fn frames(done: &Completion) -> Vec<(RxStatus, Vec<u8>)> {
    let mut cursor = RxCursor::default();
    let frames = core::iter::from_fn(|| cursor.next(done.received()));
    frames.map(|frame| frame.expect("an honest transfer")).map(|f| (f.status, f.bytes.to_vec())).collect()
}

/// Frame to `destination` of `length` bytes, of an unknown protocol.
pub(crate) fn frame(destination: [u8; 6], length: usize) -> Vec<u8> {
    let mut frame = destination.to_vec();
    frame.extend([2, 0, 0, 0, 0, 9, 0x88, 0xb5]);
    frame.extend((frame.len()..length).map(|at| u8::try_from(at % 251).unwrap()));
    frame
}
