//! Ports where the kernel decides, on a kernel whose connection tracking is a module, and which has flowtables.
//!
//! ```text
//!  left ── west: the guest: east ── right
//! ```

use crate::machine::{Inside, Machine};
use crate::says;
use polder_testbed::guest::Kernel;
use polder_testbed::guest::agent::Request;
use polder_testbed::skip::skip;
use serde_json::Value;

/// `mode = "skb"` needs TCX here, so the kernel is a later one than that of Debian 12.
const INSIDE: Inside<'_> = Inside {
    modules: &["veth", "nfnetlink_hook", "tun", "crc32c_generic", "nf_tables", "sch_ingress", "cls_bpf"],
    spare_modules: TRACKING,
    suite: Some("bookworm-backports"),
    programs: &["ip", "nft", "ping", "iperf3", "sh"],
    setup: SETUP,
};

/// Modules of connection tracking, in the order in which they are loaded.
const TRACKING: &[&str] = &[
    "nf_conntrack",
    "nf_conntrack_netlink",
    "nft_ct",
    "nft_chain_nat",
    "nft_masq",
    "nf_flow_table_inet",
    "nft_flow_offload",
];

const SETUP: &str = "
    ip netns add left
    ip netns add right
    ip link add west type veth peer name eth0 netns left
    ip link add east type veth peer name eth0 netns right
    ip address add 10.83.1.1/24 dev west
    ip address add 10.83.2.1/24 dev east
    ip link set west up
    ip link set east up
    ip -n left address add 10.83.1.2/24 dev eth0
    ip -n right address add 10.83.2.2/24 dev eth0
    ip -n left link set eth0 up
    ip -n right link set eth0 up
    ip -n left route add default via 10.83.1.1
    ip -n right route add default via 10.83.2.1
";

const CONFIGURATION: &str = r#"
version = 1
[gateway]
control = "/run/gw.sock"
[port.west]
interface = "west"
role = "router"
decide = "kernel"
[port.east]
interface = "east"
role = "router"
decide = "kernel"
"#;

/// Rules without connection tracking: one forbidden address.
const PLAIN: &str = "table inet fw {
    chain forward { type filter hook forward priority 0; ip daddr 10.83.2.9 drop; }
}";

/// A home router's rules. Connections to port 5202 are the flowtable's.
const OFFLOADED: &str = "table inet fw {
    flowtable fast { hook ingress priority 0; devices = { west, east }; }
    chain forward {
        type filter hook forward priority 0; policy drop;
        tcp dport 5202 ct state established flow add @fast
        ct state established,related accept
        iifname west oifname east accept
    }
    chain postrouting { type nat hook postrouting priority 100; oifname east masquerade; }
}";

/// Bytes of a transfer.
const TRANSFER: &str = "24M";

impl Machine {
    fn rules(&mut self, rules: &str) {
        self.guest.run("nft flush ruleset").unwrap();
        self.guest.ask(&Request::Run(["nft", rules].map(str::to_owned).to_vec())).unwrap();
    }

    fn connections(&mut self) -> Value {
        self.show("connections").unwrap()["connections"].clone()
    }

    /// Packets that ports have carried so far, of all connections.
    fn carried(&mut self) -> u64 {
        let shown = self.connections();
        shown["carried_packets"].as_u64().unwrap_or_else(|| panic!("{shown:#}"))
    }

    /// Bytes go whole from left to right, and back.
    fn transfers(&mut self, port: u16) {
        for direction in ["", "-R"] {
            let line = format!("ip netns exec left iperf3 -c 10.83.2.2 -p {port} -n {TRANSFER} {direction}");
            let answer = self.says(&line);
            assert!(answer.ok, "{line}: {}", answer.text);
        }
    }

    fn serve(&mut self, port: u16) {
        let line = format!("ip netns exec right iperf3 -s -p {port}");
        self.guest.ask(&Request::Start(line.split(' ').map(str::to_owned).collect())).unwrap();
    }

    fn is_accounted(&mut self) {
        self.until("every packet is accounted for", |machine| {
            machine.count("counters", "unaccounted") == Some(0)
        });
    }
}

#[test]
fn connections_are_carried_beside_modules_that_come_later_and_flowtables() {
    let test = "connections_are_carried_beside_modules_that_come_later_and_flowtables";
    match INSIDE.available() {
        Ok(kernel) => examine(&kernel, &says()),
        Err(reason) => skip(test, format!("{reason:#}")),
    }
}

fn examine(kernel: &Kernel, says: &impl Fn(&str)) {
    let mut machine = Machine::boot(kernel, &INSIDE);
    let forwarding = Request::Write("/proc/sys/net/ipv4/ip_forward".to_owned(), "1".to_owned());
    machine.guest.ask(&forwarding).unwrap();
    machine.rules(PLAIN);
    machine.gateway(CONFIGURATION);
    says("started without connection tracking");
    without_tracking(&mut machine);
    for module in TRACKING {
        machine.guest.ask(&Request::Load((*module).to_owned())).unwrap();
    }
    machine.rules(OFFLOADED);
    [5201, 5202].into_iter().for_each(|port| machine.serve(port));
    says("modules are loaded");
    beside_a_flowtable(&mut machine);
    says("carried");
    machine.guest.power_off().unwrap();
}

/// The kernel forwards all that it would, and `show connections` says why nothing is carried.
fn without_tracking(machine: &mut Machine) {
    let shown = machine.connections();
    let obstacle = shown["obstacle"].as_str().unwrap_or_else(|| panic!("{shown:#}"));
    assert!(obstacle.contains("cannot follow the kernel's connections"), "{obstacle}");
    let said = machine.guest.ask(&Request::Read(format!("/tmp/said-{}", machine.polder))).unwrap();
    assert!(said.contains("modprobe nf_conntrack_netlink"), "{said}");
    machine.reaches("left", "10.83.2.2", "");
    machine.guest.run("ip -n right address add 10.83.2.9/32 dev eth0").unwrap();
    let line = "ip netns exec left ping -n -q -c 3 -i 0.1 -W 1 10.83.2.9";
    assert!(machine.says(line).text.contains("100% packet loss"), "a rule forbids it");
    machine.is_accounted();
}

/// The flowtable has the connections that a rule gives it, and the ports carry the others.
fn beside_a_flowtable(machine: &mut Machine) {
    // Rules are a notice of the kernel's, after which the gateway tries again to follow connections.
    machine.until("connections are followed", |machine| machine.connections()["obstacle"].is_null());
    let before = machine.carried();
    machine.transfers(5202);
    let flowtable = machine.carried() - before;
    machine.transfers(5201);
    let carried = machine.carried() - before - flowtable;
    println!("packets carried: {flowtable} of the flowtable's connections, {carried} of the others");
    assert_eq!(flowtable, 0, "connections of a flowtable are the kernel's");
    assert!(carried > 100, "{:#}", machine.connections());
    machine.is_accounted();
    beside_a_program(machine);
    // What the flowtable has had does not end with the gateway.
    machine.guest.ask(&Request::Stop(machine.polder)).unwrap();
    [5201, 5202].into_iter().for_each(|port| machine.transfers(port));
}

/// While a BPF program may drop any packet at netfilter's hooks, the kernel has every connection.
fn beside_a_program(machine: &mut Machine) {
    let words = ["/polder-lab", "netfilter-program"].map(str::to_owned).to_vec();
    let program: u32 = machine.guest.ask(&Request::Start(words)).unwrap().parse().unwrap();
    let obstacle = |machine: &mut Machine| machine.connections()["obstacle"].as_str().map(str::to_owned);
    machine.until("the program is seen", |machine| {
        obstacle(machine).is_some_and(|text| text.contains("at netfilter's hook `forward` (IPv4)"))
    });
    let before = machine.carried();
    machine.transfers(5201);
    assert_eq!(machine.carried(), before, "its packets pass the program");
    machine.guest.ask(&Request::Stop(program)).unwrap();
    machine.until("the program is gone", |machine| obstacle(machine).is_none());
    machine.transfers(5201);
    assert!(machine.carried() > before + 100, "{:#}", machine.connections());
}
