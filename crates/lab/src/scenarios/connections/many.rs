//! A hundred thousand connections: what they cost Polder while they live.

use super::frames::{Bed, Connections, talk};
use super::router::{Forwarder, Router, Rules, Wires};
use super::{Books, Run};
use crate::scenarios::turns;
use anyhow::Context as _;
use polder_testbed::clock;
use polder_testbed::command;
use polder_testbed::meters::cpu::process_time;
use polder_testbed::meters::statistics::Samples;
use polder_testbed::peers::SERVER;
use polder_testbed::peers::polder::program;
use polder_testbed::traffic::raw::Plan;
use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

const CPU: &str = "connections.refresh_cpu_percent";
const MEMORY: &str = "connections.memory_mib";
const SHOW: &str = "connections.show_ms";
const COST: &str = "connections.cost_ratio.polder";
/// Row of the kernel's cost ratio.
const COST_THERE: &str = "connections.cost_ratio.kernel";
const ROWS: [&str; 5] = [CPU, MEMORY, SHOW, COST, COST_THERE];

/// Connections to each of two servers: one has fewer ports than there are connections.
const EACH: u32 = 50_000;
const SECOND_SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
/// Key of the table's size.
const TABLES: &str = "[router]\nconnections = 100_000\n";
/// Connections with which the cost of a packet is compared.
const FEW: u32 = 10;
/// Time after which the kernel forgets a connection of UDP, in seconds.
const TIMEOUT: &str = "600";
/// Packets a second in the window in which CPU time is taken: each connection has one in two seconds.
const RATE: f64 = 50_000.0;
const MIB: f64 = 1024.0 * 1024.0;

/// Fills the rows.
pub(super) fn measure(run: &mut Run, books: &mut Books) -> anyhow::Result<()> {
    if !run.is_due(&ROWS) {
        return Ok(());
    }
    run.says("a hundred thousand connections are made");
    let router = Router::lay(Forwarder::Polder, Rules::Three, Wires::Frames, TABLES);
    let Some(router) = run.or_skip(&ROWS, router)? else { return Ok(()) };
    router.set("net/netfilter/nf_conntrack_udp_timeout_stream", TIMEOUT)?;
    let mut first = Connections::open(&router, talk(EACH, SERVER.1))?;
    let mut second = Connections::open(&router, talk(EACH, SECOND_SERVER))?;
    router.wait_until_carried(2 * EACH as usize, || first.exchange().and_then(|()| second.exchange()))?;
    let bed = Bed::of(router, first.talk(), Some(first))?;
    let mut many = Many { bed, second };
    let process = many.bed.router.gateway.as_ref().context("Polder has a gateway")?.id();
    if run.wants(MEMORY) {
        let (resident, maps) = memory(process)?;
        run.record_one(MEMORY, (resident + maps) / MIB);
        run.remark(MEMORY, format!("{:.1} MiB resident, {:.1} of maps", resident / MIB, maps / MIB));
    }
    if run.wants(SHOW) {
        many.show(run)?;
    }
    if run.wants(CPU) {
        many.refresh(run, process)?;
    }
    if run.wants_any(&[COST, COST_THERE]) {
        many.cost(run)?;
    }
    books.unaccounted += many.bed.router.stop()?;
    Ok(())
}

/// A router that carries the connections.
struct Many {
    bed: Bed,
    /// Connections to the second server.
    second: Connections,
}

impl Many {
    fn show(&self, run: &mut Run) -> anyhow::Result<()> {
        let mut times = Samples::new();
        for _ in 0..run.quick_or(3, 10) {
            let mut show = Command::new(program()?);
            show.args(["show", "connections", "--socket"]).arg(self.bed.router.socket());
            let start = clock::now();
            command::run(&mut show)?;
            times.push((clock::now() - start).as_secs_f64() * 1e3);
        }
        run.record(SHOW, &times);
        Ok(())
    }

    /// CPU time of all threads of the process while each connection has a packet now and then.
    fn refresh(&mut self, run: &mut Run, process: u32) -> anyhow::Result<()> {
        // Timers are set again after a quarter of the time-out; the table is read each 20 s.
        let (rounds, seconds) = run.quick_or((1, 4), (10, 20));
        run.says("the process beside packets of all connections");
        let mut second = self.bed.beside(self.second.talk())?;
        let plan = Plan::steady(RATE, Duration::from_secs(2));
        let mut shares = Samples::new();
        for _ in 0..rounds {
            let (start, before) = (clock::now(), process_time(process)?);
            while clock::now() - start < Duration::from_secs(seconds) {
                self.bed.injector.run(&plan, |_| Ok(()))?;
                second.run(&plan, |_| Ok(()))?;
            }
            let (elapsed, used) = (clock::now() - start, process_time(process)? - before);
            shares.push(100.0 * used.as_secs_f64() / elapsed.as_secs_f64());
        }
        run.record(CPU, &shares);
        run.remark(CPU, format!("{seconds} s each; time-out {TIMEOUT} s, set again after a quarter of it"));
        Ok(())
    }

    /// Cost of a packet of one of many connections, and of one of few.
    fn cost(&mut self, run: &mut Run) -> anyhow::Result<()> {
        let (rounds, millis) = run.quick_or((2, 300), (10, 1000));
        let time = Duration::from_millis(millis);
        let lay = |forwarder, flows| Bed::lay(forwarder, Rules::Three, flows);
        let (mut alone, mut few) = (lay(Forwarder::Nothing, FEW)?, lay(Forwarder::Polder, FEW)?);
        let (mut many_there, mut few_there) = (lay(Forwarder::Kernel, EACH)?, lay(Forwarder::Kernel, FEW)?);
        let sheet = turns::rounds(run, rounds, COST, |sheet| {
            let sender = alone.cost(time)?;
            let beds = [[&mut self.bed, &mut few], [&mut many_there, &mut few_there]];
            for (beds, row) in beds.into_iter().zip([COST, COST_THERE]) {
                let [many, few] = beds.map(|bed| bed.cost(time).map(|cost| cost.beyond(&sender)));
                sheet.push(row, many? / few?);
            }
            Ok(())
        })?;
        sheet.record(run);
        for row in [COST, COST_THERE] {
            run.remark(row, format!("packets of {EACH} connections in turn, of {FEW} in turn"));
        }
        few.router.stop().map(drop)
    }
}

/// Bytes of a process that are in memory, and of the BPF maps that it has.
fn memory(process: u32) -> anyhow::Result<(f64, f64)> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let resident = field(&status, "VmRSS:").context("no resident memory")? * 1024.0;
    let mut maps = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{process}/fdinfo"))?.flatten() {
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        if let (Some(map), Some(bytes)) = (field(&text, "map_id:"), field(&text, "memlock:")) {
            maps.insert(map.to_bits(), bytes);
        }
    }
    Ok((resident, maps.values().sum()))
}

/// A number in `name: number …` of a file of the kernel's.
fn field(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn numbers_of_the_kernels_files_are_read() {
        let text = "VmRSS:\t    17 kB\nmap_id:\t4\nmemlock:\t8192\n";
        let read = ["VmRSS:", "map_id:", "memlock:", "nothing:"].map(|name| field(text, name));
        assert_eq!(read, [Some(17.0), Some(4.0), Some(8192.0), None]);
    }
}
