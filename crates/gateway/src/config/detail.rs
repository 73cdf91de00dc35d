//! Changes inside a port, tunnel or bridge, key by key.

use super::changes::{Changes, Difference, Restart};
use super::keys::Keyed;
use super::model::{Configuration, Port};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use toml::Value;

/// A key whose value in the file is another than the running one, both as the file would have them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyChange {
    /// The key with the tables that it stands in.
    pub key: String,
    /// The running value; none where the key is not there.
    pub running: Option<String>,
    /// The value in the file.
    pub file: Option<String>,
}

/// The lines of `polder reload`: each change, and below it the keys that have other values.
pub fn describe(old: &Configuration, difference: &Difference) -> Vec<String> {
    if difference.is_empty() {
        return Vec::new();
    }
    let (before, after) = (values(old), values(&difference.target));
    let changed = names("port", &difference.ports, |port| &port.name)
        .chain(names("tunnel", &difference.tunnels, |tunnel| &tunnel.table))
        .chain(names("bridge", &difference.bridges, |bridge| &bridge.name))
        .chain(names("port", &difference.patterns, |pattern| &pattern.name));
    let mut keys =
        changed.map(|path| keys(&before, &after, &format!("{path}."))).collect::<Vec<_>>().into_iter();
    let mut lines = Vec::new();
    for line in difference.to_string().lines() {
        lines.push(line.to_owned());
        // Changes stand in the same order in both; what is compared as a whole comes last.
        if line.starts_with('~') {
            lines.extend(keys.next().into_iter().flatten());
        }
    }
    lines
}

/// Each key that has another value, or is on one side alone.
pub fn keys_changed(old: &Configuration, new: &Configuration) -> Vec<KeyChange> {
    let (before, after) = (values(old), values(new));
    let paths = before.keys().chain(after.keys()).collect::<BTreeSet<_>>();
    let change = |path: &String| {
        let (running, file) = (before.get(path).cloned(), after.get(path).cloned());
        (running != file).then(|| KeyChange { key: path.clone(), running, file })
    };
    paths.into_iter().filter_map(change).collect()
}

fn names<'a, T>(
    kind: &'a str,
    changes: &'a Changes<T>,
    name: impl Fn(&T) -> &String + 'a,
) -> impl Iterator<Item = String> + 'a {
    changes.changed.iter().map(move |change| format!("{kind}.{}", name(&change.new)))
}

/// All values by their paths. A configuration with every default written out has every key on both sides.
fn values(configuration: &Configuration) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    configuration.to_table().iter().for_each(|(key, value)| flatten(key, value, &mut values));
    values
}

fn flatten(path: &str, value: &Value, values: &mut BTreeMap<String, String>) {
    let is_table = |value: &Value| value.is_table();
    match value {
        Value::Table(table) => {
            table.iter().for_each(|(key, value)| flatten(&format!("{path}.{key}"), value, values));
        }
        Value::Array(array) if array.iter().any(is_table) => {
            array
                .iter()
                .enumerate()
                .for_each(|(number, value)| flatten(&format!("{path}.{number}"), value, values));
        }
        Value::Array(_)
        | Value::String(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_) => {
            values.insert(path.to_owned(), value.to_string());
        }
    }
}

/// The lines about the keys below `prefix` that are not the same.
fn keys(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>, prefix: &str) -> Vec<String> {
    let line = |(key, change)| format!("    {key}: {change}");
    changed(before, after, prefix).into_iter().map(line).collect()
}

/// The keys below `prefix` that are not the same, with both values.
fn changed(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
    prefix: &str,
) -> Vec<(String, String)> {
    let below = |path: &&String| path.starts_with(prefix);
    let mut paths = before.keys().chain(after.keys()).filter(below).collect::<Vec<_>>();
    paths.sort_unstable();
    paths.dedup();
    let change = |path: &String| {
        let (old, new) = (before.get(path), after.get(path));
        let text = |value: Option<&String>| value.map_or("–", String::as_str).to_owned();
        (old != new).then(|| (path[prefix.len()..].to_owned(), format!("{} → {}", text(old), text(new))))
    };
    paths.into_iter().filter_map(change).collect()
}

/// The keys of ports that stay and cannot have other values while the port is open.
pub(super) fn fixed(old: &Configuration, target: &Configuration, ports: &Changes<Port>) -> Vec<Restart> {
    if ports.changed.is_empty() {
        return Vec::new();
    }
    let (before, after) = (values(old), values(target));
    let of_port = |port: &Port| {
        let section = format!("port.{}", port.name);
        let keys = changed(&before, &after, &format!("{section}."));
        let fixed = keys.into_iter().filter_map(|(key, change)| {
            let reason = why_fixed(&key, port)?;
            Some(Restart { section: section.clone(), key, change, reason })
        });
        fixed.collect::<Vec<_>>()
    };
    ports.changed.iter().flat_map(|change| of_port(&change.new)).collect()
}

/// Reason why a key of an open port, or one inside it, cannot have another value; `None` for one that can.
fn why_fixed(key: &str, port: &Port) -> Option<&'static str> {
    let name = key.split('.').next();
    let known = Port::KEYS.iter().find(|known| Some(known.name) == name)?;
    known.why_fixed(port)
}

#[cfg(test)]
mod tests {
    use super::super::{difference, parse};
    use super::*;
    use std::path::Path;

    const BASE: &str = r#"
        version = 1
        [port.lan]
        interface = "eth0"
        [port.radio]
        interface = "wlan0"
        role = "underlay"
        [tunnel.a]
        kind = "gretap"
        local = "10.0.0.1"
        remote = "10.0.0.2"
        port = "radio"
        [bridge.br0]
        members = ["lan", "a"]
    "#;

    fn lines(replace: &str, with: &str) -> Vec<String> {
        let configuration = |text: &str| parse(text, Path::new("a.toml")).expect("valid").configuration;
        let old = configuration(BASE);
        describe(&old, &difference(&old, &configuration(&BASE.replace(replace, with))))
    }

    #[test]
    fn each_change_has_its_keys_below() {
        let changed =
            lines("[\"lan\", \"a\"]", "[\"lan\", \"a\"]\nageing_seconds = 60\nport.lan.isolated = true");
        let keys = ["    ageing_seconds: 300 → 60", "    port.lan.isolated: false → true"];
        assert_eq!(changed, [&["~ bridge br0 (2 members)"][..], &keys].concat());
        let both = lines("port = \"radio\"", "port = \"radio\"\nkey = 7\nttl = 9");
        assert_eq!(both, ["~ tunnel a (to 10.0.0.2)", "    key: – → 7", "    ttl: 64 → 9"]);
    }

    #[test]
    fn keys_have_both_values_and_those_of_one_side_have_one() {
        let configuration = |text: &str| parse(text, Path::new("a.toml")).expect("valid").configuration;
        let old = configuration(BASE);
        let text = BASE.replace("port = \"radio\"", "port = \"radio\"\nkey = 7\nttl = 9");
        let changes = keys_changed(&old, &configuration(&text));
        let key = |key: &str, running: Option<&str>, file: &str| KeyChange {
            key: key.to_owned(),
            running: running.map(str::to_owned),
            file: Some(file.to_owned()),
        };
        assert_eq!(changes, [key("tunnel.a.key", None, "7"), key("tunnel.a.ttl", Some("64"), "9")]);
        assert_eq!(keys_changed(&old, &old), []);
    }

    #[test]
    fn nothing_changes_into_nothing() {
        assert_eq!(lines("version = 1", "version = 1\n[gateway]\nworkers = 1"), Vec::<String>::new());
    }
}
