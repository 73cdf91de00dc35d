//! A client that is not ours, over the kernel's sockets and over Polder's port.

use crate::directory::Files;
use crate::nfs::MOST_READ;
use polder_testbed::command::Running;
use polder_testbed::topology::{End, Topology, is_root};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Exit code of the script when the library is missing.
const NOT_THERE: i32 = 77;
const PATIENCE: Duration = Duration::from_secs(30);

/// Says loudly that a test did not run.
fn skipped(test: &str, why: &str) {
    let line = format!("skipped: {test}: {why}");
    let _ = writeln!(std::io::stderr(), "{line}");
    if let Some(path) = std::env::var_os("POLDER_SKIP_LOG") {
        let log = std::fs::OpenOptions::new().append(true).create(true).open(path);
        writeln!(log.unwrap(), "{line}").unwrap();
    }
}

/// Lets libnfs read the file; whether it could be asked.
fn reads(files: &Files, mut python: Command, address: &str, port: u16) -> bool {
    let content = std::fs::read(files.served().join("file")).unwrap();
    assert!(content.len() > 2 * MOST_READ as usize, "several reads");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nfs/libnfs.py");
    let Ok(output) = python.arg(script).args([address, &port.to_string(), "file"]).output() else {
        return false;
    };
    if output.status.code() == Some(NOT_THERE) {
        return false;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == content, "{} bytes of {}", output.stdout.len(), content.len());
    true
}

fn serve(mut command: Command, files: &Files, address: &str, over: Option<&Path>) -> Running {
    command.args(["serve", "nfs", "--core", "0", "--mac", "02:00:00:00:09:01", "--directory"]);
    command.arg(files.served()).args(["--address", address]);
    if let Some(configuration) = over {
        command.arg("--over").arg(configuration);
    }
    let mut service = Running::start_interactive("the service", &mut command).unwrap();
    service.wait_for("ready", 0, PATIENCE).unwrap();
    service
}

#[test]
fn libnfs_reads_over_a_socket() {
    let files = Files::new();
    // An address that no other process of the tests has.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = format!("127.90.{high}.{low}");
    let program = Command::new(env!("CARGO_BIN_EXE_polder-lab"));
    let _service = serve(program, &files, &format!("{address}:2049"), None);
    if !reads(&files, Command::new("python3"), &address, 2049) {
        skipped("libnfs_reads_over_a_socket", "needs python3 and libnfs13");
    }
}

#[test]
fn libnfs_reads_over_polders_port_in_fragments() {
    let test = "libnfs_reads_over_polders_port_in_fragments";
    if !is_root() {
        return skipped(test, "namespaces need root");
    }
    let files = Files::new();
    let mut topology = Topology::new().unwrap();
    let (client, gateway) = (topology.namespace("client").unwrap(), topology.namespace("gw").unwrap());
    let interface = topology.interface("n");
    let end = End { namespace: &client, interface: "eth0" };
    topology.wire(end, End { namespace: &gateway, interface: &interface }, 1500).unwrap();
    client.ip(&["address", "add", "10.9.0.2/24", "dev", "eth0"]).unwrap();
    let configuration = topology.directory().join("service.toml");
    let text = format!(
        "version = 1\n\n[gateway]\ncpus = [0]\n\n[port.in]\ninterface = \"{interface}\"\n\n\
         [port.service]\ntap = \"service\"\n\n[bridge.lan]\nmembers = [\"in\", \"service\"]\n"
    );
    std::fs::write(&configuration, text).unwrap();
    let program = gateway.command(env!("CARGO_BIN_EXE_polder-lab"));
    let mut service = serve(program, &files, "10.9.0.1:2049", Some(&configuration));
    if !reads(&files, client.command("python3"), "10.9.0.1", 2049) {
        return skipped(test, "needs python3 and libnfs13");
    }
    let from = service.said().len();
    service.tell("books").unwrap();
    let books = service.wait_for("that is all", from, PATIENCE).unwrap();
    for line in ["unaccounted 0", "panics 0"] {
        assert!(books.contains(line), "{books}");
    }
    let reassembled = client.command("cat").arg("/proc/net/snmp").output().unwrap().stdout;
    let reassembled = String::from_utf8(reassembled).unwrap();
    let mut lines = reassembled.lines().filter(|line| line.starts_with("Ip:"));
    let names = lines.next().unwrap().split_whitespace();
    let found = names.zip(lines.next().unwrap().split_whitespace()).find(|(name, _)| *name == "ReasmOKs");
    let whole = found.unwrap().1.parse::<u32>().unwrap();
    assert!(whole >= 3, "{whole} answers came in fragments");
}
