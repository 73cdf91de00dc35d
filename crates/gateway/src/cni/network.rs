//! The network configuration on standard input (CNI specification 1.1.0, "Network configuration format").

use super::call::{self, Call, Command};
use super::error::{CONFIGURATION, CniError, DECODE, KEY, VERSION};
use super::result::{Dns, VERSIONS, is_at_least};
use crate::control::client::{ClientError, DIRECTORY, only_gateway};
use polder_datapath::wire::MacAddress;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Default of `file`: the gateway's configuration file.
const FILE: &str = "/etc/polder/gateway.toml";
/// Maximum length of a network's name in bytes, because the interface's alias contains it.
const MAX_NAME: usize = 64;
/// Keys that runtimes add, or that other plugins of a chain use.
const OTHERS: [&str; 6] =
    ["type", "capabilities", "cniVersions", "disableCheck", "disableGC", "loadOnlyInlinedPlugins"];
/// Prefix of keys that the specification reserves.
const RESERVED: &str = "cni.dev/";

/// A network configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Version of the specification.
    #[serde(default)]
    pub cni_version: String,
    /// Name of the network.
    #[serde(default)]
    pub name: String,
    /// Name of the gateway; needed when several run.
    pub gateway: Option<String>,
    /// Control socket of the gateway, if not at the default path.
    pub socket: Option<PathBuf>,
    /// Configuration file of the gateway; ports are files in `conf.d` beside it.
    #[serde(default = "usual_file")]
    pub file: PathBuf,
    /// Bridge of the gateway.
    #[serde(default)]
    pub bridge: String,
    /// VLAN of the containers in the bridge.
    pub vlan: Option<u16>,
    /// True if containers cannot reach other isolated members.
    #[serde(default)]
    pub isolated: bool,
    /// MTU of the interfaces.
    pub mtu: Option<u32>,
    /// True if packets must have the container's own MAC and IP addresses.
    #[serde(default = "yes")]
    pub source_guard: bool,
    /// Section of the IPAM plugin.
    ipam: Option<Ipam>,
    /// Name servers of the containers.
    #[serde(default)]
    pub dns: Dns,
    /// Arguments of capabilities.
    #[serde(default)]
    runtime_config: Arguments,
    /// Arguments in `args`.
    #[serde(default)]
    args: Args,
    /// Result of ADD, for operations after it.
    pub prev_result: Option<Value>,
    /// Attachments that GC keeps.
    #[serde(rename = "cni.dev/valid-attachments")]
    pub valid: Option<Vec<Attachment>>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
struct Ipam {
    #[serde(default, rename = "type")]
    kind: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Args {
    #[serde(default)]
    cni: Arguments,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Arguments {
    mac: Option<String>,
}

/// Attachment of a container.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Attachment {
    /// Container id.
    #[serde(rename = "containerID")]
    pub container: String,
    /// Name of the interface in the container.
    #[serde(rename = "ifname")]
    pub interface: String,
}

fn usual_file() -> PathBuf {
    PathBuf::from(FILE)
}

const fn yes() -> bool {
    true
}

impl Network {
    /// Parses and checks a network configuration.
    ///
    /// # Errors
    /// When it is invalid, or its version does not have `command`.
    pub fn parse(input: &[u8], command: Command) -> Result<Self, CniError> {
        let decode =
            |error| CniError::new(DECODE, format!("the network configuration cannot be read: {error}"));
        let network = serde_json::from_slice::<Self>(input).map_err(decode)?;
        network.check_version(command)?;
        let wrong = |message: String| Err(CniError::new(CONFIGURATION, message));
        if !call::is_identifier(&network.name) || network.name.len() > MAX_NAME {
            let name = &network.name;
            return wrong(format!(
                "`name` is {name:?}: use at most {MAX_NAME} letters, digits, `_`, `.` and `-`, and begin with a letter or digit"
            ));
        }
        // A container can be deleted even if its network's configuration has become invalid.
        if !matches!(command, Command::Delete | Command::Collect) {
            network.check_keys()?;
        }
        Ok(network)
    }

    fn check_version(&self, command: Command) -> Result<(), CniError> {
        let version = &self.cni_version;
        let (known, least) = (VERSIONS.contains(&version.as_str()), command.since());
        if known && is_at_least(version, least) {
            return Ok(());
        }
        let rule = if known {
            format!("{command:?} needs {least}")
        } else {
            format!("use one of {}", VERSIONS.join(", "))
        };
        Err(CniError::new(VERSION, format!("`cniVersion` is {version:?}: {rule}")))
    }

    fn check_keys(&self) -> Result<(), CniError> {
        let unknown = |key: &&String| !OTHERS.contains(&key.as_str()) && !key.starts_with(RESERVED);
        if let Some(key) = self.rest.keys().find(unknown) {
            let value = &self.rest[key];
            return Err(CniError::new(
                KEY,
                format!(
                    "`{key}` is {value}, but this plugin has no such key: remove it, or use gateway, \
                     socket, file, bridge, vlan, isolated, mtu, sourceGuard, ipam, dns"
                ),
            ));
        }
        let wrong = |message: &str| Err(CniError::new(CONFIGURATION, message));
        if self.bridge.is_empty() {
            return wrong("`bridge` is missing: name a bridge of the gateway");
        }
        if self.gateway.is_some() && self.socket.is_some() {
            return wrong("`gateway` and `socket` both name the gateway: keep one of them");
        }
        if self.gateway.as_ref().is_some_and(|name| !call::is_identifier(name)) {
            return wrong("`gateway` is not the name of a gateway: `ls /run/polder` lists them");
        }
        if !self.file.is_absolute() {
            return wrong("`file` is relative: write the path of the gateway's configuration file");
        }
        if self.mtu.is_some_and(|mtu| !(68..=9578).contains(&mtu)) {
            return wrong("`mtu` is out of range: use 68 to 9578, from 1280 with IPv6");
        }
        Ok(())
    }

    /// Control socket of the network's gateway.
    pub(super) fn control(&self) -> Result<PathBuf, ClientError> {
        match (&self.socket, &self.gateway) {
            (Some(path), _) => Ok(path.clone()),
            (None, Some(name)) => Ok(Path::new(DIRECTORY).join(format!("{name}.sock"))),
            (None, None) => only_gateway(),
        }
    }

    /// Name of the IPAM plugin; `None` for containers without addresses.
    pub(super) fn ipam(&self) -> Option<&str> {
        self.ipam.as_ref().map(|ipam| ipam.kind.as_str()).filter(|kind| !kind.is_empty())
    }

    /// Requested MAC address, from a capability, `args` or `CNI_ARGS`.
    pub(super) fn mac(&self, call: &Call) -> Result<Option<MacAddress>, CniError> {
        let text = self.runtime_config.mac.as_ref().or(self.args.cni.mac.as_ref());
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(call.mac) };
        let wrong = |error| CniError::new(CONFIGURATION, format!("`mac` is {text:?}: {error}"));
        call::station(text).map(Some).map_err(wrong)
    }
}

impl Command {
    /// First version of the specification that has the operation.
    fn since(self) -> &'static str {
        match self {
            Self::Add | Self::Delete | Self::Version => VERSIONS[0],
            Self::Check => "0.4.0",
            Self::Collect | Self::Status => "1.1.0",
        }
    }
}

/// Version of the specification in an input; empty if it cannot be read.
pub(super) fn version_of(input: &[u8]) -> String {
    let input = serde_json::from_slice::<Value>(input).unwrap_or_default();
    input.get("cniVersion").and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, command: Command) -> Result<Network, CniError> {
        Network::parse(text.as_bytes(), command)
    }

    const GOOD: &str = r#"{"cniVersion":"1.1.0","name":"lan","type":"polder-cni","bridge":"lan","capabilities":{"mac":true},
        "ipam":{"type":"host-local","subnet":"192.0.2.0/24"},"runtimeConfig":{"mac":"02:00:00:00:00:05"},
        "cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}]}"#;

    #[test]
    fn a_configuration_has_defaults() {
        let network = parse(GOOD, Command::Add).expect("a right configuration");
        assert!(network.source_guard && !network.isolated && network.vlan.is_none());
        assert_eq!((network.file.as_path(), network.ipam()), (Path::new(FILE), Some("host-local")));
        let call = Call::of(Command::Collect, |_| None).expect("of no container");
        assert_eq!(network.mac(&call), Ok(Some(MacAddress([2, 0, 0, 0, 0, 5]))));
        assert_eq!(network.valid.expect("a list")[0].container, "a");
    }

    #[test]
    fn what_is_wrong_has_a_number_and_a_remedy() {
        for (from, to, code) in [
            ("{", "", DECODE),
            ("\"bridge\":\"lan\"", "\"bridge\":7", DECODE),
            ("\"bridge\":\"lan\"", "\"bridge\":\"\"", CONFIGURATION),
            ("\"name\":\"lan\"", "\"name\":\"\"", CONFIGURATION),
            ("\"name\":\"lan\"", "\"name\":\"../x\"", CONFIGURATION),
            ("\"bridge\"", "\"ipMasq\":true,\"bridge\"", KEY),
            ("\"bridge\"", "\"file\":\"a.toml\",\"bridge\"", CONFIGURATION),
            ("\"bridge\"", "\"gateway\":\"a\",\"socket\":\"/b\",\"bridge\"", CONFIGURATION),
            ("\"bridge\"", "\"gateway\":\"../b\",\"bridge\"", CONFIGURATION),
            ("\"bridge\"", "\"mtu\":67,\"bridge\"", CONFIGURATION),
            ("1.1.0", "2.0.0", VERSION),
            ("\"cniVersion\":\"1.1.0\",", "", VERSION),
        ] {
            let error = parse(&GOOD.replacen(from, to, 1), Command::Add).expect_err(to);
            assert_eq!(error.code, code, "{error}");
        }
        let error =
            parse(&GOOD.replace("\"bridge\"", "\"vlna\":5,\"bridge\""), Command::Add).expect_err("a typo");
        assert!(error.message.starts_with("`vlna` is 5"), "{error}");
    }

    #[test]
    fn operations_have_a_first_version() {
        let old = GOOD.replace("1.1.0", "0.3.1");
        assert!(parse(&old, Command::Add).is_ok());
        for command in [Command::Check, Command::Collect, Command::Status] {
            assert_eq!(parse(&old, command).expect_err("too old").code, VERSION);
        }
    }

    #[test]
    fn a_container_goes_whatever_its_network_has_become() {
        let wrong = GOOD.replace("\"bridge\"", "\"brigde\"");
        assert!(parse(&wrong, Command::Add).is_err());
        assert!(parse(&wrong, Command::Delete).is_ok() && parse(&wrong, Command::Collect).is_ok());
    }
}
