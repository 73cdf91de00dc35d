//! System calls without a safe crate: the ioctls of TUN/TAP and of interfaces.

use crate::netlink::link::LinkLayer;
use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Maximum length of an interface name in bytes.
pub(super) const NAME_BYTES: usize = libc::IFNAMSIZ - 1;

/// The reader accepts partial checksums.
pub(super) const CHECKSUM: u32 = libc::TUN_F_CSUM;
/// The reader accepts TCP super-packets.
pub(super) const TCP_SEGMENTS: u32 = libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
/// The reader accepts UDP super-packets; Linux 6.2 and later.
pub(super) const UDP_SEGMENTS: u32 = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// The reader accepts super-packets in tunnels over UDP, with and without an outer checksum; Linux 6.17 and
/// later (`TUN_F_UDP_TUNNEL_GSO`, `TUN_F_UDP_TUNNEL_GSO_CSUM` of linux/if_tun.h).
pub(super) const TUNNEL_SEGMENTS: u32 = 0x080 | 0x100;

/// `TUNSETSTEERINGEBPF` (linux/if_tun.h).
const SET_STEERING: libc::Ioctl = 0x8004_54e0_u32 as libc::Ioctl;

/// `TUNSETCARRIER` (linux/if_tun.h).
const SET_CARRIER: libc::Ioctl = 0x4004_54e2_u32 as libc::Ioctl;

/// `struct ifreq` as bytes, so that no field is undefined or misread.
///
/// Source: netdevice(7); include/uapi/linux/if.h.
#[repr(C, align(8))]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    value: [u8; 24],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::ifreq>());

/// Attaches the file to the TAP `name`, or for `layer` [`LinkLayer::Packets`] to the TUN interface, which is created
/// if it does not exist; returns its full name.
pub(super) fn attach(file: impl AsFd, name: &str, (layer, multi_queue): (LinkLayer, bool)) -> Result<String> {
    let queues = if multi_queue { libc::IFF_MULTI_QUEUE } else { 0 };
    let kind = match layer {
        LinkLayer::Ethernet => libc::IFF_TAP,
        LinkLayer::Packets => libc::IFF_TUN,
    };
    set_interface(file, name, kind | queues)
}

fn set_interface(file: impl AsFd, name: &str, flags: libc::c_int) -> Result<String> {
    let flags = flags | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    let flags = u16::try_from(flags).map_err(|_| Errno::INVAL)?;
    let mut request = Request::new(name, &flags.to_ne_bytes())?;
    call(file, libc::TUNSETIFF, &mut request)?;
    Ok(request.text())
}

/// Returns the name of the file's TAP.
pub(super) fn name(file: impl AsFd) -> Result<String> {
    let mut request = Request::new("", &[])?;
    call(file, libc::TUNGETIFF, &mut request)?;
    Ok(request.text())
}

/// Sets the size of the header before each packet.
pub(super) fn set_header_bytes(file: impl AsFd, bytes: i32) -> Result<()> {
    call(file, libc::TUNSETVNETHDRSZ, &mut { bytes })
}

/// Sets the offloads that the file's reader accepts.
#[expect(unsafe_code, reason = "UNSAFETY: an ioctl is untyped")]
pub(super) fn set_offloads(file: impl AsFd, bits: u32) -> Result<()> {
    // SAFETY: (1) TUNSETOFFLOAD takes its argument by value (drivers/net/tun.c, `set_offload`).
    checked(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(bits)) })
}

/// Sets a socket filter program that chooses the queue of each packet: its result modulo the number of
/// queues.
pub(super) fn set_steering(file: impl AsFd, program: BorrowedFd<'_>) -> Result<()> {
    call(file, SET_STEERING, &mut program.as_raw_fd())
}

/// Sets the carrier of the file's interface.
pub(super) fn set_carrier(file: impl AsFd, is_on: bool) -> Result<()> {
    call(file, SET_CARRIER, &mut libc::c_int::from(is_on))
}

/// Returns the MAC address of the file's interface.
pub(super) fn hardware_address(file: impl AsFd) -> Result<[u8; 6]> {
    let mut request = Request::new("", &[])?;
    call(file, libc::SIOCGIFHWADDR as _, &mut request)?;
    let [_, _, a, b, c, d, e, f, ..] = request.value;
    Ok([a, b, c, d, e, f])
}

/// Sets the MAC address of the file's interface.
pub(super) fn set_hardware_address(file: impl AsFd, address: [u8; 6]) -> Result<()> {
    let [family_0, family_1] = libc::ARPHRD_ETHER.to_ne_bytes();
    let [a, b, c, d, e, f] = address;
    let mut request = Request::new("", &[family_0, family_1, a, b, c, d, e, f])?;
    call(file, libc::SIOCSIFHWADDR as _, &mut request)
}

/// Returns the MTU of interface `name`; any socket will do.
pub(super) fn mtu(socket: impl AsFd, name: &str) -> Result<u32> {
    let mut request = Request::new(name, &[])?;
    call(socket, libc::SIOCGIFMTU as _, &mut request)?;
    let [a, b, c, d, ..] = request.value;
    Ok(u32::from_ne_bytes([a, b, c, d]))
}

/// Sets the MTU of interface `name`; any socket will do.
pub(super) fn set_mtu(socket: impl AsFd, name: &str, mtu: u32) -> Result<()> {
    let mut request = Request::new(name, &mtu.to_ne_bytes())?;
    call(socket, libc::SIOCSIFMTU as _, &mut request)
}

impl Request {
    /// Creates a request about the interface `name`.
    fn new(name: &str, value: &[u8]) -> Result<Self> {
        if name.len() > NAME_BYTES {
            return Err(Errno::NAMETOOLONG);
        }
        let mut request = Self { name: [0; libc::IFNAMSIZ], value: [0; 24] };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        request.value[..value.len()].copy_from_slice(value);
        Ok(request)
    }

    /// Returns the interface's name.
    fn text(&self) -> String {
        let end = self.name.iter().position(|&byte| byte == 0).unwrap_or(libc::IFNAMSIZ);
        String::from_utf8_lossy(&self.name[..end]).into_owned()
    }
}

/// Does one ioctl that reads or writes `argument`.
#[expect(unsafe_code, reason = "UNSAFETY: an ioctl is untyped")]
fn call<T>(file: impl AsFd, request: libc::Ioctl, argument: &mut T) -> Result<()> {
    // SAFETY: (1) every caller passes the type that its request reads and writes: `ifreq` for
    // TUNSETIFF, TUNGETIFF and SIOC* (netdevice(7)), `int` for TUNSETVNETHDRSZ, TUNSETSTEERINGEBPF and
    // TUNSETCARRIER (drivers/net/tun.c); (2) the kernel does not keep the pointer.
    checked(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), request, core::ptr::from_mut(argument)) })
}

fn checked(result: libc::c_int) -> Result<()> {
    if result >= 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
