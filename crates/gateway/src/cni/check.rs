//! CHECK: interfaces, addresses, routes, port and source guard are as ADD left them.

use super::attachment::{self, Port};
use super::call::Call;
use super::error::{CHANGED, CONFIGURATION, CniError};
use super::inside::Namespace;
use super::network::Network;
use super::result::{Cidr, Interface, Success};
use super::{ipam, pair};
use polder_datapath::wire::MacAddress;
use polder_devices::netlink::Client;
use polder_devices::netlink::link::Link;

/// Compares an attachment with `prevResult`.
pub(super) fn check(call: &Call, network: &Network, input: &[u8]) -> Result<(), CniError> {
    let wrong = |text: String| CniError::new(CONFIGURATION, text);
    let before = network.prev_result.clone();
    let before = before.ok_or_else(|| {
        wrong("`prevResult` is missing: the runtime has to pass the result of ADD".to_owned())
    })?;
    let unreadable = |error| wrong(format!("`prevResult` cannot be read: {error}"));
    let before = serde_json::from_value::<Success>(before).map_err(unreadable)?;
    let port = Port::of(call, network);

    let failed = |error| pair::refused("read interfaces", error);
    let own =
        Client::open(None).and_then(|mut client| pair::look(&mut client, &port.name)).map_err(failed)?;
    let namespace = Namespace::open(call.namespace())?;
    let link = namespace.look(&call.interface)?;
    compare(&port.name, own.as_ref(), interface(&before, &port.name))?;
    compare(&call.interface, link.as_ref(), interface(&before, &call.interface))?;
    let link = link.unwrap_or_default();
    // Other plugins of a chain have addresses on other interfaces.
    let place =
        before.interfaces.iter().position(|found| found.name == call.interface && !found.sandbox.is_empty());
    let mut own = before.clone();
    own.ips.retain(|ip| ip.interface.is_none() || ip.interface == place);
    namespace.compare(&link, &own)?;

    let mut client = attachment::connect(network)?;
    let addresses = own.ips.iter().map(|ip| ip.address).collect::<Vec<Cidr>>();
    port.compare(&mut client, &MacAddress(link.mac).to_string(), &addresses)?;
    ipam::ask("CHECK", call, network, input)
}

/// Interface with a name in the result of ADD.
fn interface<'a>(before: &'a Success, name: &str) -> Option<&'a Interface> {
    before.interfaces.iter().find(|found| found.name == name)
}

/// Checks that an interface exists, is up, and has the MAC address of ADD's result.
fn compare(name: &str, link: Option<&Link>, before: Option<&Interface>) -> Result<(), CniError> {
    let mac = link.map(|link| MacAddress(link.mac).to_string());
    let trouble = match (link, before) {
        (None, _) => "is missing".to_owned(),
        (_, None) => "is not in `prevResult`".to_owned(),
        (Some(link), _) if !link.up => "is down".to_owned(),
        (Some(_), Some(before)) => match mac.filter(|mac| !mac.eq_ignore_ascii_case(&before.mac)) {
            Some(mac) => format!("has the address {mac}, but ADD set {}", before.mac),
            None => return Ok(()),
        },
    };
    Err(CniError::new(CHANGED, format!("the interface {name} {trouble}: call DEL and ADD")))
}
