//! The plugin's checks: each on a bench of its own.

use super::bench::{Bench, LEFT, NETWORK, RIGHT, said};
use crate::clock;
use crate::command;
use crate::interrupt;
use crate::topology::Namespace;
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A check.
pub(super) struct Check {
    pub(super) name: &'static str,
    /// Passes, with numbers that are worth telling.
    pub(super) run: fn(&mut Bench) -> anyhow::Result<String>,
}

/// All of them.
pub(super) const CHECKS: &[Check] = &[
    Check { name: "add", run: add },
    Check { name: "check", run: check },
    Check { name: "twice", run: twice },
    Check { name: "delete", run: delete },
    Check { name: "out of order", run: out_of_order },
    Check { name: "namespace gone", run: namespace_gone },
    Check { name: "failed ADD", run: failed_add },
    Check { name: "gateway down", run: gateway_down },
    Check { name: "restart", run: restart },
    Check { name: "reloads", run: reloads },
    Check { name: "pinned", run: pinned },
    Check { name: "collect", run: collect },
    Check { name: "status", run: status },
    Check { name: "versions", run: versions },
    Check { name: "rate", run: rate },
];

/// Containers a minute.
const A_MINUTE: u32 = 250;
const NOTHING: String = String::new();

fn add(bench: &mut Bench) -> anyhow::Result<String> {
    let container = bench.container("c1")?;
    let text = bench.done("add", &container)?;
    let result = serde_json::from_str::<Value>(&text)?;
    let shown = container.ip(&["address", "show", "dev", "eth0"])?;
    let address = result["ips"][0]["address"].as_str().context("no address")?;
    let mac = result["interfaces"][1]["mac"].as_str().context("no MAC address")?;
    ensure!(shown.contains(&format!("inet {address} ")) && shown.contains(mac), "{text} {shown}");
    ensure!(result["ips"][0]["interface"] == 1 && result["interfaces"][1]["name"] == "eth0", "{text}");
    let routes = container.ip(&["route"])?;
    ensure!(routes.contains(&format!("default via {LEFT} dev eth0")), "{routes}");
    bench.reaches(&container)?;
    // The first packet to a container finds it, without ARP's second try a second later.
    let other = bench.container("c2")?;
    let second = bench.add(&other)?;
    bench.is_reached_at_once(second)?;
    bench.done("del", &other)?;
    let (ports, files) = (bench.ports()?, bench.files());
    ensure!(ports.len() == 1 && ports[0].1 == "open" && files.len() == 1, "{ports:?}, {files:?}");
    let file = fs::read_to_string(&files[0])?;
    ensure!(file.contains(mac) && file.contains(address.split('/').next().unwrap_or("")), "{file}");
    let diff = bench.ask(&["diff"]);
    ensure!(diff.is_ok(), "the file is not what runs: {diff:?}");
    Ok(NOTHING)
}

fn check(bench: &mut Bench) -> anyhow::Result<String> {
    let container = bench.container("c1")?;
    let other = bench.container("c2")?;
    let address = bench.add(&container)?;
    bench.add(&other)?;
    bench.done("check", &container)?;
    bench.done("check", &other)?;
    let file = bench.files().into_iter().find(|file| fs::read_to_string(file).is_ok_and(|text| text.contains(&format!("\"{address}\""))));
    let file = file.context("no file has the address")?;
    let text = fs::read_to_string(&file)?;
    // Keys of an operator are no difference, in file and gateway.
    let name = file.file_stem().map(|name| name.to_string_lossy().into_owned()).context("no name")?;
    bench.ask(&["port", "set", &name, "--key", "weight=90"])?;
    bench.done("check", &container)?;
    let cidr = format!("{address}/24");
    let steps: [(&[&str], &[&str], &str); 3] = [
        (&["address", "del", &cidr, "dev", "eth0"], &["address", "add", &cidr, "dev", "eth0"], "no address"),
        (&["route", "del", "default"], &["route", "add", "default", "via", "10.88.0.1"], "no route"),
        (&["link", "set", "eth0", "down"], &["link", "set", "eth0", "up"], "switched off"),
    ];
    for (change, back, why) in steps {
        container.ip(change)?;
        let said = bench.refused("check", NETWORK, &container)?;
        ensure!(said.contains(why), "{change:?}: {said}");
        container.ip(back)?;
        if !container.ip(&["route"])?.contains("default") {
            container.ip(&["route", "add", "default", "via", "10.88.0.1"])?;
        }
        bench.done("check", &container).with_context(|| format!("after {back:?}"))?;
    }
    // A guard that was changed in the file alone, and in both.
    fs::write(&file, text.replace(&address.to_string(), "10.88.0.9"))?;
    bench.refused("check", NETWORK, &container)?;
    bench.ask(&["reload", "--yes"])?;
    bench.refused("check", NETWORK, &container)?;
    fs::remove_file(&file)?;
    bench.refused("check", NETWORK, &container)?;
    bench.done("check", &other)?;
    Ok(NOTHING)
}

fn twice(bench: &mut Bench) -> anyhow::Result<String> {
    let container = bench.container("c1")?;
    // Several at once: one of them is done.
    let outcomes = std::thread::scope(|scope| {
        let tool = || bench.tool("add", NETWORK, &container).map(|output| output.status.success());
        let calls = [0; 3].map(|_| scope.spawn(tool));
        calls.map(|call| call.join().is_ok_and(|outcome| outcome.is_ok_and(|is_done| is_done)))
    });
    ensure!(outcomes.iter().filter(|&&is_done| is_done).count() == 1, "{outcomes:?}");
    bench.reaches(&container)?;
    let before = container.ip(&["-o", "address", "show", "dev", "eth0"])?;
    let said = bench.refused("add", NETWORK, &container)?;
    ensure!(said.contains("has an interface eth0 already"), "{said}");
    bench.reaches(&container)?;
    ensure!(container.ip(&["-o", "address", "show", "dev", "eth0"])? == before, "the first was replaced");
    ensure!(bench.given()?.len() == 1, "{:?}", bench.given()?);
    bench.done("check", &container)?;
    Ok(NOTHING)
}

fn delete(bench: &mut Bench) -> anyhow::Result<String> {
    let container = bench.container("c1")?;
    for _ in 0..2 {
        bench.add(&container)?;
        bench.reaches(&container)?;
        bench.done("del", &container)?;
        bench.nothing_is_left()?;
        ensure!(container.ip(&["link", "show", "dev", "eth0"]).is_err(), "the container has its interface");
        bench.done("del", &container)?;
        bench.nothing_is_left()?;
    }
    Ok(NOTHING)
}

fn out_of_order(bench: &mut Bench) -> anyhow::Result<String> {
    let container = bench.container("c1")?;
    bench.done("del", &container)?;
    let variables = of(&container);
    let output = bench.call(&[&variables.each()[..], &[("CNI_COMMAND", "CHECK")]].concat(), &bench.input("1.1.0", &[]))?;
    ensure!(code_of(&output) == Some(7), "CHECK without a result: {}", said(&output));
    bench.nothing_is_left()?;
    bench.add(&container)?;
    bench.reaches(&container)?;
    bench.done("del", &container)?;
    bench.nothing_is_left()?;
    Ok(NOTHING)
}

fn namespace_gone(bench: &mut Bench) -> anyhow::Result<String> {
    let container = bench.container("c1")?;
    let other = bench.container("c2")?;
    bench.add(&container)?;
    bench.add(&other)?;
    bench.end(&container)?;
    bench.done("del", &container)?;
    bench.reaches(&other)?;
    bench.done("del", &other)?;
    bench.nothing_is_left()?;
    let said = bench.refused("add", NETWORK, &container)?;
    ensure!(said.contains("start the container first"), "{said}");
    bench.nothing_is_left()?;
    Ok(NOTHING)
}

fn failed_add(bench: &mut Bench) -> anyhow::Result<String> {
    let container = bench.container("c1")?;
    let full = bench.container("c2")?;
    for (name, from, to, why) in [
        ("wan", "\"bridge\":\"lan\"", "\"bridge\":\"wan\"", "there is no bridge `wan`"),
        ("vlan", "\"bridge\"", "\"vlan\":4095,\"bridge\"", "4095"),
        ("typo", "\"bridge\"", "\"vlna\":5,\"bridge\"", "no key of this plugin"),
        ("none", "host-local", "no-such-ipam", "no IPAM plugin no-such-ipam"),
        ("range", "10.88.0.250", "10.89.0.250", "IPAM plugin host-local"),
        // Behind the address.
        ("route", "\"dst\":\"0.0.0.0/0\"", "\"dst\":\"0.0.0.0/0\",\"gw\":\"192.0.2.1\"", "next hop has to be"),
    ] {
        bench.network(name, &[(from, to)])?;
        let said = bench.refused("add", name, &container)?;
        ensure!(said.contains(why), "{name}: {said}");
        nothing_has_happened(bench, &container).with_context(|| format!("{name}: {said}"))?;
    }
    // No address is left.
    bench.network("one", &[("10.88.0.250", "10.88.0.10")])?;
    ensure!(bench.tool("add", "one", &full)?.status.success());
    bench.refused("add", "one", &container)?;
    ensure!(container.ip(&["link", "show", "dev", "eth0"]).is_err() && bench.ports()?.len() == 1);
    ensure!(bench.tool("del", "one", &full)?.status.success());
    nothing_has_happened(bench, &container)?;
    // A `conf.d` that is full, and one that cannot be written.
    let directory = bench.file("conf.d");
    let full = Mounted::over(&directory)?;
    let said = bench.refused("add", NETWORK, &container)?;
    ensure!(said.contains("cannot write"), "{said}");
    nothing_has_happened(bench, &container).context("a full conf.d")?;
    drop(full);
    fs::remove_dir(&directory)?;
    fs::write(&directory, "no directory")?;
    let said = bench.refused("add", NETWORK, &container)?;
    ensure!(said.contains("cannot write"), "{said}");
    fs::remove_file(&directory)?;
    nothing_has_happened(bench, &container).context("a conf.d that is a file")?;
    bench.add(&container)?;
    bench.reaches(&container)?;
    Ok(NOTHING)
}

/// A full file system over a directory.
struct Mounted<'a>(&'a std::path::Path);

impl<'a> Mounted<'a> {
    fn over(directory: &'a std::path::Path) -> anyhow::Result<Self> {
        let mut mount = Command::new("mount");
        command::run(mount.args(["-t", "tmpfs", "-o", "size=4k", "full"]).arg(directory))?;
        let mounted = Self(directory);
        fs::write(directory.join("filler"), [0; 4096])?;
        Ok(mounted)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // One that is busy goes when it is not.
        let _ = command::run(Command::new("umount").arg("-l").arg(self.0));
    }
}

fn nothing_has_happened(bench: &Bench, container: &Namespace) -> anyhow::Result<()> {
    ensure!(container.ip(&["link", "show", "dev", "eth0"]).is_err(), "the container has an interface");
    bench.nothing_is_left()
}

fn gateway_down(bench: &mut Bench) -> anyhow::Result<String> {
    let container = bench.container("c1")?;
    let other = bench.container("c2")?;
    bench.add(&container)?;
    bench.stop()?;
    let said = bench.refused("add", NETWORK, &other)?;
    ensure!(said.contains("no gateway has the control socket"), "{said}");
    ensure!(other.ip(&["link", "show", "dev", "eth0"]).is_err() && bench.given()?.len() == 1);
    let variables = of(&other);
    let output = bench.call(&[&variables.each()[..], &[("CNI_COMMAND", "ADD")]].concat(), &bench.input("1.1.0", &[]))?;
    ensure!(code_of(&output) == Some(11), "{}", self::said(&output));
    bench.done("del", &container)?;
    bench.start()?;
    bench.nothing_is_left()?;
    bench.add(&other)?;
    bench.reaches(&other)?;
    Ok(NOTHING)
}

fn restart(bench: &mut Bench) -> anyhow::Result<String> {
    let container = bench.container("c1")?;
    let left_over = bench.container("c2")?;
    bench.add(&container)?;
    bench.add(&left_over)?;
    bench.kill()?;
    // As after a restart of the machine: a file without an interface.
    bench.end(&left_over)?;
    bench.start()?;
    bench.reaches(&container)?;
    bench.done("check", &container)?;
    let ports = bench.ports()?;
    let waiting = ports.iter().filter(|(_, state)| state == "waiting").count();
    ensure!(ports.len() == 2 && waiting == 1, "{ports:?}");
    bench.done("del", &left_over)?;
    bench.done("del", &container)?;
    bench.nothing_is_left()?;
    Ok(NOTHING)
}

fn reloads(bench: &mut Bench) -> anyhow::Result<String> {
    let rounds = if bench.is_quick { 10 } else { 60 };
    let containers = (0..4).map(|number| bench.container(&format!("c{number}"))).collect::<anyhow::Result<Vec<_>>>()?;
    let (bench, is_over) = (&*bench, AtomicBool::new(false));
    let count = std::thread::scope(|scope| {
        let reloading = scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                count += 1;
                bench.write_configuration(300 + count)?;
                bench.ask(&["reload", "--yes"])?;
            }
            anyhow::Ok(count)
        });
        let each = |container| {
            for _ in 0..rounds / 2 {
                bench.add(container)?;
                bench.reaches(container)?;
                bench.done("del", container)?;
            }
            anyhow::Ok(())
        };
        let calls = containers.iter().map(|container| scope.spawn(move || each(container)));
        let calls = calls.collect::<Vec<_>>();
        let outcomes = calls.into_iter().map(|call| call.join()).collect::<Vec<_>>();
        is_over.store(true, Ordering::Relaxed);
        let count = reloading.join().map_err(|_| anyhow::anyhow!("reloads panicked"))??;
        for outcome in outcomes {
            outcome.map_err(|_| anyhow::anyhow!("a call panicked"))??;
        }
        anyhow::Ok(count)
    })?;
    bench.ask(&["diff"]).context("what runs is not what the files have")?;
    bench.nothing_is_left()?;
    Ok(format!("{count} reloads"))
}

fn pinned(bench: &mut Bench) -> anyhow::Result<String> {
    let thief = bench.container("c1")?;
    let victim = bench.container("c2")?;
    let own = bench.add(&thief)?;
    let address = bench.add(&victim)?;
    bench.reaches(&thief)?;
    bench.reaches(&victim)?;
    let before = bench.drops("source-guard")?;
    ensure!(before == 0, "{before} packets were dropped before");
    // The neighbour's IP address.
    let cidr = |address: Ipv4Addr| format!("{address}/24");
    thief.ip(&["address", "add", &cidr(address), "dev", "eth0"])?;
    thief.ip(&["address", "del", &cidr(own), "dev", "eth0"])?;
    bench.is_silent(&thief)?;
    let taken = bench.drops("source-guard")?;
    ensure!(taken > before, "nothing was counted");
    bench.reaches(&victim)?;
    thief.ip(&["address", "add", &cidr(own), "dev", "eth0"])?;
    thief.ip(&["address", "del", &cidr(address), "dev", "eth0"])?;
    bench.reaches(&thief)?;
    // The neighbour's MAC address, while the victim is quiet.
    let text = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    let (first, second) = (text(thief.mac("eth0")?), text(victim.mac("eth0")?));
    thief.ip(&["link", "set", "eth0", "address", &second])?;
    bench.is_silent(&thief)?;
    ensure!(bench.drops("source-guard")? > taken, "nothing was counted");
    bench.reaches(&victim)?;
    thief.ip(&["link", "set", "eth0", "address", &first])?;
    bench.reaches(&thief)?;
    Ok(format!("{} packets dropped", bench.drops("source-guard")?))
}

fn collect(bench: &mut Bench) -> anyhow::Result<String> {
    let kept = bench.container("c1")?;
    let gone = bench.container("c2")?;
    let ended = bench.container("c3")?;
    for (container, id) in [(&kept, "keep"), (&gone, "go"), (&ended, "end")] {
        let variables = of(container);
        let call = [&variables.each()[..], &[("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", id)]].concat();
        let output = bench.call(&call, &bench.input("1.1.0", &[]))?;
        ensure!(output.status.success(), "{}", said(&output));
    }
    bench.end(&ended)?;
    let valid = json!([{ "containerID": "keep", "ifname": "eth0" }]);
    let input = bench.input("1.1.0", &[("cni.dev/valid-attachments", valid)]);
    let collect = || bench.call(&[("CNI_COMMAND", "GC")], &input);
    for _ in 0..2 {
        let output = collect()?;
        ensure!(output.status.success() && output.stdout.is_empty(), "{}", said(&output));
        ensure!(bench.ports()?.len() == 1 && bench.files().len() == 1, "{:?}", bench.ports()?);
        ensure!(bench.given()?.len() == 1, "{:?}", bench.given()?);
        bench.reaches(&kept)?;
        ensure!(gone.ip(&["link", "show", "dev", "eth0"]).is_err(), "it has its interface");
    }
    // Containers of another network stay.
    let other = bench.input("1.1.0", &[("name", json!("other"))]);
    ensure!(bench.call(&[("CNI_COMMAND", "GC")], &other)?.status.success());
    bench.reaches(&kept)?;
    // `cnitool` keeps none.
    bench.done("gc", &kept)?;
    bench.nothing_is_left()?;
    Ok(NOTHING)
}

fn status(bench: &mut Bench) -> anyhow::Result<String> {
    let container = bench.container("c1")?;
    let status = |bench: &Bench, input: &str| bench.call(&[("CNI_COMMAND", "STATUS")], input);
    let input = bench.input("1.1.0", &[]);
    bench.done("status", &container)?;
    ensure!(status(bench, &input)?.status.success());
    let wrong = status(bench, &bench.input("1.1.0", &[("bridge", json!("wan"))]))?;
    ensure!(code_of(&wrong) == Some(50), "{}", said(&wrong));
    bench.stop()?;
    bench.refused("status", NETWORK, &container)?;
    let output = status(bench, &input)?;
    ensure!(code_of(&output) == Some(50) && said(&output).contains("is it running"), "{}", said(&output));
    bench.start()?;
    bench.done("status", &container)?;
    bench.nothing_is_left()?;
    Ok(NOTHING)
}

fn versions(bench: &mut Bench) -> anyhow::Result<String> {
    let container = bench.container("c1")?;
    let output = bench.call(&[("CNI_COMMAND", "VERSION")], "{\"cniVersion\":\"1.0.0\"}")?;
    let answer = serde_json::from_slice::<Value>(&output.stdout)?;
    let versions = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];
    ensure!(answer == json!({ "cniVersion": "1.0.0", "supportedVersions": versions }), "{answer}");
    let variables = of(&container);
    for version in versions {
        let call = |command| bench.call(&[&variables.each()[..], &[("CNI_COMMAND", command)]].concat(), &bench.input(version, &[]));
        let output = call("ADD")?;
        let result = serde_json::from_slice::<Value>(&output.stdout)?;
        ensure!(result["cniVersion"] == version, "{result}");
        let is_old = version.starts_with('0');
        ensure!((result["ips"][0]["version"] == "4") == is_old, "{result}");
        ensure!((result["interfaces"][0]["mtu"] == 1500) == (version == "1.1.0"), "{result}");
        bench.reaches(&container)?;
        ensure!(call("DEL")?.status.success());
        bench.nothing_is_left()?;
    }
    for (version, code) in [("2.0.0", 1), ("", 1), ("0.2.0", 1)] {
        let output = bench.call(&[&variables.each()[..], &[("CNI_COMMAND", "ADD")]].concat(), &bench.input(version, &[]))?;
        ensure!(code_of(&output) == Some(code), "{version}: {}", said(&output));
    }
    bench.nothing_is_left()?;
    Ok(NOTHING)
}

fn rate(bench: &mut Bench) -> anyhow::Result<String> {
    let time = Duration::from_secs(if bench.is_quick { 12 } else { 60 });
    let containers = (0..8).map(|number| bench.container(&format!("c{number}"))).collect::<anyhow::Result<Vec<_>>>()?;
    // The stations know each other before.
    bench.come_and_go(&[], Duration::from_secs(1))?;
    let begun = clock::now();
    let (count, arrivals) = bench.come_and_go(&containers, time)?;
    let seconds = (clock::now() - begun).as_secs_f64();
    let minute = f64::from(count) * 60.0 / seconds;
    ensure!(arrivals.lost == 0 && arrivals.reordered == 0, "{arrivals:?} beside {count} containers");
    ensure!(minute >= f64::from(A_MINUTE), "{minute:.0} containers a minute");
    bench.nothing_is_left()?;
    interrupt::sleep(Duration::from_millis(50))?;
    Ok(format!("{minute:.0} containers a minute, {} packets between {LEFT} and {RIGHT}", arrivals.sent))
}

/// Variables of a call about a container.
struct Variables(String, String);

fn of(container: &Namespace) -> Variables {
    Variables(container.name().to_owned(), format!("/run/netns/{}", container.name()))
}

impl Variables {
    fn each(&self) -> [(&str, &str); 3] {
        [("CNI_CONTAINERID", &self.0), ("CNI_NETNS", &self.1), ("CNI_IFNAME", "eth0")]
    }
}

/// Number of the error that the plugin has printed.
fn code_of(output: &std::process::Output) -> Option<u64> {
    serde_json::from_slice::<Value>(&output.stdout).ok()?["code"].as_u64()
}
