//! One tunnel with three remotes, each a kernel: head-end replication, learning behind remotes, no loops.

use super::tunnel::{ENDS, PORTS, Tunnel};
use super::{Check, Judge, REACH};
use crate::tunnels::outer::Outer;
use crate::tunnels::run;
use crate::tunnels::wire::From;
use anyhow::{Context as _, ensure};
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use polder_testbed::traffic::sockets::wait_for_ping;
use polder_testbed::{clock, interrupt};
use serde_json::Value;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Number of remotes.
pub(super) const REMOTES: usize = 3;
/// Addresses of the remotes; the first is the other end of all other tunnels.
pub(super) const SITES: [Ipv4Addr; REMOTES] =
    [ENDS.0[1], Ipv4Addr::new(10, 81, 0, 3), Ipv4Addr::new(10, 81, 0, 4)];
/// Seconds after which the bridge of this tunnel forgets a station: the fewest that there are.
const AGEING_SECONDS: u64 = 10;
/// The tunnel with several remotes.
pub(super) const SEVERAL: Tunnel = Tunnel::with_remotes();
/// A station that the configuration binds to the last remote.
const BOUND: [u8; 6] = [2, 0x81, 0, 0, 0, 0xbb];
const BROADCAST: [u8; 6] = [0xff; 6];
const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0x51, 1];
/// A station that never says anything.
const UNKNOWN: [u8; 6] = [2, 0x81, 0, 0, 0, 0xee];
/// Station of the namespace with Polder.
const HOST: [u8; 6] = [2, 0x81, 0, 0, 0, 0x01];
/// EtherType for experiments (IEEE 802, 9.2.3).
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];
/// Time for which a frame may take to get through.
const ARRIVES: Duration = Duration::from_secs(2);
/// Time after which a frame that has not arrived is not on its way.
const QUIET: Duration = Duration::from_millis(60);

/// A station behind a remote, by the remote's place and a number.
fn station(site: usize, number: u8) -> [u8; 6] {
    [2, 0x81, 0, 1, u8::try_from(site).unwrap_or(u8::MAX), number]
}

/// Interfaces by which the frames of a check are sent and heard.
#[derive(Debug)]
pub(super) struct Sites {
    namespaces: Vec<Namespace>,
    /// The host's interface, then that of each remote.
    sockets: Vec<PacketSocket>,
    mark: u32,
}

/// Places at which a frame is heard: the host, then each remote.
type Heard = [usize; REMOTES + 1];
/// A frame's sender: the host, or a remote by its place.
#[derive(Clone, Copy, Debug)]
enum Sender {
    Host,
    Site(usize),
}

/// Every check, in the order in which they are made.
pub(super) const ALL: [Check; 12] = [
    ("each remote answers", answers),
    ("floods are replicated to each", replicates),
    ("a known station's frames go to its remote", unicast),
    ("a station that moves is followed", moves),
    ("a remote's floods go to no other", floods_of_remotes),
    ("nothing goes from one remote to another", between_remotes),
    ("a bound station stays where it is", bound),
    ("remotes learn the host behind Polder", learnt_by_kernel),
    ("`show fdb` names the remote", shown),
    ("an address that is no remote is not heard", strangers),
    ("a reload takes a remote away, and brings it back", reloads),
    ("stations are forgotten", ages),
];

/// Checks that tell a broken replicator.
pub(super) const TELLING: [Check; 3] =
    [("floods", replicates), ("known stations", unicast), ("floods of remotes", floods_of_remotes)];

/// Makes the namespaces of the remotes beyond the first, and a switch between all and the wire, which is `far` in
/// `air`.
pub(super) fn begin(
    topology: &mut Topology,
    air: &Namespace,
    far: &Namespace,
) -> anyhow::Result<Vec<Namespace>> {
    let hub = topology.namespace("hub")?;
    hub.ip(&["link", "add", "hub0", "type", "bridge", "stp_state", "0", "forward_delay", "0"])?;
    hub.ip(&["link", "set", "hub0", "up"])?;
    topology.wire(
        End { namespace: &hub, interface: "trunk" },
        End { namespace: air, interface: "far" },
        1500,
    )?;
    let mut namespaces = vec![far.clone()];
    for site in 1..REMOTES {
        namespaces.push(topology.namespace(&format!("site{site}"))?);
    }
    for (site, namespace) in namespaces.iter().enumerate() {
        let port = format!("site{site}");
        let ends = [End { namespace, interface: "radio0" }, End { namespace: &hub, interface: &port }];
        topology.wire(ends[0], ends[1], 1500)?;
        namespace.ip(&["address", "add", &format!("{}/24", SITES[site]), "dev", "radio0"])?;
    }
    for port in (0..REMOTES).map(|site| format!("site{site}")).chain(["trunk".to_owned()]) {
        hub.ip(&["link", "set", &port, "master", "hub0"])?;
    }
    Ok(namespaces)
}

impl Sites {
    /// Sets up the tunnel at all ends, once the gateway runs.
    pub(super) fn settle(near: &Namespace, namespaces: Vec<Namespace>) -> anyhow::Result<Self> {
        let name = SEVERAL.interface();
        near.ip(&["address", "add", &format!("{}/24", SEVERAL.addresses()[0]), "dev", &name])?;
        near.ip(&["link", "set", &name, "up"])?;
        let mut sockets = vec![near.inside(|| PacketSocket::open(&name))??];
        for (site, namespace) in namespaces.iter().enumerate() {
            let ip = |line: String| namespace.ip(&line.split_whitespace().collect::<Vec<_>>());
            let (vni, local) = (SEVERAL.vni(), SITES[site]);
            ip(format!("link add {name} type vxlan id {vni} local {local} dstport 4789 noudpcsum"))?;
            // Every end replicates to all others.
            for other in SITES.iter().chain([&ENDS.0[0]]).filter(|other| **other != local) {
                let line = format!("fdb append 00:00:00:00:00:00 dev {name} dst {other}");
                polder_testbed::command::run(namespace.command("bridge").args(line.split_whitespace()))?;
            }
            ip(format!("address add {}/24 dev {name}", address(site)))?;
            ip(format!("link set {name} up"))?;
            sockets.push(namespace.inside(|| PacketSocket::open(&name))??);
        }
        Ok(Self { namespaces, sockets, mark: 0 })
    }
}

/// Address of a remote inside the tunnel.
fn address(site: usize) -> Ipv4Addr {
    let [a, b, c, _] = SEVERAL.addresses()[0].octets();
    Ipv4Addr::new(a, b, c, u8::try_from(site + 2).unwrap_or(u8::MAX))
}

/// Bridge, TAP and tunnel of the configuration, with these remotes.
pub(super) fn configuration(remotes: &[Ipv4Addr]) -> String {
    let number = SEVERAL.number;
    let (local, vni, tap) = (ENDS.0[0], SEVERAL.vni(), SEVERAL.interface());
    let list = remotes.iter().map(|remote| format!("\"{remote}\"")).collect::<Vec<_>>().join(", ");
    let bound = BOUND.map(|byte| format!("{byte:02x}")).join(":");
    format!(
        "[port.host{number}]\ntap = \"{tap}\"\n\n[tunnel.t{number}]\nkind = \"vxlan\"\nlocal = \"{local}\"\n\
         remotes = [{list}]\nport = \"radio0\"\nvni = {vni}\n\n[bridge.b{number}]\n\
         members = [\"host{number}\", \"t{number}\"]\nageing_seconds = {AGEING_SECONDS}\n\n\
         [[bridge.b{number}.static]]\nmac = \"{bound}\"\nport = \"t{number}\"\nremote = \"{}\"\n\n",
        SITES[REMOTES - 1]
    )
}

impl Judge {
    /// Sends a frame with a mark of its own, waits until it is heard where it should be, and says where it was heard
    /// and to which remotes Polder sent it.
    fn send(
        &mut self,
        sender: Sender,
        (to, from): ([u8; 6], [u8; 6]),
        expected: Heard,
    ) -> anyhow::Result<(Heard, Vec<Ipv4Addr>)> {
        self.wire.forget();
        self.kernel.sites.mark += 1;
        let mark = self.kernel.sites.mark.to_be_bytes();
        let frame = [&to[..], &from, &EXPERIMENT, &mark, &[0x5a; 64]].concat();
        let socket = match sender {
            Sender::Host => &self.kernel.sites.sockets[0],
            Sender::Site(site) => &self.kernel.sites.sockets[site + 1],
        };
        socket.send(&frame).context("cannot send a frame")?;
        let (mut heard, mut room) = ([0; REMOTES + 1], vec![0; 2048]);
        let mut end = clock::now() + ARRIVES;
        let mut is_settling = false;
        while clock::now() < end {
            for (count, socket) in heard.iter_mut().zip(&self.kernel.sites.sockets) {
                *count += times_heard(socket, &frame, &mut room);
            }
            if heard == expected && !is_settling {
                (is_settling, end) = (true, clock::now() + QUIET);
            }
            interrupt::sleep(Duration::from_millis(2))?;
        }
        let packets = self.packets_of(From::Polder, &SEVERAL);
        let is_own = |(bytes, outer): &&(Vec<u8>, Outer)| bytes.get(outer.inside()) == Some(&frame[..]);
        let mut sent = packets.iter().filter(is_own).map(|(bytes, _)| destination(bytes)).collect::<Vec<_>>();
        sent.sort_unstable();
        Ok((heard, sent))
    }

    /// Sends a frame that has to be heard there and nowhere else; Polder has to send it to exactly these remotes.
    fn expect(
        &mut self,
        sender: Sender,
        ends: ([u8; 6], [u8; 6]),
        expected: Heard,
        remotes: &[Ipv4Addr],
    ) -> anyhow::Result<()> {
        let (heard, sent) = self.send(sender, ends, expected)?;
        ensure!(
            heard == expected && sent == remotes,
            "from {sender:?} to {:02x?}: heard {heard:?} (host and remotes), sent to {sent:?}; \
             expected {expected:?} and {remotes:?}",
            ends.0
        );
        Ok(())
    }

    /// Sends a frame from a station behind a remote to the host.
    fn speaks(&mut self, site: usize, station: [u8; 6]) -> anyhow::Result<()> {
        // The host speaks first, so that the remote's kernel knows where it is.
        self.expect(Sender::Host, (BROADCAST, HOST), [0, 1, 1, 1], &SITES)?;
        self.expect(Sender::Site(site), (HOST, station), [1, 0, 0, 0], &[])
    }
}

/// Number of copies of a frame among the packets that wait in a socket's receive queue.
fn times_heard(socket: &PacketSocket, frame: &[u8], room: &mut [u8]) -> usize {
    let mut heard = 0;
    while let Ok(length) = socket.receive(room) {
        heard += usize::from(room[..length] == *frame);
    }
    heard
}

/// Destination of an outer IPv4 packet.
fn destination(frame: &[u8]) -> Ipv4Addr {
    frame.get(30..34).map_or(Ipv4Addr::UNSPECIFIED, |ip| Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3]))
}

/// Heard by one remote alone.
fn only(site: usize) -> Heard {
    let mut heard = [0; REMOTES + 1];
    heard[site + 1] = 1;
    heard
}

fn answers(judge: &mut Judge, _: &Tunnel) -> anyhow::Result<()> {
    for site in 0..REMOTES {
        let namespace = judge.kernel.sites.namespaces[site].clone();
        ensure!(
            wait_for_ping(&namespace, SEVERAL.addresses()[0], REACH)?,
            "remote {site}: no answer to any ping"
        );
        ensure!(wait_for_ping(&judge.near, address(site), REACH)?, "remote {site} does not answer the host");
    }
    Ok(())
}

fn replicates(judge: &mut Judge, _: &Tunnel) -> anyhow::Result<()> {
    [BROADCAST, GROUP, UNKNOWN]
        .into_iter()
        .try_for_each(|to| judge.expect(Sender::Host, (to, HOST), [0, 1, 1, 1], &SITES))
}

fn unicast(judge: &mut Judge, _: &Tunnel) -> anyhow::Result<()> {
    for (site, remote) in SITES.into_iter().enumerate() {
        judge.speaks(site, station(site, 1))?;
        judge.expect(Sender::Host, (station(site, 1), HOST), only(site), &[remote])?;
    }
    Ok(())
}

fn moves(judge: &mut Judge, _: &Tunnel) -> anyhow::Result<()> {
    for site in [0, 2, 1] {
        judge.speaks(site, station(0, 2))?;
        judge.expect(Sender::Host, (station(0, 2), HOST), only(site), &[SITES[site]])?;
    }
    Ok(())
}

/// The remote has replicated it to the others itself.
fn floods_of_remotes(judge: &mut Judge, _: &Tunnel) -> anyhow::Result<()> {
    for site in 0..REMOTES {
        let mut expected = [1; REMOTES + 1];
        expected[site + 1] = 0;
        judge.expect(Sender::Site(site), (BROADCAST, station(site, 3)), expected, &[])?;
    }
    Ok(())
}

/// A station that Polder knows behind one remote, and another remote does not know at all.
fn between_remotes(judge: &mut Judge, _: &Tunnel) -> anyhow::Result<()> {
    judge.speaks(1, station(1, 4))?;
    let before = judge.gateway.dropped("same-port")?;
    judge.expect(Sender::Site(0), (station(1, 4), station(0, 4)), [0, 0, 1, 1], &[])?;
    ensure!(judge.gateway.dropped("same-port")? > before, "nothing was dropped as same-port");
    Ok(())
}

fn bound(judge: &mut Judge, _: &Tunnel) -> anyhow::Result<()> {
    let last = REMOTES - 1;
    judge.expect(Sender::Host, (BOUND, HOST), only(last), &[SITES[last]])?;
    judge.speaks(0, BOUND)?;
    judge.expect(Sender::Host, (BOUND, HOST), only(last), &[SITES[last]])
}

fn learnt_by_kernel(judge: &mut Judge, _: &Tunnel) -> anyhow::Result<()> {
    judge.expect(Sender::Host, (BROADCAST, HOST), [0, 1, 1, 1], &SITES)?;
    let (host, polder) = (HOST.map(|byte| format!("{byte:02x}")).join(":"), ENDS.0[0].to_string());
    for namespace in &judge.kernel.sites.namespaces {
        let known = run(namespace, &format!("bridge fdb show dev {}", SEVERAL.interface()))?;
        let line = known.lines().find(|line| line.starts_with(&host)).unwrap_or_default();
        ensure!(line.contains(&format!("dst {polder} ")), "{} knows: {line}", namespace.name());
    }
    Ok(())
}

fn shown(judge: &mut Judge, _: &Tunnel) -> anyhow::Result<()> {
    judge.speaks(1, station(1, 5))?;
    let shown = judge.gateway.show("fdb")?;
    let mac = station(1, 5).map(|byte| format!("{byte:02x}")).join(":");
    let bridges = polder_testbed::peers::polder::find(&shown, "fdb").and_then(Value::as_array);
    let entries = bridges.into_iter().flatten().filter_map(|bridge| bridge.get("entries")?.as_array());
    let entry = entries.flatten().find(|entry| entry.get("address").and_then(Value::as_str) == Some(&mac));
    let entry = entry.context("the station is not shown")?;
    let text = |key| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    ensure!(text("port") == format!("t{}", SEVERAL.number), "it is shown on {}", text("port"));
    ensure!(text("remote") == SITES[1].to_string(), "it is shown behind {}", text("remote"));
    Ok(())
}

/// A packet of a remote's kernel, from another address.
fn strangers(judge: &mut Judge, _: &Tunnel) -> anyhow::Result<()> {
    judge.send(Sender::Site(0), (BROADCAST, station(0, 6)), [1, 0, 1, 1])?;
    let packets = judge.packets_of(From::Kernel, &SEVERAL);
    let of_station = |(bytes, outer): &(Vec<u8>, Outer)| {
        bytes.get(outer.inside().start + 6..outer.inside().start + 12) == Some(&station(0, 6)[..])
    };
    let (mut frame, outer) =
        packets.into_iter().find(of_station).context("no packet of the kernel was seen")?;
    frame[29] = 99;
    outer.repair(&mut frame);
    outer.seal_udp(&mut frame);
    judge.wire.inject(&frame)?;
    interrupt::sleep(QUIET)?;
    let heard = times_heard(&judge.kernel.sites.sockets[0], &frame[outer.inside()], &mut [0; 2048]);
    ensure!(heard == 0, "the host heard it {heard} times");
    Ok(())
}

fn reloads(judge: &mut Judge, _: &Tunnel) -> anyhow::Result<()> {
    judge.speaks(0, station(0, 7))?;
    judge.gateway.reload(&super::configuration(&[SITES[0], SITES[2]]))?;
    judge.expect(Sender::Host, (BROADCAST, HOST), [0, 1, 0, 1], &[SITES[0], SITES[2]])?;
    judge.expect(Sender::Host, (station(0, 7), HOST), only(0), &[SITES[0]])?;
    judge.gateway.reload(&super::configuration(&SITES))?;
    answers(judge, &SEVERAL)?;
    judge.expect(Sender::Host, (BROADCAST, HOST), [0, 1, 1, 1], &SITES)?;
    judge.expect(Sender::Host, (station(0, 7), HOST), only(0), &[SITES[0]])
}

fn ages(judge: &mut Judge, _: &Tunnel) -> anyhow::Result<()> {
    judge.speaks(2, station(2, 8))?;
    judge.expect(Sender::Host, (station(2, 8), HOST), only(2), &[SITES[2]])?;
    interrupt::sleep(Duration::from_secs(AGEING_SECONDS + 2))?;
    judge.expect(Sender::Host, (station(2, 8), HOST), [0, 1, 1, 1], &SITES)
}

/// Outer packet with another destination, as a broken replicator sends it.
pub(super) fn readdressed(frame: &[u8], (ip, mac): (Ipv4Addr, [u8; 6]), outer: &Outer) -> Vec<u8> {
    let mut copy = frame.to_vec();
    copy[..6].copy_from_slice(&mac);
    copy[30..34].copy_from_slice(&ip.octets());
    outer.repair(&mut copy);
    outer.seal_udp(&mut copy);
    copy
}

/// True for a packet of the tunnel with several remotes.
pub(super) fn is_of_several(frame: &[u8], outer: &Outer) -> bool {
    !outer.v6 && PORTS.contains(&outer.port(frame)) && outer.vni(frame) == SEVERAL.vni()
}
