//! Faults of the driver, each imitated at the seam where it would show, and the check that has to find it.

use crate::examination::Mutant;
use polder_buffers::Region;
use polder_datapath::units::Nanos;
use polder_devices::e1000::desc::{TX_INSERT_TRANSPORT, tx_command};
use polder_devices::e1000::regs::{CTRL, IMS, MTA, RAL, RCTL, RDT, TABLE_WORDS, TDBAL, TDT, ctrl, icr, rctl};
use polder_devices::pci::{Coherent, Device, Dma, DmaError, Interrupt, Registers};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A fault of the driver.
#[derive(Clone, Copy)]
pub(super) enum Fault {
    /// A register gets another value, or none.
    Write(fn(u32, u32) -> Option<u32>),
    /// A register says something else.
    Read(fn(u32, u32) -> u32),
    /// Transmit descriptors have another second word when the device sees them.
    Descriptor(fn(u64) -> u64),
    /// Packets are taken for so many bytes behind their I/O address.
    Base(u64),
    /// The interrupt stays masked once it has come.
    Masked,
}

const fn write(name: &'static str, check: &'static str, fault: fn(u32, u32) -> Option<u32>) -> Mutant<Fault> {
    Mutant(name, check, Fault::Write(fault))
}

const fn read(name: &'static str, check: &'static str, fault: fn(u32, u32) -> u32) -> Mutant<Fault> {
    Mutant(name, check, Fault::Read(fault))
}

const fn descriptor(name: &'static str, check: &'static str, fault: fn(u64) -> u64) -> Mutant<Fault> {
    Mutant(name, check, Fault::Descriptor(fault))
}

/// Ring of the port that the checks open.
const RING: u32 = 256;
/// Statistics: missed frames, good frames received.
const MISSED: u32 = 0x4010;
const RX_GOOD: u32 = 0x4074;

/// All faulty drivers and models.
pub(super) const MUTANTS: &[Mutant<Fault>] = &[
    write("leaves the FCS on", "receive sizes", |at, value| clear(at, value, RCTL.offset, rctl::STRIP_FCS)),
    write("tells the device a smaller buffer", "receive sizes", |at, value| {
        Some(if at == RCTL.offset { value | 1 << 16 } else { value })
    }),
    write("gives the device every descriptor", "receive sizes", |at, value| {
        Some(if at == RDT.offset { (value + 1) % RING } else { value })
    }),
    Mutant("maps packets elsewhere", "receive sizes", Fault::Base(64)),
    write("accepts no long frames", "jumbo frames", |at, value| clear(at, value, RCTL.offset, rctl::LONG)),
    write("is not promiscuous", "promiscuous", |at, value| clear(at, value, RCTL.offset, rctl::ALL_UNICAST)),
    write("hashes groups wrongly", "filter", |at, value| {
        let is_table = (MTA.offset..MTA.offset + 4 * TABLE_WORDS).contains(&at);
        Some(if is_table { value.rotate_left(1) } else { value })
    }),
    write("forgets its own address", "filter", |at, value| Some(if at == RAL.offset { 0 } else { value })),
    write("leaves tags in", "tags", |at, value| clear(at, value, CTRL.offset, ctrl::VLAN_MODE)),
    write("lets no frame interrupt", "interrupt", |at, value| {
        clear(at, value, IMS.offset, icr::RX_TIMER | icr::RX_LOW)
    }),
    write("lets no link interrupt", "link changes", |at, value| clear(at, value, IMS.offset, icr::LINK)),
    write("rings for all but the last packet", "transmit sizes", |at, value| {
        Some(if at == TDT.offset && value > 0 { value - 1 } else { value })
    }),
    descriptor("asks for no report", "transmit sizes", |word| word & !tx_command::REPORT),
    descriptor("inserts no checksum", "checksums", |word| word & !TX_INSERT_TRANSPORT),
    descriptor("cuts shorter segments", "segments", |word| {
        let is_context = word & tx_command::EXTENDED != 0 && word & (0xf << 20) == 0;
        if is_context && word >> 48 > 8 { word - (8 << 48) } else { word }
    }),
    read("reads another counter", "statistics", |at, value| if at == RX_GOOD { 0 } else { value }),
    read("counts no missed frames", "overrun", |at, value| if at == MISSED { 0 } else { value }),
    write("leaves the receiver on", "rest", |at, value| (at != RCTL.offset || value != 0).then_some(value)),
];

/// A value without some bits, where it is for one register.
fn clear(at: u32, value: u32, register: u32, bits: u32) -> Option<u32> {
    Some(if at == register { value & !bits } else { value })
}

/// The way to a device of a driver with a fault.
pub(super) struct Wrapped {
    device: Device,
    fault: Fault,
    /// Memory for descriptors.
    pieces: Mutex<Vec<Coherent>>,
    /// The transmit ring's I/O address, and its tail.
    ring: AtomicU32,
    tail: AtomicU32,
}

impl Wrapped {
    /// The way with the fault in it.
    pub(super) fn device(device: Device, fault: Fault) -> Device {
        let (ring, tail) = (AtomicU32::new(0), AtomicU32::new(0));
        let wrapped = Arc::new(Self { device, fault, pieces: Mutex::default(), ring, tail });
        Device {
            registers: Arc::clone(&wrapped) as Arc<dyn Registers>,
            dma: Arc::clone(&wrapped) as Arc<dyn Dma>,
            interrupt: wrapped,
        }
    }

    fn pieces(&self) -> std::sync::MutexGuard<'_, Vec<Coherent>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the descriptors that the device is to see up to `tail`.
    fn change_descriptors(&self, tail: u32, fault: fn(u64) -> u64) {
        // Relaxed, here and below: one thread sends.
        let ring = u64::from(self.ring.load(Ordering::Relaxed));
        let mut place = self.tail.swap(tail, Ordering::Relaxed);
        let pieces = self.pieces();
        let Some(piece) = pieces.iter().find(|piece| piece.io_address() == ring) else { return };
        while place != tail {
            let word = (2 * place + 1) as usize;
            piece.store(word, fault(piece.load(word)));
            place = (place + 1) % RING;
        }
    }
}

impl Registers for Wrapped {
    fn read32(&self, offset: u32) -> u32 {
        let value = self.device.registers.read32(offset);
        match self.fault {
            Fault::Read(fault) => fault(offset, value),
            Fault::Write(_) | Fault::Descriptor(_) | Fault::Base(_) | Fault::Masked => value,
        }
    }

    fn write32(&self, offset: u32, value: u32) {
        let value = match self.fault {
            Fault::Write(fault) => fault(offset, value),
            Fault::Descriptor(fault) => {
                if offset == TDBAL.offset {
                    self.ring.store(value, Ordering::Relaxed);
                    self.tail.store(0, Ordering::Relaxed);
                } else if offset == TDT.offset {
                    self.change_descriptors(value, fault);
                }
                Some(value)
            }
            Fault::Read(_) | Fault::Base(_) | Fault::Masked => Some(value),
        };
        if let Some(value) = value {
            self.device.registers.write32(offset, value);
        }
    }

    fn pause(&self, time: Nanos) {
        self.device.registers.pause(time);
    }
}

impl Dma for Wrapped {
    fn coherent(&self, bytes: usize) -> Result<Coherent, DmaError> {
        let piece = self.device.dma.coherent(bytes)?;
        self.pieces().push(piece.clone());
        Ok(piece)
    }

    fn map(&self, region: &Region) -> Result<u64, DmaError> {
        let base = self.device.dma.map(region)?;
        Ok(match self.fault {
            Fault::Base(bytes) => base + bytes,
            Fault::Write(_) | Fault::Read(_) | Fault::Descriptor(_) | Fault::Masked => base,
        })
    }

    fn was_refused(&self) -> bool {
        self.device.dma.was_refused()
    }
}

impl Interrupt for Wrapped {
    fn event(&self) -> BorrowedFd<'_> {
        self.device.interrupt.event()
    }

    fn acknowledge(&self) -> bool {
        self.device.interrupt.acknowledge()
    }

    fn unmask(&self) {
        if !matches!(self.fault, Fault::Masked) {
            self.device.interrupt.unmask();
        }
    }
}
