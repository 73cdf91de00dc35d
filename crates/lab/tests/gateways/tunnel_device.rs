//! Devices of tunnels: interfaces of the kernel by which it sends into a tunnel, receives from it, and names it in routes.

use crate::machines::{addresses, ping, reaches, route, until};
use crate::routed_tunnel::Net;
use crate::router::tcp;
use crate::support::{Gateway, polder, root_or_skip, skip};
use polder_testbed::command::{self, Running, exists};
use polder_testbed::peers::frr::{Frr, inside, writable};
use polder_testbed::topology::Namespace;
use polder_testbed::upgrade::Process;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Outer addresses of both gateways, for either family.
const ENDS: [[&str; 2]; 2] = [["10.85.0.1", "10.85.0.2"], ["fd85::1", "fd85::2"]];
/// Addresses of the devices, ours first.
const INSIDE: [[&str; 2]; 2] = [["10.85.9.0", "10.85.9.1"], ["fd85:9::", "fd85:9::1"]];
/// Stations behind the gateways.
const LEFT: [&str; 2] = ["10.84.1.2", "fd84:1::2"];
const RIGHT: [&str; 2] = ["10.84.2.2", "fd84:2::2"];

/// One end with a tunnel `peer`, whose keys are given beside its ends.
fn configuration(number: usize, v6: bool, keys: &str) -> String {
    let ends = ENDS[usize::from(v6)];
    let (local, remote) = (ends[number], ends[1 - number]);
    format!(
        r#"
[port.eth0]
interface = "eth0"
role = "router"
[port.radio0]
interface = "radio0"
role = "underlay"
[tunnel.peer]
local = "{local}"
remote = "{remote}"
port = "radio0"
{keys}
"#
    )
}

fn gateways(net: &Net, v6: bool, keys: &str) -> [Gateway; 2] {
    [0, 1].map(|number| {
        let space = [&net.near, &net.far][number];
        Gateway::start(&net.topology, space, &configuration(number, v6, keys))
    })
}

/// Output of `ip …` in a namespace; empty after an error.
fn ip(namespace: &Namespace, words: &str) -> String {
    let mut command = namespace.command("ip");
    let output = command.args(words.split_whitespace()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Both kernels, and the stations behind them by routes of the kernels, in the families that the tunnel carries.
fn carries(net: &Net, families: &[usize]) {
    for &family in families {
        let [near, far] = INSIDE[family];
        answers_at_all_sizes(&net.near, far);
        answers_at_all_sizes(&net.far, near);
        // Its own address, and the other end's from behind.
        reaches(&net.near, near);
        reaches(&net.left, far);
        tcp(&net.near, &net.far, far.parse().unwrap());
        tcp(&net.far, &net.near, near.parse().unwrap());
        reaches(&net.left, RIGHT[family]);
        reaches(&net.right, LEFT[family]);
        tcp(&net.left, &net.right, RIGHT[family].parse().unwrap());
        tcp(&net.right, &net.left, LEFT[family].parse().unwrap());
    }
}

/// Packets around the MTU arrive, and longer ones in fragments.
fn answers_at_all_sizes(from: &Namespace, to: &str) {
    reaches(from, to);
    for size in ["1400", "1448", "1452", "1472", "4000"] {
        until(&format!("{size} bytes to {to}"), || ping(from, to, &["-s", size]).contains(" 0% packet loss"));
    }
}

/// Addresses on both devices by command, and routes by the devices: one without a next hop, one with.
fn give_addresses(net: &Net, families: &[usize]) {
    for (number, space) in [&net.near, &net.far].into_iter().enumerate() {
        let other = 2 - number;
        for &family in families {
            let (own, far) = (INSIDE[family][number], INSIDE[family][1 - number]);
            addresses(space, "site", &[&format!("{own}/{}", [31, 127][family])]);
            if family == 0 {
                route(space, &format!("add 10.84.{other}.0/24 dev site"));
            } else {
                route(space, &format!("add fd84:{other}::/64 via {far} dev site"));
            }
        }
    }
}

#[test]
fn the_kernel_speaks_and_routes_by_the_device_of_a_tunnel() {
    if !root_or_skip("the_kernel_speaks_and_routes_by_the_device_of_a_tunnel") {
        return;
    }
    let net = Net::new();
    let both = [0, 1];
    let guarded = "kind = \"gre\"\nkey = 85\nchecksum = true\nsequence = true";
    for (v6, keys, mtu, families) in [
        (false, "kind = \"gre\"", 1476, &both[..]),
        (true, guarded, 1500 - 40 - 8 - 16, &both),
        (false, "kind = \"ipip\"", 1480, &both[..1]),
        (false, "kind = \"sit\"", 1480, &both[1..]),
    ] {
        let gateways = gateways(&net, v6, &format!("{keys}\ndevice = \"site\""));
        until("the device has the tunnel's MTU and a carrier", || {
            let shown = ip(&net.near, "link show site");
            shown.contains(&format!("mtu {mtu} ")) && shown.contains("LOWER_UP")
        });
        let has_v6 = ip(&net.near, "-6 address show site").contains("inet6 fe80::");
        assert_eq!(has_v6, families.contains(&1), "a link-local address where the tunnel carries IPv6");
        give_addresses(&net, families);
        carries(&net, families);
        for gateway in &gateways {
            for reason in ["no-bridge", "tx-error", "tx-too-long", "no-route"] {
                assert_eq!(gateway.drops(reason), 0, "{reason}: {:#}", gateway.show("drops"));
            }
        }
        gateways.into_iter().for_each(Gateway::stop);
        assert_eq!(ip(&net.near, "link show site"), "", "the device goes with the gateway");
    }
}

/// Keys of a tunnel whose device has the addresses of the file.
fn with_addresses(number: usize, keys: &str) -> String {
    let [four, six] = INSIDE.map(|inside| inside[number]);
    format!("kind = \"gre\"\ndevice = \"site\"\naddresses = [\"{four}/31\", \"{six}/127\"]\n{keys}")
}

/// Starts the gateway of an end, whose device has the addresses of the file.
fn start(net: &Net, number: usize, keys: &str) -> Gateway {
    let text = configuration(number, false, &with_addresses(number, keys));
    Gateway::start(&net.topology, [&net.near, &net.far][number], &text)
}

/// BIRD with BGP over BFD, and OSPF, on the device; its sockets are in the folder that is returned.
fn bird(net: &Net, number: usize) -> (Running, PathBuf) {
    let space = [&net.near, &net.far][number];
    let directory = writable(net.topology.directory(), space).unwrap();
    let (own, far) = (65001 + number, 65002 - number);
    let text = format!(
        "log stderr all;
router id 10.85.9.{number};
protocol device {{ scan time 1; }}
protocol direct {{ ipv4; interface \"eth0\"; }}
protocol kernel {{ scan time 1; ipv4 {{ export where source = RTS_BGP; }}; }}
protocol bfd {{ interface \"site\" {{ interval 100 ms; multiplier 10; }}; }}
protocol bgp peer {{
    local {} as {own}; neighbor {} as {far}; direct; check link yes; bfd on;
    connect delay time 1; connect retry time 1; error wait time 1, 2;
    ipv4 {{ import all; export where source = RTS_DEVICE; next hop self; }};
}}
protocol ospf v2 {{ tick 1; ipv4 {{ import none; export none; }}; area 0 {{
    interface \"site\" {{ hello 1; dead 4; wait 2; type ptp; }};
}}; }}
",
        INSIDE[0][number],
        INSIDE[0][1 - number]
    );
    fs::write(directory.join("bird.conf"), text).unwrap();
    let mut command = inside(space, Path::new("bird"));
    command.arg("-f").arg("-c").arg(directory.join("bird.conf")).arg("-s").arg(directory.join("ctl"));
    (Running::start("bird", &mut command).unwrap(), directory)
}

/// Answer of BIRD, or nothing.
fn ask_bird(directory: &Path, words: &str) -> String {
    let mut command = Command::new("birdc");
    command::run(command.arg("-s").arg(directory.join("ctl")).args(words.split(' '))).unwrap_or_default()
}

/// BGP, BFD and OSPF come up, their routes carry transit, and a dead tunnel takes the carrier and the routes.
#[test]
fn bird_speaks_by_the_device_and_hears_of_a_dead_tunnel() {
    let test = "bird_speaks_by_the_device_and_hears_of_a_dead_tunnel";
    if !root_or_skip(test) {
        return;
    }
    if !exists("bird") {
        return skip(test, "BIRD is not installed: `apt-get install bird2`");
    }
    let net = Net::new();
    let keepalive = "keepalive = { interval_ms = 200, retries = 3 }";
    let [near, far] = [0, 1].map(|number| start(&net, number, keepalive));
    let daemons = [0, 1].map(|number| bird(&net, number));
    let asked = |words: &str| ask_bird(&daemons[0].1, words);
    until("BGP is up", || asked("show protocols peer").contains("Established"));
    until("BFD is up", || asked("show bfd sessions").contains("Up"));
    until("OSPF has a neighbour", || asked("show ospf neighbors").contains("Full/PtP"));
    until("the kernel has the route", || ip(&net.near, "route show 10.84.2.0/24").contains("dev site"));
    reaches(&net.left, RIGHT[0]);
    tcp(&net.left, &net.right, RIGHT[0].parse().unwrap());
    far.kill();
    assert_eq!(ip(&net.far, "link show site"), "", "no device is left behind");
    until("the device has no carrier", || ip(&net.near, "link show site").contains("NO-CARRIER"));
    until("the kernel has no route", || ip(&net.near, "route show 10.84.2.0/24").is_empty());
    until("the port says so", || near.port("kernel@site")["state"] == "no-carrier");
    assert_eq!(near.show("tunnels")["tunnels"][0]["device_state"], "no-carrier");
    let far = start(&net, 1, keepalive);
    until("the carrier is back", || ip(&net.near, "link show site").contains("LOWER_UP"));
    reaches(&net.left, RIGHT[0]);
    drop(daemons);
    near.stop();
    far.stop();
}

/// FRR takes the device for a link, too: a neighbour of BGP, and its routes.
#[test]
fn frr_speaks_bgp_by_the_device() {
    let test = "frr_speaks_bgp_by_the_device";
    if !root_or_skip(test) {
        return;
    }
    if let Err(error) = Frr::available() {
        return skip(test, &error.to_string());
    }
    let net = Net::new();
    let gateways = [0, 1].map(|number| start(&net, number, ""));
    let daemons = [(&net.near, 0), (&net.far, 1)].map(|(space, number)| {
        let directory = writable(net.topology.directory(), space).unwrap();
        let (own, far) = (65001 + number, 65002 - number);
        let text = format!(
            "router bgp {own}\n bgp router-id 10.85.9.{number}\n no bgp ebgp-requires-policy\n \
             neighbor {0} remote-as {far}\n neighbor {0} timers connect 1\n \
             address-family ipv4 unicast\n  network 10.84.{1}.0/24\n exit-address-family\n!\n",
            INSIDE[0][1 - number],
            number + 1
        );
        Frr::bgp(space, &directory, &text).unwrap()
    });
    until("the kernel has the route", || ip(&net.near, "route show 10.84.2.0/24").contains("dev site"));
    reaches(&net.left, RIGHT[0]);
    daemons.into_iter().for_each(|daemon| daemon.stop().unwrap());
    gateways.into_iter().for_each(Gateway::stop);
}

/// Interfaces that are no ports: the kernel forwards their packets into the tunnel, and has those for them.
#[test]
fn the_kernel_forwards_between_the_device_and_other_interfaces() {
    if !root_or_skip("the_kernel_forwards_between_the_device_and_other_interfaces") {
        return;
    }
    let net = Net::new();
    let gateways = [0, 1].map(|number| {
        let text = configuration(number, false, &with_addresses(number, ""));
        let text = text.replace("[port.eth0]\ninterface = \"eth0\"\nrole = \"router\"\n", "");
        let space = [&net.near, &net.far][number];
        let gateway = Gateway::start(&net.topology, space, &text);
        for key in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            space.inside(|| fs::write(format!("/proc/sys/net/{key}"), "1").unwrap()).unwrap();
        }
        let other = 2 - number;
        route(space, &format!("add 10.84.{other}.0/24 dev site"));
        route(space, &format!("add fd84:{other}::/64 dev site"));
        gateway
    });
    for family in [0, 1] {
        reaches(&net.left, RIGHT[family]);
        reaches(&net.right, LEFT[family]);
        tcp(&net.left, &net.right, RIGHT[family].parse().unwrap());
    }
    // A trace says who has routed the packet.
    let mut trace = Command::new(polder());
    trace.arg("trace").arg("--socket").arg(gateways[0].socket());
    trace.args("kernel@site ip src 10.85.9.0 dst 10.84.2.2 / udp dport 53".split(' '));
    let said = command::run(&mut trace).unwrap();
    for words in ["device port kernel@site", "the kernel has routed it, to the other end of peer"] {
        assert!(said.contains(words), "{said}");
    }
    gateways.into_iter().for_each(Gateway::stop);
}

/// The device is renamed, removed and made by reloads, and its addresses follow the file.
#[test]
fn a_device_follows_the_file() {
    if !root_or_skip("a_device_follows_the_file") {
        return;
    }
    let net = Net::new();
    let [near, far] = [0, 1].map(|number| start(&net, number, ""));
    let reload = |keys: &str| near.reload(&configuration(0, false, keys)).unwrap();
    reaches(&net.far, INSIDE[0][0]);
    let said = reload(&with_addresses(0, "").replace("site", "other"));
    for line in ["+ port kernel@other (tun other)", "- port kernel@site (tun site)"] {
        assert!(said.contains(line), "{said}");
    }
    until("it has another name", || ip(&net.near, "link show site").is_empty());
    until("it has the addresses", || {
        let shown = ip(&net.near, "address show other");
        shown.contains("10.85.9.0/31") && shown.contains("fd85:9::/127")
    });
    reaches(&net.far, INSIDE[0][0]);
    // Addresses of others stay, those of the file follow it.
    addresses(&net.near, "other", &["10.85.8.1/32"]);
    let file = "kind = \"gre\"\ndevice = \"other\"\naddresses = [\"10.85.9.0/31\"]\nmtu = 1300";
    reload(file);
    until("one address is gone", || {
        let shown = ip(&net.near, "address show other");
        !shown.contains("fd85:9::/127") && shown.contains("10.85.9.0/31") && shown.contains("10.85.8.1/32")
    });
    until("the MTU is the tunnel's", || ip(&net.near, "link show other").contains("mtu 1300 "));
    // A lower one of the user's is followed.
    net.near.ip(&["link", "set", "other", "mtu", "1200"]).unwrap();
    route(&net.near, "add 10.84.2.0/24 dev other");
    until("senders hear of it", || {
        ping(&net.left, RIGHT[0], &["-M", "do", "-s", "1250"]).contains("mtu = 1200")
    });
    // A narrow path tells the host's own senders, and takes no IPv6 from the device.
    reload(&with_addresses(0, "").replace("site", "other"));
    until("the MTU is as before", || ip(&net.near, "link show other").contains("mtu 1476 "));
    route(&net.near, "add 10.85.0.2/32 dev radio0 mtu 1200");
    until("it has the least MTU of IPv6", || ip(&net.near, "link show other").contains("mtu 1280 "));
    until("its own packet is too big", || {
        ping(&net.near, INSIDE[0][1], &["-M", "do", "-s", "1200"]).contains("mtu = 1176")
    });
    reaches(&net.near, INSIDE[1][1]);
    // Renamed by somebody: it remains in use.
    net.near.ip(&["link", "set", "other", "name", "renamed"]).unwrap();
    until("it is said", || near.port("kernel@other")["interface"] == "renamed");
    reaches(&net.near, INSIDE[0][1]);
    assert_eq!(near.show("tunnels")["tunnels"][0]["device"], "renamed");
    // Without a device Polder answers itself.
    reload("kind = \"gre\"\naddresses = [\"10.85.9.0/31\"]");
    until("there is no device", || ip(&net.near, "link show renamed").is_empty());
    reaches(&net.far, INSIDE[0][0]);
    reload(&with_addresses(0, ""));
    reaches(&net.near, INSIDE[0][1]);
    near.stop();
    far.stop();
}

/// An interface of that name is in the way: the file is refused, with what to do.
#[test]
fn a_name_in_use_is_refused() {
    if !root_or_skip("a_name_in_use_is_refused") {
        return;
    }
    let net = Net::new();
    net.near.ip(&["link", "add", "site", "type", "bridge"]).unwrap();
    let text = configuration(0, false, &with_addresses(0, ""));
    let file = net.topology.directory().join("check.toml");
    fs::write(&file, format!("version = 1\n{text}")).unwrap();
    let output = net.near.command(polder()).arg("check").arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("the interface site is a bridge of the kernel's"), "{said}");
    let without = configuration(0, false, "kind = \"gre\"\naddresses = [\"10.85.9.0/31\"]");
    let near = Gateway::start(&net.topology, &net.near, &without);
    let refused = format!("{:#}", near.reload(&text).unwrap_err());
    let refused = refused.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(refused.contains("give the tunnel's `device` another name"), "{refused}");
    net.near.ip(&["link", "delete", "site"]).unwrap();
    near.reload(&text).unwrap();
    let far = start(&net, 1, "");
    reaches(&net.near, INSIDE[0][1]);
    near.stop();
    far.stop();
}

/// Somebody deletes the device: that is an event, and it is made again.
#[test]
fn a_deleted_device_is_made_again() {
    if !root_or_skip("a_deleted_device_is_made_again") {
        return;
    }
    let net = Net::new();
    let [mut near, far] = [0, 1].map(|number| start(&net, number, ""));
    reaches(&net.near, INSIDE[0][1]);
    net.near.ip(&["link", "delete", "site"]).unwrap();
    near.wait_until_said("kernel@site");
    reaches(&net.near, INSIDE[0][1]);
    reaches(&net.far, INSIDE[1][0]);
    assert_eq!(near.port("kernel@site")["openings"], 2);
    // The underlay goes, and with it the carrier.
    net.near.ip(&["link", "set", "radio0", "down"]).unwrap();
    until("there is no carrier", || ip(&net.near, "link show site").contains("NO-CARRIER"));
    net.near.ip(&["link", "set", "radio0", "up"]).unwrap();
    until("there is a carrier", || ip(&net.near, "link show site").contains("LOWER_UP"));
    reaches(&net.near, INSIDE[0][1]);
    // Down and up again: the addresses of the file are there again.
    net.near.ip(&["link", "set", "site", "down"]).unwrap();
    until("it is down", || near.port("kernel@site")["state"] == "down");
    net.near.ip(&["link", "set", "site", "up"]).unwrap();
    for inside in INSIDE {
        reaches(&net.near, inside[1]);
    }
    near.stop();
    far.stop();
}

/// The successor has the same device, with addresses and routes of others.
#[test]
fn an_upgrade_keeps_the_device() {
    if !root_or_skip("an_upgrade_keeps_the_device") {
        return;
    }
    let net = Net::new();
    let [mut near, far] = [0, 1].map(|number| start(&net, number, ""));
    addresses(&net.near, "site", &["10.85.8.1/32"]);
    route(&net.near, "add 10.84.2.0/24 dev site");
    route(&net.far, "add 10.84.1.0/24 dev site");
    reaches(&net.left, RIGHT[0]);
    let shown = |what: &str| ip(&net.near, what);
    let before = ["address show site", "route show dev site"].map(shown);
    assert!(before[0].contains("10.85.8.1/32") && before[1].contains("10.84.2.0/24"), "{before:?}");
    let socket = near.socket().to_owned();
    Gateway::other(&near.program(), &["upgrade", "--socket", socket.to_str().unwrap()]);
    let next = Process::behind(&socket).unwrap();
    assert_ne!(next.id(), near.id());
    assert_eq!(near.wait_for_end(), Some(0));
    assert_eq!(["address show site", "route show dev site"].map(shown), before, "nothing of it has changed");
    reaches(&net.left, RIGHT[0]);
    reaches(&net.near, INSIDE[0][1]);
    near.assert_conserved();
    drop(next);
    until("it goes with the successor", || shown("link show site").is_empty());
    far.stop();
}
