//! DEL: removes port, interface and addresses, as far as they exist.

use super::attachment::{self, Port};
use super::call::Call;
use super::error::{CniError, is_absent};
use super::network::Network;
use super::{ipam, pair};

/// Detaches a container; later steps run even if earlier ones fail.
pub(super) fn delete(call: &Call, network: &Network, input: &[u8]) -> Result<(), CniError> {
    let steps = [delete_port(network, &Port::of(call, network)), ipam::ask("DEL", call, network, input)];
    CniError::all(steps.into_iter().filter_map(Result::err))
}

/// Removes a port and its interface; works without a running gateway.
pub(super) fn delete_port(network: &Network, port: &Port<'_>) -> Result<(), CniError> {
    let deleted = match attachment::reach(network) {
        Ok(mut client) => port.delete(Some(&mut client)),
        Err(error) if is_absent(&error) => port.delete(None),
        Err(error) => Err(error.into()),
    };
    let steps = [deleted, pair::delete(&port.name)];
    CniError::all(steps.into_iter().filter_map(Result::err))
}
