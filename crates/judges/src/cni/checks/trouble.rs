//! Faults around the plugin: namespaces, disks, gateways that end, and reloads.

use super::super::bench::{self, Bench, NETWORK};
use super::{NOTHING, code_of, of};
use anyhow::{Context as _, ensure};
use polder_testbed::command;
use polder_testbed::topology::Namespace;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) fn namespace_gone(bench: &mut Bench) -> anyhow::Result<String> {
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

pub(super) fn failed_add(bench: &mut Bench) -> anyhow::Result<String> {
    let container = bench.container("c1")?;
    let full = bench.container("c2")?;
    for (name, from, to, why) in [
        ("wan", "\"bridge\":\"lan\"", "\"bridge\":\"wan\"", "there is no bridge `wan`"),
        ("vlan", "\"bridge\"", "\"vlan\":4095,\"bridge\"", "4095"),
        ("typo", "\"bridge\"", "\"vlna\":5,\"bridge\"", "has no such key"),
        ("none", "host-local", "no-such-ipam", "no IPAM plugin no-such-ipam"),
        ("range", "10.88.0.250", "10.89.0.250", "IPAM plugin host-local"),
        // Behind the address.
        (
            "route",
            "\"dst\":\"0.0.0.0/0\"",
            "\"dst\":\"0.0.0.0/0\",\"gw\":\"192.0.2.1\"",
            "next hop has to be",
        ),
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
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn over(directory: &'a Path) -> anyhow::Result<Self> {
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

pub(super) fn gateway_down(bench: &mut Bench) -> anyhow::Result<String> {
    let container = bench.container("c1")?;
    let other = bench.container("c2")?;
    bench.add(&container)?;
    bench.stop()?;
    let said = bench.refused("add", NETWORK, &other)?;
    ensure!(said.contains("no gateway has the control socket"), "{said}");
    ensure!(other.ip(&["link", "show", "dev", "eth0"]).is_err() && bench.given().len() == 1);
    let variables = of(&other);
    let output = bench
        .call(&[&variables.each()[..], &[("CNI_COMMAND", "ADD")]].concat(), &bench.input("1.1.0", &[]))?;
    ensure!(code_of(&output) == Some(11), "{}", bench::said(&output));
    bench.done("del", &container)?;
    bench.start()?;
    bench.nothing_is_left()?;
    bench.add(&other)?;
    bench.reaches(&other)?;
    Ok(NOTHING)
}

pub(super) fn restart(bench: &mut Bench) -> anyhow::Result<String> {
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

pub(super) fn reloads(bench: &mut Bench) -> anyhow::Result<String> {
    let rounds = if bench.is_quick { 10 } else { 60 };
    let containers =
        (0..4).map(|number| bench.container(&format!("c{number}"))).collect::<anyhow::Result<Vec<_>>>()?;
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
