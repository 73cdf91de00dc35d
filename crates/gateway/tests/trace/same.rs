//! A trace agrees with the gateway's handling of the same packet, byte by byte, and leaves no mark.

use crate::bench::{Bench, R, S};
use polder::runtime::shared::lock;
use polder::runtime::show::show_of;
use polder::show::What;
use polder::trace::{Trace, from_digits};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::Value;
use std::collections::BTreeMap;

/// Packets that leave by each port, according to a trace; in no order.
fn foretold(trace: &Trace) -> Vec<(String, Vec<u8>)> {
    let all = trace.sent.iter().map(|sent| (sent.port.clone(), from_digits(&sent.frame).expect("digits")));
    let mut all = all.collect::<Vec<_>>();
    all.sort_unstable();
    all
}

fn drops(bench: &Bench) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for counters in lock(&bench.gateway).worker_counters() {
        for (reason, count) in counters.drops.occurred() {
            *sums.entry(reason.name().to_owned()).or_default() += count;
        }
    }
    sums
}

/// Stations of the bridge, the last of which is a group.
const STATIONS: [&str; 6] = [
    "02:00:00:00:00:0a",
    "02:00:00:00:00:0b",
    "02:00:00:00:00:0c",
    "02:00:00:00:00:0d",
    "02:00:00:00:00:0e",
    "01:00:5e:00:00:05",
];

/// Description of a packet behind its link header.
fn packet() -> impl Strategy<Value = String> {
    let ip = prop::sample::select(vec![
        "ip src 10.0.0.9 dst 172.16.3.4",
        "ip src 10.0.0.8 dst 172.16.3.5 ttl 2 dscp 10 ecn 1",
        "ip src 10.0.0.9 dst 172.16.9.4 ttl 1",
        "ip src 10.0.0.9 dst 10.0.1.2 df",
        "ip src 10.0.0.9 dst 10.0.1.3",
        "ip src 10.0.0.9 dst 203.0.113.7",
        "ip src 10.0.0.9 dst 198.18.0.1",
        "ip src 10.0.0.9 dst 10.0.0.1",
        "ip src 127.0.0.1 dst 10.0.1.2",
        "ip src 2001:db8::9 dst 2001:db8:7::1",
        "ip src 2001:db8::9 dst 2001:db8:0::1",
        "ip src 10.0.0.9 dst 10.0.1.2 checksum 7",
    ]);
    let rest = prop::sample::select(vec![
        "icmp id 1 seq 2",
        "udp sport 1 dport 53",
        "tcp dport 23",
        "tcp dport 80 mss 1460",
        "icmp type 3",
        "hex 00",
    ]);
    (ip, rest, prop::sample::select(vec![0, 20, 1380, 1440])).prop_map(|(ip, rest, length)| {
        format!("{ip} / {rest}{}", if length > 0 { format!(" / payload {length}") } else { String::new() })
    })
}

fn arrival() -> impl Strategy<Value = (&'static str, String)> {
    let station = || prop::sample::select(STATIONS.to_vec());
    let bridged = (prop::sample::select(vec!["a", "b", "c"]), 0..5_usize, station(), packet()).prop_map(
        |(port, from, to, packet)| (port, format!("eth src {} dst {to} / {packet}", STATIONS[from])),
    );
    let tunnelled = (0..5_usize, station(), packet(), 6_u32..8, prop::option::of(0..9_u32)).prop_map(
        |(from, to, packet, key, seq)| {
            let seq = seq.map(|seq| format!(" seq {seq}")).unwrap_or_default();
            let inside = format!("eth src {} dst {to} / {packet}", STATIONS[from]);
            ("u", format!("eth dst 02:00:00:00:01:03 / ip src 192.0.2.2 dst 192.0.2.1 / gre key {key}{seq} / {inside}"))
        },
    );
    let routed = (any::<bool>(), packet()).prop_map(|(to_r, packet)| {
        let (port, mac) = if to_r { ("r", R) } else { ("s", S) };
        (port, format!("eth dst {mac} / {packet}"))
    });
    prop_oneof![bridged, tunnelled, routed]
}

#[test]
fn the_gateway_does_what_the_trace_says() {
    let mut bench = Bench::new();
    let mut runner = TestRunner::deterministic();
    for _ in 0..400 {
        let (port, text) = arrival().new_tree(&mut runner).expect("a packet").current();
        let frame = bench.frame(&text);
        let trace = bench.trace(port, &frame);
        let before = drops(&bench);
        bench.put(port, &frame);
        let mut left = bench.take();
        left.sort_unstable();
        assert_eq!(left, foretold(&trace), "{port} {text}\n{trace:#?}");
        let after = drops(&bench);
        let grown =
            after.iter().map(|(reason, now)| (reason.clone(), now - before.get(reason).unwrap_or(&0)));
        let grown = grown.filter(|(_, count)| *count > 0).collect::<Vec<_>>();
        let said = trace.dropped.iter().map(|ended| (ended.reason.clone(), ended.packets));
        let mut said = said.collect::<Vec<_>>();
        said.sort_unstable();
        assert_eq!(grown, said, "{port} {text}\n{trace:#?}");
    }
    lock(&bench.gateway).stop();
}

/// View of a gateway, without values that change by themselves.
fn shown(bench: &Bench, what: What) -> Value {
    let mut value =
        serde_json::to_value(show_of(&bench.gateway, what, (None, None), None).expect("rows").view)
            .expect("rows are JSON");
    forget(&mut value);
    value
}

fn forget(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, inner) in fields {
                if matches!(key.as_str(), "age_seconds" | "silent_nanos" | "heard_nanos") {
                    *inner = Value::Null;
                }
                forget(inner);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(forget),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

const VIEWS: [What; 5] = [What::Tunnels, What::Fdb, What::Routes, What::Neighbors, What::Filters];

#[test]
fn a_thousand_traces_under_traffic_leave_no_mark() {
    let mut bench = Bench::new();
    let mut runner = TestRunner::deterministic();
    // One of each, so that there is something to be changed.
    for _ in 0..100 {
        let (port, text) = arrival().new_tree(&mut runner).expect("a packet").current();
        let frame = bench.frame(&text);
        bench.put(port, &frame);
    }
    bench.take();
    // Traffic that changes nothing but how much there was of it.
    let traffic = bench.frame("eth src 02:00:00:00:00:0d dst 02:00:00:00:00:0c / ip dst 10.9.0.1 / udp");
    let before = VIEWS.map(|what| shown(&bench, what));
    let (accounts, mut came) = (lock(&bench.gateway).accounts(), 0);
    for _ in 0..1000 {
        let (port, text) = arrival().new_tree(&mut runner).expect("a packet").current();
        let frame = bench.frame(&text);
        bench.put("u", &[0; 60]);
        bench.put("a", &traffic);
        bench.trace(port, &frame);
        came += bench.take().len() as u64;
    }
    let after = VIEWS.map(|what| shown(&bench, what));
    let now = lock(&bench.gateway).accounts();
    // The frames of zeros are none of a tunnel's, and those of a bound station came by another port.
    assert_eq!(now.received - accounts.received, 2000);
    assert_eq!((came, now.transmitted - accounts.transmitted), (1000, 1000));
    assert_eq!((now.dropped - accounts.dropped, now.unaccounted()), (1000, 0));
    assert_eq!(
        (now.generated, now.cloned, now.split, now.held),
        (accounts.generated, accounts.cloned, accounts.split, accounts.held)
    );
    for ((what, before), after) in VIEWS.iter().zip(before).zip(after) {
        assert_eq!(after, before, "{what:?}");
    }
    lock(&bench.gateway).stop();
}
