//! The guest's side of Linux's `usbip-host`: it exports a USB device of the guest to any client.
//!
//! Source: Linux, Documentation/usb/usbip_protocol.rst.

use anyhow::{Context as _, bail, ensure};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::Duration;

/// Port of USB/IP in the guest.
pub const PORT: u16 = 3240;
const DRIVERS: &str = "/sys/bus/usb/drivers";
/// A device of `usbip-host` that no client has attached.
const AVAILABLE: &str = "1";
/// Pause between two looks, and how many there are.
const PAUSE: Duration = Duration::from_millis(20);
const LOOKS: u32 = 500;
/// Bytes of a device's name.
const NAME: usize = 32;

/// Exports devices until the process ends: the one that is asked for; `listed` to those who ask for a list.
///
/// # Errors
/// When a step fails.
pub fn main(listed: &str) -> anyhow::Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).context("cannot listen for USB/IP")?;
    for stream in listener.incoming() {
        // A client that goes in the middle of its request harms none but itself.
        let _ = stream.map_err(Into::into).and_then(|stream| serve(stream, listed));
    }
    Ok(())
}

/// Writes a file.
pub(super) fn write(path: impl AsRef<Path>, text: &str) -> anyhow::Result<()> {
    let path = path.as_ref();
    fs::write(path, text).with_context(|| format!("cannot write `{text}` to {}", path.display()))
}

fn read(device: &str, name: &str) -> anyhow::Result<String> {
    let path = format!("/sys/bus/usb/devices/{device}/{name}");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(text.trim().to_owned())
}

/// Binds the device to `usbip-host` once it exists and has no driver.
fn bind(device: &str) -> anyhow::Result<()> {
    for _ in 0..LOOKS {
        if read(device, "usbip_status").is_ok_and(|status| status == AVAILABLE) {
            return Ok(());
        }
        if read(device, "usbip_status").is_err() && read(device, "bConfigurationValue").is_ok() {
            // One that is listed already, or not bound, is as wanted.
            let _ = fs::write(format!("{DRIVERS}/usbip-host/match_busid"), format!("add {device}"));
            let _ = fs::write(format!("{DRIVERS}/usb/unbind"), device);
            let _ = fs::write(format!("{DRIVERS}/usbip-host/bind"), device);
        }
        std::thread::sleep(PAUSE);
    }
    bail!("usbip-host does not take the device")
}

/// Answers one client: its list, or the device with which the kernel goes on.
fn serve(mut stream: TcpStream, listed: &str) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    ensure!(head[..3] == [1, 0x11, 0x80], "another protocol");
    if head[3] == 5 {
        let record = bind(listed).and_then(|()| record(listed));
        stream.write_all(&[1, 0x11, 0, 5, 0, 0, 0, 0, 0, 0, 0, u8::from(record.is_ok())])?;
        let Ok(record) = record else { return Ok(()) };
        stream.write_all(&record)?;
        for number in 0..record[311] {
            let class = |name: &str| interface_byte(listed, number, name);
            let bytes = [class("Class"), class("SubClass"), class("Protocol"), 0];
            stream.write_all(&bytes)?;
        }
        return Ok(());
    }
    let mut name = [0; NAME];
    stream.read_exact(&mut name)?;
    let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
    let is_name = name.bytes().all(|byte| byte.is_ascii_digit() || b".-".contains(&byte));
    ensure!(is_name && !name.is_empty(), "no name of a device");
    match bind(&name).and_then(|()| record(&name)) {
        Ok(record) => {
            stream.write_all(&[&[1, 0x11, 0, 3, 0, 0, 0, 0][..], &record].concat())?;
            // The kernel keeps the connection when this process closes it.
            let file = format!("/sys/bus/usb/devices/{name}/usbip_sockfd");
            write(file, &stream.as_raw_fd().to_string())
        }
        Err(error) => {
            stream.write_all(&[1, 0x11, 0, 3, 0, 0, 0, 1])?;
            Err(error)
        }
    }
}

fn interface_byte(device: &str, number: u8, name: &str) -> u8 {
    // The interfaces of a device that usbip-host has stay in sysfs.
    let text = read(device, &format!("{device}:1.{number}/bInterface{name}")).unwrap_or_default();
    u8::from_str_radix(&text, 16).unwrap_or(0)
}

/// The device as USB/IP describes it.
fn record(device: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = format!("/sys/devices/{device}").into_bytes();
    bytes.resize(256, 0);
    bytes.extend(device.bytes());
    bytes.resize(256 + NAME, 0);
    let read = |name| read(device, name);
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
