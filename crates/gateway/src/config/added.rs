//! Ports that come, change and go by command: a running configuration with one more, or one less.
//!
//! A port is described by the tables that a file would have for it: `[port.NAME]`, which names its bridge, and
//! `[bridge.BRIDGE.port.NAME]`.

use super::directory::ConfigurationPart;
use super::model::Configuration;
use super::{Loaded, Report, parse_parts};
use std::path::Path;
use toml::{Table, Value};

/// Stands for the file of what runs.
const RUNNING: &str = "what runs";

/// Reason why tables do not describe one port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOnePort {
    /// It is not TOML.
    #[error("{0}")]
    Toml(String),
    /// There is another table, or none.
    #[error(
        "{found} does not belong to port {name}, whose tables are `[port.{name}]` and \
             `[bridge.BRIDGE.port.{name}]`"
    )]
    Other {
        /// The port.
        name: String,
        /// The other table.
        found: String,
    },
}

/// The tables of the port `name` in `text`.
///
/// # Errors
/// When it has others, or is not TOML.
pub fn tables_of(name: &str, text: &str) -> Result<Table, NotOnePort> {
    let tables = text.parse::<Table>().map_err(|error| NotOnePort::Toml(error.to_string()))?;
    let other = |found: String| Err(NotOnePort::Other { name: name.to_owned(), found });
    for (key, value) in &tables {
        let named = value.as_table().into_iter().flatten();
        for (second, value) in named {
            let inner = value.as_table();
            let is_own = match key.as_str() {
                "port" => second == name,
                "bridge" => inner.is_some_and(|bridge| is_only(bridge, "port", name)),
                _ => false,
            };
            if !is_own {
                return other(format!("[{key}.{second}]"));
            }
        }
        if !["port", "bridge"].contains(&key.as_str()) {
            return other(format!("`{key}`"));
        }
    }
    Ok(tables)
}

/// True if a table has `key` alone, a table of one table.
fn is_only(table: &Table, key: &str, name: &str) -> bool {
    let inner = table.get(key).and_then(Value::as_table);
    table.len() == 1 && inner.is_some_and(|inner| inner.keys().all(|key| key == name))
}

/// Tables with those of `changes` in the places of their own.
pub fn changed(mut tables: Table, changes: Table) -> Table {
    for (key, value) in changes {
        let before = tables.remove(&key);
        let value = match (before, value) {
            // What a member carries is one value, written as a table.
            (Some(Value::Table(before)), Value::Table(value)) if key != "vlan" => {
                Value::Table(changed(before, value))
            }
            (_, value) => value,
        };
        tables.insert(key, value);
    }
    tables
}

/// `running` without the ports `removed`, and with those that `texts` describe, each with what stands for the name of
/// its file.
///
/// # Errors
/// The findings, when that is not a valid configuration.
#[expect(clippy::missing_panics_doc, reason = "a table of these values can always be written")]
pub fn with_ports(
    running: &Configuration,
    removed: &[&str],
    texts: &[(String, String)],
) -> Result<Loaded, Report> {
    let mut tables = running.to_table();
    if !removed.is_empty() {
        remove(&mut tables, removed);
    }
    let text = toml::to_string(&tables).expect("tables, lists, strings and numbers can be written");
    let mut parts = vec![ConfigurationPart { file: RUNNING.into(), text }];
    parts.extend(
        texts.iter().map(|(origin, text)| ConfigurationPart { file: origin.into(), text: text.clone() }),
    );
    parts.retain(|part| !part.text.is_empty());
    parse_parts(&parts, Path::new(RUNNING))
}

/// Takes ports out of the tables of a configuration, and out of their bridges.
fn remove(tables: &mut Table, removed: &[&str]) {
    let is_removed = |name: &str| removed.contains(&name);
    if let Some(ports) = tables.get_mut("port").and_then(Value::as_table_mut) {
        ports.retain(|name, _| !is_removed(name));
    }
    for (_, bridge) in tables.get_mut("bridge").and_then(Value::as_table_mut).into_iter().flatten() {
        let Some(bridge) = bridge.as_table_mut() else { continue };
        if let Some(members) = bridge.get_mut("members").and_then(Value::as_array_mut) {
            members.retain(|member| !member.as_str().is_some_and(is_removed));
        }
        if let Some(options) = bridge.get_mut("port").and_then(Value::as_table_mut) {
            options.retain(|name, _| !is_removed(name));
        }
        if let Some(entries) = bridge.get_mut("static").and_then(Value::as_array_mut) {
            entries.retain(|entry| !entry.get("port").and_then(Value::as_str).is_some_and(is_removed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    const TEXT: &str = "version = 1\n[port.a]\ninterface = \"a0\"\n[port.host]\ntap = \"host0\"\n\
        [bridge.lan]\nmembers = [\"a\", \"host\"]\n[bridge.lan.port.a]\nvlan = { access = 7 }\n\
        [bridge.lan.port.host]\nvlan = { access = 7 }\n";
    const PORT: &str =
        "[port.c5]\ninterface = \"veth5\"\nbridge = \"lan\"\n[bridge.lan.port.c5]\nvlan = { access = 7 }\n";

    fn running() -> Configuration {
        parse(TEXT, Path::new("test.toml")).expect("a right file").configuration
    }

    fn text(origin: &str, text: &str) -> (String, String) {
        (origin.to_owned(), text.to_owned())
    }

    #[test]
    fn a_port_comes_and_goes() {
        let running = running();
        let with = with_ports(&running, &[], &[text("c5", PORT)]).expect("a right port").configuration;
        assert_eq!(with.ports.len(), 3);
        assert_eq!(with.bridges[0].members.len(), 3);
        assert!(with.bridges[0].members[2].vlan.is_some());
        let without = with_ports(&with, &["c5"], &[]).expect("nobody needs it").configuration;
        assert_eq!(without.to_toml(), running.to_toml());
        let other = PORT.replace("7", "8");
        let set = with_ports(&with, &["c5"], &[text("c5", &other)]).expect("another VLAN").configuration;
        assert_ne!(set.bridges[0].members[2].vlan, with.bridges[0].members[2].vlan);
    }

    #[test]
    fn findings_name_the_port_that_comes() {
        let wrong = with_ports(&running(), &[], &[text("port c5", &PORT.replace("\"lan\"", "\"wan\""))])
            .expect_err("no such bridge");
        assert!(wrong.findings().any(|found| (found.file, found.line) == ("port c5", 3)), "{wrong}");
        let twice = [text("port a", "[port.a]\ninterface = \"x\"\n")];
        let twice = with_ports(&running(), &[], &twice).expect_err("it is there");
        assert!(twice.render(false).contains("what runs"), "{twice}");
    }

    #[test]
    fn tables_are_of_one_port() {
        assert!(tables_of("c5", PORT).is_ok());
        for other in [
            "[gateway]\nname = \"x\"\n",
            "[port.d]\n",
            "[bridge.lan]\nageing_seconds = 9\n",
            "[bridge.lan.port.d]\n",
        ] {
            assert!(matches!(tables_of("c5", other), Err(NotOnePort::Other { .. })), "{other}");
        }
        let changes = tables_of("c5", "[bridge.lan.port.c5]\nvlan = { trunk = [8] }\nisolated = true\n")
            .expect("its own");
        let changed = changed(tables_of("c5", PORT).expect("its own"), changes);
        let member = &changed["bridge"]["lan"]["port"]["c5"];
        assert_eq!((member["vlan"].get("access"), member["isolated"].as_bool()), (None, Some(true)));
        assert_eq!(changed["port"]["c5"]["interface"].as_str(), Some("veth5"));
    }
}
