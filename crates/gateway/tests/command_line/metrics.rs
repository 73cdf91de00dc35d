//! Metrics and health of a running gateway.

use super::support::{Folder, Gateway, root_or_skip, run};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

fn gateway(name: &str) -> (Gateway, PathBuf) {
    let socket = std::env::temp_dir().join(format!("polder-{name}-{}.metrics", std::process::id()));
    let metrics = format!("[metrics]\nlisten = \"{}\"\n", socket.display());
    (Gateway::start_with(name, &metrics, &[]), socket)
}

fn get(socket: &Path, page: &str) -> (String, String) {
    let mut stream = UnixStream::connect(socket).expect("the metrics' socket");
    stream.write_all(format!("GET {page} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

/// The value of a sample.
fn value(text: &str, sample: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(&format!("{sample} "))).expect(sample);
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect(line)
}

#[test]
fn a_confined_gateway_is_scraped_and_another_socket_takes_a_restart() {
    if !root_or_skip("a_confined_gateway_is_scraped_and_another_socket_takes_a_restart") {
        return;
    }
    let (gateway, socket) = gateway("scraped");
    let (head, text) = get(&socket, "/metrics");
    assert!(head.contains("200 OK") && text.ends_with("# EOF\n"), "{head}");
    assert!(value(&text, "polder_port_open{port=\"a\"}") > 0.5);
    assert!(value(&text, "polder_worker_cpu_seconds_total{worker=\"0\"}") > 0.0, "it may read statistics");
    assert!(value(&text, "polder_configuration_generation") < 1.5);
    assert!(get(&socket, "/healthz").0.contains("200 OK"));
    assert!(get(&socket, "/readyz").0.contains("200 OK"));
    gateway.change("members", "ageing_seconds = 77\nmembers");
    assert_eq!(gateway.ask(&["reload"]).code, Some(0));
    std::thread::sleep(std::time::Duration::from_millis(150));
    let (_, text) = get(&socket, "/metrics");
    assert!(value(&text, "polder_configuration_generation") > 1.5);
    assert!(value(&text, "polder_configuration_reloads_total{outcome=\"applied\"}") > 0.5);
    let told = socket.display().to_string();
    gateway.change(&told, "/run/elsewhere.sock");
    let refused = gateway.ask(&["reload"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("! metrics listen") && refused.err.contains("restart"), "{}", refused.err);
    let (code, log, _) = gateway.terminate();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains(&format!("metrics at {told}")), "{log}");
    assert!(!socket.exists(), "the socket goes with the gateway");
}

#[test]
fn a_port_in_use_is_refused_before_anything_is_touched() {
    let folder = Folder::new("inuse");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let file = folder.0.join("gw.toml");
    let text = format!(
        "version = 1\n[gateway]\ncontrol = \"{}\"\n[metrics]\nlisten = \"{address}\"\n[port.a]\ntap = \"pdtx\"\n\
         [port.b]\ntap = \"pdty\"\n[bridge.br0]\nmembers = [\"a\", \"b\"]\n",
        folder.0.join("gw.sock").display()
    );
    std::fs::write(&file, text).expect("the file");
    let outcome = run(&["run", &file.display().to_string()]);
    assert_eq!(outcome.code, Some(1));
    let told = format!("another program listens on {address}");
    assert!(outcome.err.contains(&told), "{}", outcome.err);
    assert!(!folder.0.join("gw.sock").exists(), "the control socket is given back");
}
