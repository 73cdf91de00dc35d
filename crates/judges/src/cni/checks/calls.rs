//! Operations of the plugin: done, repeated, and in another order.

use super::super::bench::{Bench, LEFT, NETWORK, said};
use super::{NOTHING, code_of, of};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::fs;

pub(super) fn add(bench: &mut Bench) -> anyhow::Result<String> {
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

pub(super) fn check(bench: &mut Bench) -> anyhow::Result<String> {
    let container = bench.container("c1")?;
    let other = bench.container("c2")?;
    let address = bench.add(&container)?;
    bench.add(&other)?;
    bench.done("check", &container)?;
    bench.done("check", &other)?;
    let file = bench
        .files()
        .into_iter()
        .find(|file| fs::read_to_string(file).is_ok_and(|text| text.contains(&format!("\"{address}\""))));
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
        (&["link", "set", "eth0", "down"], &["link", "set", "eth0", "up"], "is down"),
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

pub(super) fn twice(bench: &mut Bench) -> anyhow::Result<String> {
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
    ensure!(said.contains("already has an interface eth0"), "{said}");
    bench.reaches(&container)?;
    ensure!(container.ip(&["-o", "address", "show", "dev", "eth0"])? == before, "the first was replaced");
    ensure!(bench.given().len() == 1, "{:?}", bench.given());
    bench.done("check", &container)?;
    Ok(NOTHING)
}

pub(super) fn delete(bench: &mut Bench) -> anyhow::Result<String> {
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

pub(super) fn out_of_order(bench: &mut Bench) -> anyhow::Result<String> {
    let container = bench.container("c1")?;
    bench.done("del", &container)?;
    let variables = of(&container);
    let output = bench
        .call(&[&variables.each()[..], &[("CNI_COMMAND", "CHECK")]].concat(), &bench.input("1.1.0", &[]))?;
    ensure!(code_of(&output) == Some(7), "CHECK without a result: {}", said(&output));
    bench.nothing_is_left()?;
    bench.add(&container)?;
    bench.reaches(&container)?;
    bench.done("del", &container)?;
    bench.nothing_is_left()?;
    Ok(NOTHING)
}

pub(super) fn collect(bench: &mut Bench) -> anyhow::Result<String> {
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
        ensure!(bench.given().len() == 1, "{:?}", bench.given());
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

pub(super) fn status(bench: &mut Bench) -> anyhow::Result<String> {
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
    ensure!(
        code_of(&output) == Some(50) && said(&output).contains("is the gateway running"),
        "{}",
        said(&output)
    );
    bench.start()?;
    bench.done("status", &container)?;
    bench.nothing_is_left()?;
    Ok(NOTHING)
}

pub(super) fn versions(bench: &mut Bench) -> anyhow::Result<String> {
    let container = bench.container("c1")?;
    let output = bench.call(&[("CNI_COMMAND", "VERSION")], "{\"cniVersion\":\"1.0.0\"}")?;
    let answer = serde_json::from_slice::<Value>(&output.stdout)?;
    let versions = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];
    ensure!(answer == json!({ "cniVersion": "1.0.0", "supportedVersions": versions }), "{answer}");
    let variables = of(&container);
    for version in versions {
        let call = |command| {
            bench.call(
                &[&variables.each()[..], &[("CNI_COMMAND", command)]].concat(),
                &bench.input(version, &[]),
            )
        };
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
        let output = bench
            .call(&[&variables.each()[..], &[("CNI_COMMAND", "ADD")]].concat(), &bench.input(version, &[]))?;
        ensure!(code_of(&output) == Some(code), "{version}: {}", said(&output));
    }
    bench.nothing_is_left()?;
    Ok(NOTHING)
}
