//! Polder in a guest between an access point, whose radio `mac80211_hwsim` plays, and a network card.
//!
//! ```text
//!  a namespace of the guest                the guest                       a namespace
//!  station `wlan1` ~~~~~ `wlan0` (hostapd) ── polder's bridge ── card ═══════ TAP `far`
//! ```
#![cfg(test)]

use polder_testbed::guest::agent::Request;
use polder_testbed::guest::{Card, FarEnd, Guest, Kernel, Model, Options};
use polder_testbed::peers::polder;
use polder_testbed::topology::{Namespace, Topology, is_root};
use polder_testbed::{clock, command};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

const TEST: &str = "a_station_reaches_a_card_through_an_access_point";
const PROGRAMS: [&str; 5] = ["ip", "iw", "hostapd", "ping", "ethtool"];
const MODULES: [&str; 2] = ["mac80211_hwsim", "tun"];
const MODEL: Model = Model::Virtio { queues: 1, offloads: false, platform: false };
const SOON: Duration = Duration::from_secs(30);
const ACCESS_POINT: &str = "interface=wlan0\nssid=polder\nhw_mode=g\nchannel=1\n";

/// Says loudly that the test cannot run, and leaves a line for the end of the whole run.
fn skip(reason: impl std::fmt::Display) {
    polder_testbed::skip::skip(TEST, reason);
}

fn available() -> anyhow::Result<Kernel> {
    anyhow::ensure!(is_root() && Path::new("/dev/net/tun").exists(), "needs root and /dev/net/tun");
    for program in PROGRAMS {
        anyhow::ensure!(command::exists(program), "{}", command::remedy(program));
    }
    let kernel = Kernel::find()?;
    Guest::available_with(&[MODEL], &kernel)?;
    kernel.with_dependencies(&MODULES)?;
    Ok(kernel)
}

/// Asks until the answer is there.
fn until(what: &str, mut ask: impl FnMut() -> Result<(), String>) {
    let end = clock::now() + SOON;
    while let Err(said) = ask() {
        assert!(clock::now() < end, "{what}: {said}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Has a station join an access point.
fn associate(guest: &mut Guest) {
    for line in ["ip netns add station", "iw phy phy1 set netns name station"] {
        guest.run(line).unwrap();
    }
    guest.ask(&Request::Write("/tmp/ap.conf".to_owned(), ACCESS_POINT.to_owned())).unwrap();
    guest.ask(&Request::Start(["hostapd", "/tmp/ap.conf"].map(str::to_owned).to_vec())).unwrap();
    guest.run("ip -n station link set wlan1 up").unwrap();
    guest.run("ip -n station address add 10.77.0.1/24 dev wlan1").unwrap();
    until("the station is not associated", || {
        // It is refused while the access point is not there, and while it is joining one.
        let _ = guest.run("ip netns exec station iw dev wlan1 connect polder");
        let link = guest.run("ip netns exec station iw dev wlan1 link").unwrap();
        if link.starts_with("Connected to") { Ok(()) } else { Err(link) }
    });
}

fn show(guest: &mut Guest, what: &str) -> Result<Value, String> {
    let shown = guest.run(&format!("polder show {what} --json --socket /run/gw.sock"));
    serde_json::from_str(&shown.map_err(|error| format!("{error:#}"))?).map_err(|error| error.to_string())
}

/// Pings both ways, from the shortest packet to the longest, the first of them with ARP as a broadcast.
fn ping_both_ways(guest: &mut Guest, far: &Namespace) {
    until("no way from the wire to the air", || {
        let mut ping = far.command("ping");
        command::run(ping.args(["-n", "-q", "-c", "1", "-W", "1", "10.77.0.1"]))
            .map(drop)
            .map_err(|error| format!("{error:#}"))
    });
    for size in ["0", "56", "1472"] {
        let from_air = format!("ip netns exec station ping -n -q -c 5 -i 0.2 -W 5 -s {size} 10.77.0.2");
        let said = guest.run(&from_air).unwrap();
        assert!(said.contains(" 0% packet loss"), "{said}");
        let mut ping = far.command("ping");
        let said =
            command::run(ping.args(["-n", "-q", "-c", "5", "-i", "0.2", "-W", "5", "-s", size, "10.77.0.1"]))
                .unwrap();
        assert!(said.contains(" 0% packet loss"), "{said}");
    }
}

#[test]
fn a_station_reaches_a_card_through_an_access_point() {
    let kernel = match available() {
        Ok(kernel) => kernel,
        Err(reason) => return skip(format!("{reason:#}")),
    };
    let mut topology = Topology::new().unwrap();
    let far = topology.namespace("far").unwrap();
    let far_end = FarEnd::Tap { namespace: &far, interface: "far" };
    let card = Card { model: MODEL, mac: [2, 0x70, 0x6f, 0, 3, 1], far_end };
    let polder = polder::program().unwrap();
    let programs = PROGRAMS.into_iter().chain([polder.to_str().unwrap()]).collect::<Vec<_>>();
    let options = Options {
        memory_mib: 768,
        processors: 2,
        cards: &[card],
        ..Options::of(Path::new(env!("CARGO_BIN_EXE_polder-lab")), &MODULES, &programs)
    };
    let mut guest = Guest::boot(&kernel, &options).unwrap();
    let name = guest.interface(card.mac).unwrap();
    guest.run(&format!("ip link set {name} up")).unwrap();
    far.ip(&["address", "add", "10.77.0.2/24", "dev", "far"]).unwrap();
    associate(&mut guest);

    // Nobody but the gateway carries anything between the two.
    let mut ping = far.command("ping");
    let said = command::run(ping.args(["-n", "-q", "-c", "1", "-W", "1", "10.77.0.1"]));
    assert!(said.is_err(), "{said:?}");
    let text = format!(
        "version = 1\n[gateway]\ncontrol = \"/run/gw.sock\"\n[port.air]\ninterface = \"wlan0\"\n\
         [port.wire]\ninterface = \"{name}\"\n[bridge.lan]\nmembers = [\"air\", \"wire\"]\n"
    );
    guest.ask(&Request::Write("/tmp/gw.toml".to_owned(), text)).unwrap();
    println!("{}", guest.run("polder check /tmp/gw.toml").unwrap());
    let started = Request::Start(["polder", "run", "--yes", "/tmp/gw.toml"].map(str::to_owned).to_vec());
    let process = guest.ask(&started).unwrap().parse::<u32>().unwrap();
    until("a port is not open", || {
        let ports = show(&mut guest, "ports")?;
        let open = |index: usize| ports["ports"][index]["state"] == "open";
        if open(0) && open(1) { Ok(()) } else { Err(format!("{ports:#}")) }
    });
    ping_both_ways(&mut guest, &far);
    let ports = show(&mut guest, "ports").unwrap();
    println!("{}: {}, {}", kernel.version(), ports["ports"][0]["mode"], ports["ports"][1]["mode"]);
    assert!(ports["ports"][0]["received"].as_u64() >= Some(15), "{ports:#}");
    until("packets are not accounted for", || {
        let counters = show(&mut guest, "counters")?;
        if counters["counters"]["unaccounted"] == 0 { Ok(()) } else { Err(format!("{counters:#}")) }
    });
    let ended = guest.try_ask(&Request::Stop(process), SOON).unwrap();
    assert!(ended.ok, "{}", ended.text);
    // The kernel has the access point, and the station was never thrown out.
    let link = guest.run("ip netns exec station iw dev wlan1 link").unwrap();
    assert!(link.starts_with("Connected to"), "{link}");
    guest.power_off().unwrap();
}
