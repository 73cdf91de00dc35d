//! PCI devices of this machine through VFIO, by which the kernel lets a process drive a device.
//!
//! | file | contents |
//! |---|---|
//! | `slot` | sysfs information on a device: driver, IOMMU group, obstacles; releasing it |
//! | `error` | reasons why a device cannot be opened |
//! | `sys` | requests, and registers as a mapping |
//! | `detour` | faults between driver and device, for judges; behind the feature `models` |
//!
//! Each device has a container of its own, which maps only the memory for descriptors and the packet memory. When
//! the process ends, for any reason, the kernel first revokes the device's access, then frees the memory.
//!
//! Source: Linux, Documentation/driver-api/vfio.rst.

#[cfg(feature = "models")]
pub mod detour;
mod error;
mod slot;
mod sys;

use error::open_file;
pub use error::{DIRECTORY, VfioError};
pub use slot::{Member, Released, Slot, release};

use super::{ALL_ONES, Address, Coherent, Device, Dma, DmaError, Interrupt, Registers, SharedMemory};
use polder_buffers::Region;
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// I/O address of the first memory for descriptors: above the low addresses of firmware and interrupts.
const COHERENT: u64 = 0x1000_0000;
/// I/O address of the packet memory: above the addresses of interrupts; the smallest IOMMUs have 39 bits.
const PACKETS: u64 = 0x1_0000_0000;
/// Offset of the command register in a device's configuration space, and its bits: memory decoding, bus
/// master, interrupt line off.
const COMMAND: u64 = 4;
const DECODES_MEMORY: u16 = 0x2;
const IS_MASTER: u16 = 0x4;
const INTERRUPT_OFF: u16 = 0x400;
/// Offset of the status register, and its bits for refused transfers: received target abort and received
/// master abort. Writing 1 clears a bit (PCI Local Bus 3.0, 6.2.3).
const STATUS: u64 = 6;
const ABORTS: u16 = 0x3000;

fn cannot(what: &'static str) -> impl Fn(Errno) -> VfioError {
    move |errno| VfioError::Request { what, errno }
}

/// One device. Fields are dropped in this order: the device loses its access before the memory is freed.
#[derive(Debug)]
struct Vfio {
    window: sys::Window,
    device: OwnedFd,
    /// True if the interrupt is a line, which has to be unmasked.
    is_line: bool,
    event: OwnedFd,
    _group: OwnedFd,
    container: OwnedFd,
    /// Offset of the configuration space in the device's file, and refused-transfer bits that were set
    /// before.
    configuration: u64,
    old_aborts: u16,
    /// Memory that the device can access.
    reached: Mutex<Reached>,
}

#[derive(Debug, Default)]
struct Reached {
    /// Bytes of memory for descriptors so far.
    coherent: u64,
    pieces: Vec<Arc<SharedMemory>>,
    packets: Option<Region>,
}

/// Opens a device that is bound to vfio-pci.
///
/// # Errors
/// [`VfioError`], whose text names the remedy.
pub fn open(address: Address) -> Result<Device, VfioError> {
    let slot = Slot::find(address)?;
    let group = match slot.obstacle() {
        Some(obstacle) => return Err(obstacle),
        None => slot.group().ok_or(VfioError::NoIommu(address))?,
    };
    let container =
        open_file(&Path::new(DIRECTORY).join("vfio"), &|| VfioError::Permission("/dev/vfio/vfio".into()))?;
    if !sys::is_known(&container).map_err(cannot("report its version"))? {
        return Err(VfioError::OldVfio);
    }
    let group_file = slot::open_group(address, group)?;
    let flags = sys::group_flags(&group_file).map_err(cannot("report the state of a group"))?;
    if flags & sys::VFIO_GROUP_FLAGS_VIABLE == 0 {
        return Err(VfioError::Shared { address, group, others: slot.others() });
    }
    sys::set_container(&group_file, &container).map_err(cannot("put a group into a container"))?;
    sys::set_iommu(&container).map_err(|errno| match errno {
        Errno::PERM => VfioError::Remapping,
        errno => VfioError::Request { what: "use the IOMMU", errno },
    })?;
    let vfio = Arc::new(Vfio::new(address, container, group_file)?);
    let device = Device {
        registers: Arc::clone(&vfio) as Arc<dyn Registers>,
        dma: Arc::clone(&vfio) as Arc<dyn Dma>,
        interrupt: vfio,
    };
    #[cfg(feature = "models")]
    let device = detour::through(device);
    Ok(device)
}

impl Vfio {
    fn new(address: Address, container: OwnedFd, group: OwnedFd) -> Result<Self, VfioError> {
        let name = CString::new(address.to_string()).map_err(|_| VfioError::Missing(address))?;
        let device = sys::open_device(&group, &name).map_err(cannot("open the device"))?;
        let flags = sys::device_flags(&device).map_err(cannot("report the type of the device"))?;
        if flags & sys::VFIO_DEVICE_FLAGS_RESET != 0 {
            sys::reset(&device).map_err(cannot("reset the device"))?;
        }
        let (flags, offset, size) = sys::region(&device, sys::BAR_0).map_err(cannot("find registers"))?;
        let length = usize::try_from(size).unwrap_or(0);
        if flags & sys::VFIO_REGION_INFO_FLAG_MMAP == 0 || length == 0 {
            return Err(VfioError::Lacks { address, what: "window of registers" });
        }
        let window = sys::Window::new(&device, offset, length).map_err(cannot("map registers"))?;
        let event = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let event = event.map_err(cannot("create an event descriptor"))?;
        let has = |index| sys::has_interrupt(&device, index).map_err(cannot("find interrupts"));
        let (index, is_line) = if has(sys::INTX)? {
            (sys::INTX, true)
        } else if has(sys::MSI)? {
            (sys::MSI, false)
        } else {
            return Err(VfioError::Lacks { address, what: "interrupt" });
        };
        let reached = Mutex::default();
        let (_, configuration, _) =
            sys::region(&device, sys::CONFIGURATION).map_err(cannot("find the configuration"))?;
        let mut vfio = Self {
            window,
            device,
            is_line,
            event,
            _group: group,
            container,
            configuration,
            old_aborts: 0,
            reached,
        };
        vfio.let_transfer().map_err(cannot("enable DMA"))?;
        sys::set_interrupt(&vfio.device, index, vfio.event.as_fd()).map_err(cannot("set an interrupt"))?;
        Ok(vfio)
    }

    /// Enables memory decoding, transfers and interrupts of the device.
    fn let_transfer(&mut self) -> Result<(), Errno> {
        let command = self.configured(COMMAND)? & !INTERRUPT_OFF | DECODES_MEMORY | IS_MASTER;
        self.configure(ABORTS, STATUS)?;
        self.old_aborts = self.configured(STATUS)? & ABORTS;
        self.configure(command, COMMAND)
    }

    fn configured(&self, place: u64) -> Result<u16, Errno> {
        let mut value = [0; 2];
        rustix::io::pread(&self.device, &mut value, self.configuration + place)?;
        Ok(u16::from_le_bytes(value))
    }

    fn configure(&self, value: u16, place: u64) -> Result<(), Errno> {
        rustix::io::pwrite(&self.device, &value.to_le_bytes(), self.configuration + place).map(drop)
    }

    fn reached(&self) -> std::sync::MutexGuard<'_, Reached> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registers for Vfio {
    #[inline]
    fn read32(&self, offset: u32) -> u32 {
        self.window.read32(offset)
    }

    #[inline]
    fn write32(&self, offset: u32, value: u32) {
        self.window.write32(offset, value);
    }
}

impl Dma for Vfio {
    fn coherent(&self, bytes: usize) -> Result<Coherent, DmaError> {
        let no_memory = |errno| DmaError::Memory { bytes, errno };
        let memory = Arc::new(SharedMemory::new(bytes).map_err(no_memory)?);
        let mut reached = self.reached();
        let (address, length) = (COHERENT + reached.coherent, memory.bytes().len());
        sys::map(&self.container, memory.address(), length, address)
            .map_err(|errno| DmaError::Map { bytes: length, errno })?;
        reached.coherent += length as u64;
        reached.pieces.push(Arc::clone(&memory));
        Coherent::new(memory, 0, length, address).ok_or_else(|| no_memory(Errno::INVAL))
    }

    fn map(&self, region: &Region) -> Result<u64, DmaError> {
        let bytes = region.mapped_bytes();
        sys::map(&self.container, region.base_address(), bytes, PACKETS)
            .map_err(|errno| DmaError::Map { bytes, errno })?;
        self.reached().packets = Some(region.clone());
        Ok(PACKETS)
    }

    /// A device that is gone reads as all ones, which is a different error.
    fn was_refused(&self) -> bool {
        let status = self.configured(STATUS).unwrap_or_default();
        status != u16::MAX && status & ABORTS & !self.old_aborts != 0
    }
}

impl Interrupt for Vfio {
    fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn acknowledge(&self) -> bool {
        rustix::io::read(&self.event, &mut [0; 8]).is_ok()
    }

    /// A message-signalled interrupt is never masked: the device sends it for each enabled cause.
    fn unmask(&self) {
        if self.is_line && sys::unmask(&self.device).is_err() && self.window.read32(0) == ALL_ONES {
            // A device that is gone sends no interrupt, so its worker is woken to notice.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }
}
