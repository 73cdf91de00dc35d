//! Ports on which frames lose the VLAN tags that a bridge needs.
//!
//! A veth's sender may pass the tag as metadata of the buffer, which AF_XDP does not see. On a trunk, the
//! frame then appears to be in the native VLAN, so a trunk port with a native VLAN is refused. A trunk
//! without a native VLAN drops the frame, and senders on an access port use one VLAN only.

use super::{PreflightFinding, Severity};
use crate::config::model::{Configuration, MemberVlan, Port};
use crate::device::{Way, way};
use crate::kernel::namespaces;
use anyhow::{Result, bail};
use polder_devices::af_xdp::settings;
use polder_devices::netlink::link::{HEADER, Link};
use polder_devices::netlink::{Client, put};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Findings about all ports of a configuration.
pub(super) fn findings(configuration: &Configuration) -> Vec<PreflightFinding> {
    configuration.ports.iter().filter_map(|port| finding(port, configuration)).collect()
}

/// Refuses a configuration with ports that lose tags, unless `current` has them in the same way.
///
/// # Errors
/// Lists the ports, with a remedy.
pub(in crate::runtime) fn admit(current: Option<&Configuration>, next: &Configuration) -> Result<()> {
    let is_known = |port: &Port| {
        let known = current
            .and_then(|current| Some((current, current.ports.iter().find(|known| known.name == port.name)?)));
        known.is_some_and(|(current, known)| {
            (&known.device, known.mode, native(known, current))
                == (&port.device, port.mode, native(port, next))
        })
    };
    if current.is_none() {
        next.ports.iter().for_each(look_at_start);
    }
    let found = next.ports.iter().filter(|port| !is_known(port)).filter_map(|port| finding(port, next));
    let lines = found.map(|found| format!("[{}] {}", found.of, found.text)).collect::<Vec<_>>();
    if !lines.is_empty() {
        bail!("VLAN tags would be lost and VLANs mixed, so nothing was changed:\n{}", lines.join("\n"));
    }
    Ok(())
}

fn finding(port: &Port, configuration: &Configuration) -> Option<PreflightFinding> {
    let (interface, native) = (port.device.interface()?, native(port, configuration)?);
    let is_af_xdp = matches!(way(interface, port), Way::AfXdp(_));
    let peer = if is_af_xdp { careless_peer(interface)? } else { return None };
    let text = format!(
        "AF_XDP does not see VLAN tags that {peer} offloads, so tagged frames would be taken as native VLAN \
         {native}: remove `mode` or `native`"
    );
    Some(PreflightFinding::new(format!("port.{}", port.name), Severity::Problem, "tags", text))
}

/// Native VLAN of a trunk port.
fn native(port: &Port, configuration: &Configuration) -> Option<u16> {
    let mut members = configuration.bridges.iter().flat_map(|bridge| &bridge.members);
    match &members.find(|member| member.port == port.id)?.vlan {
        Some(MemberVlan::Trunk { native, .. }) => *native,
        Some(MemberVlan::Access(_)) | None => None,
    }
}

/// Examines the peer of a port whose tags may matter after a reload: a confined process cannot enter other
/// network namespaces.
fn look_at_start(port: &Port) {
    if let Some(interface) = port.device.interface()
        && matches!(way(interface, port), Way::AfXdp(_))
    {
        careless_peer(interface);
    }
}

/// Last known peers by interface index: name, and true if the peer passes tags as metadata.
static FOUND: Mutex<BTreeMap<u32, (String, bool)>> = Mutex::new(BTreeMap::new());

/// The peer of a veth or netkit interface, as text, unless it is known to leave tags in its frames.
fn careless_peer(interface: &str) -> Option<String> {
    let link = link(0, Some(interface))?;
    let peer = link.peer.filter(|_| matches!(link.kind.as_str(), "veth" | "netkit"))?;
    let found = match (link.peer_elsewhere, link.peer_namespace) {
        (false, _) => inserts_tags(peer),
        (true, Some(id)) => namespaces::inside(id, move || inserts_tags(peer)).flatten(),
        (true, None) => None,
    };
    let mut known = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = &found {
        known.insert(link.index, found.clone());
    }
    match found.or_else(|| known.get(&link.index).cloned()) {
        Some((_, false)) => None,
        Some((name, true)) => Some(format!("{name} (`ethtool -K {name} txvlan off` there keeps them in)")),
        None => {
            Some("the other end of the veth, in a network namespace that cannot be looked into,".to_owned())
        }
    }
}

/// Name of an interface in the calling thread's network namespace, and whether it passes tags as metadata.
fn inserts_tags(index: u32) -> Option<(String, bool)> {
    let name = link(index, None)?.name;
    let features = settings(&name).ok()?.features;
    Some((name, features.iter().any(|feature| feature == "tx-vlan-hw-insert")))
}

/// The interface with an index, or with a name.
fn link(index: u32, name: Option<&str>) -> Option<Link> {
    let mut body = vec![0; HEADER];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    if let Some(name) = name {
        put(&mut body, libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
    }
    let answers = Client::open(None).ok()?.ask(libc::RTM_GETLINK, &body).ok()?;
    answers.iter().find_map(|(_, body)| Link::parse(body))
}
