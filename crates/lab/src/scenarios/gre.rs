//! `gre`: frames into a tunnel and out of it, beside the kernel's VXLAN and Open vSwitch's GRE.

use super::contest::{self, Books, Entry};
use super::stand::{Contender, Setup, Stand};
use super::{Goal, Promise, Run, Scenario};
use crate::demo::gateway::Gateway;
use crate::demo::network::{ACCESS_POINT, Network, SERVER, STATION};
use crate::machine;
use crate::meters::statistics::Samples;
use crate::meters::stream::Outcome;
use crate::peers::Task;
use crate::peers::kernel::Napi;
use crate::report::{Better, Curve};
use crate::topology::Topology;
use crate::traffic::raw::Plan;
use crate::traffic::sockets::{UdpStream, tcp_goodput, wait_for_ping};
use anyhow::ensure;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "gre",
    about: "into a gretap tunnel and out of it: CPU time of a packet, TCP, latency, and no loss at half the rate",
    needs_root: true,
    promises: PROMISES,
    measure,
};

const LOST: &str = "gre.lost_at_half_rate";
const REORDERED: &str = "gre.reordered_at_half_rate";
const DUPLICATED: &str = "gre.duplicated_at_half_rate";
const UNACCOUNTED: &str = "gre.unaccounted_packets";
const RATE: &str = "gre.encap_64.mpps.polder";

const fn cost(name: &'static str, goal: Goal) -> Promise {
    Promise { name, unit: "ns", better: Better::Lower, goal }
}

const fn rate(name: &'static str) -> Promise {
    Promise { name, unit: "Mpps", better: Better::Higher, goal: Goal::None }
}

const fn zero(name: &'static str) -> Promise {
    Promise { name, unit: "packets", better: Better::Lower, goal: Goal::Value(0.0) }
}

const fn tcp(name: &'static str, goal: Goal) -> Promise {
    Promise { name, unit: "Mbit/s", better: Better::Higher, goal }
}

const fn latency(name: &'static str) -> Promise {
    Promise { name, unit: "µs", better: Better::Lower, goal: Goal::None }
}

const PROMISES: &[Promise] = &[
    cost("gre.encap_64.cpu_ns_per_packet.polder", Goal::Row("gre.encap_64.cpu_ns_per_packet.ovs")),
    cost("gre.encap_64.cpu_ns_per_packet.ovs", Goal::None),
    cost("gre.encap_64.cpu_ns_per_packet.kernel_vxlan", Goal::None),
    cost("gre.decap_64.cpu_ns_per_packet.polder", Goal::Row("gre.decap_64.cpu_ns_per_packet.ovs")),
    cost("gre.decap_64.cpu_ns_per_packet.ovs", Goal::None),
    cost("gre.decap_64.cpu_ns_per_packet.kernel_vxlan", Goal::None),
    cost("gre.encap_1518.cpu_ns_per_packet.polder", Goal::Row("gre.encap_1518.cpu_ns_per_packet.ovs")),
    cost("gre.encap_1518.cpu_ns_per_packet.ovs", Goal::None),
    cost("gre.encap_1518.cpu_ns_per_packet.kernel_vxlan", Goal::None),
    cost("gre.decap_1518.cpu_ns_per_packet.polder", Goal::Row("gre.decap_1518.cpu_ns_per_packet.ovs")),
    cost("gre.decap_1518.cpu_ns_per_packet.ovs", Goal::None),
    cost("gre.decap_1518.cpu_ns_per_packet.kernel_vxlan", Goal::None),
    rate(RATE),
    tcp("gre.tcp.mbit.polder", Goal::Row("gre.tcp.mbit.kernel_vxlan")),
    tcp("gre.tcp.mbit.kernel_vxlan", Goal::None),
    latency("gre.latency.p50.polder"),
    latency("gre.latency.p50.kernel_vxlan"),
    latency("gre.latency.p99.polder"),
    latency("gre.latency.p99.kernel_vxlan"),
    zero(LOST),
    zero(REORDERED),
    zero(DUPLICATED),
    zero(UNACCOUNTED),
];

/// One length in one direction, with its three rows.
struct Part {
    task: Task,
    frame_bytes: usize,
    rows: [&'static str; 3],
    rate: Option<&'static str>,
}

const PARTS: &[Part] = &[
    Part {
        task: Task::Encapsulate,
        frame_bytes: 64,
        rows: [
            "gre.encap_64.cpu_ns_per_packet.polder",
            "gre.encap_64.cpu_ns_per_packet.ovs",
            "gre.encap_64.cpu_ns_per_packet.kernel_vxlan",
        ],
        rate: Some(RATE),
    },
    Part {
        task: Task::Decapsulate,
        frame_bytes: 64,
        rows: [
            "gre.decap_64.cpu_ns_per_packet.polder",
            "gre.decap_64.cpu_ns_per_packet.ovs",
            "gre.decap_64.cpu_ns_per_packet.kernel_vxlan",
        ],
        rate: None,
    },
    Part {
        task: Task::Encapsulate,
        frame_bytes: 1518,
        rows: [
            "gre.encap_1518.cpu_ns_per_packet.polder",
            "gre.encap_1518.cpu_ns_per_packet.ovs",
            "gre.encap_1518.cpu_ns_per_packet.kernel_vxlan",
        ],
        rate: None,
    },
    Part {
        task: Task::Decapsulate,
        frame_bytes: 1518,
        rows: [
            "gre.decap_1518.cpu_ns_per_packet.polder",
            "gre.decap_1518.cpu_ns_per_packet.ovs",
            "gre.decap_1518.cpu_ns_per_packet.kernel_vxlan",
        ],
        rate: None,
    },
];

const FLOWS: u32 = 100;
/// How long a fresh chain may take for the first packet.
const FIRST_PACKET: Duration = Duration::from_secs(5);
const TCP_WARM_UP: Duration = Duration::from_millis(700);
/// Latency is taken with packets of this length at this rate.
const LATENCY_FRAME: usize = 128;
const LATENCY_RATE: f64 = 5_000.0;

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let mut books = part(run, &PARTS[0])?;
    half_rate(run, &mut books)?;
    chain(run)?;
    for left in &PARTS[1..] {
        if run.is_out_of_time() {
            run.leave_out(format!("{:?} with frames of {} bytes", left.task, left.frame_bytes));
            continue;
        }
        books.unaccounted += part(run, left)?.unaccounted;
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of packets is far below 2^52")]
    run.record_one(UNACCOUNTED, books.unaccounted as f64);
    Ok(())
}

fn part(run: &mut Run, part: &Part) -> anyhow::Result<Books> {
    let contenders = [Contender::Polder, Contender::Ovs, Contender::Kernel(Napi::Threaded)];
    let entries = contenders.into_iter().zip(part.rows).map(|(contender, cost)| Entry {
        contender,
        task: part.task,
        cost,
        rate: part.rate.filter(|_| contender == Contender::Polder),
    });
    contest::hold(run, &entries.collect::<Vec<_>>(), part.frame_bytes, FLOWS)
}

/// Half of the rate that was found, for a long time: nothing may be lost.
fn half_rate(run: &mut Run, books: &mut Books) -> anyhow::Result<()> {
    let Some(found) = run.value(RATE) else {
        [LOST, REORDERED, DUPLICATED].iter().for_each(|row| run.missing(row, "no rate was found"));
        return Ok(());
    };
    let seconds = run.quick_or(2, 10);
    run.says(&format!("half of the rate, {seconds} s"));
    let setup = Setup::new(Contender::Polder, Task::Encapsulate, 64, FLOWS);
    let mut stand = Stand::lay(setup)?;
    let plan = Plan::steady(found * 1e6 / 2.0, Duration::from_secs(seconds));
    let (trial, outcome) = stand.metered(&plan)?;
    let Outcome { arrivals, latency } = outcome;
    books.unaccounted += stand.unaccounted()?.map_or(0, i64::unsigned_abs);
    let rows = [(LOST, arrivals.lost), (REORDERED, arrivals.reordered), (DUPLICATED, arrivals.duplicated)];
    for (row, count) in rows {
        #[expect(clippy::cast_precision_loss, reason = "a count of packets is far below 2^52")]
        run.record_one(row, count as f64);
        run.remark(
            row,
            format!("of {} in {seconds} s at {:.2} Mpps", arrivals.sent, trial.sent.rate() / 1e6),
        );
    }
    let line = BTreeMap::from([("polder".to_owned(), quantiles(&latency))]);
    run.curve(Curve {
        title: "Latency at half the rate, 64 bytes, encapsulation".to_owned(),
        x: "percentile".to_owned(),
        y: "µs".to_owned(),
        lines: line,
    });
    Ok(())
}

/// Percentiles of a histogram of nanoseconds, in microseconds.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn quantiles(latency: &hdrhistogram::Histogram<u64>) -> Vec<(f64, f64)> {
    let at = |percent: f64| (percent, latency.value_at_quantile(percent / 100.0) as f64 / 1e3);
    (0..=99).map(|percent| at(f64::from(percent))).chain([99.5, 99.9, 99.99].map(at)).collect()
}

/// What the four namespaces of the demonstration give to applications.
fn chain(run: &mut Run) -> anyhow::Result<()> {
    for (name, polder) in [("polder", true), ("kernel_vxlan", false)] {
        run.says(&format!("TCP and latency over the whole chain, {name}"));
        let mut topology = Topology::new()?;
        let network = Network::lay(&mut topology)?;
        let mut gateways = Vec::new();
        if polder {
            let last = machine::cores() - 1;
            for (site, namespace, core) in
                [(ACCESS_POINT, &network.access_point, 0), (STATION, &network.station, last)]
            {
                run.place(&format!("polder, {} of the chain", site.title), core, "worker, pinned");
                gateways.push(Gateway::start(site, namespace, &topology, core)?);
            }
            gateways.iter_mut().try_for_each(Gateway::wait)?;
        } else {
            ACCESS_POINT.bridge_in_kernel(&network.access_point)?;
            STATION.bridge_in_kernel(&network.station)?;
            run.place("kernel of the chain", "any", "softirq of the senders");
        }
        ensure!(wait_for_ping(&network.client, SERVER, FIRST_PACKET)?, "no packet comes through the chain");
        applications(run, &network, name)?;
        gateways.into_iter().try_for_each(Gateway::stop)?;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn applications(run: &mut Run, network: &Network, name: &str) -> anyhow::Result<()> {
    let (rounds, time) = run.quick_or((2, 700), (5, 3000));
    let time = Duration::from_millis(time);
    let (mut goodput, mut middle, mut tail) = (Samples::default(), Samples::default(), Samples::default());
    for round in 0..rounds {
        let warm_up = if round == 0 { TCP_WARM_UP } else { TCP_WARM_UP / 4 };
        let to = SocketAddrV4::new(SERVER, 5201);
        goodput.push(tcp_goodput(&network.client, &network.server, to, warm_up, time)? / 1e6);
        let stream = UdpStream {
            from: &network.client,
            to: &network.server,
            destination: SocketAddrV4::new(SERVER, 7),
            frame_bytes: LATENCY_FRAME,
            rate: LATENCY_RATE,
            time,
        };
        let latency = stream.run()?.latency;
        middle.push(latency.value_at_quantile(0.5) as f64 / 1e3);
        tail.push(latency.value_at_quantile(0.99) as f64 / 1e3);
    }
    run.record(&format!("gre.tcp.mbit.{name}"), &goodput);
    run.record(&format!("gre.latency.p50.{name}"), &middle);
    run.record(&format!("gre.latency.p99.{name}"), &tail);
    Ok(())
}
