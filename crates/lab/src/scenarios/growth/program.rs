//! The real program with a number of one object each: start, reload, memory, views.

use super::rows::{Object, SHOW_10K, What};
use super::{Found, kernel};
use crate::scenarios::Run;
use crate::scenarios::start::resident_mib;
use anyhow::{Context as _, ensure};
use polder::control::client::Client;
use polder::control::{Answer, Ask};
use polder::show::{View, What as Viewed};
use polder_testbed::clock;
use polder_testbed::command::{self, Running};
use polder_testbed::interrupt;
use polder_testbed::meters::statistics::Samples;
use polder_testbed::peers::polder::{program, ran_with};
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use std::cmp::Ordering;
use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Time for which a start may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// First addresses that tunnels, rules and routes are for.
const FIRST: u32 = 0x0a40_0000;
/// Rows of which a view is one of the large ones.
const LARGE: u32 = 10_000;
/// Interfaces with a wire, at least.
const FEW: u32 = 2;

pub(super) fn measure(run: &mut Run, found: &mut Found) -> anyhow::Result<()> {
    let wanted = |run: &Run, object: Object| {
        let whats = [What::Start, What::Reload, What::Memory, What::Show, What::KernelMade, What::KernelShow];
        let numbers = object.numbers_of_program().iter();
        let rows = numbers.flat_map(|&number| whats.map(|what| object.row(what, number)));
        let orders = whats.map(|what| object.order(what));
        rows.chain(orders).any(|row| run.wants(&row)) || run.wants(SHOW_10K)
    };
    let objects = Object::ALL.into_iter().filter(|&object| wanted(run, object)).collect::<Vec<_>>();
    if objects.is_empty() {
        return Ok(());
    }
    let mut site = Site::lay(objects.contains(&Object::Ports))?;
    let mut slowest: Option<(Samples, String)> = None;
    for object in objects {
        for &number in object.numbers_of_program() {
            run.says(&format!("a gateway with {number} {}", object.word()));
            let view = site.measure(run, (object, number), found)?;
            let large = view.filter(|_| number == LARGE);
            kernel_times(run, (object, number), found)?;
            slowest = large.into_iter().chain(slowest).max_by(|one, other| by_median(&one.0, &other.0));
        }
        for what in [What::Start, What::Reload, What::Memory, What::Show] {
            found.order(run, what, object);
        }
    }
    if let Some((seconds, view)) = slowest {
        run.record(SHOW_10K, &seconds);
        run.remark(SHOW_10K, view);
    }
    Ok(())
}

/// Measures in what time the kernel's programs make and show as many.
fn kernel_times(run: &mut Run, (object, number): (Object, u32), found: &mut Found) -> anyhow::Result<()> {
    let rounds = run.quick_or(3, 10);
    let times = |_| {
        interrupt::check()?;
        kernel::made_and_shown(object, number)
    };
    let times = (0..rounds).map(times).collect::<anyhow::Result<Vec<_>>>();
    // The stations of a gateway are learned: making them has no time to be compared with.
    let (whats, first) = ([What::KernelMade, What::KernelShow], usize::from(object == Object::Stations));
    let rows = whats.map(|what| object.row(what, number));
    let Some(times) = run.or_skip(&rows[first..], times)? else { return Ok(()) };
    for (place, what) in whats.into_iter().enumerate().skip(first) {
        let samples = times.iter().map(|times| times[place]).collect::<Samples>();
        run.record(&object.row(what, number), &samples);
        found.add(what, object, number, samples);
    }
    Ok(())
}

fn by_median(one: &Samples, other: &Samples) -> Ordering {
    one.median().unwrap_or(0.0).total_cmp(&other.median().unwrap_or(0.0))
}

/// A namespace for gateways, whose interfaces are wired to another one.
struct Site {
    topology: Topology,
    gateway: Namespace,
    far: Namespace,
    program: PathBuf,
}

impl Site {
    fn lay(has_many_ports: bool) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let (gateway, far) = (topology.namespace("gw")?, topology.namespace("far")?);
        let most = Object::Ports.numbers_of_program().iter().max().copied().unwrap_or(FEW);
        for number in 0..if has_many_ports { most } else { FEW } {
            let name = format!("eth{number}");
            let end = |namespace| End { namespace, interface: &name };
            topology.wire_with_offloads(end(&gateway), end(&far), 1500)?;
        }
        for (interface, address) in [("eth0", "10.89.0.1/24"), ("eth1", "10.89.1.1/24")] {
            gateway.ip(&["address", "add", address, "dev", interface])?;
        }
        let program = program()?;
        Ok(Self { topology, gateway, far, program })
    }

    /// Measures a gateway with a number of one object; gives its slowest view with its times.
    fn measure(
        &mut self,
        run: &mut Run,
        (object, number): (Object, u32),
        found: &mut Found,
    ) -> anyhow::Result<Option<(Samples, String)>> {
        let rounds = run.quick_or(3, 10);
        let text = configuration(object, number, false, &self.socket());
        ran_with(
            &format!("{number} {}", object.word()),
            &configuration(object, number.min(2), false, &self.socket()),
        );
        if object == Object::Routes {
            self.routes(number)?;
        }
        let mut fill = |what: What, samples: Samples| {
            run.record(&object.row(what, number), &samples);
            found.add(what, object, number, samples);
        };
        let (mut gateway, mut start) = (None, Samples::default());
        for _ in 0..rounds {
            gateway.take().map_or(Ok(()), Self::stop)?;
            fs::write(self.file(), &text)?;
            let (running, took) = self.start()?;
            start.push(took.as_secs_f64());
            gateway = Some(running);
        }
        let gateway = gateway.context("no gateway was started")?;
        if object == Object::Stations {
            self.teach(number)?;
        } else {
            fill(What::Start, start);
        }
        if matches!(object, Object::Tunnels | Object::Rules | Object::Ports) {
            let reload = (0..rounds).map(|round| self.reload(object, number, round % 2 == 0));
            fill(What::Reload, reload.collect::<anyhow::Result<Samples>>()?);
        }
        let mut views = views_of(object).iter().map(|&view| (Samples::default(), view)).collect::<Vec<_>>();
        let mut memory = Samples::default();
        for _ in 0..rounds {
            for (times, view) in &mut views {
                times.push(self.show(view)?);
            }
            memory.push(resident_mib(gateway.id())?);
        }
        fill(What::Memory, memory);
        Self::stop(gateway)?;
        let slowest = views.into_iter().max_by(|one, other| by_median(&one.0, &other.0));
        Ok(slowest.map(|(times, view)| {
            fill(What::Show, times.clone());
            (times, format!("`show {view}` with {number} {}", object.word()))
        }))
    }

    fn file(&self) -> PathBuf {
        self.topology.directory().join("growth.toml")
    }

    fn socket(&self) -> PathBuf {
        self.topology.directory().join("growth.sock")
    }

    /// Starts the program; until it answers.
    fn start(&self) -> anyhow::Result<(Running, Duration)> {
        let begun = clock::now();
        let mut command = self.gateway.command(&self.program);
        let mut gateway = Running::start("polder", command.args(["run", "--yes"]).arg(self.file()))?;
        while self.ask(Viewed::Drops).is_err() {
            gateway.check()?;
            ensure!(clock::now() - begun < PATIENCE, "polder does not answer");
            interrupt::sleep(Duration::from_millis(2))?;
        }
        Ok((gateway, clock::now() - begun))
    }

    fn stop(mut gateway: Running) -> anyhow::Result<()> {
        let status = gateway.stop()?;
        ensure!(status.success(), "polder ended with {status}: {}", command::last_lines(&gateway.said(), 12));
        Ok(())
    }

    fn ask(&self, what: Viewed) -> anyhow::Result<View> {
        let answer = Client::connect(&self.socket())?.ask(Ask::show(what))?;
        let Answer::Shown(shown) = answer else { anyhow::bail!("the answer is not a view") };
        Ok(shown.view)
    }

    /// Changes one object and has the file read again.
    fn reload(&self, object: Object, number: u32, is_changed: bool) -> anyhow::Result<f64> {
        fs::write(self.file(), configuration(object, number, is_changed, &self.socket()))?;
        self.timed(&["reload", "--yes"])
    }

    fn show(&self, view: &str) -> anyhow::Result<f64> {
        self.timed(&["show", view, "--json"])
    }

    /// Seconds that the program takes for a question to the gateway.
    fn timed(&self, arguments: &[&str]) -> anyhow::Result<f64> {
        let mut command = Command::new(&self.program);
        let begun = clock::now();
        command::run(command.args(arguments).arg("--socket").arg(self.socket()))?;
        Ok((clock::now() - begun).as_secs_f64())
    }

    /// Installs `number` routes in the kernel.
    fn routes(&self, number: u32) -> anyhow::Result<()> {
        let mut lines = String::new();
        for route in 0..number {
            let address = Ipv4Addr::from_bits(FIRST + route);
            writeln!(lines, "route replace {address}/32 via 10.89.1.2")?;
        }
        let file = self.topology.directory().join("growth.routes");
        fs::write(&file, lines)?;
        command::run(Command::new("ip").args(["-n", self.gateway.name(), "-batch"]).arg(&file)).map(drop)
    }

    /// Sends a frame from each station, until the gateway knows them all.
    fn teach(&self, number: u32) -> anyhow::Result<()> {
        let socket = self.far.inside(|| PacketSocket::open("eth0"))??;
        let end = clock::now() + PATIENCE;
        loop {
            for station in 0..number {
                // What finds no room is sent again.
                let _ = socket.send(&frame_of(station));
                // Now and then, so that the gateway keeps up.
                interrupt::sleep(Duration::from_micros(500 * u64::from(station % 64 == 63)))?;
            }
            let View::Fdb(bridges) = self.ask(Viewed::Fdb)? else { anyhow::bail!("no addresses are shown") };
            let known = bridges.iter().map(|bridge| bridge.entries.len()).sum::<usize>();
            if known >= usize::try_from(number)? {
                return Ok(());
            }
            ensure!(clock::now() < end, "the gateway has learned {known} stations of {number}");
        }
    }
}

/// A broadcast from a station, of an EtherType for experiments (IEEE 802, 9.2.4).
fn frame_of(station: u32) -> [u8; 60] {
    let [a, b, c, d] = station.to_be_bytes();
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&[0xff; 6]);
    frame[6..12].copy_from_slice(&[2, 1, a, b, c, d]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// Views with a row for each of the objects.
fn views_of(object: Object) -> &'static [&'static str] {
    match object {
        Object::Tunnels => &["tunnels", "flows", "fdb", "config"],
        Object::Stations => &["fdb"],
        Object::Rules => &["filters", "config"],
        Object::Routes => &["routes"],
        Object::Ports => &["ports", "flows", "fdb", "config"],
        Object::Neighbours | Object::Flows => &[],
    }
}

/// The file of a gateway with a number of one object, the last of which may be another one.
fn configuration(object: Object, number: u32, is_changed: bool, socket: &std::path::Path) -> String {
    let address = |place: u32| {
        let moved = if is_changed && place + 1 == number { 1 << 16 } else { 0 };
        Ipv4Addr::from_bits(FIRST + place + moved)
    };
    let ports = if object == Object::Ports { number } else { FEW };
    let mut members = vec!["eth0".to_owned()];
    let mut text =
        format!("version = 1\n\n[gateway]\ncontrol = \"{}\"\non_exit = \"kernel\"\n", socket.display());
    for port in 0..ports {
        let role = match object {
            Object::Tunnels => ["", "role = \"underlay\"\n"][usize::from(port == 1)],
            Object::Routes => "role = \"router\"\n",
            Object::Ports => ["", "weight = 50\n"][usize::from(is_changed && port + 1 == number)],
            Object::Stations | Object::Neighbours | Object::Rules | Object::Flows => "",
        };
        text += &format!("\n[port.eth{port}]\ninterface = \"eth{port}\"\nmode = \"skb\"\n{role}");
        members.extend((port > 0 && role != "role = \"underlay\"\n").then(|| format!("eth{port}")));
    }
    for place in (0..number).filter(|_| object == Object::Tunnels) {
        let remote = address(place);
        text += &format!(
            "\n[tunnel.t{place}]\nkind = \"gretap\"\nlocal = \"10.89.1.1\"\nremote = \"{remote}\"\nport = \"eth1\"\n\
             next_hop = \"10.89.1.2\"\n"
        );
        members.push(format!("t{place}"));
    }
    for place in (0..number).filter(|_| object == Object::Rules) {
        text += &format!("\n[[filter]]\ndestination = \"{}\"\naction = \"accept\"\n", address(place));
    }
    if object != Object::Routes {
        text += &format!("\n[bridge.lan]\nmembers = {members:?}\nmax_entries = 65536\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::polder::config::Configuration;
    use std::path::Path;

    /// Objects of a file, or its ports where others make the objects.
    fn found(object: Object, configuration: &Configuration) -> usize {
        match object {
            Object::Tunnels => configuration.tunnels.len(),
            Object::Rules => configuration.filters.len(),
            Object::Stations | Object::Routes | Object::Neighbours | Object::Flows | Object::Ports => {
                configuration.file_ports().count()
            }
        }
    }

    fn expected(object: Object, number: u32) -> u32 {
        if matches!(object, Object::Tunnels | Object::Rules | Object::Ports) { number } else { 2 }
    }

    #[test]
    fn files_are_valid_and_have_as_many_objects() {
        for object in Object::ALL.into_iter().filter(|object| !object.numbers_of_program().is_empty()) {
            for (number, is_changed) in [(2, false), (10, true)] {
                let text = configuration(object, number, is_changed, Path::new("/run/lab.sock"));
                let loaded = ::polder::config::parse(&text, Path::new("lab.toml"));
                let configuration = loaded.unwrap_or_else(|report| panic!("{report}")).configuration;
                let expected = expected(object, number);
                assert_eq!(u32::try_from(found(object, &configuration)), Ok(expected), "{object:?}");
            }
        }
    }
}
