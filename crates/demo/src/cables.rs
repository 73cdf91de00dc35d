//! The demonstration without root: the same two gateways, with cables in memory for wires.

use super::gateway::configuration;
use super::network::{ACCESS_POINT, CLIENT, SERVER, STATION, Site};
use anyhow::{Context as _, anyhow, ensure};
use polder::config::{self, model};
use polder::device::{OpenPort, PortProperties};
use polder::runtime::gateway::{Gateway, Opener};
use polder_buffers::{Batch, BufferManager, BufferOptions, Class, Packet, Pool};
use polder_datapath::offload::Takes;
use polder_datapath::port::{Budget, RxQueue as _, TxQueue as _};
use polder_datapath::wire::MacAddress;
use polder_devices::Queue;
use polder_devices::pair::{self, End, Options, PairRx, PairTx};
use polder_testbed::clock;
use polder_testbed::interrupt;
use polder_testbed::meters::stream::{Outcome, StreamMeter};
use polder_testbed::traffic::packet::{Mac, Talk, Template};
use polder_testbed::traffic::probe::Probe;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const CLIENT_MAC: Mac = [2, 0, 0, 0, 0, 1];
const SERVER_MAC: Mac = [2, 0, 0, 0, 0, 2];
const ACCESS_POINT_MAC: Mac = [2, 0, 0, 0, 1, 1];
const STATION_MAC: Mac = [2, 0, 0, 0, 1, 2];
/// Packets on the way at a time under load: less than any ring holds, so that none is lost.
pub(super) const WINDOW: u64 = 192;
/// Time for which a packet may take that is not lost.
const PATIENCE: Duration = Duration::from_secs(2);

type PairQueue = Queue<PairRx, PairTx>;

/// Client, two gateways and server.
pub(super) struct Cables {
    pub(super) access_point: Arc<Mutex<Gateway>>,
    pub(super) station: Arc<Mutex<Gateway>>,
    client: PairQueue,
    server: PairQueue,
    pool: Pool,
}

impl Cables {
    /// Lays the cables and starts the gateways.
    pub(super) fn lay() -> anyhow::Result<Self> {
        let memory = BufferManager::new(BufferOptions::fixed(2048, 0, 8192)).context("no memory")?;
        let memory = Arc::new(memory);
        let cable = || pair::cable(Options::default());
        let (client, access_point_ethernet) = cable()?;
        let (access_point_radio, station_radio) = cable()?;
        let (station_ethernet, server) = cable()?;
        let start = |site: &Site, [own, peer]: [Mac; 2], core, ethernet, radio| {
            let ends = [("eth0".to_owned(), ethernet), ("radio0".to_owned(), radio)];
            let gateway = Gateway::start_on(read(site, peer, core)?, &memory, opener(ends, own))?;
            anyhow::Ok(Arc::new(Mutex::new(gateway)))
        };
        let macs = [ACCESS_POINT_MAC, STATION_MAC];
        let access_point = start(&ACCESS_POINT, macs, 0, access_point_ethernet, access_point_radio)?;
        let other = 1 % polder_testbed::machine::cores();
        let station =
            start(&STATION, [STATION_MAC, ACCESS_POINT_MAC], other, station_ethernet, station_radio)?;
        let (client, server) = (only(client)?, only(server)?);
        let mut cables = Self { access_point, station, client, server, pool: memory.pool(Class::Data) };
        // The bridges learn who is where.
        for forth in [false, true] {
            cables.exchange(forth, 64, 1, Until::Packets(1))?;
        }
        Ok(cables)
    }

    /// Sends frames, never more than `window` in flight, and meters the arrivals.
    pub(super) fn exchange(
        &mut self,
        forth: bool,
        frame_bytes: usize,
        window: u64,
        until: Until,
    ) -> anyhow::Result<Outcome> {
        let template = template(frame_bytes, forth);
        let Self { client, server, pool, .. } = self;
        let (near, far) = if forth { (client, server) } else { (server, client) };
        let mut meter = StreamMeter::new(1 << 20);
        let mut batch = Batch::new();
        let (mut sent, mut arrived, start) = (0, 0, clock::now());
        let mut last = start;
        loop {
            interrupt::check()?;
            let now = clock::now();
            let over = until.is_over(sent, now - start);
            if over && arrived == sent || now - last > PATIENCE {
                break;
            }
            let room = if over { 0 } else { window - (sent - arrived) };
            send(near, &template, sent..sent + until.at_most(sent, room), &mut batch, pool, &mut sent)?;
            let before = arrived;
            // What has been sent and not dropped arrives; other packets there are none.
            let _ = far.rx.receive(&mut Budget::new(64), &mut batch, pool);
            let nanos = clock::nanos();
            for packet in batch.iter() {
                let probe = packet.bytes().get(template.probe_at()..).and_then(Probe::read);
                let probe =
                    probe.ok_or_else(|| anyhow!("a packet arrived that the demonstration did not send"))?;
                meter.record(probe.number, nanos.saturating_sub(probe.due));
                arrived += 1;
            }
            pool.release(&mut batch);
            if arrived > before {
                last = now;
            }
        }
        Ok(meter.finish(sent))
    }
}

/// End of an exchange.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// This number of packets.
    Packets(u64),
    /// So long.
    Time(Duration),
}

impl Until {
    fn is_over(self, sent: u64, elapsed: Duration) -> bool {
        match self {
            Self::Packets(count) => sent >= count,
            Self::Time(time) => elapsed >= time,
        }
    }

    fn at_most(self, sent: u64, room: u64) -> u64 {
        match self {
            Self::Packets(count) => room.min(count.saturating_sub(sent)),
            Self::Time(_) => room,
        }
    }
}

fn send(
    near: &mut PairQueue,
    template: &Template,
    numbers: std::ops::Range<u64>,
    batch: &mut Batch,
    pool: &mut Pool,
    sent: &mut u64,
) -> anyhow::Result<()> {
    // Frames that were delivered come back through whoever received them.
    let _ = near.tx.reclaim(pool);
    for number in numbers {
        let frame = template.frame(0, Probe { stream: 0, number, due: clock::nanos() });
        let packet = Packet::copy_from(&frame, pool).context("no packet buffer is free")?;
        ensure!(batch.push(packet).is_ok(), "an empty batch does not accept a packet");
        *sent += 1;
        if batch.is_full() {
            near.tx.transmit(batch, pool);
            ensure!(batch.is_empty(), "the in-memory cable does not accept all packets");
        }
    }
    near.tx.transmit(batch, pool);
    ensure!(batch.is_empty(), "the in-memory cable does not accept all packets");
    Ok(())
}

fn template(frame_bytes: usize, forth: bool) -> Template {
    let talk = Talk::simple((CLIENT_MAC, CLIENT), (SERVER_MAC, SERVER));
    Template::new(if forth { talk } else { talk.answered() }, frame_bytes)
}

/// Configuration of the demonstration with root, except that the next hop is not asked for.
fn read(site: &Site, peer: Mac, core: usize) -> anyhow::Result<model::Configuration> {
    let socket = std::env::temp_dir().join("polder-demo.sock");
    let text = configuration(site, &socket, (core, ""));
    let known = format!("next_hop_mac = \"{}\"\n\n[bridge.lan]", MacAddress(peer));
    let text = text.replace("[bridge.lan]", &known);
    let loaded = config::parse(&text, site.role.as_ref())?;
    Ok(loaded.configuration)
}

/// Opens ports by plugging in the ends of cables.
fn opener(ends: [(String, End); 2], mac: Mac) -> Opener {
    let ends = Mutex::new(HashMap::from(ends));
    Box::new(move |port, _, _| {
        let mut ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
        let end = ends
            .remove(&port.name)
            .ok_or_else(|| anyhow!("the demonstration has no in-memory cable for port {}", port.name))?;
        let takes = Takes { partial_checksums: true, ..Takes::default() };
        let facts = PortProperties {
            takes,
            ..PortProperties::new(&port.name, MacAddress(mac), 1600, "in-memory cable")
        };
        Ok(OpenPort::in_memory(port.id, facts, end.into_iter().map(Queue::boxed).collect()))
    })
}

fn only(end: End) -> anyhow::Result<PairQueue> {
    end.into_iter().next().context("the end of the in-memory cable has no queue")
}
