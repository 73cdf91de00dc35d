//! STATUS: reports whether ADD would work.

use super::attachment::{self, Port};
use super::call::Call;
use super::error::{CniError, UNAVAILABLE};
use super::ipam;
use super::network::Network;

/// Container id and interface name of the probed port.
const NOBODY: [&str; 2] = ["status", "status"];

/// Asks the gateway for a dry run of adding a port, and the IPAM plugin for its status.
pub(super) fn status(call: &Call, network: &Network, input: &[u8]) -> Result<(), CniError> {
    let [container, interface] = NOBODY;
    let port = Port::of_attachment(network, container, interface);
    let asked = attachment::connect(network).and_then(|mut client| port.probe(&mut client));
    let unavailable = |error: CniError| CniError { code: UNAVAILABLE, ..error };
    asked.map_err(unavailable)?;
    ipam::ask("STATUS", call, network, input)
}
