//! Port of an attachment: in the gateway, and in a file of `conf.d` that a restart reads.

use super::call::Call;
use super::error::{ATTACHED, CHANGED, CONFIGURATION, CniError, REFUSED};
use super::network::{Attachment, Network};
use super::pair::{alias_of, attachment_of, await_carrier, name_of, refused};
use super::result::Cidr;
use crate::config::added::{changed, tables_of};
use crate::config::directory_of;
use crate::control::client::{Client, ClientError};
use crate::control::port_file::{self, file_of};
use crate::control::{Answer, Ask, PortOrder, PortRequest, ReadFile};
use crate::show::{View, What};
use polder_datapath::units::Nanos;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use toml::{Table, Value};

/// Time limit for the interface to get a carrier.
const PATIENCE: Nanos = Nanos::from_seconds(2);

/// Port of an attachment.
#[derive(Debug)]
pub(super) struct Port<'a> {
    /// Name of the port and of the host's interface.
    pub(super) name: String,
    network: &'a Network,
    /// First line of the port's file.
    head: String,
}

impl<'a> Port<'a> {
    /// The port of a call for a container.
    pub(super) fn of(call: &Call, network: &'a Network) -> Self {
        Self::of_attachment(network, &call.container, &call.interface)
    }

    /// The port of an attachment.
    pub(super) fn of_attachment(network: &'a Network, container: &str, interface: &str) -> Self {
        let name = name_of(&network.name, container, interface);
        let head = format!("# {}\n", alias_of(&network.name, container, interface));
        Self { name, network, head }
    }

    /// TOML tables of the port, with its source guard if the network has `source_guard`.
    fn tables(&self, mac: Option<&str>, addresses: &[Cidr]) -> Table {
        let text = |text: &str| Value::String(text.to_owned());
        let named = |table: Table| Table::from_iter([(self.name.clone(), Value::Table(table))]);
        let mut port = Table::from_iter([
            ("interface".to_owned(), text(&self.name)),
            ("bridge".to_owned(), text(&self.network.bridge)),
        ]);
        if let Some(mac) = mac.filter(|_| self.network.source_guard) {
            let mut guard = Table::from_iter([("mac".to_owned(), text(mac))]);
            if !addresses.is_empty() {
                let addresses = addresses.iter().map(|cidr| text(&cidr.address.to_string())).collect();
                guard.insert("addresses".to_owned(), Value::Array(addresses));
            }
            port.insert("source_guard".to_owned(), Value::Table(guard));
        }
        let mut member = Table::new();
        if let Some(vlan) = self.network.vlan {
            let vlan = Table::from_iter([("access".to_owned(), Value::Integer(vlan.into()))]);
            member.insert("vlan".to_owned(), Value::Table(vlan));
        }
        if self.network.isolated {
            member.insert("isolated".to_owned(), Value::Boolean(true));
        }
        let mut tables = Table::from_iter([("port".to_owned(), Value::Table(named(port)))]);
        if !member.is_empty() {
            let ports = Table::from_iter([("port".to_owned(), Value::Table(named(member)))]);
            let bridge = Table::from_iter([(self.network.bridge.clone(), Value::Table(ports))]);
            tables.insert("bridge".to_owned(), Value::Table(bridge));
        }
        tables
    }

    fn request(&self, order: PortOrder, tables: String, dry_run: bool) -> PortRequest {
        PortRequest { name: self.name.clone(), order, tables, in_file: true, dry_run, yes: false }
    }

    /// Checks by a dry run that the gateway would accept the port, whose interface does not exist yet.
    pub(super) fn probe(&self, client: &mut Client) -> Result<(), CniError> {
        if file_of(&self.network.file, &self.name).exists() {
            let file = file_of(&self.network.file, &self.name);
            let message = format!("{} already exists for this attachment: call DEL first", file.display());
            return Err(CniError::new(ATTACHED, message));
        }
        let tables = self.tables(None, &[]).to_string();
        client.ask(Ask::Port(self.request(PortOrder::Add, tables, true)))?;
        Ok(())
    }

    /// Adds the port to the gateway and writes its file, or does neither.
    pub(super) fn add(&self, client: &mut Client, mac: &str, addresses: &[Cidr]) -> Result<(), CniError> {
        let text = self.head.clone() + &self.tables(Some(mac), addresses).to_string();
        let request = self.request(PortOrder::Add, text.clone(), false);
        let file = file_of(&self.network.file, &self.name);
        port_file::kept(client, request, &file, &text)?;
        Ok(())
    }

    /// Removes the port and its file; only the file if no gateway runs.
    pub(super) fn delete(&self, client: Option<&mut Client>) -> Result<(), CniError> {
        let file = file_of(&self.network.file, &self.name);
        match client {
            Some(client) => {
                let request = self.request(PortOrder::Delete, String::new(), false);
                port_file::kept(client, request, &file, "")?;
            }
            None => port_file::put(&file, None)?,
        }
        Ok(())
    }

    /// Checks that file and gateway have the port as ADD has left it, and that it is open. Additional keys of
    /// an operator are ignored.
    pub(super) fn compare(&self, client: &mut Client, mac: &str, addresses: &[Cidr]) -> Result<(), CniError> {
        let broken = |text: String| CniError::new(CHANGED, format!("{text}: call DEL and ADD"));
        let file = file_of(&self.network.file, &self.name);
        let unreadable =
            |error| broken(format!("the port's file {} cannot be read ({error})", file.display()));
        let text = fs::read_to_string(&file).map_err(unreadable)?;
        let tables =
            tables_of(&self.name, &text).map_err(|error| broken(format!("{}: {error}", file.display())))?;
        if changed(tables.clone(), self.tables(Some(mac), addresses)) != tables {
            return Err(broken(format!("{} was changed after ADD", file.display())));
        }
        let request = self.request(PortOrder::Add, text, true);
        match client.ask(Ask::Port(request)) {
            Ok(Answer::Reloaded(reloaded)) if reloaded.changes.is_empty() => {}
            Ok(_) => return Err(broken(format!("the gateway has no port {}", self.name))),
            Err(ClientError::Refused { message, .. }) => {
                return Err(broken(format!(
                    "the gateway's port {} differs from its file ({message})",
                    self.name
                )));
            }
            Err(error) => return Err(error.into()),
        }
        match self.state(client)?.as_deref() {
            Some("open") => Ok(()),
            // The gateway sees a new carrier within a second.
            Some("no-carrier") if self.has_carrier()? => Ok(()),
            Some(state) => Err(broken(format!("the port {} is {state}", self.name))),
            None => Err(broken(format!("the gateway has no port {}", self.name))),
        }
    }

    /// Returns true if the port's interface has a carrier, or gets one in time.
    fn has_carrier(&self) -> Result<bool, CniError> {
        await_carrier(&self.name, PATIENCE)
            .map_err(|error| refused(&format!("wait for the carrier of {}", self.name), error))
    }

    /// State of the gateway's port, as in `polder show ports`; `None` if there is no such port.
    fn state(&self, client: &mut Client) -> Result<Option<String>, CniError> {
        let ask =
            Ask::Show { what: What::Ports, of: Some(self.name.clone()), since_seconds: None, most: None };
        let answer = client.ask(ask)?;
        let Answer::Shown(shown) = answer else {
            return Err(ClientError::Answer(format!("{answer:?}")).into());
        };
        let View::Ports(rows) = shown.view else { return Ok(None) };
        Ok(rows.into_iter().find(|row| row.name == self.name).map(|row| row.state))
    }
}

/// Connects to the network's gateway, and checks that it reads the network's `conf.d`.
pub(super) fn connect(network: &Network) -> Result<Client, CniError> {
    let mut client = reach(network)?;
    let answer = client.ask(Ask::File)?;
    let Answer::File(ReadFile { file }) = answer else {
        return Err(ClientError::Answer(format!("{answer:?}")).into());
    };
    let (own, other) = (directory_of(&network.file), directory_of(&file));
    let is_same =
        || fs::canonicalize(&own).ok().zip(fs::canonicalize(&other).ok()).is_some_and(|(a, b)| a == b);
    if own != other && !is_same() {
        return Err(CniError::new(
            CONFIGURATION,
            format!(
                "the gateway reads {}, but the port would be written beside {}: write `\"file\": {file:?}` \
                 into the network configuration",
                file.display(),
                network.file.display()
            ),
        ));
    }
    let namespace =
        |process: &str| fs::metadata(format!("/proc/{process}/ns/net")).ok().map(|file| file.ino());
    let theirs = client.process().ok().and_then(|process| namespace(&process.to_string()));
    if theirs.is_some() && theirs != namespace("self") {
        return Err(CniError::new(
            REFUSED,
            "the gateway is in another network namespace than the plugin: run the runtime where the gateway runs",
        ));
    }
    Ok(client)
}

/// Connects to the network's gateway.
pub(super) fn reach(network: &Network) -> Result<Client, ClientError> {
    Client::connect(&network.control()?)
}

/// Attachments of a network that have a file.
pub(super) fn list(network: &Network) -> Vec<Attachment> {
    let entries = fs::read_dir(directory_of(&network.file)).into_iter().flatten().flatten();
    let attachment = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path()).ok()?;
        let attachment = attachment_of(text.lines().next()?.strip_prefix("# ")?, &network.name)?;
        let name = name_of(&network.name, &attachment.container, &attachment.interface);
        (entry.path() == file_of(&network.file, &name)).then_some(attachment)
    };
    entries.filter_map(attachment).collect()
}

#[cfg(test)]
mod tests {
    use super::super::call::Command;
    use super::*;

    fn network(keys: &str) -> Network {
        let text =
            format!(r#"{{"cniVersion":"1.1.0","name":"net","type":"polder-cni","bridge":"lan"{keys}}}"#);
        Network::parse(text.as_bytes(), Command::Add).expect("a right configuration")
    }

    #[test]
    fn tables_of_a_container() {
        let addresses = ["192.0.2.5/24", "2001:db8::5/64"].map(|text| text.parse().expect("an address"));
        let text = ["", r#","vlan":7,"isolated":true"#, r#","sourceGuard":false"#].map(|keys| {
            let network = network(keys);
            let port = Port::of_attachment(&network, "c5", "eth0");
            let text = port.head.clone() + &port.tables(Some("02:00:00:00:00:05"), &addresses).to_string();
            tables_of(&port.name, &text).expect("tables of one port");
            text
        });
        insta::assert_snapshot!(text.join("\n"));
    }

    #[test]
    fn without_addresses_the_station_alone_is_held() {
        let network = network("");
        let port = Port::of_attachment(&network, "c5", "eth0");
        let tables = port.tables(Some("02:00:00:00:00:05"), &[]);
        let guard = &tables["port"][&port.name]["source_guard"];
        assert_eq!((guard.get("mac").is_some(), guard.get("addresses")), (true, None));
        assert_eq!(port.tables(None, &[])["port"][&port.name].get("source_guard"), None);
    }
}
