//! `usb = "…"` and `usbip = "…"` in a port: a USB network function whose driver follows from its descriptors.

use super::lan78xx::{AdapterLocation, bus_id, server};
use super::notation::{Text, text as shown};
use super::section::Refusal;
use super::values::text;
use serde::{Serialize, Serializer};
use std::fmt;
use toml::de::DeValue;

/// Port of USB/IP servers.
const SERVER_PORT: u16 = 3240;
const USB_REMEDY: &str = "write the USB port as in \"1-1.4\" (`ls /sys/bus/usb/devices` shows them), or vendor and \
                          product as in \"0525:a4a1\" (`lsusb` shows them)";
const USBIP_REMEDY: &str = "write host and bus id as in \"192.0.2.1/1-1\", a port of its own as in \
                            \"192.0.2.1:3240/1-1\", or a socket as in \"/run/usbip.sock/1-1\"";

/// Notations of the two keys.
pub(super) const USB: Text<UsbPlace> = shown("", "a USB port or `VENDOR:PRODUCT`", usb);
pub(super) const USBIP: Text<UsbPlace> = shown("", "`HOST/BUSID` or `HOST:PORT/BUSID`", usbip);

/// Place of a USB network function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsbPlace {
    /// At a USB port of this machine, or behind a USB/IP server.
    At(AdapterLocation),
    /// The first device of this machine with that vendor and product.
    Identity(u16, u16),
}

impl UsbPlace {
    /// True if the device is another machine's.
    pub const fn is_remote(&self) -> bool {
        matches!(self, Self::At(AdapterLocation::Tcp { .. } | AdapterLocation::Unix { .. }))
    }
}

impl fmt::Display for UsbPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(AdapterLocation::Usb(port)) => formatter.write_str(port),
            Self::At(AdapterLocation::Tcp { server, busid }) => write!(formatter, "{server}/{busid}"),
            Self::At(AdapterLocation::Unix { socket, busid }) => {
                write!(formatter, "{}/{busid}", socket.display())
            }
            Self::Identity(vendor, product) => write!(formatter, "{vendor:04x}:{product:04x}"),
        }
    }
}

impl Serialize for UsbPlace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn usb(value: &DeValue<'_>) -> Result<UsbPlace, Refusal> {
    let name = text(value)?;
    if let Some((vendor, product)) = name.split_once(':')
        && let (Some(vendor), Some(product)) = (number(vendor), number(product))
    {
        return Ok(UsbPlace::Identity(vendor, product));
    }
    match bus_id(value) {
        Ok(port) if is_usb_port(&port) => Ok(UsbPlace::At(AdapterLocation::Usb(port))),
        _ => Err(Refusal::new("is neither a USB port nor vendor and product").remedy(USB_REMEDY)),
    }
}

/// True for the kernel's name of a USB port: a bus, and a port of each hub on the way, as `1-1.4`.
fn is_usb_port(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    let is_path = |path: &str| path.split('.').all(is_number);
    name.split_once('-').is_some_and(|(bus, path)| is_number(bus) && is_path(path))
}

/// Four hexadecimal digits.
fn number(digits: &str) -> Option<u16> {
    let is_plain = digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u16::from_str_radix(digits, 16).ok().filter(|_| is_plain)
}

fn usbip(value: &DeValue<'_>) -> Result<UsbPlace, Refusal> {
    let name = text(value)?;
    let refused = || Refusal::new("is not a device of a USB/IP server").remedy(USBIP_REMEDY);
    let (host, busid) = name.rsplit_once('/').ok_or_else(refused)?;
    let string = |text: &str| DeValue::String(text.to_owned().into());
    let busid = bus_id(&string(busid)).map_err(|_| refused())?;
    let bare = !host.starts_with('/') && (!host.contains(':') || host.ends_with(']'));
    let host = if bare { format!("{host}:{SERVER_PORT}") } else { host.to_owned() };
    let host = server(&string(&host)).map_err(|_| refused())?;
    let mut place = AdapterLocation::behind(host);
    place.set_busid(busid);
    Ok(UsbPlace::At(place))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::is_usb_port;
    use std::path::Path;

    #[test]
    fn ports_have_a_bus_and_numbers_behind_it() {
        assert!(["1-1", "12-3.4", "1-1.2.3"].into_iter().all(is_usb_port));
        assert!(!["0525-a4a1", "1", "1-", "-1", "1-1.", "1-1:1.0", "eth-0"].into_iter().any(is_usb_port));
    }

    fn place(key: &str, value: &str) -> Result<String, String> {
        let file = format!(
            "version = 1\n[port.usb]\n{key} = \"{value}\"\n[port.host]\ntap = \"host0\"\n\
             [bridge.br0]\nmembers = [\"usb\", \"host\"]\n"
        );
        let loaded = parse(&file, Path::new("gw.toml")).map_err(|report| report.to_string())?;
        // What is written out says the same.
        let again = parse(&loaded.configuration.to_toml(), Path::new("again.toml"));
        let again = again.map_err(|report| report.to_string())?;
        assert_eq!(again.configuration.ports, loaded.configuration.ports);
        Ok(loaded.configuration.ports[0].device.name())
    }

    #[test]
    fn a_device_is_named_by_its_place_or_its_numbers() {
        for (key, value, name) in [
            ("usb", "1-1.4", "1-1.4"),
            ("usb", "0525:a4A1", "0525:a4a1"),
            ("usbip", "192.0.2.1/1-1", "192.0.2.1:3240/1-1"),
            ("usbip", "host:3241/2-1.4", "host:3241/2-1.4"),
            ("usbip", "[::1]/1-1", "[::1]:3240/1-1"),
            ("usbip", "/run/usbip.sock/1-1", "/run/usbip.sock/1-1"),
        ] {
            assert_eq!(place(key, value).as_deref(), Ok(name), "{value}");
        }
    }

    #[test]
    fn what_names_no_device_is_refused_with_an_example() {
        for (key, value) in [("usb", ""), ("usb", "05:a4a1"), ("usb", "eth0"), ("usb", "1-1/2")] {
            let report = place(key, value).expect_err(value);
            assert!(report.contains("0525:a4a1"), "{value}: {report}");
        }
        for (key, value) in [("usbip", "host"), ("usbip", "host:0/1-1"), ("usbip", "/1-1"), ("usbip", "h/")] {
            let report = place(key, value).expect_err(value);
            assert!(report.contains("192.0.2.1/1-1"), "{value}: {report}");
        }
    }
}
