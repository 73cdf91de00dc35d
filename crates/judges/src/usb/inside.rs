//! Steps that the guests of all examinations have in common.

use polder_devices::usb::Transport;
use polder_devices::usb::usbip::{Client, ServerAddress};
use polder_testbed::clock;
use polder_testbed::guest::agent::Request;
use polder_testbed::guest::{Guest, Kernel, Options};
use std::path::Path;
use std::time::Duration;

/// Setting that keeps new interfaces of the guest from sending unsolicited frames.
const NO_IPV6: &str = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
/// Time in which the guest's server exports a device. A guest without the processor's help is slow beside other work.
const IMPORT: Duration = Duration::from_secs(60);
/// Addresses of the stations in the guest's neighbour table, which asks for none of them.
const NEIGHBOURS: [(&str, &str); 2] =
    [("10.77.0.2", "02:00:00:00:77:02"), ("10.77.0.9", "02:00:00:00:77:09")];

/// Starts a guest with these modules and programs. `program` is `polder-lab`.
pub(super) fn boot(
    kernel: &Kernel,
    program: &Path,
    modules: &[&str],
    programs: &[&str],
) -> anyhow::Result<Guest> {
    let options = Options { spare_modules: &["tun"], ..Options::of(program, modules, programs) };
    let mut guest = Guest::boot(kernel, &options)?;
    // Such frames would be among those that are counted. An interface is listed before its own file is there.
    guest.ask(&Request::Write(NO_IPV6.to_owned(), "1".to_owned()))?;
    Ok(guest)
}

/// Starts `polder-lab` with these words in the guest, and lets this process reach its USB/IP server.
pub(super) fn serve(guest: &mut Guest, words: [&str; 2]) -> anyhow::Result<ServerAddress> {
    let words = [["polder-lab"].as_slice(), &words].concat().into_iter().map(str::to_owned).collect();
    guest.ask(&Request::Start(words))?;
    Ok(ServerAddress::Tcp(format!("127.0.0.1:{}", guest.forward(super::export::PORT)?)))
}

/// Brings an interface of the guest up, with the address and the neighbours of the examination.
pub(super) fn bring_up(guest: &mut Guest, interface: &str) -> anyhow::Result<()> {
    guest.run(&format!("ip link set {interface} up"))?;
    guest.run(&format!("ip address replace 10.77.0.1/24 dev {interface}"))?;
    for (address, mac) in NEIGHBOURS {
        guest.run(&format!("ip neighbour replace {address} lladdr {mac} dev {interface}"))?;
    }
    Ok(())
}

/// Attaches a device of the guest's server, once it has it.
pub(super) fn import(
    guest: &Guest,
    server: &ServerAddress,
    device: &str,
) -> anyhow::Result<Box<dyn Transport>> {
    let end = clock::now() + IMPORT;
    loop {
        match Client::attach(server, device) {
            Ok(client) => return Ok(Box::new(client)),
            Err(error) if clock::now() > end || guest.has_crashed() => return Err(error.into()),
            Err(_) => polder_testbed::interrupt::sleep(Duration::from_millis(50))?,
        }
    }
}

/// Counters of an interface of the guest: packets received and sent, errors of both.
pub(super) fn counters(guest: &mut Guest, interface: &str) -> anyhow::Result<[u64; 4]> {
    let mut counters = [0; 4];
    for (count, name) in counters.iter_mut().zip(["rx_packets", "tx_packets", "rx_errors", "tx_errors"]) {
        let path = format!("/sys/class/net/{interface}/statistics/{name}");
        *count = guest.ask(&Request::Read(path))?.trim().parse()?;
    }
    Ok(counters)
}
