//! Prometheus itself: it scrapes, evaluates the alerts, and answers what the dashboard asks.

use super::{bench_of, full, packaged, skip};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time for which anything may take.
const PATIENCE: Duration = Duration::from_secs(40);

/// A server of Prometheus with a folder of its own, both of which go with it.
struct Prometheus {
    process: Child,
    address: String,
    folder: PathBuf,
}

impl Prometheus {
    /// Scrapes a target each second and evaluates the packaged rules; `None` where the program is not installed.
    fn start(target: &str) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("pd-prometheus-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let text = format!(
            "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files:\n  - {}\nscrape_configs:\n  \
             - job_name: polder\n    static_configs:\n      - targets: [\"{target}\"]\n",
            packaged("prometheus-rules.yml").canonicalize().unwrap().display()
        );
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, text).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address={address}")).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().ok()?;
        Some(Self { process, address, folder })
    }

    fn ask(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// Result of a query; its error where there is none.
    fn query(&self, query: &str) -> Result<Vec<Value>, Value> {
        let escaped = query.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let answer = self.ask(&format!("/api/v1/query?query={escaped}")).unwrap_or_default();
        answer["data"]["result"].as_array().cloned().ok_or(answer)
    }

    #[expect(clippy::disallowed_methods, reason = "a test's patience")]
    fn until<T>(&self, what: &str, found: impl Fn(&Self) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "never: {what}: {:?}", self.ask("/api/v1/targets"));
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// All values under `key`, however deep.
fn texts<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(key).and_then(Value::as_str));
            fields.values().for_each(|inner| texts(inner, key, found));
        }
        Value::Array(all) => all.iter().for_each(|inner| texts(inner, key, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn prometheus_takes_the_scrape_the_alerts_and_the_dashboard() {
    let test = "prometheus_takes_the_scrape_the_alerts_and_the_dashboard";
    let rules = packaged("prometheus-rules.yml");
    let Ok(checked) = Command::new("promtool").args(["check", "rules"]).arg(&rules).output() else {
        return skip(test, "`promtool` is not installed");
    };
    assert!(checked.status.success(), "{checked:?}");
    let bench = bench_of(full());
    let Some(prometheus) = Prometheus::start(&bench.address) else {
        return skip(test, "`prometheus` is not installed");
    };
    let is_up = |value: &Value| value["value"][1] == "1";
    prometheus.until("a scrape", |prometheus| {
        prometheus.query("up{job=\"polder\"}").ok().filter(|found| found.iter().any(is_up))
    });
    // A rate takes two scrapes; each metric of the text is there by its name.
    let two = "count_over_time(polder_received_packets_total[1m]) >= 2";
    prometheus
        .until("a second scrape", |prometheus| prometheus.query(two).ok().filter(|found| !found.is_empty()));
    let known = prometheus.ask("/api/v1/label/__name__/values").unwrap();
    let known = known["data"].as_array().unwrap();
    let text = full().expose();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    for sample in samples.filter_map(|line| line.split(['{', ' ']).next()) {
        assert!(known.iter().any(|name| name == sample), "{sample} is not in {known:?}");
    }
    ask_as_the_dashboard(&prometheus);
    prometheus.until("all alerts evaluated", |prometheus| {
        let answer = prometheus.ask("/api/v1/rules?type=alert")?;
        let mut states = Vec::new();
        texts(&answer, "health", &mut states);
        assert!(!states.contains(&"err"), "{answer:#}");
        (states.len() > 10 && states.iter().all(|state| *state == "ok")).then_some(())
    });
    // What the rows say is wrong is an alert: no port is open in them.
    prometheus.until("an alert", |prometheus| {
        let answer = prometheus.ask("/api/v1/alerts")?;
        let mut names = Vec::new();
        texts(&answer, "alertname", &mut names);
        ["PolderPortDown", "PolderTunnelDead"].iter().all(|name| names.contains(name)).then_some(())
    });
}

/// Each query of the dashboard is answered, and nearly all by something.
fn ask_as_the_dashboard(prometheus: &Prometheus) {
    let text = std::fs::read_to_string(packaged("grafana-dashboard.json")).unwrap();
    let dashboard = serde_json::from_str::<Value>(&text).unwrap();
    let mut queries = Vec::new();
    texts(&dashboard, "expr", &mut queries);
    let mut empty = Vec::new();
    for query in &queries {
        let asked = query.replace("$instance", ".*").replace("$__rate_interval", "1m");
        let found = prometheus.query(&asked).unwrap_or_else(|error| panic!("{query}: {error}"));
        if found.is_empty() {
            empty.push(*query);
        }
    }
    // Comparisons are true at times.
    let is_odd = |query: &&&str| !query.contains(" > 0") && !query.contains(" == 1");
    assert!(
        queries.len() >= 20 && !empty.iter().any(|query| is_odd(&query)),
        "{empty:?} of {}",
        queries.len()
    );
    assert!(Path::new(&prometheus.folder).is_dir());
}
