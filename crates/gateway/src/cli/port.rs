//! `polder port`: a port comes, changes or goes while the gateway runs, and with `--persist` in a file of its own.

use super::arguments::{PortAction, PortCommand, PortKeys};
use super::ask::odd;
use super::change::say;
use super::failure::Failure;
use super::screen::Screen;
use crate::config::added::{changed, tables_of};
use crate::control::client::Client;
use crate::control::port_file::{self, file_of};
use crate::control::{Answer, Ask, PortOrder, PortRequest, ReadFile, Reloaded};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::Path;
use toml::{Table, Value};

pub(super) fn port(command: &PortCommand) -> Result<(), Failure> {
    let (keys, order, persist) = match &command.action {
        PortAction::Add { keys, persist } => (keys, PortOrder::Add, *persist),
        PortAction::Set { keys } => (keys, PortOrder::Set, false),
        PortAction::Del { which } => (&PortKeys::none(which.clone()), PortOrder::Delete, false),
    };
    let tables = tables(keys)?;
    let mut client = Client::connect(&keys.which.gateway.socket()?)?;
    let request = PortRequest {
        name: keys.which.name.clone(),
        order,
        tables: tables.to_string(),
        in_file: false,
        dry_run: keys.which.dry_run,
        yes: keys.which.yes,
    };
    let answer = client.ask(Ask::File)?;
    let Answer::File(ReadFile { file }) = answer else { return Err(odd(&answer)) };
    let own = file_of(&file, &request.name);
    let reloaded = if persist || order != PortOrder::Add && own.exists() {
        let text = of_file(&own, order, &request.name, tables)?;
        let request = PortRequest { tables: text.clone(), in_file: true, ..request };
        if request.dry_run {
            ask(&mut client, request)?
        } else {
            port_file::kept(&mut client, request, &own, &text)?
        }
    } else {
        ask(&mut client, request)?
    };
    let screen = Screen::stdout();
    Ok(screen.write(&say(&reloaded, None, screen.layout()))?)
}

/// TOML tables from the arguments.
fn tables(keys: &PortKeys) -> Result<Table> {
    let name = &keys.which.name;
    let mut port = Table::new();
    let texts = [("interface", &keys.interface), ("bridge", &keys.bridge), ("mode", &keys.mode)];
    for (key, value) in texts.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
        port.insert(key.to_owned(), Value::String(value.clone()));
    }
    for pair in &keys.key {
        let (key, value) = pair.split_once('=').with_context(|| {
            format!(
                "{pair} is not a pair of key and value: write \
                    `--key KEY=VALUE`"
            )
        })?;
        let value = match format!("value = {value}").parse::<Table>() {
            Ok(mut table) => table.remove("value").unwrap_or(Value::Boolean(false)),
            Err(_) => Value::String(value.to_owned()),
        };
        port.insert(key.trim().to_owned(), value);
    }
    let mut member = Table::new();
    let mut vlan = Table::new();
    if let Some(access) = keys.vlan {
        vlan.insert("access".to_owned(), Value::Integer(access.into()));
    }
    if !keys.trunk.is_empty() {
        let trunk = keys.trunk.iter().map(|&vlan| Value::Integer(vlan.into())).collect();
        vlan.insert("trunk".to_owned(), Value::Array(trunk));
    }
    if let Some(native) = keys.native {
        vlan.insert("native".to_owned(), Value::Integer(native.into()));
    }
    if !vlan.is_empty() {
        member.insert("vlan".to_owned(), Value::Table(vlan));
    }
    if let Some(isolated) = keys.isolated {
        member.insert("isolated".to_owned(), Value::Boolean(isolated));
    }
    let under = |key: &str, table: Table| Table::from_iter([(key.to_owned(), Value::Table(table))]);
    let mut tables = Table::new();
    if !port.is_empty() {
        tables.extend(under("port", under(name, port)));
    }
    if let Some(bridge) = keys.bridge.as_ref().filter(|_| !member.is_empty()) {
        tables.extend(under("bridge", under(bridge, under("port", under(name, member)))));
    }
    Ok(tables)
}

fn ask(client: &mut Client, request: PortRequest) -> Result<Reloaded, Failure> {
    let answer = client.ask(Ask::Port(request))?;
    if let Answer::Reloaded(reloaded) = answer { Ok(reloaded) } else { Err(odd(&answer)) }
}

/// New content of the port's own file.
fn of_file(file: &Path, order: PortOrder, name: &str, tables: Table) -> Result<String> {
    if order == PortOrder::Add {
        ensure!(!file.exists(), "the port's file {} already exists", file.display());
        return Ok(tables.to_string());
    }
    let text = fs::read_to_string(file)
        .with_context(|| format!("cannot read the port's file {}", file.display()))?;
    let before = tables_of(name, &text).with_context(|| {
        format!(
            "{} was changed by another program and is \
                kept",
            file.display()
        )
    })?;
    if order != PortOrder::Set {
        return Ok(String::new());
    }
    // Leading comments state the origin of the file.
    let head = text.split_inclusive('\n').take_while(|line| line.starts_with('#')).collect::<String>();
    Ok(head + &changed(before, tables).to_string())
}

#[cfg(test)]
mod tests {
    use super::super::arguments::PortName;
    use super::*;

    #[test]
    fn arguments_are_tables() {
        let which = PortName { name: "c5".to_owned(), ..PortName::default() };
        let keys = PortKeys {
            interface: Some("veth5".to_owned()),
            bridge: Some("lan".to_owned()),
            vlan: Some(10),
            isolated: Some(true),
            key: vec!["weight=9".to_owned(), "kernel_hooks=bypass".to_owned()],
            ..PortKeys::none(which)
        };
        let text = tables(&keys).expect("right arguments").to_string();
        let tables = tables_of("c5", &text).expect("tables of one port");
        assert_eq!(tables["port"]["c5"]["weight"].as_integer(), Some(9));
        assert_eq!(tables["port"]["c5"]["kernel_hooks"].as_str(), Some("bypass"));
        assert_eq!(tables["bridge"]["lan"]["port"]["c5"]["vlan"]["access"].as_integer(), Some(10));
    }

    #[test]
    fn comments_in_front_of_a_file_stay() {
        let file = std::env::temp_dir().join(format!("polder-set-{}.toml", std::process::id()));
        fs::write(&file, "# from CNI\n[port.c5]\ninterface = \"veth5\"\n").expect("a file of our own");
        let change = "[port.c5]\nweight = 9\n".parse().expect("TOML");
        let text = of_file(&file, PortOrder::Set, "c5", change).expect("its own");
        assert!(text.starts_with("# from CNI\n[port.c5]\n") && text.contains("weight = 9"), "{text}");
        fs::remove_file(&file).expect("our own");
    }
}
