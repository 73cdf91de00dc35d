//! A gateway in the guest takes the gadget by usbfs, and forwards between it and a network behind a TAP.

use super::bed::PATIENCE;
use super::testbed::MODULES;
use super::{gadget, inside};
use anyhow::{Context as _, ensure};
use polder_testbed::guest::agent::Request;
use polder_testbed::guest::{Guest, Kernel};
use polder_testbed::interrupt;
use polder_testbed::peers::polder;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// File and socket of the gateway.
const FILE: &str = "/tmp/gateway.toml";
const SOCKET: &str = "/run/gateway.sock";
/// The network behind the gateway, and the TAP that leads there.
const FAR: &str = "pdfar";
const TAP: &str = "host0";
/// Payloads of pings.
const SIZES: [u32; 4] = [0, 56, 501, 1472];

/// Boots a guest with a gadget of NCM and a gateway. `program` is `polder-lab`.
pub(super) fn examine(kernel: &Kernel, program: &Path) -> anyhow::Result<()> {
    let gateway = polder::program()?;
    let gateway = gateway.to_str().context("the path of `polder` is not text")?;
    let mut guest = inside::boot(kernel, program, MODULES, &["ip", "ping", gateway])?;
    let before = guest.interfaces()?;
    let _ = inside::serve(&mut guest, ["guest-gadget", "ncm"])?;
    let own = guest.new_interface(&before, PATIENCE).context("the gadget has none")?;
    inside::bring_up(&mut guest, &own)?;
    let process = start(&mut guest)?;
    behind(&mut guest)?;
    for size in SIZES {
        guest.run(&format!("ip netns exec {FAR} ping -q -c 3 -i 0.05 -W 5 -s {size} 10.77.0.1"))?;
    }
    let port = shown(&mut guest)?;
    let counts = ["received", "transmitted"].map(|name| polder::find(&port, name).and_then(Value::as_u64));
    ensure!(counts.iter().all(|count| *count >= Some(12)), "twelve echoes, and the port shows {port:#}");
    guest.ask(&Request::Stop(process))?;
    guest.power_off()
}

/// Starts the gateway, and waits until its port is open and has a link.
fn start(guest: &mut Guest) -> anyhow::Result<u32> {
    guest.ask(&Request::Load("tun".to_owned()))?;
    let text = format!(
        "version = 1\n[gateway]\ncontrol = \"{SOCKET}\"\n[port.usb]\nusb = \"{}\"\n[port.host]\ntap = \"{TAP}\"\n\
         [bridge.br0]\nmembers = [\"usb\", \"host\"]\n",
        gadget::BUSID
    );
    guest.ask(&Request::Write(FILE.to_owned(), text))?;
    let words = ["polder", "run", "--yes", FILE].map(str::to_owned).to_vec();
    let process = guest.ask(&Request::Start(words))?.parse().context("no process was started")?;
    interrupt::retry(2 * PATIENCE, Duration::from_millis(100), || {
        let port = shown(guest);
        let is_up = |port: &Value| port["open"] == true && port["adapter"]["link_up"] == true;
        ensure!(port.as_ref().is_ok_and(is_up), "the gateway does not open the gadget: {port:?}");
        Ok(process)
    })
}

/// Row of the USB port.
fn shown(guest: &mut Guest) -> anyhow::Result<Value> {
    let said = guest.run(&format!("polder show ports --json --socket {SOCKET}"))?;
    let shown: Value = serde_json::from_str(&said).context("the gateway shows something else")?;
    shown["ports"].as_array().and_then(|ports| ports.first()).cloned().context("the gateway shows no port")
}

/// Moves the TAP's end into its own namespace, as the station in the gadget's neighbour table.
fn behind(guest: &mut Guest) -> anyhow::Result<()> {
    guest.run(&format!("ip netns add {FAR}"))?;
    guest.run(&format!("ip link set {TAP} netns {FAR}"))?;
    guest.run(&format!("ip -n {FAR} link set {TAP} address {}", gadget::HOST_MAC))?;
    guest.run(&format!("ip -n {FAR} link set {TAP} up"))?;
    guest.run(&format!("ip -n {FAR} address add 10.77.0.2/24 dev {TAP}"))?;
    guest
        .run(&format!("ip -n {FAR} neighbour replace 10.77.0.1 lladdr {} dev {TAP}", gadget::OWN_MAC))
        .map(drop)
}
