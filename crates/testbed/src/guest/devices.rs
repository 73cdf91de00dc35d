//! USB/IP devices of a guest, and the interfaces that appear with them.

use super::Guest;
use super::agent::Request;
use crate::{clock, command, interrupt};
use anyhow::{Context as _, bail, ensure};
use polder_devices::usb::Speed;
use std::time::Duration;

/// The guest's virtual USB host.
const VIRTUAL_HOST: &str = "/sys/devices/platform/vhci_hcd.0";
/// Status of a USB/IP port with nothing attached.
const PORT_IS_FREE: &str = "004";
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// A device of the virtual host.
#[derive(Clone, Debug)]
pub struct Attached {
    /// The port of the virtual host.
    pub port: u8,
    /// The guest's name of the device, if no other host has a bus.
    pub place: String,
}

impl Guest {
    /// Attaches the device `device` of a USB/IP server behind that port of this machine.
    ///
    /// # Errors
    /// When no port of the virtual host is free, or the server has no such device.
    pub fn attach(&mut self, server: u16, device: &str, speed: Speed) -> anyhow::Result<Attached> {
        let status = self.ask(&Request::Read(format!("{VIRTUAL_HOST}/status")))?;
        // The host has a bus of each speed.
        let (hub, bus) = match speed {
            Speed::High => ("hs", 1),
            Speed::Super => ("ss", 2),
        };
        let of_hub = status.lines().filter_map(|line| line.trim_start().strip_prefix(hub));
        let free = of_hub.enumerate().find_map(|(index, line)| {
            let mut words = line.split_whitespace();
            let port = words.next()?.parse().ok()?;
            (words.next() == Some(PORT_IS_FREE))
                .then(|| Attached { port, place: format!("{bus}-{}", index + 1) })
        });
        let free = free.context("no port of the virtual USB host is free")?;
        self.ask(&Request::Attach { server, device: device.to_owned(), port: free.port })?;
        Ok(free)
    }

    /// Pulls a device out of a port of the virtual host.
    ///
    /// # Errors
    /// When there is none.
    pub fn detach(&mut self, port: u8) -> anyhow::Result<()> {
        self.ask(&Request::Write(format!("{VIRTUAL_HOST}/detach"), port.to_string())).map(drop)
    }

    /// Names of the network interfaces.
    ///
    /// # Errors
    /// When the guest does not answer.
    pub fn interfaces(&mut self) -> anyhow::Result<Vec<String>> {
        let names = self.ask(&Request::List("/sys/class/net".to_owned()))?;
        Ok(names.lines().map(str::to_owned).collect())
    }

    /// Waits for an interface that was not among `before`, at most for `patience`; all of its files are there then.
    ///
    /// # Errors
    /// When none appears; the message has the kernel's last words.
    pub fn new_interface(&mut self, before: &[String], patience: Duration) -> anyhow::Result<String> {
        let end = clock::now() + patience;
        loop {
            if let Some(name) = self.interfaces()?.into_iter().find(|name| !before.contains(name)) {
                // An interface is listed before all of its files are there; the answer waits until it is registered.
                self.run(&format!("ip link show dev {name}"))?;
                return Ok(name);
            }
            if clock::now() > end {
                bail!("no interface appears: {}", command::last_lines(&self.log()?, 8));
            }
            interrupt::sleep(PAUSE)?;
        }
    }

    /// Waits until there is no interface of that name.
    ///
    /// # Errors
    /// When it stays.
    pub fn until_gone(&mut self, interface: &str, patience: Duration) -> anyhow::Result<()> {
        interrupt::retry(patience, PAUSE, || {
            let stays = self.interfaces()?.iter().any(|name| name == interface);
            ensure!(!stays, "the interface {interface} stays");
            Ok(())
        })
    }
}
