//! A PCI device of a guest that is a process of its own: the device behind QEMU's `x-pci-proxy-dev`.
//!
//! Source: QEMU 7.2, docs/system/multi-process.rst; docs/devel/qtest.rst.

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::path::Path;

/// Slot of the device: the first interrupt pin of this slot has a line of the I/O APIC of its own.
const SLOT: u32 = 3;

/// Ways between the emulator and a device outside of it.
#[derive(Clone, Copy, Debug)]
pub struct Remote<'a> {
    /// The emulator's end of the connection to the device, which the emulator inherits: no CLOEXEC.
    pub connection: BorrowedFd<'a>,
    /// The socket at which the device listens for the emulator's test protocol, by which it moves its interrupt
    /// line: QEMU has another way with KVM alone.
    pub test_protocol: &'a Path,
}

impl Remote<'_> {
    /// The guest's address of the device on its bus.
    pub const ADDRESS: &'static str = "0000:00:03.0";

    /// Emulator arguments for the machine: its memory is a file that the device maps.
    pub(super) fn machine(&self, memory_mib: u32) -> Vec<String> {
        let memory = format!("memory-backend-memfd,id=ram,size={memory_mib}M,share=on,seal=on");
        ["-object", &memory, "-machine", "q35,memory-backend=ram"].map(str::to_owned).to_vec()
    }

    /// Emulator arguments for the device.
    pub(super) fn device(&self) -> Vec<String> {
        let connection = self.connection.as_raw_fd();
        let device = format!("x-pci-proxy-dev,id=remote,fd={connection},addr={SLOT}");
        let socket = format!("socket,id=test,path={}", self.test_protocol.display());
        let test = "qtest,id=test0,chardev=test,log=/dev/null";
        ["-device", &device, "-chardev", &socket, "-object", test].map(str::to_owned).to_vec()
    }
}
