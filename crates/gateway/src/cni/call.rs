//! Environment of a plugin call (CNI specification 1.1.0, "Parameters").

use super::error::{CniError, ENVIRONMENT};
use polder_datapath::wire::MacAddress;
use std::path::{Path, PathBuf};

/// Maximum length of a container id in bytes, because the interface's alias contains it.
const MAX_ID: usize = 128;

/// Operation of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Attaches a container.
    Add,
    /// Detaches a container.
    Delete,
    /// Checks that an attachment is as ADD has left it.
    Check,
    /// Removes attachments of a network that are not listed (GC).
    Collect,
    /// Reports whether ADD would work.
    Status,
    /// Lists the supported versions of the specification.
    Version,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Container id; empty for operations on a network.
    pub container: String,
    /// File of the container's network namespace.
    pub namespace: Option<PathBuf>,
    /// Name of the interface in the container.
    pub interface: String,
    /// MAC address from `CNI_ARGS`.
    pub mac: Option<MacAddress>,
    /// Directories of plugins.
    pub path: Vec<PathBuf>,
}

impl Command {
    /// Reads the operation.
    ///
    /// # Errors
    /// When it is unknown.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Self, CniError> {
        let word = variable("CNI_COMMAND").unwrap_or_default();
        let commands = [
            ("ADD", Self::Add),
            ("DEL", Self::Delete),
            ("CHECK", Self::Check),
            ("GC", Self::Collect),
            ("STATUS", Self::Status),
            ("VERSION", Self::Version),
        ];
        let found = commands.iter().find(|(name, _)| *name == word).map(|&(_, command)| command);
        found.ok_or_else(|| {
            let known = commands.map(|(name, _)| name).join(", ");
            wrong("CNI_COMMAND", &word, &format!("use one of {known}"))
        })
    }

    /// True for an operation on a single container.
    fn is_of_a_container(self) -> bool {
        matches!(self, Self::Add | Self::Delete | Self::Check)
    }
}

impl Call {
    /// Reads the environment.
    ///
    /// # Errors
    /// When a variable that `command` needs is missing or wrong.
    pub fn of(command: Command, variable: impl Fn(&str) -> Option<String>) -> Result<Self, CniError> {
        let value = |name: &str| variable(name).filter(|value| !value.is_empty());
        let needed = |name: &str| {
            let missing =
                || CniError::new(ENVIRONMENT, format!("{name} is not set: the runtime has to set it"));
            value(name).ok_or_else(missing)
        };
        let path = value("CNI_PATH").unwrap_or_default();
        let path = std::env::split_paths(&path).filter(|path| path.is_absolute()).collect();
        let mut call =
            Self { container: String::new(), namespace: None, interface: String::new(), mac: None, path };
        if !command.is_of_a_container() {
            return Ok(call);
        }
        call.container = needed("CNI_CONTAINERID")?;
        if !is_identifier(&call.container) || call.container.len() > MAX_ID {
            let rule = format!(
                "use at most {MAX_ID} letters, digits, `_`, `.` and `-`, and begin with a letter or digit"
            );
            return Err(wrong("CNI_CONTAINERID", &call.container, &rule));
        }
        call.interface = needed("CNI_IFNAME")?;
        if !is_interface(&call.interface) {
            let rule = "use at most 15 bytes without `/`, `:` and white space";
            return Err(wrong("CNI_IFNAME", &call.interface, rule));
        }
        let namespace = value("CNI_NETNS").map(PathBuf::from);
        // A deleted container's namespace may not exist any more.
        let may_be_missing = command == Command::Delete;
        call.namespace = if may_be_missing { namespace } else { Some(needed("CNI_NETNS")?.into()) };
        call.mac = mac_of(&value("CNI_ARGS").unwrap_or_default())?;
        Ok(call)
    }

    /// Network namespace file of a call that needs it.
    pub(super) fn namespace(&self) -> &Path {
        self.namespace.as_deref().unwrap_or(Path::new(""))
    }
}

/// `MAC` in `CNI_ARGS`; other keys are ignored.
fn mac_of(arguments: &str) -> Result<Option<MacAddress>, CniError> {
    let mut mac = None;
    for pair in arguments.split(';').filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(wrong("CNI_ARGS", pair, "write `KEY=VALUE;KEY=VALUE`"));
        };
        if key == "MAC" {
            let refused = |error: &dyn std::fmt::Display| wrong("CNI_ARGS", pair, &error.to_string());
            mac = Some(station(value).map_err(|error| refused(&error))?);
        }
    }
    Ok(mac)
}

/// Parses a unicast MAC address.
pub(super) fn station(text: &str) -> Result<MacAddress, String> {
    let mac = text.parse::<MacAddress>().map_err(|error| error.to_string())?;
    let is_station = mac.0[0] & 1 == 0 && mac.0 != [0; 6];
    if is_station { Ok(mac) } else { Err("use a unicast address: its first byte is even".to_owned()) }
}

/// True for a valid name of a network or container.
pub(super) fn is_identifier(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

fn is_interface(name: &str) -> bool {
    let is_odd = |letter: char| matches!(letter, '/' | ':') || letter.is_whitespace() || letter.is_control();
    name.len() <= 15 && ![".", ".."].contains(&name) && !name.contains(is_odd)
}

fn wrong(name: &str, value: &str, remedy: &str) -> CniError {
    CniError::new(ENVIRONMENT, format!("{name} is {value:?}: {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [(&str, &str); 6] = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c5"),
        ("CNI_NETNS", "/run/netns/c5"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", "IgnoreUnknown=1;MAC=02:00:00:00:00:05"),
        ("CNI_PATH", "/opt/cni/bin:/usr/lib/cni:relative"),
    ];

    fn called(changes: &[(&str, &str)]) -> Result<Call, CniError> {
        let variable = |name: &str| {
            let found = changes.iter().chain(&GOOD).find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Call::of(Command::of(variable)?, variable)
    }

    #[test]
    fn the_environment_is_a_call() {
        let call = called(&[]).expect("a right environment");
        assert_eq!(call.namespace(), Path::new("/run/netns/c5"));
        assert_eq!(call.mac, Some(MacAddress([2, 0, 0, 0, 0, 5])));
        assert_eq!(call.path, [Path::new("/opt/cni/bin"), Path::new("/usr/lib/cni")]);
        let gone = called(&[("CNI_COMMAND", "DEL"), ("CNI_NETNS", "")]).expect("the namespace may have gone");
        assert_eq!(gone.namespace, None);
        let all = [("CNI_COMMAND", "GC"), ("CNI_CONTAINERID", "")];
        assert_eq!(called(&all).expect("of no container").interface, "");
    }

    #[test]
    fn a_wrong_variable_is_named() {
        for (name, value) in [
            ("CNI_COMMAND", "add"),
            ("CNI_COMMAND", ""),
            ("CNI_CONTAINERID", ""),
            ("CNI_CONTAINERID", "-x"),
            ("CNI_CONTAINERID", "../x"),
            ("CNI_CONTAINERID", &"x".repeat(129)),
            ("CNI_NETNS", ""),
            ("CNI_IFNAME", ""),
            ("CNI_IFNAME", "a/b"),
            ("CNI_IFNAME", ".."),
            ("CNI_IFNAME", "an-interface-too-long"),
            ("CNI_ARGS", "MAC"),
            ("CNI_ARGS", "MAC=01:00:00:00:00:05"),
            ("CNI_ARGS", "MAC=02:00"),
        ] {
            let error = called(&[(name, value)]).expect_err(value);
            assert!(error.code == ENVIRONMENT && error.message.contains(name), "{error}");
        }
    }
}
