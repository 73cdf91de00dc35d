//! TCP and latency over the whole chain: client, gateway, gateway, server.

use super::Run;
use crate::scenarios::turns::in_turn;
use anyhow::ensure;
use polder_demo::gateway::Gateway;
use polder_demo::network::{ACCESS_POINT, Network, SERVER, STATION};
use polder_testbed::command;
use polder_testbed::machine;
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
        if !run.wants_any(&rows) {
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
    let has_iperf3 = command::exists("iperf3");
    let mut warm_up = TCP_WARM_UP;
    let chain = |_: &&Network| format!("TCP and latency, {name}");
    let sheet = in_turn(run, rounds, [network], chain, |Network { client, server, .. }, sheet| {
        let to = SocketAddrV4::new(SERVER, 5201);
        let goodput = tcp_goodput(client, server, to, warm_up, time)? / 1e6;
        sheet.push(format!("gre.tcp.mbit.{name}"), goodput);
        if has_iperf3 {
            let transfer = Transfer { from: client, to: server, address: SERVER, streams: 1, warm_up, time };
            sheet.push(format!("gre.iperf3.mbit.{name}"), transfer.goodput()? / 1e6);
        }
        let stream = UdpStream {
            from: client,
            to: server,
            destination: SocketAddrV4::new(SERVER, 7),
            frame_bytes: LATENCY_FRAME,
            rate: LATENCY_RATE,
            time,
        };
        let latency = stream.run()?.latency;
        for (percentile, quantile) in [("p50", 0.5), ("p99", 0.99)] {
            let micros = latency.value_at_quantile(quantile) as f64 / 1e3;
            sheet.push(format!("gre.latency.{percentile}.{name}"), micros);
        }
        warm_up = TCP_WARM_UP / 4;
        Ok(())
    })?;
    sheet.record(run);
    if !has_iperf3 {
        run.skip(&[format!("gre.iperf3.mbit.{name}")], &command::remedy("iperf3"));
    }
    Ok(())
}
