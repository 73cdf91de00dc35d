//! Each entry of the tables of keys: it reads, writes and changes its own value, and no other.

use super::bridge::{FloodLimit, Member, StaticEntry};
use super::buffers::Buffers;
use super::filters::Filter;
use super::gateway::Gateway;
use super::keys::{Draft, Key, Keyed, Reload};
use super::lab::Lab;
use super::lan78xx::Adapter;
use super::liveness::{Bfd, Keepalive};
use super::metrics::Metrics;
use super::model::{Bridge, Configuration, Port, Tunnel};
use super::modem::Modem;
use super::names::Names;
use super::notation::Shape;
use super::queue::PortQueue;
use super::router::{Router, StaticRoute};
use super::section::{Findings, Section};
use super::source_guard::SourceGuard;
use super::{difference, parse};
use std::path::Path;
use toml::Value;
use toml::de::DeTable;

/// Values of a shape as they stand in a file; none for strings, which have notations of their own.
fn samples(shape: &Shape) -> Vec<Value> {
    match shape {
        Shape::Boolean => vec![true.into(), false.into()],
        Shape::Integer { low, high, .. } => vec![(*low).into(), (*high).into()],
        Shape::Numbers { all, .. } => all.iter().map(|&number| number.into()).collect(),
        Shape::Words(words) => words.iter().map(|&word| word.into()).collect(),
        Shape::Either(one, other) => [samples(one), samples(other)].concat(),
        Shape::Many(element) => samples(element),
        Shape::List(element) => samples(element).into_iter().map(|one| Value::Array(vec![one])).collect(),
        Shape::Text { .. } | Shape::Table(_) => Vec::new(),
    }
}

fn read<T: Keyed>(text: &str) -> T {
    let (document, errors) = DeTable::parse_recoverable(text);
    assert!(errors.is_empty(), "{text}");
    let (findings, names) = (Findings::default(), Names::default());
    let section = Section::open("it".to_owned(), 0..0, document.get_ref(), T::kind(), (&findings, &names));
    Draft::read(&section).value
}

/// Reads each key beside `base`; each value is written as it stood, and no other key changes.
fn each_reads_and_writes<T: Keyed>(base: &str) -> usize {
    let all = Configuration::default();
    let usual = read::<T>(base);
    let mut count = 0;
    let set = |key: &Key<T>| !base.contains(&format!("{} =", key.name));
    for key in T::KEYS.iter().filter(|key| set(key)) {
        for sample in samples(&(key.access.shape)()) {
            let table = read::<T>(&format!("{base}\n{} = {sample}\n", key.name));
            assert_eq!((key.access.write)(&table, &all), Some(sample), "{} {}", T::TITLE, key.name);
            let others = T::KEYS.iter().filter(|other| other.name != key.name);
            for other in others {
                let (before, after) =
                    ((other.access.write)(&usual, &all), (other.access.write)(&table, &all));
                assert_eq!(before, after, "{} {} changes {}", T::TITLE, key.name, other.name);
            }
            count += 1;
        }
    }
    count
}

#[test]
fn each_key_is_written_as_it_is_read() {
    let counts = [
        each_reads_and_writes::<Gateway>(""),
        each_reads_and_writes::<Metrics>(""),
        each_reads_and_writes::<Buffers>(""),
        each_reads_and_writes::<Lab>(""),
        each_reads_and_writes::<Port>("interface = \"eth0\""),
        each_reads_and_writes::<PortQueue>("kind = \"codel\""),
        each_reads_and_writes::<PortQueue>("kind = \"cake\""),
        each_reads_and_writes::<SourceGuard>("mac = \"02:00:00:00:00:05\""),
        each_reads_and_writes::<Modem>(""),
        each_reads_and_writes::<Adapter>("usb = \"1-1\""),
        each_reads_and_writes::<Tunnel>(
            "kind = \"gretap\"\nvni = 1\nudp_port = 1\nudp_checksum = true\naccept_zero_checksum = true",
        ),
        each_reads_and_writes::<Tunnel>("kind = \"vxlan\""),
        each_reads_and_writes::<Bfd>(""),
        each_reads_and_writes::<Keepalive>(""),
        each_reads_and_writes::<Bridge>(""),
        each_reads_and_writes::<FloodLimit>(""),
        each_reads_and_writes::<Member>(""),
        each_reads_and_writes::<StaticEntry>(""),
        each_reads_and_writes::<Filter>(""),
        each_reads_and_writes::<Router>(""),
        each_reads_and_writes::<StaticRoute>(""),
    ];
    assert!(counts.iter().sum::<usize>() > 200, "{counts:?}");
}

/// A file with two ports, and the keys of one section of it.
fn file(gateway: &str, buffers: &str, port: &str) -> Configuration {
    let text = format!(
        "version = 1\n[gateway]\n{gateway}\n[buffers]\n{buffers}\n[port.a]\ninterface = \"eth0\"\n{port}\n\
         [port.b]\ninterface = \"eth1\"\n[bridge.br0]\nmembers = [\"a\", \"b\"]\n"
    );
    parse(&text, Path::new("a.toml")).unwrap_or_else(|report| panic!("{report}")).configuration
}

/// Keys whose samples make sense without others.
fn alone<T: Keyed>(skip: &[&str]) -> impl Iterator<Item = (&'static Key<T>, String)> {
    let keys = T::KEYS.iter().filter(move |key| !skip.contains(&key.name));
    keys.flat_map(|key| {
        let sample = move |sample| (key, format!("{} = {sample}", key.name));
        samples(&(key.access.shape)()).into_iter().map(sample)
    })
}

#[test]
fn a_change_takes_what_its_key_says() {
    let old = file("", "", "");
    let restarts = |new: &Configuration| !difference(&old, new).restart.is_empty();
    // Only the ports' own `on_exit` is compared, and more than 16 workers take a restart.
    for (key, line) in alone::<Gateway>(&["on_exit", "workers"]) {
        let new = file(&line, "", "");
        let is_changed = new.gateway != old.gateway;
        let takes_one = matches!(key.reload, Reload::Restart(_)) && is_changed;
        assert_eq!(restarts(&new), takes_one, "{line}");
    }
    for (_, line) in alone::<Buffers>(&["headroom", "copy_break"]) {
        let new = file("memory_mib = 24", &line, "");
        assert_eq!(restarts(&new), new.buffers != old.buffers, "{line}");
    }
    for (key, line) in alone::<Port>(&["role", "decide", "coalesce", "segments"]) {
        let new = file("", "", &line);
        let takes_one = key.why_fixed(&new.ports[0]).is_some() && new.ports != old.ports;
        assert_eq!(restarts(&new), takes_one, "{line}");
    }
}

#[test]
fn what_is_left_out_has_the_default_of_the_guide() {
    let read = file("", "", "");
    fn check<T: Keyed>(read: &T, all: &Configuration) {
        let usual = T::default();
        for key in T::KEYS.iter().filter(|key| key.usual.is_none() && key.required.is_none()) {
            assert_eq!(key.written(read, all), key.written(&usual, all), "{} {}", T::TITLE, key.name);
        }
    }
    check(&read.gateway, &read);
    check(&read.buffers, &read);
    check(&read.ports[0], &read);
    check(&read.bridges[0].flood_limit, &read);
    check(&read.bridges[0].members[0], &read);
}
