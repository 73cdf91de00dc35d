//! The stages beside FD.io VPP's graph: the same packets, routes and stations, ports and generators left out.

use super::harness::{ETHERNET, FRAME_BYTES, LOCAL, Path, REMOTE, STATIONS, address, talk};
use super::routing::{self, HOPS, Load, Size};
use super::stages::Stages;
use crate::scenarios::{Run, turns};
use polder_buffers::{PortId, Region, RegionOptions};
use polder_datapath::engine::Tables;
use polder_datapath::port::RxQueue;
use polder_datapath::route::Router;
use polder_datapath::units::Nanos;
use polder_datapath::wire::MacAddress;
use polder_testbed::clock;
use polder_testbed::peers::vpp::{Capture, Cost, Vpp};
use std::time::Duration;

/// Vectors of VPP; the better of the two is compared.
const VECTORS: [u32; 2] = [256, 64];
/// Number of packets that VPP processes in turn, of destinations and of flows.
const DESTINATIONS: usize = 1 << 20;
const FLOWS: u32 = 1000;
/// Address of the next hop behind the underlay's port.
const GATEWAY: &str = "192.168.10.254";

/// A comparison and its rows: Polder, VPP with vectors of 256 and of 64, and the ratio.
pub(super) struct Case {
    pub(super) rows: [&'static str; 4],
    load: fn() -> anyhow::Result<Bed>,
}

/// Tables and packets of a case, and VPP's settings for the same.
struct Bed {
    tables: Tables,
    /// The source twice: the stages go on where they are, VPP has the first packets in turn.
    sources: [Box<dyn RxQueue>; 2],
    packets: usize,
    settings: Vec<String>,
    _owner: Option<Router>,
}

pub(super) const CASES: [Case; 2] = [
    Case {
        rows: [
            "engine.route_1m.stages_ns.polder",
            "engine.route_1m.stages_ns.vpp",
            "engine.route_1m.stages_ns.vpp_64",
            "engine.route_1m.ratio_vs_vpp",
        ],
        load: routes,
    },
    Case {
        rows: [
            "engine.bridge_gretap.stages_ns.polder",
            "engine.bridge_gretap.stages_ns.vpp",
            "engine.bridge_gretap.stages_ns.vpp_64",
            "engine.bridge_gretap.ratio_vs_vpp",
        ],
        load: tunnel,
    },
];

/// Measures all cases in interleaved rounds; Polder alone where VPP is not installed.
pub(super) fn compare(run: &mut Run, core: usize) -> anyhow::Result<()> {
    for case in CASES.iter().filter(|case| run.wants_any(&case.rows)).collect::<Vec<_>>() {
        run.says(case.rows[3]);
        measure(run, case, core)?;
    }
    Ok(())
}

fn measure(run: &mut Run, case: &Case, core: usize) -> anyhow::Result<()> {
    let (rounds, time) = run.quick_or((3, 300), (10, 1000));
    let time = Duration::from_millis(time);
    let bed = (case.load)()?;
    let [own, mut other] = bed.sources;
    let mut stages = Stages::new(bed.tables, own)?;
    stages.run(core, time)?;
    let mut vpp = match Vpp::available() {
        Ok(()) => {
            let region = Region::new(RegionOptions { slots: 1024, slot_bytes: 2048 })?;
            let capture = Capture::of(&mut *other, &mut region.pool(), bed.packets)?;
            Some(Vpp::start(core, &bed.settings, capture, &VECTORS)?)
        }
        Err(why) => {
            run.skip(&case.rows[1..], &why.to_string());
            None
        }
    };
    let mut nodes = String::new();
    let sheet = turns::rounds(run, rounds, case.rows[3], |sheet| {
        let own = stages.run(core, time)?;
        sheet.push(case.rows[0], own);
        let Some(vpp) = &mut vpp else { return Ok(()) };
        let mut best = f64::INFINITY;
        for (vectors, row) in VECTORS.into_iter().zip(&case.rows[1..]) {
            let Cost { nanos, nodes: said } = vpp.measure(vectors, time)?;
            sheet.push(*row, nanos);
            if nanos < best {
                (best, nodes) = (nanos, said);
            }
        }
        sheet.push(case.rows[3], own / best);
        Ok(())
    })?;
    sheet.record(run);
    if vpp.is_some() {
        run.remark(case.rows[1], format!("clocks a packet: {nodes}"));
    }
    Ok(())
}

/// A million routes, random destinations.
fn routes() -> anyhow::Result<Bed> {
    let mut load = Load::draw(Size { routes: 1_000_000, is_v6: false });
    let (tables, router) = load.tables()?;
    let (source, tap) = load.source(ETHERNET);
    let (again, tap_of_again) = load.source(ETHERNET);
    tap.set_open(true);
    tap_of_again.set_open(true);
    let mut settings = ports(routing::mac);
    for number in 0..HOPS {
        let (address, mac) = routing::hop(number);
        settings.push(format!("set ip neighbor pg{} {address} {mac} static", number % 2));
    }
    settings.extend(load.prefixes.iter().enumerate().map(|(number, prefix)| {
        let number = u8::try_from(number % usize::from(HOPS)).unwrap_or(0);
        let (address, _) = routing::hop(number);
        let (network, bits) = (prefix.address(), prefix.bits());
        format!("ip route add {network}/{bits} via {address} pg{}", number % 2)
    }));
    Ok(Bed { tables, sources: [source, again], packets: DESTINATIONS, settings, _owner: Some(router) })
}

/// A bridge between a port and a gretap tunnel, a thousand flows of five hundred pairs of stations.
fn tunnel() -> anyhow::Result<Bed> {
    let source = || {
        let [(source, tap), _] = Path::Encapsulate.sources(FLOWS, FRAME_BYTES);
        tap.set_open(true);
        Box::new(source) as Box<dyn RxQueue>
    };
    let mut settings = ports(routing::mac);
    settings.extend([
        format!("set interface ip address pg1 {}/24", LOCAL.1),
        format!("set ip neighbor pg1 {GATEWAY} {} static", MacAddress(REMOTE.0)),
        format!("ip route add {}/32 via {GATEWAY} pg1", REMOTE.1),
        format!("create gre tunnel src {} dst {} teb", LOCAL.1, REMOTE.1),
        "set interface state gre0 up".to_owned(),
        "create bridge-domain 1 learn 1 forward 1 flood 1 uu-flood 1 arp-term 0".to_owned(),
        "set interface l2 bridge pg0 1".to_owned(),
        "set interface l2 bridge gre0 1".to_owned(),
    ]);
    let receivers = (0..STATIONS / 2).map(|station| address(talk(1).destination.0, station));
    settings.extend(receivers.map(|address| format!("l2fib add {address} 1 gre0 static")));
    let tables = Path::Encapsulate.tables(Nanos(clock::nanos()))?;
    Ok(Bed { tables, sources: [source(), source()], packets: 64 * FLOWS as usize, settings, _owner: None })
}

/// Settings of two ports.
fn ports(mac: fn(PortId) -> MacAddress) -> Vec<String> {
    let port = |number: u16| {
        let mac = mac(PortId(number));
        [
            format!("create packet-generator interface pg{number}"),
            format!("set interface mac address pg{number} {mac}"),
            format!("set interface state pg{number} up"),
            format!("enable ip4 interface pg{number}"),
        ]
    };
    [0, 1].into_iter().flat_map(port).collect()
}
