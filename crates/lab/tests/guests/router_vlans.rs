//! A router's port with VLANs, on a kernel that has them: `polder` runs in a guest with Debian's kernel, follows the VLAN
//! interfaces there, and routes between stations that talk in tags.
//!
//! ```text
//!  left  (v10) ─┐
//!  right (v20) ─┼─ trunk1 ═══ trunk0, trunk0.10, trunk0.20 ─ polder
//!  plain ───────┘
//! ```

use crate::{program, says};
use polder_lab::clock;
use polder_lab::guest::agent::{Answer, Request};
use polder_lab::guest::{Guest, Iommu, Kernel, Options};
use polder_lab::skip::skip;
use polder_lab::{command, peers};
use serde_json::Value;
use std::time::Duration;

/// Time for which anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
const MODULES: &[&str] = &["veth", "8021q"];
const PROGRAMS: [&str; 4] = ["ip", "ping", "iperf3", "ethtool"];

/// Fails where the test cannot run.
fn available() -> anyhow::Result<Kernel> {
    for program in PROGRAMS.into_iter().chain(["ldd"]) {
        anyhow::ensure!(command::exists(program), "{}", command::remedy(program));
    }
    let kernel = Guest::available()?;
    kernel.with_dependencies(MODULES)?;
    Ok(kernel)
}

const CONFIGURATION: &str = r#"
version = 1
[gateway]
control = "/run/gw.sock"
[port.trunk]
interface = "trunk0"
role = "router"
"#;

/// The machine inside.
struct Machine {
    guest: Guest,
    polder: u32,
}

impl Machine {
    fn start(kernel: &Kernel) -> Self {
        let polder = peers::polder::program().unwrap();
        let mut programs = PROGRAMS.to_vec();
        programs.push(polder.to_str().unwrap());
        let options = Options {
            program: program(),
            modules: MODULES,
            spare_modules: &[],
            programs: &programs,
            memory_mib: 768,
            processors: 1,
            cards: &[],
            iommu: Iommu::None,
        };
        let mut guest = Guest::boot(kernel, &options).unwrap();
        for line in SETUP.lines().map(str::trim).filter(|line| !line.is_empty()) {
            guest.run(line).unwrap();
        }
        guest.ask(&Request::Write("/tmp/gw.toml".to_owned(), CONFIGURATION.to_owned())).unwrap();
        let words = ["polder", "run", "--yes", "/tmp/gw.toml"].map(str::to_owned).to_vec();
        let polder = guest.ask(&Request::Start(words)).unwrap().parse().unwrap();
        let mut machine = Self { guest, polder };
        machine.until("polder answers", |machine| machine.show("ports").is_some());
        machine
    }

    fn says(&mut self, line: &str) -> Answer {
        self.guest.try_ask(&Request::run(line), PATIENCE).unwrap()
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let end = clock::now() + PATIENCE;
        while !holds(self) {
            if clock::now() > end {
                let said = self.guest.ask(&Request::Read(format!("/tmp/said-{}", self.polder)));
                panic!("never: {what}: {}", said.unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Output of `polder show WHAT --json`.
    fn show(&mut self, what: &str) -> Option<Value> {
        let answer = self.says(&format!("polder show {what} --json --socket /run/gw.sock"));
        serde_json::from_str(&answer.text).ok().filter(|_| answer.ok)
    }

    fn count(&mut self, what: &str, name: &str) -> Option<i64> {
        find(&self.show(what)?, name)?.as_i64()
    }

    fn reaches(&mut self, from: &str, to: &str, options: &str) {
        let line = format!("ip netns exec {from} ping -n -q -c 2 -i 0.2 -W 2 {options} {to}");
        self.until(&line, |machine| machine.says(&line).text.contains(" 0% packet loss"));
    }
}

/// The first value under `key`, however deep.
fn find<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => {
            fields.get(key).or_else(|| fields.values().find_map(|inner| find(inner, key)))
        }
        Value::Array(items) => items.iter().find_map(|inner| find(inner, key)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Offloads are off as on any wire of these tests; the stations are moved to where nobody has their neighbours'
/// addresses.
const SETUP: &str = "
    ip netns add left
    ip netns add right
    ip netns add plain
    ip link add trunk0 type veth peer name trunk1
    ethtool -K trunk0 tx off rx off gso off gro off tso off txvlan off rxvlan off
    ethtool -K trunk1 tx off rx off gso off gro off tso off txvlan off rxvlan off
    ip link set trunk1 netns plain
    ip link add link trunk0 name trunk0.10 type vlan id 10
    ip link add link trunk0 name trunk0.20 type vlan id 20
    ip -n plain link add link trunk1 name v10 type vlan id 10
    ip -n plain link add link trunk1 name v20 type vlan id 20
    ip -n plain link set v10 netns left
    ip -n plain link set v20 netns right
    ip address add 10.88.0.1/24 dev trunk0
    ip address add 10.88.10.1/24 dev trunk0.10
    ip address add 10.88.20.1/24 dev trunk0.20
    ip address add fd88::1/64 dev trunk0 nodad
    ip address add fd88:10::1/64 dev trunk0.10 nodad
    ip address add fd88:20::1/64 dev trunk0.20 nodad
    ip link set trunk0 up
    ip link set trunk0.10 up
    ip link set trunk0.20 up
    ip -n plain address add 10.88.0.2/24 dev trunk1
    ip -n plain address add fd88::2/64 dev trunk1 nodad
    ip -n plain link set trunk1 up
    ip -n plain route add default via 10.88.0.1
    ip -n plain -6 route add default via fd88::1
    ip -n left address add 10.88.10.2/24 dev v10
    ip -n left address add fd88:10::2/64 dev v10 nodad
    ip -n left link set v10 up
    ip -n left route add default via 10.88.10.1
    ip -n left -6 route add default via fd88:10::1
    ip -n right address add 10.88.20.2/24 dev v20
    ip -n right address add fd88:20::2/64 dev v20 nodad
    ip -n right link set v20 up
    ip -n right route add default via 10.88.20.1
    ip -n right -6 route add default via fd88:20::1
";

#[test]
fn stations_in_vlans_reach_each_other_through_a_router() {
    let kernel = match available() {
        Ok(kernel) => kernel,
        Err(reason) => {
            return skip("stations_in_vlans_reach_each_other_through_a_router", format!("{reason:#}"));
        }
    };
    let says = says();
    let mut machine = Machine::start(&kernel);
    says("started");
    for (from, to) in
        [("left", "10.88.20.2"), ("left", "fd88:20::2"), ("right", "10.88.0.2"), ("plain", "fd88:10::2")]
    {
        for options in ["", "-s 1452", "-s 4000"] {
            machine.reaches(from, to, options);
        }
    }
    // The kernel's own addresses stay its own, in every VLAN.
    for to in ["10.88.10.1", "10.88.20.1", "fd88:10::1"] {
        machine.reaches("left", to, "");
    }
    let near = machine.says("ip netns exec left ping -n -c 1 -W 2 -t 1 10.88.20.2").text;
    assert!(near.contains("From 10.88.10.1") && near.contains("Time to live exceeded"), "{near}");
    says("pings");
    let server = ["ip", "netns", "exec", "right", "iperf3", "-s"].map(str::to_owned).to_vec();
    machine.guest.ask(&Request::Start(server)).unwrap();
    for to in ["10.88.20.2", "fd88:20::2"] {
        for direction in ["", "-R"] {
            let line = format!("ip netns exec left iperf3 -c {to} -n 1M {direction}");
            machine.until(&line, |machine| machine.says(&line).ok);
        }
    }
    says("TCP");
    let shown = machine.show("routes").unwrap().to_string();
    assert!(shown.contains("trunk.10") && shown.contains("trunk.20"), "{shown}");
    machine.until("every packet is accounted for", |machine| {
        machine.count("counters", "unaccounted") == Some(0)
    });
    let received = machine.count("counters", "received").unwrap();
    assert!(received > 1000, "{received} packets were routed");
    let Machine { mut guest, polder } = machine;
    guest.ask(&Request::Stop(polder)).unwrap();
    guest.power_off().unwrap();
    says("ended");
}
