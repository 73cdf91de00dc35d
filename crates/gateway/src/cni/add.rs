//! ADD: attaches a container as a port of a bridge, or leaves everything unchanged.

use super::attachment::{self, Port};
use super::call::Call;
use super::error::{CniError, IPAM, KERNEL};
use super::inside::Namespace;
use super::ipam;
use super::network::Network;
use super::pair;
use super::result::{Cidr, Interface, Success};
use super::undo::Undo;
use polder_datapath::wire::MacAddress;
use polder_devices::netlink::Client;

/// Maximum number of addresses in a port's `source_guard`.
const MOST: usize = 64;

/// Attaches a container. A failure undoes all steps.
pub(super) fn add(call: &Call, network: &Network, input: &[u8]) -> Result<Success, CniError> {
    let mut undo = Undo::default();
    attach(call, network, input, &mut undo).map_err(|error| undo.carry_out(error))
}

/// The steps of ADD.
///
/// 1. Checks the configuration.
/// 2. Creates the veth pair, which makes a second ADD of the same attachment fail.
/// 3. Gets addresses from the IPAM plugin, sets them and sets the container's interface up, so that the port has a
///    carrier when it opens.
/// 4. Adds the port with its addresses as source guard, and announces them.
fn attach<'a>(
    call: &'a Call,
    network: &'a Network,
    input: &'a [u8],
    undo: &mut Undo<'a>,
) -> Result<Success, CniError> {
    let namespace = Namespace::open(call.namespace())?;
    let mac = network.mac(call)?;
    network.ipam().map(|name| ipam::find(name, call)).transpose()?;
    if namespace.look(&call.interface)?.is_some() {
        return Err(pair::attached(call));
    }
    let port = Port::of(call, network);
    let mut client = attachment::connect(network)?;
    port.probe(&mut client)?;

    let name = port.name.clone();
    pair::make(call, network, &name, namespace.file(), mac)?;
    undo.note(move || pair::delete(&name));

    let mut attached = ipam::add(call, network, input)?;
    undo.note(|| ipam::ask("DEL", call, network, input));
    check_addresses(network, &attached)?;
    let link = namespace.look(&call.interface)?.ok_or_else(|| gone(call))?;
    namespace.set_up(link.index, call, &attached)?;

    let mac = MacAddress(link.mac).to_string();
    let addresses = attached.ips.iter().map(|ip| ip.address).collect::<Vec<Cidr>>();
    // Undone even if the gateway does not answer, because it may have the port.
    undo.note(|| Port::of(call, network).delete(attachment::reach(network).ok().as_mut()));
    port.add(&mut client, &mac, &addresses)?;
    namespace.announce(&link);

    attached.interfaces = interfaces(call, &port.name, &mac, link.mtu)?;
    attached.ips.iter_mut().for_each(|ip| ip.interface = Some(1));
    if !network.dns.is_empty() {
        attached.dns = network.dns.clone();
    }
    Ok(attached)
}

/// Checks that the IPAM plugin has assigned a suitable number of addresses for the source guard.
fn check_addresses(network: &Network, attached: &Success) -> Result<(), CniError> {
    let Some(name) = network.ipam() else { return Ok(()) };
    match attached.ips.len() {
        0 => Err(CniError::new(
            IPAM,
            format!("the IPAM plugin {name} returned no address: remove `ipam`, or repair its configuration"),
        )),
        1..=MOST => Ok(()),
        count => Err(CniError::new(
            IPAM,
            format!("the IPAM plugin {name} returned {count} addresses: at most {MOST} are possible"),
        )),
    }
}

/// Interfaces of the result: the host's end of the pair, and the container's.
fn interfaces(call: &Call, name: &str, mac: &str, mtu: u32) -> Result<Vec<Interface>, CniError> {
    let failed = |error| pair::refused(&format!("read the interface {name}"), error);
    let own = Client::open(None).and_then(|mut client| pair::look(&mut client, name)).map_err(failed)?;
    let own = own.ok_or_else(|| gone(call))?;
    Ok(vec![
        Interface {
            name: name.to_owned(),
            mac: MacAddress(own.mac).to_string(),
            mtu: Some(mtu),
            sandbox: String::new(),
        },
        Interface {
            name: call.interface.clone(),
            mac: mac.to_owned(),
            mtu: Some(mtu),
            sandbox: call.namespace().display().to_string(),
        },
    ])
}

fn gone(call: &Call) -> CniError {
    let message =
        format!("the interface {} disappeared during ADD: has the container ended?", call.interface);
    CniError::new(KERNEL, message)
}
