//! Measurements of the demonstration, in the order in which they are shown.

use super::gateway::Gateway;
use super::network::{CLIENT, Network, SERVER};
use super::print::{self, Found};
use polder_testbed::interrupt;
use polder_testbed::meters::cpu::CpuReading;
use polder_testbed::screen::Screen;
use polder_testbed::topology::Namespace;
use polder_testbed::traffic::search::Search;
use polder_testbed::traffic::sockets::{self, UdpStream};
use std::net::SocketAddrV4;
use std::time::Duration;

const PINGS: u16 = 10;
const PING_INTERVAL: Duration = Duration::from_millis(100);
const TCP_PORT: u16 = 5201;
const TCP_WARM_UP: Duration = Duration::from_millis(700);
const TCP_TIME: Duration = Duration::from_secs(3);
const UDP_PORT: u16 = 7;
/// One trial of the search for a rate.
const TRIAL: Duration = Duration::from_millis(500);
/// Trials after the first, flat-out one.
const TRIALS: u32 = 6;
/// Loss that the rates are found for.
const LOSS: f64 = 0.001;
/// Frame lengths, FCS included.
const FRAMES: [usize; 3] = [64, 512, 1518];
/// Latency is taken with frames of this length.
const LATENCY_FRAME: usize = 512;
const LATENCY_TIME: Duration = Duration::from_secs(3);
const SPARSE_RATE: f64 = 1_000.0;
const IDLE_TIME: Duration = Duration::from_secs(1);

/// Measures and prints everything that the traffic shows.
pub(super) fn all(screen: Screen, network: &Network) -> anyhow::Result<()> {
    let (client, server) = (&network.client, &network.server);
    let step = screen.step("measuring: CPU use without traffic");
    let (idle, ()) = idle_during(|| Ok(interrupt::sleep(IDLE_TIME)?))?;

    step.says("measuring: ping");
    print::ping(screen, &sockets::ping(client, SERVER, PINGS, PING_INTERVAL)?, PINGS);

    for (direction, from, to, address) in
        [("client → server", client, server, SERVER), ("server → client", server, client, CLIENT)]
    {
        step.says(&format!("measuring: TCP, {direction}"));
        let destination = SocketAddrV4::new(address, TCP_PORT);
        let transfer = || sockets::tcp_goodput(from, to, destination, TCP_WARM_UP, TCP_TIME);
        let (busy, goodput) = idle_during(transfer)?;
        print::tcp(screen, direction, goodput, busy);
    }

    print::udp_heading(screen);
    let mut latency_rate = 0.0;
    for frame_bytes in FRAMES {
        step.says(&format!("measuring: UDP, {frame_bytes}-byte frames, rate with at most 0.1 % loss"));
        let found = highest_rate(client, server, frame_bytes)?;
        if frame_bytes == LATENCY_FRAME {
            latency_rate = found.outcome.sent_rate / 2.0;
        }
        print::udp(screen, &found);
    }

    print::latency_heading(screen, LATENCY_FRAME);
    for (label, rate) in [("sparse", SPARSE_RATE), ("at half of the rate above", latency_rate)] {
        step.says(&format!("measuring: latency, {label}"));
        let outcome = stream(client, server, LATENCY_FRAME, rate, LATENCY_TIME).run()?;
        print::latency(screen, rate, &outcome);
    }
    print::idle(screen, idle);
    Ok(())
}

fn stream<'a>(
    from: &'a Namespace,
    to: &'a Namespace,
    frame_bytes: usize,
    rate: f64,
    time: Duration,
) -> UdpStream<'a> {
    UdpStream { from, to, destination: SocketAddrV4::new(SERVER, UDP_PORT), frame_bytes, rate, time }
}

fn highest_rate(from: &Namespace, to: &Namespace, frame_bytes: usize) -> anyhow::Result<Found> {
    let trial = |rate| idle_during(|| stream(from, to, frame_bytes, rate, TRIAL).run());
    let found = |(idle_percent, outcome), limited_by_sender| Found {
        frame_bytes,
        outcome,
        idle_percent,
        limited_by_sender,
    };
    let flat_out = trial(f64::INFINITY)?;
    let arrivals = &flat_out.1.arrivals;
    if arrivals.loss_ratio() <= LOSS {
        return Ok(found(flat_out, true));
    }
    let arrived = flat_out.1.sent_rate * (1.0 - arrivals.loss_ratio());
    let mut search = Search::new(arrived / 4.0, flat_out.1.sent_rate.min(arrived * 1.25));
    let mut best = None;
    for _ in 0..TRIALS {
        let tried = trial(search.next())?;
        let good = tried.1.arrivals.loss_ratio() <= LOSS;
        search.tell(good);
        if good {
            best = Some(tried);
        }
        if search.is_narrow() {
            break;
        }
    }
    let best = match best {
        Some(best) => best,
        None => trial(search.lowest())?,
    };
    Ok(found(best, false))
}

/// Percent of all cores' time that was idle while `work` ran, and the result of `work`.
fn idle_during<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(f64, T)> {
    let before = CpuReading::take()?;
    let value = work()?;
    Ok((CpuReading::take()?.idle_percent_since(&before), value))
}

/// Packet counts along the path, for the message that no packet came through.
pub(super) fn whereabouts(access_point: &Gateway, station: &Gateway) -> String {
    let mut text = String::new();
    for gateway in [access_point, station] {
        for what in ["path", "drops"] {
            let shown = gateway.show(what, false).unwrap_or_else(|error| error.to_string());
            text.push_str(&format!("\n{}: polder show {what}\n{shown}", gateway.site.title));
        }
    }
    text
}
