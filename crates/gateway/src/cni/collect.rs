//! GC: removes attachments of a network that the runtime does not list.

use super::attachment::{self, Port};
use super::call::Call;
use super::delete::delete_port;
use super::error::CniError;
use super::network::{Attachment, Network};
use super::{ipam, pair};

/// Removes every attachment, found by its port's file or its interface, that is not in
/// `cni.dev/valid-attachments`.
pub(super) fn collect(call: &Call, network: &Network, input: &[u8]) -> Result<(), CniError> {
    // A missing list (`cnitool gc`) and `null` count as empty.
    let valid = network.valid.as_deref().unwrap_or_default();
    let of_interfaces = pair::list(&network.name)?.into_iter().map(|(_, attachment)| attachment);
    let mut known: Vec<Attachment> = attachment::list(network).into_iter().chain(of_interfaces).collect();
    known.retain(|attachment| !valid.contains(attachment));
    known.sort_by(|a, b| (&a.container, &a.interface).cmp(&(&b.container, &b.interface)));
    known.dedup();
    let mut outcomes = Vec::new();
    for attachment in &known {
        let Attachment { container, interface } = attachment;
        outcomes.push(delete_port(network, &Port::of_attachment(network, container, interface)));
        outcomes.push(ipam::take_back(attachment, call, network, input));
    }
    outcomes.push(ipam::ask("GC", call, network, input));
    CniError::all(outcomes.into_iter().filter_map(Result::err))
}
