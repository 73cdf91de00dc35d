//! TCP and latency over the whole chain: client, gateway, gateway, server.

use super::Run;
use anyhow::ensure;
use polder_demo::gateway::Gateway;
use polder_demo::network::{ACCESS_POINT, Network, SERVER, STATION};
use polder_testbed::command;
use polder_testbed::machine;
use polder_testbed::meters::statistics::Samples;
use polder_testbed::topology::Topology;
use polder_testbed::traffic::iperf3::Transfer;
use polder_testbed::traffic::sockets::{UdpStream, tcp_goodput, wait_for_ping};
use std::net::SocketAddrV4;
use std::time::Duration;

/// Time for which a fresh chain may take for the first packet.
const FIRST_PACKET: Duration = Duration::from_secs(5);
const TCP_WARM_UP: Duration = Duration::from_millis(700);
/// Latency is taken with packets of this length at this rate.
const LATENCY_FRAME: usize = 128;
const LATENCY_RATE: f64 = 5_000.0;

/// Keys of the gateways' ports: the mode that the other rows have.
const PORTS: &str = "mode = \"native\"";

/// Measures the goodput and latency of applications over the four namespaces of the demonstration.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    for (name, polder) in [("polder", true), ("kernel_vxlan", false)] {
        let rows = ["tcp.mbit", "iperf3.mbit", "latency.p50", "latency.p99"];
        let rows = rows.map(|row| format!("gre.{row}.{name}"));
        if !run.wants_any(&rows.each_ref().map(String::as_str)) {
            continue;
        }
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
                gateways.push(Gateway::start(site, namespace, &topology, (core, PORTS))?);
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
    let (rounds, time) = run.quick_or((2, 700), (10, 2000));
    let time = Duration::from_millis(time);
    let [mut goodput, mut told, mut middle, mut tail] = [const { Samples::new() }; 4];
    let iperf3 = command::exists("iperf3");
    for round in 0..rounds {
        let warm_up = if round == 0 { TCP_WARM_UP } else { TCP_WARM_UP / 4 };
        let to = SocketAddrV4::new(SERVER, 5201);
        goodput.push(tcp_goodput(&network.client, &network.server, to, warm_up, time)? / 1e6);
        if iperf3 {
            let (from, to) = (&network.client, &network.server);
            let transfer = Transfer { from, to, address: SERVER, streams: 1, warm_up, time };
            told.push(transfer.goodput()? / 1e6);
        }
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
    let row = format!("gre.iperf3.mbit.{name}");
    if iperf3 {
        run.record(&row, &told);
    } else {
        run.skip(&[&row], &command::remedy("iperf3"));
    }
    run.record(&format!("gre.latency.p50.{name}"), &middle);
    run.record(&format!("gre.latency.p99.{name}"), &tail);
    Ok(())
}
