//! Packet hooks of the kernel that `polder check` names, by real rules in a namespace of their own.

use serde_json::Value;
use std::io::Write as _;
use std::process::Command;

const ROUTER: &str = "[port.lan]\ninterface = \"pdlan\"\nmode = \"native\"\nrole = \"router\"\n\
                      [port.wan]\ninterface = \"pdwan\"\nmode = \"native\"\nrole = \"router\"\n";
const BRIDGE: &str = "[port.lan]\ninterface = \"pdlan\"\nmode = \"native\"\n\
                      [port.wan]\ninterface = \"pdwan\"\nmode = \"native\"\n\
                      [bridge.br0]\nmembers = [\"lan\", \"wan\"]\n";
const TUNNEL: &str = "[port.wan]\ninterface = \"pdwan\"\nmode = \"native\"\nrole = \"underlay\"\n\
                      [port.host]\ntap = \"pdhost\"\n\
                      [tunnel.t]\nkind = \"gretap\"\nlocal = \"10.2.0.1\"\nremote = \"10.2.0.2\"\nport = \"wan\"\n\
                      next_hop = \"10.2.0.2\"\n[bridge.br0]\nmembers = [\"host\", \"t\"]\n";
const LINKS: &str = "ip link add pdlan type veth peer name pdlan2; ip link add pdwan type veth peer name pdwan2\n\
                     ip address add 10.1.0.1/24 dev pdlan; ip address add 10.2.0.1/24 dev pdwan\n\
                     for link in lo pdlan pdlan2 pdwan pdwan2; do ip link set $link up; done\n\
                     calls() { for call in $1; do echo $2 >/proc/sys/net/bridge/bridge-nf-call-$call; done; }\n\
                     [ ! -e /proc/sys/net/bridge ] || calls 'iptables ip6tables arptables' 0\n";
const POLICY_DROP: &str = "echo 'add table inet own; add chain inet own forw { type filter hook forward priority 0; policy drop; }' | nft -f -";

/// Says loudly that a test cannot run, and why.
fn skip(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}\n");
    eprint!("{line}");
    let Some(path) = std::env::var_os("POLDER_SKIP_LOG") else { return };
    let log = std::fs::OpenOptions::new().create(true).append(true).open(path);
    log.and_then(|mut log| log.write_all(line.as_bytes())).expect("the log of skipped tests can be written");
}

/// True if the test can run: as root, and with these programs.
fn can_run(test: &str, programs: &[&str]) -> bool {
    if !rustix::process::geteuid().is_root() {
        skip(test, "network namespaces need root");
        return false;
    }
    for program in programs {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        if !found.is_ok_and(|output| output.status.success()) {
            skip(test, &format!("`{program}` is not installed"));
            return false;
        }
    }
    true
}

/// Findings of `polder check` about hooks after `script`: port, severity, text.
fn found(configuration: &str, script: &str) -> Vec<(String, String, String)> {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("polder-hooks-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("gw.toml");
    std::fs::write(&file, format!("version = 1\n{configuration}")).expect("the file");
    let output = Command::new("unshare")
        .args([
            "--net",
            "sh",
            "-e",
            "-c",
            &format!("{LINKS}{script}\nexec \"$POLDER\" check --json \"$FILE\""),
        ])
        .env("POLDER", env!("CARGO_BIN_EXE_polder"))
        .env("FILE", &file)
        .output()
        .expect("unshare starts");
    std::fs::remove_dir_all(&folder).expect("the folder goes");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let json: Result<Value, _> = serde_json::from_str(&out);
    let json = json.map_err(|error| format!("{script}: {error}: {out}{err}")).expect("`check` answers JSON");
    let seen =
        json["preflight"].as_array().expect("a list").iter().filter(|seen| seen["topic"] == "kernel hooks");
    let text = |seen: &Value, key: &str| seen[key].as_str().unwrap_or_default().to_owned();
    let found =
        seen.map(|seen| (text(seen, "of"), text(seen, "severity"), text(seen, "text"))).collect::<Vec<_>>();
    let is_problem = found.iter().any(|(_, severity, _)| severity == "problem");
    assert!(!is_problem || output.status.code() == Some(1), "a problem is code 1: {:?}", output.status);
    found
}

/// Each port is told of each of these, and of nothing else; all of them are problems.
fn problems(configuration: &str, script: &str, expected: &[(&str, &str)]) {
    let found = found(configuration, script);
    for (port, text) in expected {
        let is_told = |(of, severity, said): &(String, String, String)| {
            of == port && severity == "problem" && said.contains(text)
        };
        assert_eq!(
            found.iter().filter(|&found| is_told(found)).count(),
            1,
            "{script}: {port}: {text}: {found:#?}"
        );
    }
    assert_eq!(found.len(), expected.len(), "{script}: {found:#?}");
}

#[test]
fn a_forward_policy_of_drop_concerns_a_router_and_no_bridge() {
    if !can_run("a_forward_policy_of_drop_concerns_a_router_and_no_bridge", &["nft"]) {
        return;
    }
    let text = "nftables chain `inet own forw` at forward would drop them by its policy; replace the rules by a [[filter]]";
    problems(ROUTER, POLICY_DROP, &[("port.lan", text), ("port.wan", text)]);
    problems(BRIDGE, POLICY_DROP, &[]);
    problems(ROUTER, "", &[]);
    let acknowledged = format!("[gateway]\nkernel_hooks = \"bypass\"\n{ROUTER}");
    let said = found(&acknowledged, POLICY_DROP);
    assert!(said.len() == 2 && said.iter().all(|(_, severity, _)| severity == "warning"), "{said:#?}");
    assert!(
        said[0].2.contains("bypassed because of `kernel_hooks`: nftables chain `inet own forw`"),
        "{said:#?}"
    );
    // One port alone.
    let one = ROUTER.replacen("role", "kernel_hooks = \"bypass\"\nrole", 1);
    problems_of_one(&found(&one, POLICY_DROP));
}

fn problems_of_one(found: &[(String, String, String)]) {
    let severities = found.iter().map(|(of, severity, _)| (of.as_str(), severity.as_str()));
    assert_eq!(
        severities.collect::<Vec<_>>(),
        [("port.lan", "warning"), ("port.wan", "problem")],
        "{found:#?}"
    );
}

#[test]
fn what_only_counts_marks_accepts_or_is_for_others_does_not_concern_a_router() {
    if !can_run("what_only_counts_marks_accepts_or_is_for_others_does_not_concern_a_router", &["nft"]) {
        return;
    }
    let script = r#"printf '%s\n' 'table inet own {
        chain forw { type filter hook forward priority 0; policy drop; iifname { "pdlan", "pdwan" } oifname "pd*" accept; }
        chain others { type filter hook forward priority 1; iifname "docker0" drop; iifname vmap { "virbr0": drop }; }
        chain late { type filter hook postrouting priority 0; counter; log prefix "x"; meta mark set 1; ct mark set 2
            ct state established accept; limit rate 10/second accept; }
        chain input { type filter hook input priority 0; policy drop; }
        chain output { type filter hook output priority 0; policy drop; }
    }' 'table ip asleep {
        flags dormant
        chain forw { type filter hook forward priority 0; policy drop; }
    }' 'table netdev other { 
        chain early { type filter hook ingress device "pdwan2" priority 0; policy drop; }
    }' | nft -f -"#;
    problems(ROUTER, script, &[]);
}

#[test]
fn rules_that_drop_or_change_packets_concern_a_router() {
    if !can_run("rules_that_drop_or_change_packets_concern_a_router", &["nft"]) {
        return;
    }
    let cases = [
        ("ip", "type nat hook postrouting priority 100", "oifname \"pdwan\" masquerade", "masquerade them"),
        (
            "ip",
            "type nat hook prerouting priority -100",
            "iifname \"pdwan\" tcp dport 80 dnat to 10.1.0.9",
            "translate",
        ),
        ("inet", "type filter hook forward priority 0", "ct state invalid drop", "drop them by its rule"),
        (
            "inet",
            "type filter hook forward priority 0",
            "tcp flags syn tcp option maxseg size set rt mtu",
            "rewrite them",
        ),
        ("ip6", "type filter hook forward priority 0", "reject", "reject them by its rule"),
        (
            "ip",
            "type route hook output priority 0; }; add chain ip own two { type filter hook postrouting priority 0",
            "",
            "",
        ),
    ];
    for (family, base, rule, would) in cases {
        let rule =
            if rule.is_empty() { String::new() } else { format!("; add rule {family} own one {rule}") };
        let script = format!(
            "echo 'add table {family} own; add chain {family} own one {{ {base}; }}{rule}' | nft -f -"
        );
        let ports: &[_] = match would {
            "" => &[],
            // Only what that port receives.
            "translate" => &["port.wan"],
            _ => &["port.lan", "port.wan"],
        };
        let expected = ports.iter().map(|port| (*port, would)).collect::<Vec<_>>();
        problems(ROUTER, &script, &expected);
        problems(BRIDGE, &script, &[]);
    }
}

#[test]
fn chains_of_the_bridge_family_and_calls_of_iptables_concern_a_bridge() {
    if !can_run("chains_of_the_bridge_family_and_calls_of_iptables_concern_a_bridge", &["nft"]) {
        return;
    }
    let bridge = "echo 'add table bridge own; add chain bridge own forw { type filter hook forward priority 0; }; \
                  add rule bridge own forw iifname \"vnet0\" drop; add rule bridge own forw iifname \"pdlan\" drop' | nft -f -";
    let text = "nftables chain `bridge own forw` at forward would drop them by its rule";
    problems(BRIDGE, bridge, &[("port.lan", text), ("port.wan", text)]);
    problems(ROUTER, bridge, &[]);
    if !std::path::Path::new("/proc/sys/net/bridge/bridge-nf-call-iptables").exists() {
        return skip(
            "calls of iptables by bridges",
            "the kernel has no br_netfilter: `modprobe br_netfilter`",
        );
    }
    let text = "nftables chain `inet own forw` at forward would drop them by its policy";
    for call in ["iptables", "ip6tables"] {
        let called = format!("{POLICY_DROP}; calls {call} 1");
        problems(BRIDGE, &called, &[("port.lan", text), ("port.wan", text)]);
    }
    remedy_is_accepted(
        BRIDGE,
        &format!("{POLICY_DROP}; calls iptables 1"),
        "sysctl -w net.bridge.bridge-nf-call-iptables=0",
    );
    // Of one bridge alone, by an option of its own.
    for option in ["nf_call_iptables", "nf_call_ip6tables"] {
        let master = format!("ip link add pdbr type bridge {option} 1; ip link set pdlan master pdbr");
        problems(BRIDGE, &format!("{POLICY_DROP}; {master}"), &[("port.lan", text)]);
    }
}

/// The chains that Docker 28 makes, with that program.
fn docker(program: &str) -> String {
    format!(
        "ip link add docker0 type bridge; {program} -P FORWARD DROP
        for chain in DOCKER DOCKER-FORWARD DOCKER-BRIDGE DOCKER-CT DOCKER-ISOLATION-STAGE-1 DOCKER-ISOLATION-STAGE-2 \
            DOCKER-USER; do {program} -N $chain; done
        {program} -A FORWARD -j DOCKER-USER
        {program} -A FORWARD -j DOCKER-FORWARD
        {program} -A DOCKER ! -i docker0 -o docker0 -j DROP
        {program} -A DOCKER-BRIDGE -o docker0 -j DOCKER
        {program} -A DOCKER-CT -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        {program} -A DOCKER-FORWARD -j DOCKER-CT
        {program} -A DOCKER-FORWARD -j DOCKER-ISOLATION-STAGE-1
        {program} -A DOCKER-FORWARD -j DOCKER-BRIDGE
        {program} -A DOCKER-FORWARD -i docker0 -j ACCEPT
        {program} -A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2
        {program} -A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
        {program} -t nat -N DOCKER
        {program} -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
        {program} -t nat -A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
        {program} -t nat -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
        {program} -t nat -A DOCKER -i docker0 -j RETURN\n"
    )
}

#[test]
fn a_docker_host_has_a_bridge_without_a_word_and_a_router_with_one() {
    let test = "a_docker_host_has_a_bridge_without_a_word_and_a_router_with_one";
    for (program, by) in [("iptables-nft", "nftables"), ("iptables-legacy", "iptables-legacy")] {
        if !can_run(test, &[program]) {
            continue;
        }
        let usable = Command::new("unshare").args(["--net", program, "-t", "nat", "-S"]).output();
        if !usable.is_ok_and(|output| output.status.success()) {
            skip(test, &format!("the kernel does not have what {program} needs"));
            continue;
        }
        problems(BRIDGE, &docker(program), &[]);
        let policy = format!("{by} chain `ip filter FORWARD` at forward would drop them by its policy");
        let nat = format!("{by} chain `ip nat POSTROUTING` at postrouting would masquerade them by its rule");
        let both = [("port.lan", &policy), ("port.lan", &nat), ("port.wan", &policy), ("port.wan", &nat)];
        let both = both.map(|(port, text)| (port, text.as_str()));
        problems(ROUTER, &docker(program), &both);
        let confined =
            format!("{}{program} -P FORWARD ACCEPT; {program} -t nat -F POSTROUTING", docker(program));
        problems(ROUTER, &confined, &[]);
    }
}

#[test]
fn legacy_chains_of_ipv6_concern_a_router() {
    let test = "legacy_chains_of_ipv6_concern_a_router";
    if !can_run(test, &["ip6tables-legacy"]) {
        return;
    }
    let usable = Command::new("unshare").args(["--net", "ip6tables-legacy", "-S"]).output();
    if !usable.is_ok_and(|output| output.status.success()) {
        return skip(test, "the kernel does not have what ip6tables-legacy needs");
    }
    let text = "ip6tables-legacy chain `ip6 filter FORWARD` at forward would drop them by its policy";
    let policy = "ip6tables-legacy -P FORWARD DROP";
    problems(ROUTER, policy, &[("port.lan", text), ("port.wan", text)]);
    problems(BRIDGE, policy, &[]);
}

#[test]
fn chains_and_filters_of_an_interface_concern_every_port_on_it() {
    if !can_run("chains_and_filters_of_an_interface_concern_every_port_on_it", &["nft", "tc"]) {
        return;
    }
    let chains = r#"printf '%s\n' 'table netdev own {
        chain early { type filter hook ingress device "pdlan" priority 0; ip saddr 192.0.2.1 drop; }
        chain late { type filter hook egress device "pdwan" priority 0; ip saddr 192.0.2.1 drop; }
    }' | nft -f -"#;
    let early = ("port.lan", "nftables chain `netdev own early` at ingress would drop them by its rule");
    let late = ("port.wan", "nftables chain `netdev own late` at egress would drop them by its rule");
    let filters = "tc qdisc add dev pdlan clsact; tc filter add dev pdlan ingress bpf da bytecode '1,6 0 0 2'; \
                   tc filter add dev pdlan egress u32 match u32 0 0 action mirred egress mirror dev pdwan; \
                   tc filter add dev pdlan egress u32 match u32 1 1 flowid 1:1";
    let bpf = ("port.lan", "tc filter bpf pref 49152 at ingress of pdlan would pass them to a BPF program");
    let mirror = ("port.lan", "at egress of pdlan would redirect or mirror them");
    for configuration in [ROUTER, BRIDGE] {
        problems(configuration, chains, &[early, late]);
        problems(configuration, filters, &[bpf, mirror]);
        problems(configuration, "tc qdisc add dev pdlan clsact", &[]);
    }
}

/// Attaches a BPF program that lets everything pass at ingress of one interface and egress of another.
const TCX: &str = r#"python3 - <<'END'
import ctypes, platform, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 321, "aarch64": 280}[platform.machine()]
def bpf(command, attributes):
    result = libc.syscall(number, command, ctypes.create_string_buffer(attributes, 128), 128)
    if result < 0:
        raise SystemExit(f"bpf {command}: {ctypes.get_errno()}")
    return result
code = ctypes.create_string_buffer(bytes.fromhex("b7000000ffffffff9500000000000000"))
licence = ctypes.create_string_buffer(b"GPL")
program = bpf(5, struct.pack("IIQQ", 3, 2, ctypes.addressof(code), ctypes.addressof(licence)))
for interface, place in [("pdlan", 46), ("pdwan", 47)]:
    bpf(8, struct.pack("IIII", socket.if_nametoindex(interface), program, place, 0))
END
"#;

#[test]
fn programs_of_tcx_concern_every_port_on_their_interface() {
    let test = "programs_of_tcx_concern_every_port_on_their_interface";
    if !can_run(test, &["ip", "python3"]) {
        return;
    }
    let probe = format!("ip link add pdlan type veth peer name pdwan\n{TCX}");
    let probed = Command::new("unshare").args(["--net", "sh", "-ec", &probe]).output();
    if !probed.is_ok_and(|output| output.status.success()) {
        return skip(test, "the kernel has no TCX: Linux 6.6");
    }
    let text = "tc 1 BPF program (tcx) at";
    let early = format!("{text} ingress of pdlan would pass them to a BPF program");
    let late = format!("{text} egress of pdwan would pass them to a BPF program");
    for configuration in [ROUTER, BRIDGE] {
        problems(configuration, TCX, &[("port.lan", &early), ("port.wan", &late)]);
    }
}

#[test]
fn rules_of_routing_and_policies_of_ipsec_concern_a_router() {
    if !can_run("rules_of_routing_and_policies_of_ipsec_concern_a_router", &["ip"]) {
        return;
    }
    let rules = "ip rule add from 10.9.0.0/16 lookup 200; ip rule add iif pdwan blackhole; ip rule add iif docker0 blackhole; \
                 ip rule add iif lo lookup 300; ip rule add oif pdwan lookup 300; ip rule add lookup 400";
    let from = "(from 10.9.0.0/16) would look up their routes in table 200";
    let black = "(iif pdwan) would drop them";
    problems(ROUTER, rules, &[("port.lan", from), ("port.wan", from), ("port.wan", black)]);
    problems(BRIDGE, rules, &[]);
    let ipsec = "ip xfrm policy add dir out src 10.1.0.0/24 dst 10.8.0.0/24 tmpl src 10.2.0.1 dst 10.2.0.9 proto esp mode tunnel; \
                 ip xfrm policy add dir out src 10.2.0.1/32 dst 10.2.0.9/32 tmpl proto esp mode transport; \
                 ip xfrm policy add dir out src 10.7.0.0/24 dst 10.8.0.0/24; \
                 ip xfrm policy add dir in src 10.1.0.0/24 dst 10.8.0.0/24 action block";
    let out = "`ip xfrm policy` dir out src 10.1.0.0/24 dst 10.8.0.0/24 would encrypt or encapsulate them";
    problems(ROUTER, ipsec, &[("port.lan", out), ("port.wan", out)]);
    problems(BRIDGE, ipsec, &[]);
}

#[test]
fn an_underlay_goes_round_what_would_meet_its_tunnels_packets() {
    if !can_run("an_underlay_goes_round_what_would_meet_its_tunnels_packets", &["nft", "ip"]) {
        return;
    }
    let input = |rules: &str| {
        format!(
            "printf '%s\\n' 'table inet own {{
                chain input {{ type filter hook input priority 0; policy drop; ct state established accept; tcp dport 22 accept; {rules} }}
                chain forw {{ type filter hook forward priority 0; policy drop; }}
            }}' | nft -f -"
        )
    };
    let text = "nftables chain `inet own input` at input would drop them by its policy";
    problems(TUNNEL, &input(""), &[("port.wan", text)]);
    problems(TUNNEL, &input("meta l4proto 47 accept;"), &[]);
    problems(TUNNEL, &input("ip saddr 10.2.0.0/24 ip protocol 47 accept;"), &[]);
    problems(TUNNEL, &input("iifname \"pdlan\" meta l4proto 47 accept;"), &[("port.wan", text)]);
    let output = "echo 'add table ip own; add chain ip own out { type filter hook output priority 0; }; \
                  add rule ip own out ip daddr 10.2.0.2 drop' | nft -f -";
    let text = "nftables chain `ip own out` at output would drop them by its rule";
    problems(TUNNEL, output, &[("port.wan", text)]);
    problems(ROUTER, output, &[]);
    let ipsec = "ip xfrm policy add dir out src 10.2.0.1 dst 10.2.0.2 proto 47 tmpl proto esp mode transport; \
                 ip xfrm policy add dir out src 10.2.0.1 dst 10.2.0.3 tmpl proto esp mode transport";
    problems(TUNNEL, ipsec, &[("port.wan", "dst 10.2.0.2/32 would encrypt or encapsulate them")]);
}

/// The command of the one remedy after `script` is accepted when it has been run.
fn remedy_is_accepted(configuration: &str, script: &str, command: &str) {
    let found = found(configuration, script);
    for (_, _, text) in &found {
        assert!(text.contains(&format!("`{command}`")), "{command}: {text}");
        let opens = text.contains("would drop") || text.contains("would reject");
        assert_eq!(text.contains("which lets packets pass that this rule would stop"), opens, "{text}");
    }
    assert!(!found.is_empty(), "{script}");
    problems(configuration, &format!("{script}\n{command} >/dev/null"), &[]);
}

#[test]
fn remedies_for_an_underlay_can_be_followed() {
    if !can_run("remedies_for_an_underlay_can_be_followed", &["nft", "ip"]) {
        return;
    }
    let table = |chain: &str| format!("printf '%s\\n' 'table inet own {{ {chain}\n}}' | nft -f -");
    let stateful = table(
        "chain input { type filter hook input priority 0; policy drop; ct state established accept; tcp dport 22 accept; }",
    );
    let from = "nft insert rule inet own input ip saddr 10.2.0.2 ip protocol gre accept";
    remedy_is_accepted(TUNNEL, &stateful, from);
    let nat = table("chain post { type nat hook postrouting priority 100; oifname \"pdwan\" masquerade; }");
    let to = "nft insert rule inet own post ip daddr 10.2.0.2 ip protocol gre accept";
    remedy_is_accepted(TUNNEL, &nat, to);
    let second = "[tunnel.u]\nkind = \"gretap\"\nlocal = \"10.2.0.1\"\nremote = \"10.2.0.3\"\nport = \"wan\"\n[bridge.br0]";
    let two = TUNNEL.replace("[bridge.br0]", second).replace("\"t\"]", "\"t\", \"u\"]");
    remedy_is_accepted(&two, &stateful, "nft insert rule inet own input ip protocol gre accept");
    let vxlan = TUNNEL.replace("gretap", "vxlan\"\nvni = 7\nudp_port = 4789\n#");
    remedy_is_accepted(
        &vxlan,
        &stateful,
        "nft insert rule inet own input ip saddr 10.2.0.2 ip protocol udp accept",
    );
    if can_run("remedies_for_an_underlay_can_be_followed, legacy", &["iptables-legacy"]) {
        let command = "iptables-legacy -t filter -I INPUT -s 10.2.0.2 -p gre -j ACCEPT";
        remedy_is_accepted(TUNNEL, "iptables-legacy -P INPUT DROP", command);
    }
}

#[test]
fn interfaces_by_number_and_vlans_are_of_the_port() {
    let test = "interfaces_by_number_and_vlans_are_of_the_port";
    if !can_run(test, &["nft", "ip"]) {
        return;
    }
    let rule = |name: &str| {
        format!(
            "echo 'add table inet own; add chain inet own early {{ type filter hook prerouting priority 0; }}; \
             add rule inet own early {name} drop' | nft -f -"
        )
    };
    let text = "nftables chain `inet own early` at prerouting would drop them by its rule";
    // A name stands for a number when the rule is made.
    problems(ROUTER, &rule("iif \"pdlan\""), &[("port.lan", text)]);
    problems(ROUTER, &rule("iif \"pdlan2\""), &[]);
    problems(ROUTER, &rule("iifname \"pdlan.11\""), &[]);
    let vlan = "ip link add link pdlan name pdlan.10 type vlan id 10";
    let probe = format!("ip link add pdlan type veth peer name pdwan; {vlan}");
    if !Command::new("unshare")
        .args(["--net", "sh", "-ec", &probe])
        .output()
        .is_ok_and(|output| output.status.success())
    {
        return skip(test, "the kernel has no VLANs: `modprobe 8021q`");
    }
    problems(ROUTER, &format!("{vlan}; {}", rule("iif \"pdlan.10\"")), &[("port.lan", text)]);
}
