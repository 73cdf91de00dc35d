//! Routers that judges compare: namespaces whose kernels forward, and send nothing of their own accord.

use anyhow::Context as _;
use polder_testbed::topology::Namespace;

/// Settings of all of them: errors are not limited in rate, and nothing happens by itself.
const SETTINGS: &[(&str, &str)] = &[
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/default/disable_ipv6", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/ip_forward", "1"),
    ("ipv6/conf/all/forwarding", "1"),
    ("ipv4/icmp_ratelimit", "0"),
    ("ipv4/icmp_msgs_per_sec", "1000000"),
    ("ipv4/icmp_msgs_burst", "1000000"),
    ("ipv6/icmp/ratelimit", "0"),
];

/// Enables forwarding in the kernel of a namespace, with further settings.
pub(crate) fn prepare(router: &Namespace, more: &[(&str, &str)]) -> anyhow::Result<()> {
    router.inside(|| SETTINGS.iter().chain(more).try_for_each(|(key, value)| set(key, value)))?
}

/// Changes a setting below /proc/sys/net of the calling thread's namespace.
pub(crate) fn set(key: &str, value: &str) -> anyhow::Result<()> {
    let path = format!("/proc/sys/net/{key}");
    std::fs::write(&path, value).with_context(|| format!("cannot write {path}"))
}

/// Changes the MAC address of an interface.
pub(crate) fn readdress(router: &Namespace, interface: &str, address: [u8; 6]) -> anyhow::Result<()> {
    router.ip(&["link", "set", interface, "down"])?;
    router.ip(&["link", "set", interface, "address", &mac(address)])?;
    router.ip(&["link", "set", interface, "up"]).map(drop)
}

/// A link-layer address for `ip`.
pub(crate) fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}
