//! The requests of VFIO, and a device's registers as a mapping; the functions that this file exports are safe
//! to call.
//!
//! Source: Linux, include/uapi/linux/vfio.h; Documentation/driver-api/vfio.rst.
#![expect(unsafe_code, reason = "UNSAFETY: an ioctl is untyped, and registers are memory of a device")]

use core::ffi::CStr;
use core::ptr::NonNull;
#[cfg(not(target_arch = "aarch64"))]
use core::sync::atomic::{Ordering, fence};
use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd};
use vfio_bindings::bindings::vfio as raw;

pub(super) use raw::{
    VFIO_DEVICE_FLAGS_RESET, VFIO_GROUP_FLAGS_VIABLE, VFIO_PCI_BAR0_REGION_INDEX as BAR_0,
    VFIO_PCI_CONFIG_REGION_INDEX as CONFIGURATION, VFIO_PCI_INTX_IRQ_INDEX as INTX,
    VFIO_PCI_MSI_IRQ_INDEX as MSI, VFIO_REGION_INFO_FLAG_MMAP,
};

/// Numbers of requests, from [`raw::VFIO_BASE`] on.
const GET_API_VERSION: u32 = 0;
const CHECK_EXTENSION: u32 = 1;
const SET_IOMMU: u32 = 2;
const GROUP_GET_STATUS: u32 = 3;
const GROUP_SET_CONTAINER: u32 = 4;
const GROUP_GET_DEVICE_FD: u32 = 6;
const DEVICE_GET_INFO: u32 = 7;
const DEVICE_GET_REGION_INFO: u32 = 8;
const DEVICE_GET_IRQ_INFO: u32 = 9;
const DEVICE_SET_IRQS: u32 = 10;
const DEVICE_RESET: u32 = 11;
const IOMMU_MAP_DMA: u32 = 13;

/// `struct vfio_irq_set` with room for one descriptor.
#[repr(C)]
struct IrqSet {
    argsz: u32,
    flags: u32,
    index: u32,
    start: u32,
    count: u32,
    event: i32,
}

/// Bytes of [`IrqSet`] without the descriptor.
const IRQ_SET_HEAD: u32 = 20;
const _: () = assert!(size_of::<raw::vfio_irq_set>() == IRQ_SET_HEAD as usize);

/// True if the kernel's VFIO has the expected version, and the type 1 v2 IOMMU.
pub(super) fn is_known(container: impl AsFd) -> Result<bool> {
    let version = number(&container, GET_API_VERSION, 0)?;
    let extension = number(&container, CHECK_EXTENSION, raw::VFIO_TYPE1v2_IOMMU)?;
    Ok(u32::try_from(version) == Ok(raw::VFIO_API_VERSION) && extension == 1)
}

/// Returns the flags of a group.
pub(super) fn group_flags(group: impl AsFd) -> Result<u32> {
    let mut status = raw::vfio_group_status { argsz: size::<raw::vfio_group_status>(), flags: 0 };
    call(group, GROUP_GET_STATUS, &mut status)?;
    Ok(status.flags)
}

/// Puts a group into a container.
pub(super) fn set_container(group: impl AsFd, container: impl AsFd) -> Result<()> {
    call(group, GROUP_SET_CONTAINER, &mut container.as_fd().as_raw_fd()).map(drop)
}

/// Selects the IOMMU type of the container.
pub(super) fn set_iommu(container: impl AsFd) -> Result<()> {
    number(container, SET_IOMMU, raw::VFIO_TYPE1v2_IOMMU).map(drop)
}

/// Opens the device named `name`.
pub(super) fn open_device(group: impl AsFd, name: &CStr) -> Result<OwnedFd> {
    let request = request(GROUP_GET_DEVICE_FD);
    // SAFETY: (1) the request reads a string that ends with a zero byte, which `CStr` has; (2) it is not kept.
    let file = checked(unsafe { libc::ioctl(group.as_fd().as_raw_fd(), request, name.as_ptr()) })?;
    // SAFETY: (1) the request returns a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Returns the flags of a device.
pub(super) fn device_flags(device: impl AsFd) -> Result<u32> {
    let argsz = size::<raw::vfio_device_info>();
    let mut info = raw::vfio_device_info { argsz, ..raw::vfio_device_info::default() };
    call(device, DEVICE_GET_INFO, &mut info)?;
    Ok(info.flags)
}

/// Returns flags, offset in the device's file, and size of a region.
pub(super) fn region(device: impl AsFd, index: u32) -> Result<(u32, u64, u64)> {
    let argsz = size::<raw::vfio_region_info>();
    let mut info = raw::vfio_region_info { argsz, index, ..raw::vfio_region_info::default() };
    call(device, DEVICE_GET_REGION_INFO, &mut info)?;
    Ok((info.flags, info.offset, info.size))
}

/// True if the device has an interrupt of that kind.
pub(super) fn has_interrupt(device: impl AsFd, index: u32) -> Result<bool> {
    let argsz = size::<raw::vfio_irq_info>();
    let mut info = raw::vfio_irq_info { argsz, index, ..raw::vfio_irq_info::default() };
    call(device, DEVICE_GET_IRQ_INFO, &mut info)?;
    Ok(info.count > 0 && info.flags & raw::VFIO_IRQ_INFO_EVENTFD != 0)
}

/// Lets an interrupt signal an eventfd.
pub(super) fn set_interrupt(device: impl AsFd, index: u32, event: BorrowedFd<'_>) -> Result<()> {
    let flags = raw::VFIO_IRQ_SET_DATA_EVENTFD | raw::VFIO_IRQ_SET_ACTION_TRIGGER;
    let event = event.as_raw_fd();
    let mut set = IrqSet { argsz: size::<IrqSet>(), flags, index, start: 0, count: 1, event };
    call(device, DEVICE_SET_IRQS, &mut set).map(drop)
}

/// Unmasks a device's interrupt line.
pub(super) fn unmask(device: impl AsFd) -> Result<()> {
    let flags = raw::VFIO_IRQ_SET_DATA_NONE | raw::VFIO_IRQ_SET_ACTION_UNMASK;
    let mut set = IrqSet { argsz: IRQ_SET_HEAD, flags, index: INTX, start: 0, count: 1, event: -1 };
    call(device, DEVICE_SET_IRQS, &mut set).map(drop)
}

/// Resets a device.
pub(super) fn reset(device: impl AsFd) -> Result<()> {
    number(device, DEVICE_RESET, 0).map(drop)
}

/// Maps memory of this process for a container's devices at `io_address`. The pages are pinned until the
/// container is closed, so the device writes to no other memory, even after an unmap here.
pub(super) fn map(container: impl AsFd, memory: *mut u8, bytes: usize, io_address: u64) -> Result<()> {
    let mut map = raw::vfio_iommu_type1_dma_map {
        argsz: size::<raw::vfio_iommu_type1_dma_map>(),
        flags: raw::VFIO_DMA_MAP_FLAG_READ | raw::VFIO_DMA_MAP_FLAG_WRITE,
        vaddr: memory.expose_provenance() as u64,
        iova: io_address,
        size: bytes as u64,
    };
    call(container, IOMMU_MAP_DMA, &mut map).map(drop)
}

/// Mapped registers of a device.
#[derive(Debug)]
pub(super) struct Window {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the pointer leads into a mapping that lives as long as the value; accesses are single 32-bit loads and stores
// of device memory, which any thread may make.
unsafe impl Send for Window {}
// SAFETY: as for `Send`.
unsafe impl Sync for Window {}

impl Window {
    /// Maps `length` bytes of a device's file.
    pub(super) fn new(device: impl AsFd, offset: u64, length: usize) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: (1) a null hint without MAP_FIXED never replaces a mapping that exists (mmap(2)).
        let base = unsafe {
            rustix::mm::mmap(core::ptr::null_mut(), length, protection, MapFlags::SHARED, device, offset)
        }?;
        Ok(Self { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, length })
    }

    fn register(&self, offset: u32) -> *mut u32 {
        let offset = offset as usize;
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.length, "a register of this device");
        // SAFETY: (1) the offset lies in the mapping, which was looked at above.
        unsafe { self.base.as_ptr().add(offset) }.cast()
    }

    /// Reads a register. The device's earlier writes to memory are visible afterwards.
    #[inline]
    pub(super) fn read32(&self, offset: u32) -> u32 {
        let register = self.register(offset);
        // SAFETY: (1) `register` is in the mapping and aligned; (2) registers are of 32 bits, little-endian.
        let value = u32::from_le(unsafe { register.read_volatile() });
        // Pairs with the order of the bus: the device's writes precede its answer.
        order_after_read();
        value
    }

    /// Writes a register. Earlier writes to memory are visible to the device.
    #[inline]
    pub(super) fn write32(&self, offset: u32, value: u32) {
        let register = self.register(offset);
        // Pairs with the device's memory reads after it has seen the write.
        order_before_write();
        // SAFETY: as for `read32`.
        unsafe { register.write_volatile(value.to_le()) };
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: (1) `new` made exactly this mapping; (2) its owner is being dropped.
        let result = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
        debug_assert!(result.is_ok(), "munmap of a mapping of our own");
    }
}

/// Orders memory accesses after an earlier register read.
#[inline(always)]
fn order_after_read() {
    #[cfg(not(target_arch = "aarch64"))]
    fence(Ordering::Acquire);
    // A fence of the language works among processors only (DMB ISHLD); a device is outside their shareability
    // domain. Source: Linux, arch/arm64/include/asm/io.h, `__iormb`; arch/arm64/include/asm/barrier.h,
    // `dma_rmb`.
    #[cfg(target_arch = "aarch64")]
    // SAFETY: (1) a barrier changes neither memory nor registers (Arm ARM, DDI 0487, C6.2, DMB).
    unsafe {
        core::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
}

/// Orders a register write after earlier memory accesses.
#[inline(always)]
fn order_before_write() {
    #[cfg(not(target_arch = "aarch64"))]
    fence(Ordering::Release);
    // As above. Memory reads are ordered before the write too: it may give the memory to the device. Source:
    // Linux, arch/arm64/include/asm/io.h, `__iowmb`, which orders writes only.
    #[cfg(target_arch = "aarch64")]
    // SAFETY: (1) as above.
    unsafe {
        core::arch::asm!("dmb osh", options(nostack, preserves_flags));
    }
}

/// Returns the size of a structure, for its first field.
fn size<T>() -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(0)
}

/// `_IO(VFIO_TYPE, VFIO_BASE + number)`, the form of all VFIO requests.
fn request(number: u32) -> libc::Ioctl {
    (u32::from(raw::VFIO_TYPE) << 8 | (raw::VFIO_BASE + number)) as libc::Ioctl
}

/// Does a request whose argument is a number.
fn number(file: impl AsFd, number: u32, argument: u32) -> Result<libc::c_int> {
    let argument = libc::c_ulong::from(argument);
    // SAFETY: (1) every caller names a request that takes its argument by value, or none (vfio.h).
    checked(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), request(number), argument) })
}

/// Does a request that reads or writes `argument`.
fn call<T>(file: impl AsFd, number: u32, argument: &mut T) -> Result<libc::c_int> {
    let argument = core::ptr::from_mut(argument);
    // SAFETY: (1) every caller passes the structure that its request has in vfio.h, with its size in the first field,
    // beyond which the kernel writes nothing, or the `int` of GROUP_SET_CONTAINER; (2) the kernel does not keep it.
    checked(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), request(number), argument) })
}

fn checked(result: libc::c_int) -> Result<libc::c_int> {
    if result >= 0 {
        return Ok(result);
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
