//! `polder port`: a port comes, changes or goes while the gateway runs, and with `--persist` in a file of its own.

use super::Failure;
use super::arguments::{PortAction, PortCommand, PortKeys};
use super::ask::odd;
use super::change::say;
use super::screen::Screen;
use crate::config::added::{changed, tables_of};
use crate::config::directory_of;
use crate::control::client::Client;
use crate::control::{Answer, Ask, PortOrder, PortRequest, ReadFile, Reloaded};
use anyhow::{Context as _, Result, anyhow, ensure};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
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
    let own = directory_of(&file).join(format!("{}.toml", request.name));
    let reloaded = if persist || order != PortOrder::Add && own.exists() {
        let text = of_file(&own, order, &request.name, tables)?;
        let request = PortRequest { tables: text.clone(), in_file: true, ..request };
        kept(&mut client, request, &own, &text)?
    } else {
        ask(&mut client, request)?
    };
    let screen = Screen::stdout();
    Ok(screen.write(&say(&reloaded, None, screen.look()))?)
}

/// The tables that the arguments say.
fn tables(keys: &PortKeys) -> Result<Table> {
    let name = &keys.which.name;
    let mut port = Table::new();
    let texts = [("interface", &keys.interface), ("bridge", &keys.bridge), ("mode", &keys.mode)];
    for (key, value) in texts.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
        port.insert(key.to_owned(), Value::String(value.clone()));
    }
    for pair in &keys.key {
        let (key, value) =
            pair.split_once('=').with_context(|| format!("{pair}: write `--key KEY=VALUE`"))?;
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

/// Content that the port's own file is to have.
fn of_file(file: &Path, order: PortOrder, name: &str, tables: Table) -> Result<String> {
    if order == PortOrder::Add {
        ensure!(!file.exists(), "{} is there already", file.display());
        return Ok(tables.to_string());
    }
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let before = tables_of(name, &text).with_context(|| format!("{} is left to you", file.display()))?;
    Ok(if order == PortOrder::Set { changed(before, tables).to_string() } else { String::new() })
}

/// Makes a change that the port's own file has, too: both of them or neither.
fn kept(client: &mut Client, request: PortRequest, file: &Path, text: &str) -> Result<Reloaded, Failure> {
    if request.dry_run {
        return ask(client, request);
    }
    let before = match fs::read(file) {
        Ok(before) => Some(before),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
        Err(error) => return Err(anyhow!(error).context(format!("cannot read {}", file.display())).into()),
    };
    put(file, (!text.is_empty()).then_some(text.as_bytes()))?;
    match ask(client, request) {
        Ok(reloaded) => Ok(reloaded),
        Err(failure) => {
            put(file, before.as_deref())?;
            Err(failure)
        }
    }
}

/// Writes a file whole or not at all, or removes it.
fn put(file: &Path, content: Option<&[u8]>) -> Result<()> {
    let Some(content) = content else {
        return fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()));
    };
    let directory = file.parent().context("a file is in a directory")?;
    let unfinished = unfinished(file);
    let written = fs::create_dir_all(directory).and_then(|()| {
        // One that another left here is as bad as none.
        let _ = fs::remove_file(&unfinished);
        let mut new = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&unfinished)?;
        new.write_all(content)?;
        new.sync_all()?;
        fs::rename(&unfinished, file)?;
        File::open(directory)?.sync_all()
    });
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written.with_context(|| format!("cannot write {}", file.display()))
}

/// Name of a file until it is whole: not one that gateways read.
fn unfinished(file: &Path) -> PathBuf {
    file.with_extension("toml.new")
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
    fn a_file_is_whole_or_not_there() {
        let directory = std::env::temp_dir().join(format!("polder-port-{}", std::process::id()));
        let file = directory.join("c5.toml");
        put(&file, Some(b"[port.c5]\n")).expect("a directory of our own");
        assert_eq!(fs::read(&file).expect("it is there"), b"[port.c5]\n");
        fs::create_dir(unfinished(&file)).expect("nothing of that name");
        assert!(put(&file, Some(b"other")).is_err());
        assert_eq!(fs::read(&file).expect("as before"), b"[port.c5]\n");
        put(&file, None).expect("it is there");
        assert!(!file.exists());
        fs::remove_dir_all(&directory).expect("our own");
    }
}
