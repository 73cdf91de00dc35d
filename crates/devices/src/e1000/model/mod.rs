//! A model of the controller: the silicon's behaviour as far as a driver can see it.
//!
//! | file | models |
//! |---|---|
//! | `registers` | the register file and its side effects, EEPROM, PHY |
//! | `serial` | the EEPROM's serial port |
//! | `receive` | the path of a frame from the wire to memory |
//! | `transmit` | the path of descriptors from memory to the wire, checksums and segments |
//! | `space` | memory at the device's own addresses |
//! | `faulty` | behaviour of a broken device |
//! | [`frames`] | frames to test a port |
//!
//! A [`Nic`] is one device without clock and threads. Each access of a driver takes effect before it returns,
//! unless [`Nic::hold_write_backs`] or [`Nic::hold_sending`] delay the effect. A reset leaves random values in
//! registers that the manual calls undefined. The PCI side is an address space whose addresses are no pointers.

pub mod frames;

mod faulty;
mod options;
mod receive;
mod registers;
mod serial;
mod space;
mod transmit;

pub use faulty::{Fault, FaultyDevice, Mutant};
pub use options::Options;
pub use space::Window;

use super::desc::Context;
use super::regs::{CTRL, ICR, IMS, ITR, Plain, Register, icr};
use crate::pci::{Coherent, Device, Dma, DmaError, Interrupt, Registers};
use polder_buffers::Region;
use polder_datapath::units::Nanos;
use registers::RegisterFile;
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use space::Space;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A descriptor that is to be written back.
#[derive(Clone, Copy, Debug)]
struct WriteBack {
    address: u64,
    word: u64,
    cause: u32,
}

/// One device.
struct State {
    options: Options,
    registers: RegisterFile,
    space: Space,
    /// Frames in the packet buffer.
    fifo: VecDeque<Vec<u8>>,
    fifo_bytes: usize,
    /// Frames that were sent.
    sent: VecDeque<Vec<u8>>,
    /// Bytes of a packet whose descriptors have not all been read, and its context.
    sending: Vec<u8>,
    context: Context,
    faults: VecDeque<Fault>,
    late: Vec<WriteBack>,
    holds_write_backs: bool,
    holds_sending: bool,
    plugged: bool,
    link: bool,
    masked: bool,
    now: Nanos,
    interrupted: Nanos,
    /// Number of accesses to unmapped memory.
    dma_faults: u64,
    /// Number of times that the driver has reset the device.
    resets: u64,
}

/// A device with both its interfaces: the wire, and the driver's interfaces.
#[derive(Clone)]
pub struct Nic(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    event: OwnedFd,
}

impl core::fmt::Debug for Nic {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Nic").finish_non_exhaustive()
    }
}

impl Nic {
    /// Creates a device that has just been powered on, with a link.
    ///
    /// # Errors
    /// Error of the system if there is no event descriptor.
    pub fn new(options: Options) -> Result<Self, Errno> {
        let event = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let state = State {
            registers: RegisterFile::new(&options),
            options,
            space: Space::default(),
            fifo: VecDeque::new(),
            fifo_bytes: 0,
            sent: VecDeque::new(),
            sending: Vec::new(),
            context: Context::default(),
            faults: VecDeque::new(),
            late: Vec::new(),
            holds_write_backs: false,
            holds_sending: false,
            plugged: true,
            link: true,
            masked: true,
            now: Nanos(0),
            interrupted: Nanos(0),
            dma_faults: 0,
            resets: 0,
        };
        Ok(Self(Arc::new(Shared { state: Mutex::new(state), event })))
    }

    /// Returns a driver's access to the device.
    pub fn device(&self) -> Device {
        let seam = Arc::new(self.clone());
        Device { registers: seam.clone(), dma: seam.clone(), interrupt: seam }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `action` on the device, then raises an interrupt if due.
    fn with<T>(&self, action: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = action(&mut state);
        if state.interrupts() {
            self.ring();
        }
        result
    }

    fn ring(&self) {
        let written = rustix::io::write(&self.0.event, &1_u64.to_ne_bytes());
        debug_assert!(written.is_ok(), "an event's counter takes far more than one ring");
    }

    /// Puts a frame without FCS on the wire; returns `false` if the device is gone.
    pub fn inject(&self, frame: &[u8]) -> bool {
        self.with(|state| {
            if state.plugged {
                state.receive(frame);
            }
            state.plugged
        })
    }

    /// Takes the next sent frame, without its FCS.
    pub fn extract(&self) -> Option<Vec<u8>> {
        self.lock().sent.pop_front()
    }

    /// Plugs the cable in or out.
    pub fn set_link(&self, up: bool) {
        self.with(|state| {
            state.link = up;
            state.registers.set_link(up);
            state.cause(if state.is(Mutant::HidesLink) { 0 } else { icr::LINK });
        });
    }

    /// Unplugs the device: every register reads as all ones.
    pub fn unplug(&self) {
        self.lock().plugged = false;
        self.ring();
    }

    /// Raises an interrupt without a cause, as on a shared line.
    pub fn interrupt_for_nothing(&self) {
        self.lock().masked = true;
        self.ring();
    }

    /// Replaces the device's memory by that of a machine.
    pub fn attach(&self, memory: Vec<Window>) {
        self.lock().space = Space::of(memory);
    }

    /// True if an unmasked cause is pending: the level of the interrupt line, without the throttle.
    pub fn is_asserted(&self) -> bool {
        self.lock().is_asserted()
    }

    /// Sets the device's deviation from the manual.
    pub fn mutate(&self, mutant: Option<Mutant>) {
        self.lock().options.mutant = mutant;
    }

    /// Plans a fault for the next frame.
    pub fn plan(&self, fault: Fault) {
        self.lock().faults.push_back(fault);
    }

    /// Delays the write-back of descriptors, or does the delayed ones in order.
    pub fn hold_write_backs(&self, holds: bool) {
        self.with(|state| {
            state.holds_write_backs = holds;
            let due = if holds { Vec::new() } else { core::mem::take(&mut state.late) };
            due.into_iter().for_each(|late| state.write_back(late));
        });
    }

    /// Writes back one delayed descriptor, `choice` modulo their number; returns `false` if there is none.
    pub fn release_write_back(&self, choice: usize) -> bool {
        self.with(|state| {
            if state.late.is_empty() {
                return false;
            }
            let late = state.late.remove(choice % state.late.len());
            state.write_back(late);
            true
        })
    }

    /// Stops the device from sending, or lets it continue.
    pub fn hold_sending(&self, holds: bool) {
        self.with(|state| {
            state.holds_sending = holds;
            state.send();
        });
    }

    /// Advances the time, for throttled interrupts.
    pub fn advance(&self, time: Nanos) {
        self.with(|state| state.now = state.now + time);
    }

    /// Returns the value of a register, without the side effects of a read.
    pub fn peek(&self, register: Register<Plain>) -> u32 {
        self.lock().registers.get(register.offset)
    }

    /// Returns the number of the device's accesses to unmapped memory.
    pub fn dma_faults(&self) -> u64 {
        self.lock().dma_faults
    }

    /// Returns the number of resets of the device.
    pub fn resets(&self) -> u64 {
        self.lock().resets
    }
}

impl State {
    /// Raises interrupt causes.
    fn cause(&mut self, causes: u32) {
        let all = self.registers.get(ICR.offset) | causes;
        self.registers.set(ICR.offset, all);
    }

    fn is_asserted(&self) -> bool {
        self.registers.get(ICR.offset) & self.registers.get(IMS.offset) != 0
    }

    /// True if the interrupt occurs; it then masks itself.
    fn interrupts(&mut self) -> bool {
        if !self.is_asserted() || self.masked || !self.plugged {
            return false;
        }
        let least = Nanos(u64::from(self.registers.get(ITR.offset)) * 256);
        let throttles = self.options.throttles && !self.is(Mutant::IgnoresThrottle);
        if throttles && self.interrupted.0 > 0 && self.now < self.interrupted + least {
            return false;
        }
        (self.masked, self.interrupted) = (true, self.now);
        true
    }

    /// Writes a descriptor back, or delays that.
    fn report(&mut self, late: WriteBack) {
        if self.holds_write_backs { self.late.push(late) } else { self.write_back(late) }
    }

    fn write_back(&mut self, WriteBack { address, word, cause }: WriteBack) {
        if !self.space.store(address + 8, word) {
            self.dma_faults += 1;
        }
        self.cause(cause);
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.options.mutant == Some(mutant)
    }

    fn is_set(&self, register: Register<Plain>, bits: u32) -> bool {
        self.registers.get(register.offset) & bits != 0
    }

    fn reset(&mut self) {
        self.resets += 1;
        let link = self.link;
        self.registers.reset(&self.options, self.resets);
        self.registers.set_link(link);
        (self.fifo_bytes, self.context) = (0, Context::default());
        self.fifo.clear();
        self.sending.clear();
        self.late.clear();
    }
}

impl Registers for Nic {
    fn read32(&self, offset: u32) -> u32 {
        self.with(|state| if state.plugged { state.registers.read(offset, &state.options) } else { u32::MAX })
    }

    fn write32(&self, offset: u32, value: u32) {
        self.with(|state| {
            if !state.plugged {
                return;
            }
            state.registers.write(offset, value, &state.options);
            if offset == CTRL.offset
                && value & super::regs::ctrl::RESET != 0
                && !state.options.faulty.never_resets
            {
                state.reset();
            }
            // Any write may have added descriptors or enabled their use.
            state.fill();
            state.send();
        });
    }

    /// Advances the virtual time.
    fn pause(&self, time: Nanos) {
        self.advance(time);
    }
}

impl Dma for Nic {
    fn coherent(&self, bytes: usize) -> Result<Coherent, DmaError> {
        self.lock().space.coherent(bytes).map_err(|errno| DmaError::Memory { bytes, errno })
    }

    fn map(&self, region: &Region) -> Result<u64, DmaError> {
        let bytes = region.mapped_bytes();
        self.lock().space.map(region).map_err(|errno| match errno {
            Errno::INVAL => DmaError::SeveralFiles,
            errno => DmaError::Map { bytes, errno },
        })
    }

    fn was_refused(&self) -> bool {
        self.dma_faults() > 0
    }
}

impl Interrupt for Nic {
    fn event(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }

    fn acknowledge(&self) -> bool {
        rustix::io::read(&self.0.event, &mut [0; 8]).is_ok()
    }

    fn unmask(&self) {
        self.with(|state| state.masked = false);
    }
}
