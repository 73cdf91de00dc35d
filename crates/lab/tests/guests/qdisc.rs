//! Queueing disciplines of the kernel's shape what leaves ports, also what the fast path carries.
//!
//! ```text
//!  left ── a0 ─ polder ─ b0 ── right
//! ```

use crate::machine::{Inside, Machine};
use crate::says;
use polder_testbed::guest::Kernel;
use polder_testbed::guest::agent::Request;
use polder_testbed::skip::skip;

const INSIDE: Inside<'_> = Inside {
    modules: &["veth", "tun", "sch_ingress", "cls_bpf", "sch_cake", "sch_fq_codel", "sch_htb"],
    spare_modules: &[],
    suite: Some("bookworm-backports"),
    programs: &["ip", "tc", "ping", "iperf3"],
    setup: SETUP,
};

const SETUP: &str = "
    ip netns add left
    ip netns add right
    ip link add a0 type veth peer name eth0 netns left
    ip link add b0 type veth peer name eth0 netns right
    ip link set a0 up
    ip link set b0 up
    ip -n left address add 10.77.0.1/24 dev eth0
    ip -n right address add 10.77.0.2/24 dev eth0
    ip -n left link set eth0 up
    ip -n right link set eth0 up
";

const CONFIGURATION: &str = r#"
version = 1
[gateway]
control = "/run/gw.sock"
[port.a0]
interface = "a0"
mode = "skb"
[port.b0]
interface = "b0"
mode = "skb"
[bridge.lan]
members = ["a0", "b0"]
"#;

/// Disciplines, with the commands that set them, and their rate in Mbit/s.
const DISCIPLINES: [(&str, &[&str], f64); 3] = [
    ("cake", &["tc qdisc replace dev b0 root cake bandwidth 20mbit"], 20.0),
    (
        "htb",
        &[
            "tc qdisc replace dev b0 root handle 1: htb default 10",
            "tc class add dev b0 parent 1: classid 1:10 htb rate 12mbit",
            "tc qdisc add dev b0 parent 1:10 fq_codel",
        ],
        12.0,
    ),
    ("fq_codel", &["tc qdisc replace dev b0 root fq_codel"], f64::INFINITY),
];

impl Machine {
    /// Mbit/s of one TCP connection.
    fn mbit(&mut self, seconds: u32) -> f64 {
        let line = format!("ip netns exec left iperf3 -J -c 10.77.0.2 -t {seconds}");
        let answer = self.says(&line);
        let told: serde_json::Value = serde_json::from_str(&answer.text).unwrap_or_default();
        let rate = told["end"]["sum_received"]["bits_per_second"].as_f64();
        rate.unwrap_or_else(|| panic!("{}", answer.text)) / 1e6
    }

    /// Discipline that `show ports` names at b0.
    fn discipline(&mut self) -> Option<String> {
        let ports = self.show("ports").unwrap();
        let rows = ports["ports"].as_array().unwrap_or_else(|| panic!("{ports:#}"));
        let row = rows.iter().find(|row| row["interface"] == "b0").unwrap_or_else(|| panic!("{ports:#}"));
        row["qdisc"].as_str().map(str::to_owned)
    }
}

#[test]
fn disciplines_of_the_kernel_shape_what_polder_sends() {
    match INSIDE.available() {
        Ok(kernel) => examine(&kernel, &says()),
        Err(reason) => skip("disciplines_of_the_kernel_shape_what_polder_sends", format!("{reason:#}")),
    }
}

fn examine(kernel: &Kernel, says: &impl Fn(&str)) {
    let mut machine = Machine::boot(kernel, &INSIDE);
    machine.gateway(CONFIGURATION);
    let server = ["ip", "netns", "exec", "right", "iperf3", "-s"].map(str::to_owned).to_vec();
    machine.guest.ask(&Request::Start(server)).unwrap();
    machine.reaches("left", "10.77.0.2", "");
    assert_eq!(machine.discipline(), None);
    let free = machine.mbit(2);
    says(&format!("{free:.0} Mbit/s without a discipline"));
    assert!(free > 40.0, "the guest is too slow to show a rate: {free} Mbit/s");
    for (name, commands, rate) in DISCIPLINES {
        commands.iter().for_each(|command| drop(machine.guest.run(command).unwrap()));
        let shown = rate.is_finite().then(|| name.to_owned());
        machine.until("the discipline is seen", |machine| machine.discipline() == shown);
        let mbit = machine.mbit(4);
        says(&format!("{mbit:.1} Mbit/s by {name}"));
        let most = rate.min(f64::MAX) * 1.02;
        assert!(mbit < most, "{name} does not shape: {mbit} Mbit/s");
        assert!(mbit > 0.8 * rate.min(free / 2.0), "{name} is given too little: {mbit} Mbit/s");
    }
    let told = machine.show("flows").unwrap();
    let ports = told["flows"]["ports"].as_array().unwrap();
    let carried = ports.iter().map(|port| port["received"].as_u64().unwrap()).sum::<u64>();
    assert!(carried > 1000, "the fast path carries: {told:#}");
    machine.until("every packet is accounted for", |machine| {
        machine.count("counters", "unaccounted") == Some(0)
    });
    // Frames of AF_XDP do not meet a discipline, so `check` says it, and `mode = "auto"` avoids it.
    machine.guest.run("tc qdisc replace dev b0 root cake bandwidth 20mbit").unwrap();
    for (mode, said) in [("native", "bypasses the queueing discipline `cake`"), ("auto", "skb: TCX")] {
        let file = CONFIGURATION.replace("skb", mode);
        machine.guest.ask(&Request::Write("/tmp/other.toml".to_owned(), file)).unwrap();
        let answer = machine.says("polder check /tmp/other.toml");
        assert!(answer.text.contains(said), "{mode}: {}", answer.text);
    }
    machine.guest.power_off().unwrap();
}
