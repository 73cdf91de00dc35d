//! `mode = "skb"` on a kernel without TCX: ports at clsact carry TCP with offloads, and a gateway that is killed leaves the
//! interfaces to the kernel.
//!
//! ```text
//!  left ── a1 ═══ a0 ─ polder ─ b0 ═══ b1 ── right
//! ```

use crate::machine::{Inside, Machine};
use crate::says;
use polder_testbed::guest::agent::Request;
use polder_testbed::peers::polder::find;
use polder_testbed::skip::skip;
use serde_json::Value;

const INSIDE: Inside<'_> = Inside {
    modules: &["veth", "tun", "sch_ingress", "cls_bpf"],
    spare_modules: &[],
    suite: None,
    programs: &["ip", "tc", "ping", "iperf3", "sh", "date", "sleep"],
    setup: SETUP,
};

const SETUP: &str = "
    ip netns add left
    ip netns add right
    ip link add a0 address 02:00:00:00:00:a0 type veth peer name a1 address 02:00:00:00:00:a1 netns left
    ip link add b0 type veth peer name b1 netns right
    ip link set a0 up
    ip link set b0 up
    ip -n left link set a1 up
    ip -n right link set b1 up
    ip -n left address add 10.77.0.1/24 dev a1
    ip -n right address add 10.77.0.2/24 dev b1
    ip address add 10.77.0.9/24 dev a0
    ip neighbour add 10.77.0.1 lladdr 02:00:00:00:00:a1 dev a0
    ip -n left neighbour add 10.77.0.9 lladdr 02:00:00:00:00:a0 dev a1
    tc qdisc add dev b0 clsact
";

/// Longest time until the kernel has answered. Some 30 ms of it are the emulated processor's with nothing beside it.
const MOST_MILLIS: f64 = 500.0;

/// Kills a gateway while its kernel is asked for an answer 200 times a second. Says when, then what was answered when.
const KILL: &str = "
    ip netns exec left ping -n -D -i 0.005 -c 500 10.77.0.9 > /tmp/pings &
    sleep 0.5
    date +%s.%N
    kill -9 $1
    wait
    while read line; do echo \"$line\"; done < /tmp/pings
";

fn configuration(on_exit: &str) -> String {
    let port = |name: &str| {
        format!(
            "[port.{name}]\ninterface = \"{name}\"\nmode = \"skb\"\non_exit = \"{on_exit}\"\nkernel_hooks = \"bypass\"\n"
        )
    };
    let ports = ["a0", "b0"].map(port).concat();
    format!(
        "version = 1\n[gateway]\ncontrol = \"/run/gw.sock\"\n{ports}[bridge.lan]\nmembers = [\"a0\", \"b0\"]\n"
    )
}

impl Machine {
    /// Polder's filters at an interface's ingress, and those of others.
    fn filters(&mut self, interface: &str) -> [usize; 2] {
        let text = self.says(&format!("tc filter show dev {interface} ingress")).text;
        let handles = text.lines().filter(|line| line.contains("handle"));
        let (own, foreign): (Vec<&str>, Vec<&str>) =
            handles.partition(|line| line.contains("polder to interface"));
        [own.len(), foreign.len()]
    }

    fn has_clsact(&mut self, interface: &str) -> bool {
        self.says(&format!("tc qdisc show dev {interface}")).text.contains("clsact")
    }

    /// The kernel of the gateway does not answer, because its port is taken.
    fn is_silent(&mut self) -> bool {
        let line = "ip netns exec left ping -n -q -c 2 -i 0.2 -W 1 10.77.0.9";
        !self.says(line).text.contains(" 0% packet loss")
    }

    /// Kills the gateway; milliseconds until its kernel answered.
    fn kill(&mut self) -> f64 {
        self.guest.ask(&Request::Write("/tmp/kill.sh".to_owned(), KILL.to_owned())).unwrap();
        let said = self.says(&format!("sh /tmp/kill.sh {}", self.polder)).text;
        let reaped = self.guest.ask(&Request::Stop(self.polder));
        assert!(reaped.unwrap_err().to_string().contains("signal: 9"), "it was not killed");
        let number = |text: &str| text.trim().parse::<f64>().unwrap();
        let killed = number(said.lines().next().unwrap());
        let answers = said.lines().filter_map(|line| line.strip_prefix('[')?.split_once(']'));
        let mut answers = answers.filter(|(_, rest)| rest.contains("bytes from"));
        let first = answers.next().unwrap_or_else(|| panic!("never an answer: {said}"));
        (number(first.0) - killed) * 1000.0
    }
}

#[test]
fn without_tcx_ports_are_at_clsact_and_a_killed_gateway_leaves_them_to_the_kernel() {
    let test = "without_tcx_ports_are_at_clsact_and_a_killed_gateway_leaves_them_to_the_kernel";
    let kernel = match INSIDE.available() {
        Ok(kernel) => kernel,
        Err(reason) => return skip(test, format!("{reason:#}")),
    };
    if kernel.version().contains("linux-image-6.1.") {
        examine(&kernel, &says());
    } else {
        skip(test, format!("it is for Linux before 6.6, and this is {}", kernel.version()));
    }
}

fn examine(kernel: &polder_testbed::guest::Kernel, says: &impl Fn(&str)) {
    let mut machine = Machine::boot(kernel, &INSIDE);
    // A filter of others with the preference that Polder would take. It leaves every packet to the stack.
    let line = "tc filter add dev b0 ingress pref 1 bpf da bytecode";
    let words = line.split(' ').chain(["1,6 0 0 0"]).map(str::to_owned).collect();
    machine.guest.ask(&Request::Run(words)).unwrap();
    machine.gateway(&configuration("kernel"));
    says("started");
    let ports = machine.show("ports").unwrap();
    assert_eq!(find(&ports, "mode").unwrap(), "skb, clsact and a TAP", "{ports:#}");
    machine.reaches("left", "10.77.0.2", "");
    assert!(machine.is_silent(), "the port is taken whole");
    carries_tcp(&mut machine);
    says("TCP");
    assert_eq!([machine.filters("a0"), machine.filters("b0")], [[1, 0], [1, 1]]);
    // Killed, three times: a loaded machine may stop the guest in between.
    let mut times = Vec::new();
    while times.len() < 3 && times.last().is_none_or(|&time| time > MOST_MILLIS) {
        times.push(machine.kill());
        assert_eq!(machine.filters("a0"), [1, 0], "it is left behind");
        machine.gateway(&configuration("kernel"));
        machine.reaches("left", "10.77.0.2", "");
        assert!(machine.is_silent());
        assert_eq!([machine.filters("a0"), machine.filters("b0")], [[1, 0], [1, 1]], "and taken over");
    }
    says(&format!("killed: the kernel answered after {times:.1?} ms"));
    assert!(times.last().is_some_and(|&time| time <= MOST_MILLIS), "{times:?} ms");
    // A clean end takes Polder's own away, and nothing else.
    machine.guest.ask(&Request::Stop(machine.polder)).unwrap();
    assert_eq!([machine.filters("a0"), machine.filters("b0")], [[0, 0], [0, 1]]);
    assert_eq!([machine.has_clsact("a0"), machine.has_clsact("b0")], [false, true]);
    assert!(!machine.is_silent());
    // A port in another mode has no use for what is left.
    machine.gateway(&configuration("kernel"));
    machine.kill();
    machine.gateway(&configuration("kernel").replace("skb", "native"));
    assert_eq!([machine.filters("a0"), machine.filters("b0")], [[0, 0], [0, 1]]);
    machine.guest.ask(&Request::Stop(machine.polder)).unwrap();
    closed(&mut machine);
    says("closed and released");
    machine.guest.power_off().unwrap();
}

/// Segments, checksums and flows are as with TCX.
fn carries_tcp(machine: &mut Machine) {
    let server = ["ip", "netns", "exec", "right", "iperf3", "-s"].map(str::to_owned).to_vec();
    let server = machine.guest.ask(&Request::Start(server)).unwrap().parse().unwrap();
    for direction in ["", "-R"] {
        let line = format!("ip netns exec left iperf3 -c 10.77.0.2 -n 20M {direction}");
        machine.until(&line, |machine| machine.says(&line).ok);
    }
    let _ = machine.guest.ask(&Request::Stop(server));
    let shown = machine.show("flows").unwrap();
    let ports = shown["flows"]["ports"].as_array().unwrap();
    let carried = ports.iter().map(|port| port["received"].as_u64().unwrap()).sum::<u64>();
    assert!(carried > 100, "{shown:#}");
    machine.until("every packet is accounted for", |machine| {
        machine.count("counters", "unaccounted") == Some(0)
    });
    // 40 MiB in packets of 1500 bytes would be 28 000; the kernel counts a super-packet as one.
    let received = ["a0", "b0"].map(|name| {
        let text = machine.says(&format!("ip -s -j link show dev {name}")).text;
        let link: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        link[0]["stats64"]["rx"]["packets"].as_u64().unwrap_or_else(|| panic!("{link:#}"))
    });
    let received = received.iter().sum::<u64>();
    assert!(received < 20_000, "{received} packets: segments were cut");
}

/// A port that is to be closed stays closed without the process, until it is released.
fn closed(machine: &mut Machine) {
    machine.gateway(&configuration("drop"));
    machine.reaches("left", "10.77.0.2", "");
    let kill = format!("kill -9 {}", machine.polder);
    machine.guest.ask(&Request::Run(["sh", "-c", &kill].map(str::to_owned).to_vec())).unwrap();
    let _ = machine.guest.ask(&Request::Stop(machine.polder));
    assert!(machine.is_silent() && machine.filters("a0") == [1, 0]);
    machine.gateway(&configuration("drop"));
    machine.reaches("left", "10.77.0.2", "");
    machine.guest.ask(&Request::Stop(machine.polder)).unwrap();
    assert!(machine.is_silent());
    let released = machine.says("polder release a0 b0").text;
    assert_eq!(released.matches(": released").count(), 2, "{released}");
    assert_eq!([machine.filters("a0"), machine.filters("b0")], [[0, 0], [0, 1]]);
    assert!(!machine.has_clsact("a0") && !machine.is_silent());
}
