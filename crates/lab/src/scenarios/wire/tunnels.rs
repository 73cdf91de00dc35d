//! Two stations, two gateways, and a tunnel between these.

use super::Run;
use crate::scenarios::turns::{Sheet, in_turn, set_up};
use anyhow::ensure;
use polder_demo::network::{ACCESS_POINT, Network, SERVER, STATION, Site};
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::peers::polder::ran_with;
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::iperf3::Transfer;
use polder_testbed::traffic::sockets::{UdpStream, wait_for_ping};
use std::net::SocketAddrV4;
use std::time::Duration;

/// Kind of gateways, with its rows.
#[derive(Debug)]
struct Entry {
    kind: Kind,
    tcp: &'static str,
    latency: Option<&'static str>,
}

/// Gateways at both ends of the tunnel.
#[derive(Debug)]
enum Kind {
    /// Polder, with these lines in the tables of its ports, and of the tunnel.
    Polder { port: &'static str, tunnel: &'static str },
    /// The kernel's bridge and VXLAN.
    Kernel,
}

const VXLAN: &str = "kind = \"vxlan\"\nvni = 1\n";
const ENTRIES: &[Entry] = &[
    Entry {
        kind: Kind::Polder { port: "", tunnel: VXLAN },
        tcp: "wire.tunnel_tcp.gbit.polder",
        latency: Some("wire.two_gateways.p50_us.polder"),
    },
    Entry {
        kind: Kind::Polder { port: "fast_path = \"off\"\n", tunnel: VXLAN },
        tcp: "wire.tunnel_tcp.gbit.polder_slow",
        latency: Some("wire.two_gateways.p50_us.polder_slow"),
    },
    Entry {
        kind: Kind::Polder { port: "fast_path = \"off\"\nsegments = false\n", tunnel: VXLAN },
        tcp: "wire.tunnel_tcp.gbit.polder_cut",
        latency: None,
    },
    Entry {
        kind: Kind::Polder { port: "", tunnel: "kind = \"gretap\"\n" },
        tcp: "wire.tunnel_tcp.gbit.polder_gretap",
        latency: None,
    },
    Entry {
        kind: Kind::Kernel,
        tcp: "wire.tunnel_tcp.gbit.kernel_vxlan",
        latency: Some("wire.two_gateways.p50_us.kernel_vxlan"),
    },
];
/// Time for which a fresh chain may take for the first packet.
const FIRST_PACKET: Duration = Duration::from_secs(5);
/// Latency is taken with packets of this length at this rate.
const LATENCY_FRAME: usize = 128;
const LATENCY_RATE: f64 = 5_000.0;

/// A chain that is up.
struct Chain {
    entry: &'static Entry,
    network: Network,
    gateways: Vec<Gateway>,
    _topology: Topology,
}

/// Fills the rows; answers the number of packets that Polder has not accounted for.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<u64> {
    let mut chains = set_up(run, ENTRIES, Entry::rows, Chain::lay)?;
    let name = |chain: &Chain| format!("two gateways, {}", chain.entry.tcp);
    let sheet = in_turn(run, run.quick_or(2, 10), &mut chains, name, |chain, sheet| chain.round(run, sheet))?;
    sheet.record(run);
    let mut unaccounted = 0;
    // Namespaces and sockets go with the chain, after its gateways.
    for chain in chains {
        for gateway in chain.gateways {
            unaccounted += gateway.unaccounted()?.unsigned_abs();
            gateway.stop()?;
        }
    }
    Ok(unaccounted)
}

impl Entry {
    fn rows(&self) -> Vec<&'static str> {
        core::iter::once(self.tcp).chain(self.latency).collect()
    }
}

impl Chain {
    fn lay(entry: &'static Entry) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let network = Network::lay_with_offloads(&mut topology)?;
        let mut gateways = Vec::new();
        for (site, namespace) in [(ACCESS_POINT, &network.access_point), (STATION, &network.station)] {
            match entry.kind {
                Kind::Polder { port, tunnel } => {
                    gateways.push(start(&site, (port, tunnel), namespace, &topology)?);
                }
                Kind::Kernel => site.bridge_in_kernel(namespace)?,
            }
        }
        ensure!(wait_for_ping(&network.client, SERVER, FIRST_PACKET)?, "no packet comes through the chain");
        Ok(Self { entry, network, gateways, _topology: topology })
    }

    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn round(&self, run: &Run, sheet: &mut Sheet) -> anyhow::Result<()> {
        let (from, to) = (&self.network.client, &self.network.server);
        let time = Duration::from_secs(run.quick_or(1, 5));
        let transfer = Transfer { from, to, address: SERVER, streams: 1, warm_up: Duration::ZERO, time };
        sheet.push(self.entry.tcp, transfer.goodput()? / 1e9);
        let Some(row) = self.entry.latency else { return Ok(()) };
        let stream = UdpStream {
            from,
            to,
            destination: SocketAddrV4::new(SERVER, 7),
            frame_bytes: LATENCY_FRAME,
            rate: LATENCY_RATE,
            time: time / 2,
        };
        sheet.push(row, stream.run()?.latency.value_at_quantile(0.5) as f64 / 1e3);
        Ok(())
    }
}

/// Starts a gateway with a bridge of its Ethernet port and a tunnel over the radio; all else is the default.
fn start(
    site: &Site,
    (port, tunnel): (&str, &str),
    namespace: &Namespace,
    topology: &Topology,
) -> anyhow::Result<Gateway> {
    let Site { local, remote, next_hop, .. } = site;
    let tables = format!(
        "[port.eth0]\ninterface = \"eth0\"\n{port}\n\
         [port.radio0]\ninterface = \"radio0\"\nrole = \"underlay\"\n{port}\n\
         [tunnel.peer]\n{tunnel}port = \"radio0\"\nlocal = \"{local}\"\nremote = \"{remote}\"\n\
         next_hop = \"{next_hop}\"\n\n[bridge.lan]\nmembers = [\"eth0\", \"peer\"]\n"
    );
    ran_with("tunnel", &format!("version = 1\n{tables}"));
    Gateway::start(namespace, topology.directory(), &tables)
}
