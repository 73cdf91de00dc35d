//! `polder release`: opens interfaces that were left closed, and returns PCI devices to kernel drivers.

use super::arguments::Release;
use super::failure::Failure;
use super::screen::Screen;
use crate::control::client::{Client, DIRECTORY};
use crate::control::{Answer, Ask};
use crate::device;
use crate::show::{View, What};
use anyhow::{Context as _, anyhow};
use polder_devices::pci::Address;
use polder_devices::pci::vfio::{self, Released, VfioError};
use std::path::PathBuf;

pub(super) fn release(arguments: &Release) -> Result<(), Failure> {
    let interfaces = if arguments.all { all()? } else { arguments.interfaces.clone() };
    let users = if arguments.force { Vec::new() } else { users() };
    let screen = Screen::stdout();
    let mut released = 0;
    for interface in &interfaces {
        if let Ok(address) = interface.parse::<Address>() {
            screen.write(&format!("{interface}: {}\n", give_back(address)?))?;
            released += 1;
            continue;
        }
        if let Some((_, gateway)) = users.iter().find(|(used, _)| used == interface) {
            if arguments.all {
                continue;
            }
            let message = format!(
                "{interface} is in use by gateway {gateway}, which would receive nothing there until it \
                 reopens the interface: stop the gateway first, or add --force"
            );
            return Err(Failure::Error(anyhow!(message)));
        }
        match device::release(interface)? {
            true => screen.write(&format!("{interface}: released\n"))?,
            false if arguments.all => continue,
            false => screen.write(&format!("{interface}: was not closed\n"))?,
        }
        released += 1;
    }
    let has_restored = crate::kernel::conntrack::restore_left()
        .context("cannot restore net.netfilter.nf_conntrack_events")?;
    if has_restored {
        screen.write("net.netfilter.nf_conntrack_events: restored to its previous value\n")?;
    } else if released == 0 {
        screen.write("no interface is kept closed\n")?;
    }
    Ok(())
}

/// Returns a PCI device to its kernel driver; describes the result.
fn give_back(address: Address) -> Result<String, VfioError> {
    Ok(match vfio::release(address)? {
        Released::To(driver) => format!("bound to driver {driver} again"),
        Released::ToNobody => {
            "released, but no kernel driver is bound: load the device's module with `modprobe`".to_owned()
        }
        Released::NotBound(driver) => {
            let driver = driver.as_deref().unwrap_or("no driver");
            format!("was not bound to vfio-pci but to {driver}")
        }
    })
}

/// All interfaces of this network namespace.
fn all() -> std::io::Result<Vec<String>> {
    // /sys/class/net may show the namespace that has mounted it.
    let table = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    Ok(table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect())
}

/// Interfaces of this network namespace that gateways use, each with the gateway's name.
fn users() -> Vec<(String, String)> {
    let entries = std::fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
    let sockets = entries.map(|entry| entry.path());
    sockets.filter_map(ports_of).flatten().collect()
}

fn ports_of(socket: PathBuf) -> Option<Vec<(String, String)>> {
    let mut client = Client::connect(&socket).ok()?;
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let theirs = namespace(&client.process().ok()?.to_string());
    if theirs.is_none() || theirs != namespace("self") {
        // Interfaces in another namespace are different ones, and a gateway that has ended uses none.
        return None;
    }
    let Answer::Shown(shown) = client.ask(Ask::show(What::Ports)).ok()? else {
        return None;
    };
    let View::Ports(ports) = shown.view else { return None };
    let open = ports.into_iter().filter(|port| port.open);
    Some(open.map(|port| (port.interface, shown.gateway.clone())).collect())
}
