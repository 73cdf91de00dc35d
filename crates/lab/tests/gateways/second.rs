//! A second gateway on interfaces of the first one.

use crate::machines::{addresses, machine, reaches, until};
use crate::support::{Gateway, root_or_skip, wire};
use polder_lab::command::Running;
use polder_lab::topology::{Namespace, Topology};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// left – gateway – right.
struct Net {
    left: Namespace,
    gateway: Namespace,
    topology: Topology,
}

impl Net {
    fn new() -> Self {
        let mut topology = Topology::new().unwrap();
        let mut new = |role| machine(&mut topology, role);
        let (left, gateway, right) = (new("left"), new("gateway"), new("right"));
        wire(&topology, (&left, "eth0"), (&gateway, "eth0"), 1500);
        wire(&topology, (&gateway, "eth1"), (&right, "eth0"), 1500);
        addresses(&left, "eth0", &["10.91.0.1/24"]);
        addresses(&right, "eth0", &["10.91.0.2/24"]);
        Self { left, gateway, topology }
    }

    /// The file of a second gateway.
    fn second(&self, mode: &str) -> PathBuf {
        let base = self.topology.directory().join("second");
        let file = base.with_extension("toml");
        fs::write(&file, Gateway::whole(&base.with_extension("sock"), &text(mode))).unwrap();
        file
    }

    /// Runs the second gateway to its end; gives its exit code and what it says.
    fn tries(&self, command: &str, mode: &str) -> (Option<i32>, String) {
        let mut run = self.polder();
        run.arg(command).arg(self.second(mode));
        if command == "run" {
            run.arg("--yes");
        }
        let output = run.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    fn polder(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.gateway.name())).arg(crate::support::polder());
        command
    }
}

fn text(mode: &str) -> String {
    format!(
        "[port.a]\ninterface = \"eth0\"\nmode = \"{mode}\"\n[port.b]\ninterface = \"eth1\"\nmode = \"{mode}\"\n\
         [bridge.lan]\nmembers = [\"a\", \"b\"]\n"
    )
}

#[test]
fn it_is_refused_with_the_name_of_the_first() {
    if !root_or_skip("it_is_refused_with_the_name_of_the_first") {
        return;
    }
    let net = Net::new();
    for mode in ["skb", "native"] {
        let gateway = Gateway::start(&net.topology, &net.gateway, &text(mode));
        reaches(&net.left, "10.91.0.2");
        let name = format!("(process {}, control socket {})", gateway.id(), gateway.socket().display());
        for second in ["skb", "native"] {
            for command in ["check", "run"] {
                let (code, said) = net.tries(command, second);
                assert_eq!(code, Some(1), "{command} {second} beside {mode}: {said}");
                assert!(
                    said.contains("eth0 is a port of gateway") && said.contains(&name),
                    "{command}: {said}"
                );
            }
        }
        // Its own file is no other gateway's.
        let mut check = net.polder();
        let own = check.arg("check").arg(gateway.socket().with_extension("toml")).output().unwrap();
        let said = String::from_utf8_lossy(&own.stdout).into_owned();
        assert!(!said.contains("is a port of"), "{said}");
        reaches(&net.left, "10.91.0.2");
        // A lock ends with its process, however that ends.
        gateway.kill();
        let next = Gateway::start(&net.topology, &net.gateway, &text(mode));
        reaches(&net.left, "10.91.0.2");
        next.stop();
    }
}

/// Files that are locked for interfaces of a namespace.
fn locks(namespace: &Namespace) -> Vec<PathBuf> {
    let number = fs::metadata(format!("/run/netns/{}", namespace.name())).unwrap().ino();
    let files = fs::read_dir("/run/polder/interfaces").unwrap().map(|file| file.unwrap().path());
    let is_of = |path: &PathBuf| path.to_string_lossy().contains(&format!("/{number}-"));
    files.filter(is_of).collect()
}

/// Without the lock a second program stands in front of the first one's, as that of any other owner may.
#[test]
fn a_program_in_front_is_told() {
    if !root_or_skip("a_program_in_front_is_told") {
        return;
    }
    let net = Net::new();
    let mut gateway = Gateway::start(&net.topology, &net.gateway, &text("skb"));
    reaches(&net.left, "10.91.0.2");
    let before = locks(&net.gateway);
    assert_eq!(before.len(), 2, "{before:?}");
    before.iter().for_each(|lock| fs::remove_file(lock).unwrap());
    let mut run = net.polder();
    let mut second = Running::start("second", run.args(["run", "--yes"]).arg(net.second("skb"))).unwrap();
    gateway.wait_until_said("port a: the program ");
    let findings = |gateway: &Gateway| gateway.show("ports")["ports"][0]["findings"].clone();
    let told = |findings: &Value| findings.to_string().contains("has its packets first");
    until("it is shown", || told(&findings(&gateway)));
    assert!(second.stop().unwrap().success(), "{}", second.said());
    gateway.wait_until_said("port a: its program is the first again");
    until("it is not shown any more", || !told(&findings(&gateway)));
    reaches(&net.left, "10.91.0.2");
    gateway.stop();
}

/// The process that goes on has the locks.
#[test]
fn an_upgrade_keeps_the_locks() {
    if !root_or_skip("an_upgrade_keeps_the_locks") {
        return;
    }
    let net = Net::new();
    let mut gateway = Gateway::start(&net.topology, &net.gateway, &text("skb"));
    let mut upgrade = Command::new(crate::support::polder());
    let output = upgrade.arg("upgrade").arg("--socket").arg(gateway.socket()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(gateway.wait_for_end(), Some(0));
    let next = polder_lab::upgrade::Process::behind(gateway.socket()).unwrap();
    until("it has locked them", || locks(&net.gateway).len() == 2);
    std::thread::sleep(Duration::from_millis(100));
    let (code, said) = net.tries("run", "skb");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("(process {}, ", next.id())), "{said}");
    reaches(&net.left, "10.91.0.2");
}
