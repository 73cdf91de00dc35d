//! The guest's side: a gadget by configfs on `dummy_hcd`, given to `usbip-host` for whoever connects.
//!
//! Source: Linux, Documentation/usb/gadget_configfs.rst, Documentation/usb/usbip_protocol.rst.

use anyhow::{Context as _, bail, ensure};
use rustix::mount::{MountFlags, mount};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

/// File system in which the gadget is made.
const CONFIGFS: &str = "/sys/kernel/config";
const GADGET: &str = "/sys/kernel/config/usb_gadget/judge";
/// File that connects the gadget to the device controller, and disconnects it.
pub const CONTROLLER: &str = "/sys/kernel/config/usb_gadget/judge/UDC";
/// The device controller of `dummy_hcd`.
pub const DUMMY: &str = "dummy_udc.0";
/// The gadget as a USB device of the same machine.
pub const BUSID: &str = "1-1";
/// Port of USB/IP in the guest.
pub const PORT: u16 = 3240;
/// Address of the gadget's own interface.
pub const OWN_MAC: &str = "02:00:00:00:77:01";
/// Address that the gadget gives the host.
pub const HOST_MAC: &str = "02:00:00:00:77:02";
/// Vendor and product.
pub const IDENTITY: (u16, u16) = (0x0525, 0xa4a1);
const DRIVERS: &str = "/sys/bus/usb/drivers";
/// A device of `usbip-host` that nobody has.
const AVAILABLE: &str = "1";
/// Pause between two looks, and how many there are.
const PAUSE: Duration = Duration::from_millis(20);
const LOOKS: u32 = 500;

/// Makes a gadget with that function (`ncm` or `ecm`) and exports it until the process ends.
///
/// # Errors
/// When a step fails.
pub fn main(function: &str) -> anyhow::Result<()> {
    make(function)?;
    let listener = TcpListener::bind(("0.0.0.0", PORT)).context("cannot listen for USB/IP")?;
    for stream in listener.incoming() {
        // A client that goes in the middle of its request harms none but itself.
        let _ = stream.map_err(Into::into).and_then(serve);
    }
    Ok(())
}

fn write(path: impl AsRef<Path>, text: &str) -> anyhow::Result<()> {
    let path = path.as_ref();
    fs::write(path, text).with_context(|| format!("cannot write `{text}` to {}", path.display()))
}

fn read(name: &str) -> anyhow::Result<String> {
    let path = format!("/sys/bus/usb/devices/{BUSID}/{name}");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(text.trim().to_owned())
}

fn make(function: &str) -> anyhow::Result<()> {
    mount("configfs", CONFIGFS, "configfs", MountFlags::empty(), None).context("cannot mount configfs")?;
    let gadget = Path::new(GADGET);
    let instance = format!("functions/{function}.usb0");
    for directory in ["", "strings/0x409", "configs/c.1", &instance] {
        let path = gadget.join(directory);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    write(gadget.join("idVendor"), &format!("{:#06x}", IDENTITY.0))?;
    write(gadget.join("idProduct"), &format!("{:#06x}", IDENTITY.1))?;
    write(gadget.join("strings/0x409/serialnumber"), "1")?;
    write(gadget.join(&instance).join("dev_addr"), OWN_MAC)?;
    write(gadget.join(&instance).join("host_addr"), HOST_MAC)?;
    symlink(gadget.join(&instance), gadget.join("configs/c.1/function"))
        .context("cannot add the function")?;
    write(CONTROLLER, DUMMY)
}

/// Gives the device to `usbip-host`, once it is there and that has none.
fn bind() -> anyhow::Result<()> {
    for _ in 0..LOOKS {
        if read("usbip_status").is_ok_and(|status| status == AVAILABLE) {
            return Ok(());
        }
        if read("usbip_status").is_err() && read("bConfigurationValue").is_ok() {
            // One that is listed already, or not bound, is as wanted.
            let _ = fs::write(format!("{DRIVERS}/usbip-host/match_busid"), format!("add {BUSID}"));
            let _ = fs::write(format!("{DRIVERS}/usb/unbind"), BUSID);
            let _ = fs::write(format!("{DRIVERS}/usbip-host/bind"), BUSID);
        }
        std::thread::sleep(PAUSE);
    }
    bail!("usbip-host does not take the device")
}

/// Answers one client: its list, or the device with which the kernel goes on.
fn serve(mut stream: TcpStream) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    ensure!(head[..3] == [1, 0x11, 0x80], "another protocol");
    let bound = bind();
    if head[3] == 5 {
        let record = bound.and_then(|()| record());
        stream.write_all(&[1, 0x11, 0, 5, 0, 0, 0, 0, 0, 0, 0, u8::from(record.is_ok())])?;
        let Ok(record) = record else { return Ok(()) };
        stream.write_all(&record)?;
        for number in 0..record[311] {
            let class = |name: &str| interface_byte(number, name);
            let bytes = [class("Class"), class("SubClass"), class("Protocol"), 0];
            stream.write_all(&bytes)?;
        }
        return Ok(());
    }
    stream.read_exact(&mut [0; 32])?;
    match bound.and_then(|()| record()) {
        Ok(record) => {
            stream.write_all(&[&[1, 0x11, 0, 3, 0, 0, 0, 0][..], &record].concat())?;
            // The kernel keeps the connection when this process closes it.
            write(format!("/sys/bus/usb/devices/{BUSID}/usbip_sockfd"), &stream.as_raw_fd().to_string())
        }
        Err(error) => {
            stream.write_all(&[1, 0x11, 0, 3, 0, 0, 0, 1])?;
            Err(error)
        }
    }
}

fn interface_byte(number: u8, name: &str) -> u8 {
    // The interfaces of a device that usbip-host has stay in sysfs.
    let text = read(&format!("{BUSID}:1.{number}/bInterface{name}")).unwrap_or_default();
    u8::from_str_radix(&text, 16).unwrap_or(0)
}

/// The device as USB/IP describes it.
fn record() -> anyhow::Result<Vec<u8>> {
    let mut bytes = format!("/sys/devices/{BUSID}").into_bytes();
    bytes.resize(256, 0);
    bytes.extend(BUSID.bytes());
    bytes.resize(288, 0);
    let speed = match read("speed")?.as_str() {
        "480" => 3_u32,
        "5000" => 5,
        other => bail!("a bus of {other} Mbit/s"),
    };
    for word in [read("busnum")?.parse()?, read("devnum")?.parse()?, speed] {
        bytes.extend(word.to_be_bytes());
    }
    for half in ["idVendor", "idProduct", "bcdDevice"] {
        bytes.extend(u16::from_str_radix(&read(half)?, 16)?.to_be_bytes());
    }
    for byte in ["bDeviceClass", "bDeviceSubClass", "bDeviceProtocol"] {
        bytes.push(u8::from_str_radix(&read(byte)?, 16)?);
    }
    for byte in ["bConfigurationValue", "bNumConfigurations", "bNumInterfaces"] {
        // A device that usbip-host has is not configured until its client does it.
        bytes.push(read(byte)?.trim().parse().unwrap_or(0));
    }
    Ok(bytes)
}
