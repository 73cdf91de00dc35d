mod prometheus;

use super::server::{Collected, Server};
use super::*;
use crate::clock::Clock;
use crate::config::model::Listen;
use crate::show::adapter::AdapterRow;
use crate::show::buffers::Buffers;
use crate::show::buffers::{PoolRow, TransferRow};
use crate::show::connections::Connections;
use crate::show::counters::Counters;
use crate::show::drops::DropRow;
use crate::show::drops::Drops;
use crate::show::fdb::BridgeRow;
use crate::show::fdb::MemberRow;
use crate::show::filters::FilterRow;
use crate::show::filters::Filters;
use crate::show::flows::FastPathRow;
use crate::show::nic::NicRow;
use crate::show::path::StageRow;
use crate::show::path::WorkerPath;
use crate::show::ports::PortRow;
use crate::show::queues::QueueRow;
use crate::show::queues::WaitRow;
use crate::show::steering::SteeringRow;
use crate::show::tunnels::TunnelRow;
use crate::show::tunnels::{BfdRow, KeepaliveRow};
use crate::show::workers::WorkerRow;
use crate::supervise::Threads;
use listen::Bound;
use polder_datapath::drops::DropReason;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Numbers that no metric has, by the end of their path, with the reason.
const LEFT_OUT: &[(&str, &str)] = &[
    ("elapsed_nanos", "uptime"),
    ("path.0.slept_nanos", "the worker has it"),
    ("path.0.waited_nanos", "the worker has it"),
    ("packets_per_batch", "a quotient"),
    ("nanos_per_packet", "a quotient"),
    ("path.0.stages.0.drops.tx-full", "drops have it, and workers"),
    ("counters.dropped", "the sum of drops"),
    ("counters.drops.tx-full", "drops have it"),
    ("reasons.0.ports.lan", "the port has it"),
    ("number", "a label"),
    ("rules.0.number", "a label"),
    ("connections.entered", "the sum of the states"),
    ("connections.left_out", "none is asked for"),
    ("workers.0.cpu", "a label"),
    ("queues.0.worker", "a label"),
    ("tunnels.0.key", "configuration"),
    ("tunnels.0.vni", "configuration"),
    ("tunnels.0.udp_port", "configuration"),
    ("bfd.local_discriminator", "a name"),
    ("bfd.remote_discriminator", "a name"),
    ("pools.0.rate", "a quotient"),
];

/// Rows of every kind, with a value wherever there can be one.
fn full() -> Rows {
    let counts =
        |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 1)).collect::<BTreeMap<_, _>>();
    let stage = StageRow {
        stage: "receive".to_owned(),
        packets_per_batch: Some(1.0),
        nanos_per_packet: Some(1.0),
        drops: counts(&["tx-full"]),
        ..StageRow::default()
    };
    let path = WorkerPath { stages: vec![stage], waited_nanos: Some(1), ..WorkerPath::default() };
    let adapter = AdapterRow { link_mbit: Some(1), statistics: counts(&["rx_bad"]), ..AdapterRow::default() };
    let nic = NicRow { link_mbit: Some(1), statistics: counts(&["rx_missed"]), ..NicRow::default() };
    let port = PortRow {
        name: "lan".to_owned(),
        queues: Some(1),
        mtu: Some(1),
        learned: Some(1),
        fdb_max_learned: Some(1),
        link_dropped: Some(1),
        drops: counts(&["tx-full"]),
        adapter: Some(adapter),
        nic: Some(nic),
        ..PortRow::default()
    };
    let tunnel = TunnelRow {
        name: "gre1".to_owned(),
        key: Some(1),
        vni: Some(1),
        udp_port: Some(1),
        mtu: Some(1),
        path_mtu: Some(1),
        silent_nanos: Some(1),
        bfd: Some(BfdRow { heard_nanos: Some(1), detection_nanos: Some(1), ..BfdRow::default() }),
        keepalive: Some(KeepaliveRow { heard_nanos: Some(1), ..KeepaliveRow::default() }),
        counters: counts(&["received", "received_bytes", "sent", "sent_bytes", "too_big"]),
        ..TunnelRow::default()
    };
    let member = MemberRow { name: "lan".to_owned(), fdb_max_learned: Some(1), ..MemberRow::default() };
    let mut drop = DropRow::new(DropReason::TxFull);
    (drop.ports, drop.workers) = (counts(&["lan"]), vec![1]);
    let worker =
        WorkerRow { cpu: Some(1), cpu_nanos: Some(1), waited_nanos: Some(1), ..WorkerRow::default() };
    let pool = PoolRow { kind: "frames".to_owned(), rate: Some(1.0), ..PoolRow::default() };
    Rows {
        path: vec![path],
        ports: vec![port],
        tunnels: vec![tunnel],
        bridges: vec![BridgeRow { members: vec![member], ..BridgeRow::default() }],
        routing: vec![("forwarded".to_owned(), 1)],
        filters: Filters { rules: vec![FilterRow::default()], ..Filters::default() },
        fast_path: vec![FastPathRow::default()],
        connections: Some(Connections::default()),
        drops: Drops { reasons: vec![drop], ..Drops::default() },
        counters: Counters { drops: counts(&["tx-full"]), ..Counters::default() },
        workers: vec![worker],
        steering: vec![SteeringRow::default()],
        buffers: Buffers { pools: vec![pool], transfers: vec![TransferRow::default()], ..Buffers::default() },
        queues: vec![QueueRow { rate_kbit: Some(1), waits: vec![WaitRow::default()], ..QueueRow::default() }],
        ..Rows::default()
    }
}

/// Gives each number of `value` another value, and lists them by path.
fn number(value: &mut Value, path: &str, next: &mut u64, found: &mut Vec<(String, u64)>) {
    match value {
        Value::Number(_) => {
            *next += 1;
            *value = Value::from(*next);
            found.push((path.to_owned(), *next));
        }
        Value::Array(all) => {
            for (index, one) in all.iter_mut().enumerate() {
                number(one, &format!("{path}.{index}"), next, found);
            }
        }
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(name, one)| number(one, &format!("{path}.{name}"), next, found));
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn values(text: &str) -> Vec<f64> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.filter_map(|line| line.rsplit_once(' ')?.1.parse().ok()).collect()
}

/// Breaks when a row gets a number that neither a metric nor the list above has.
#[test]
fn every_number_of_the_rows_is_in_a_scrape() {
    let mut json = serde_json::to_value(full()).unwrap();
    // Small enough for every type, and apart from the ones and zeros of states.
    let (mut next, mut found) = (40, Vec::new());
    number(&mut json, "", &mut next, &mut found);
    assert!(found.len() > 150, "{} numbers", found.len());
    let rows = serde_json::from_value::<Rows>(json).unwrap();
    let text = rows.expose();
    let values = values(&text);
    let is_there = |number: u64| {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let number = number as f64;
        let forms = [1e-9, 1e-3, 1.0, 1e3, 1e6].map(|factor| number * factor);
        forms.iter().any(|form| values.iter().any(|value| (value / form - 1.0).abs() < 1e-9))
    };
    let is_left_out = |path: &str| LEFT_OUT.iter().any(|(end, _)| path.ends_with(end));
    let wrong = found.iter().filter(|(path, number)| is_there(*number) == is_left_out(path));
    let wrong = wrong.map(|(path, number)| format!("{path} = {number}")).collect::<Vec<_>>();
    assert!(wrong.is_empty(), "{wrong:?} in\n{text}");
}

/// Names, kinds and helps are what dashboards and alerts are made of.
#[test]
fn a_scrape_is_a_contract() {
    let mut json = serde_json::to_value(full()).unwrap();
    number(&mut json, "", &mut 40, &mut Vec::new());
    let text = serde_json::from_value::<Rows>(json).unwrap().expose();
    insta::assert_snapshot!(text.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
}

#[test]
fn a_scrape_follows_the_format() {
    let text = full().expose();
    assert!(text.ends_with("# EOF\n"));
    let mut names = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        assert!(names.insert(name.to_owned()), "{name} is there twice");
        assert!(name.starts_with("polder_") && !name.ends_with("_total"), "{name}");
        assert!(text.contains(&format!("# HELP {name} ")), "{name}");
        assert!(["counter", "gauge", "info", "histogram"].contains(&kind), "{line}");
    }
    for line in text.lines().filter_map(|line| line.strip_prefix("# UNIT ")) {
        let (name, unit) = line.split_once(' ').unwrap();
        assert!(name.ends_with(&format!("_{unit}")), "{line}");
    }
    assert!(text.contains("\npolder_port_received_packets_total{port=\"lan\"} 0\n"), "{text}");
    assert!(
        text.contains("polder_dropped_packets_total{reason=\"tx-full\",stage=\"transmit\"} 0\n"),
        "{text}"
    );
    assert!(names.len() > 130, "{}", names.len());
}

#[test]
fn times_are_a_histogram_whose_last_class_has_all() {
    let class = |longest_nanos, packets| WaitRow { longest_nanos, packets };
    let waits = vec![class(Some(100_000), 7), class(Some(1_000_000_000), 2), class(None, 1)];
    let queue =
        QueueRow { port: "lan".to_owned(), waited_nanos: 2_500_000_000, waits, ..QueueRow::default() };
    let text = Rows { queues: vec![queue], ..Rows::default() }.expose();
    let lines = text.lines().filter(|line| line.starts_with("polder_queue_waited_seconds_"));
    let values = lines.map(|line| line.rsplit_once(' ').unwrap().1).collect::<Vec<_>>();
    assert_eq!(values, ["2.5", "10", "7", "9", "10"]);
    for bound in ["0.0001", "1.0", "+Inf"] {
        assert!(text.contains(&format!("le=\"{bound}\"")), "{bound}: {text}");
    }
}

#[test]
fn labels_are_escaped() {
    let port = PortRow { name: "a\"b\\c\nd".to_owned(), ..PortRow::default() };
    let text = Rows { ports: vec![port], ..Rows::default() }.expose();
    assert!(text.contains(r#"polder_port_open{port="a\"b\\c\nd"} 0"#), "{text}");
}

/// Names of samples that a scrape can have.
fn names(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let suffixes = |kind: &str| match kind {
        "counter" => vec!["_total"],
        "info" => vec!["_info"],
        "histogram" => vec!["_bucket", "_sum", "_count"],
        _ => vec![""],
    };
    let names = |(name, kind)| suffixes(kind).into_iter().map(move |suffix| format!("{name}{suffix}"));
    types.flat_map(names).collect()
}

fn packaged(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// Metrics that a text names.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    words.filter(|word| word.starts_with("polder_")).collect()
}

#[test]
fn dashboard_and_alerts_name_metrics_that_exist() {
    let names = names(&full().expose());
    for (file, least) in [("grafana-dashboard.json", 20), ("prometheus-rules.yml", 10)] {
        let text = std::fs::read_to_string(packaged(file)).unwrap();
        let named = named(&text);
        assert!(named.len() >= least, "{file}: {named:?}");
        let wrong = named.iter().filter(|name| !names.contains(**name)).collect::<Vec<_>>();
        assert!(wrong.is_empty(), "{file}: {wrong:?}");
    }
    let dashboard = std::fs::read_to_string(packaged("grafana-dashboard.json")).unwrap();
    serde_json::from_str::<Value>(&dashboard).unwrap();
}

fn skip(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}\n");
    eprint!("{line}");
    let Some(path) = std::env::var_os("POLDER_SKIP_LOG") else { return };
    let log = std::fs::OpenOptions::new().create(true).append(true).open(path);
    log.and_then(|mut log| log.write_all(line.as_bytes())).unwrap();
}

struct Bench {
    _server: Server,
    address: String,
}

fn bench(ports: usize, collect: impl Fn() -> Vec<String> + Send + 'static) -> Bench {
    let row = |number: usize| PortRow { name: format!("port{number}"), ..PortRow::default() };
    let rows = Rows { ports: (0..ports).map(row).collect(), ..Rows::default() };
    serve(move || {
        let mut rows = rows.clone();
        rows.state.not_ready = collect();
        rows
    })
}

fn bench_of(rows: Rows) -> Bench {
    serve(move || rows.clone())
}

fn serve(rows: impl Fn() -> Rows + Send + 'static) -> Bench {
    let bound = Bound::new(&Listen::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
    let address = bound.address().to_owned();
    let collected = move || Collected { rows: rows(), unhealthy: Vec::new() };
    let server = Server::start((bound, Clock::start()), &Threads::default(), collected).unwrap();
    Bench { _server: server, address }
}

impl Bench {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
    }
}

#[test]
fn pages_are_answered() {
    let bench = bench(1, Vec::new);
    let metrics = bench.get("/metrics");
    assert!(
        metrics.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"),
        "{metrics}"
    );
    assert!(metrics.contains("\r\n\r\n# HELP polder_build ") && metrics.ends_with("# EOF\n"), "{metrics}");
    let length = metrics.split("Content-Length: ").nth(1).and_then(|rest| rest.split('\r').next());
    let body = metrics.split_once("\r\n\r\n").unwrap().1;
    assert_eq!(length, Some(body.len().to_string().as_str()));
    assert!(bench.get("/healthz").ends_with("\r\n\r\nok\n"));
    assert!(bench.get("/readyz").starts_with("HTTP/1.1 200 "));
    assert!(bench.ask("HEAD /metrics HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n"));
    assert!(bench.get("/etc/passwd").starts_with("HTTP/1.1 404 "));
    assert!(bench.ask("POST /metrics HTTP/1.1\r\n\r\nbody").contains("Allow: GET, HEAD"));
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(20_000));
    assert!(bench.ask(&long).starts_with("HTTP/1.1 431 "));
}

#[test]
fn a_gateway_that_is_not_ready_says_why() {
    let bench = bench(1, || vec!["port lan: no carrier".to_owned()]);
    let answer = bench.get("/readyz");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("port lan: no carrier\n"), "{answer}");
    assert!(bench.get("/healthz").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_scrape_that_never_reads_disturbs_nobody() {
    let bench = bench(4000, Vec::new);
    let lazy = (0..8).map(|_| {
        let mut stream = bench.connect();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        stream
    });
    let lazy = lazy.collect::<Vec<_>>();
    for _ in 0..3 {
        assert!(bench.get("/metrics").ends_with("# EOF\n"));
    }
    drop(lazy);
}

#[test]
fn a_thousand_connections_make_room_for_one_that_asks() {
    let bench = bench(1, Vec::new);
    let mut silent = Vec::new();
    for _ in 0..1000 {
        silent.push(bench.connect());
        if silent.len() > 200 {
            // Bounded descriptors of the test; the server has closed them long since.
            silent.remove(0);
        }
    }
    assert!(bench.get("/readyz").ends_with("ok\n"));
    let mut first = silent.remove(0);
    assert_eq!(first.read(&mut [0; 8]).unwrap_or(0), 0, "the oldest were ended");
}

#[test]
fn a_gateway_that_does_not_answer_is_not_healthy() {
    let bench = bench(1, || {
        std::thread::sleep(Duration::from_secs(7));
        Vec::new()
    });
    let answer = bench.get("/healthz");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("has not answered for 5 s"), "{answer}");
}
