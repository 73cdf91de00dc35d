//! Results in the form that plugins print (CNI specification 1.1.0, "Success").

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Supported versions of the specification, oldest first.
pub const VERSIONS: [&str; 4] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// The newest supported version.
pub fn newest() -> &'static str {
    VERSIONS[VERSIONS.len() - 1]
}

/// True if `version` is `least` or newer; both are in [`VERSIONS`].
pub(super) fn is_at_least(version: &str, least: &str) -> bool {
    let place = |wanted: &str| VERSIONS.iter().position(|version| *version == wanted);
    place(version) >= place(least)
}

/// Answer to VERSION.
pub fn supported(version: &str) -> String {
    let version = if version.is_empty() { newest() } else { version };
    format!("{:#}\n", json!({ "cniVersion": version, "supportedVersions": VERSIONS }))
}

/// Result of ADD, or addresses from an IPAM plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Success {
    /// Interfaces on the host and in the container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Addresses of the container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<Ip>,
    /// Routes of the container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Name servers of the container.
    #[serde(skip_serializing_if = "Dns::is_empty")]
    pub dns: Dns,
}

/// An interface of an attachment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// MAC address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// MTU in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Network namespace file; empty for the host's interface.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
}

/// An address of an attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ip {
    /// Index of its interface in `interfaces`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
    /// Address with prefix length.
    pub address: Cidr,
    /// Gateway of its network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// A route of an attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Destination prefix.
    pub dst: Cidr,
    /// Next hop; by default the gateway of the address's network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// MTU of the route in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Advertised maximum TCP segment size, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
    /// Metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Routing table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
}

/// DNS configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dns {
    /// Addresses of name servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// Local domain.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Search domains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Resolver options.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

impl Dns {
    /// True if all fields are empty.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// An address with prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// Prefix length in bits.
    pub bits: u8,
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not an address with a prefix length, as 192.0.2.5/24");
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        let address = address.parse::<IpAddr>().map_err(|_| wrong())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.parse().ok().filter(|&bits| bits <= longest).ok_or_else(wrong)?;
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.bits)
    }
}

impl Serialize for Cidr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Success {
    /// JSON object that the plugin prints, in the form of a version.
    pub fn to_json(&self, version: &str) -> String {
        let mut object = json!(self);
        object["cniVersion"] = json!(version);
        if !is_at_least(version, "1.0.0") {
            let family = |ip: &Ip| if ip.address.address.is_ipv4() { "4" } else { "6" };
            let ips = self.ips.iter().zip(rows(&mut object, "ips"));
            ips.for_each(|(ip, shown)| shown["version"] = json!(family(ip)));
        }
        if !is_at_least(version, "1.1.0") {
            for (list, keys) in
                [("interfaces", &["mtu"][..]), ("routes", &["mtu", "advmss", "priority", "table", "scope"])]
            {
                let objects = rows(&mut object, list).iter_mut().filter_map(Value::as_object_mut);
                objects.for_each(|object| object.retain(|key, _| !keys.contains(&key.as_str())));
            }
        }
        format!("{object:#}\n")
    }
}

fn rows<'a>(object: &'a mut Value, list: &str) -> &'a mut [Value] {
    object.get_mut(list).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().expect("a right one")
    }

    fn attached() -> Success {
        let interface = |name: &str, sandbox: &str| Interface {
            name: name.to_owned(),
            mac: "02:00:00:00:00:05".to_owned(),
            mtu: Some(1400),
            sandbox: sandbox.to_owned(),
        };
        let route = Route {
            dst: cidr("0.0.0.0/0"),
            gw: "192.0.2.1".parse().ok(),
            mtu: None,
            advmss: None,
            priority: Some(9),
            table: None,
            scope: None,
        };
        Success {
            interfaces: vec![interface("cni0", ""), interface("eth0", "/run/netns/c5")],
            ips: vec![Ip { interface: Some(1), address: cidr("192.0.2.5/24"), gateway: route.gw }],
            routes: vec![route],
            dns: Dns { nameservers: vec!["192.0.2.53".to_owned()], ..Dns::default() },
        }
    }

    #[test]
    fn results_of_each_version() {
        insta::assert_snapshot!(VERSIONS.map(|version| attached().to_json(version)).concat());
    }

    #[test]
    fn a_result_is_read_as_it_was_written() {
        for version in VERSIONS {
            let read = serde_json::from_str::<Success>(&attached().to_json(version)).expect("our own");
            assert_eq!((read.ips, read.dns), (attached().ips, attached().dns), "{version}");
        }
        assert_eq!(serde_json::from_str::<Success>("{}").expect("nothing"), Success::default());
    }

    #[test]
    fn prefixes() {
        for text in ["192.0.2.5", "192.0.2.5/33", "2001:db8::/129", "x/8", "192.0.2.5/-1", "/"] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
        assert_eq!(cidr("2001:db8::5/64").to_string(), "2001:db8::5/64");
    }
}
