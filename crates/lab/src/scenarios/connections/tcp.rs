//! TCP through masquerade: throughput, and the rate of new connections.

use super::router::{Forwarder, RIGHT, Router, Rules, Wires};
use super::{Books, Run};
use crate::scenarios::turns::{Sheet, in_turn};
use anyhow::{Context as _, anyhow, ensure};
use polder_testbed::clock;
use polder_testbed::traffic::iperf3::Transfer;
use polder_testbed::traffic::sockets::per_second;
use rustix::net::sockopt::set_socket_linger;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Rows of Polder and the kernel, by the offloads of the stations.
const GBIT: [(Wires, [&str; 2]); 2] = [
    (Wires::Cut, ["connections.tcp.gbit.frames.polder", "connections.tcp.gbit.frames.kernel"]),
    (Wires::Whole, ["connections.tcp.gbit.super.polder", "connections.tcp.gbit.super.kernel"]),
];
const NEW: &str = "connections.new.ratio";

const FORWARDERS: [Forwarder; 2] = [Forwarder::Polder, Forwarder::Kernel];
/// Port of the server, and threads at each end.
const PORT: u16 = 7012;
const THREADS: usize = 2;
/// Time for which one connection may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Fills the rows.
pub(super) fn measure(run: &mut Run, books: &mut Books) -> anyhow::Result<()> {
    for (wires, rows) in GBIT {
        if run.is_due(&rows) {
            let (rounds, seconds) = run.quick_or((2, 1), (10, 5));
            let sheet = turns(run, (rows, wires), rounds, books, |router| {
                let (warm_up, time) = (Duration::ZERO, Duration::from_secs(seconds));
                let (from, to) = (&router.left, &router.right);
                Ok(Transfer { from, to, address: RIGHT, streams: 1, warm_up, time }.goodput()? / 1e9)
            })?;
            sheet.record(run);
        }
    }
    if run.is_due(&[NEW]) {
        let (rounds, millis) = run.quick_or((2, 700), (10, 2000));
        let names = ["connections of polder", "connections of kernel"];
        let sheet = turns(run, (names, Wires::Whole), rounds, books, |router| {
            rate(router, Duration::from_millis(millis))
        })?;
        run.record(NEW, &sheet.samples(names[0]).over(&sheet.samples(names[1])).into_iter().collect());
        let [polder, kernel] = names.map(|name| sheet.median(name));
        run.remark(
            NEW,
            format!("{polder:.0} connections a second beside {kernel:.0}: TCP, a byte each way, a reset"),
        );
    }
    Ok(())
}

/// Results of Polder and of the kernel, which take turns.
fn turns(
    run: &Run,
    (rows, wires): ([&'static str; 2], Wires),
    rounds: usize,
    books: &mut Books,
    mut measured: impl FnMut(&Router) -> anyhow::Result<f64>,
) -> anyhow::Result<Sheet> {
    let lay = |forwarder| Router::lay(forwarder, Rules::Three, wires, "");
    let mut routers = [(rows[0], lay(FORWARDERS[0])?), (rows[1], lay(FORWARDERS[1])?)];
    let sheet = in_turn(
        run,
        rounds,
        &mut routers,
        |(row, _)| (*row).to_owned(),
        |(row, router), sheet| {
            sheet.push(*row, measured(router)?);
            Ok(())
        },
    )?;
    for (_, router) in routers {
        books.unaccounted += router.stop()?;
    }
    Ok(sheet)
}

/// Connections a second: each is made, has a byte each way, and is reset.
fn rate(router: &Router, time: Duration) -> anyhow::Result<f64> {
    let address = SocketAddr::from((RIGHT, PORT));
    let listener = router.right.inside(|| TcpListener::bind(address))??;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let servers = [(); THREADS].map(|()| scope.spawn(|| serve(&listener, &over)));
        let start = clock::now();
        let clients = [(); THREADS].map(|()| {
            scope.spawn(move || {
                router.left.enter()?;
                connect_until(start + time, address)
            })
        });
        let made = clients.map(|client| client.join().map_err(|_| anyhow!("a client panicked")));
        let time = clock::now() - start;
        // Relaxed: a flag that orders nothing.
        over.store(true, Ordering::Relaxed);
        // Servers look at the flag when somebody comes.
        let last = router.right.inside(|| [(); THREADS].map(|()| TcpStream::connect(address).map(drop)))?;
        last.into_iter().collect::<std::io::Result<()>>()?;
        servers
            .into_iter()
            .try_for_each(|server| server.join().map_err(|_| anyhow!("a server panicked"))?)?;
        let made = made.into_iter().map(|made| made?).sum::<anyhow::Result<u64>>()?;
        ensure!(made > 0, "no connection was made");
        Ok(per_second(made, time))
    })
}

/// Number of connections made until then.
fn connect_until(end: Duration, address: SocketAddr) -> anyhow::Result<u64> {
    let mut made = 0;
    while clock::now() < end {
        connect(address)?;
        made += 1;
    }
    Ok(made)
}

fn connect(address: SocketAddr) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).context("TCP does not connect")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    stream.write_all(b"?")?;
    stream.read_exact(&mut [0; 1]).context("no answer comes")?;
    // A reset leaves no port that waits.
    set_socket_linger(&stream, Some(Duration::ZERO))?;
    Ok(())
}

fn serve(listener: &TcpListener, over: &AtomicBool) -> anyhow::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().context("cannot accept")?;
        if over.load(Ordering::Relaxed) {
            return Ok(());
        }
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        stream.read_exact(&mut [0; 1])?;
        stream.write_all(b"!")?;
        // Until the client has reset it.
        let _: std::io::Result<usize> = stream.read(&mut [0; 1]);
    }
}
