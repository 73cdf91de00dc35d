//! Share of a stream that is carried beside changes that do not concern it, and its order.

use super::router::{Forwarder, LEFT, Router, Rules, Wires};
use super::stream::{Seen, Stream};
use super::{Books, Run};
use crate::scenarios::turns::in_turn;
use anyhow::{Context as _, anyhow, ensure};
use polder_testbed::interrupt;
use polder_testbed::meters::sequence::ratio;
use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const CHURN: &str = "connections.carried_percent.churn";
const SWEEP: &str = "connections.carried_percent.sweep";

/// Time between two changes of each kind, and between two packets of the sweep: a hundred a second.
const EVERY: Duration = Duration::from_millis(10);
/// Unused addresses of a sweep.
const SWEPT: u8 = 240;

/// Changes beside the stream.
#[derive(Clone, Copy, Debug)]
enum Beside {
    /// A route comes or goes, and a neighbour has another link-layer address.
    Churn,
    /// A host sends to unused addresses.
    Sweep,
}

/// Fills the rows.
pub(super) fn measure(run: &mut Run, books: &mut Books) -> anyhow::Result<()> {
    for (row, beside) in [(CHURN, Beside::Churn), (SWEEP, Beside::Sweep)] {
        if !run.is_due(&[row]) {
            continue;
        }
        let (rounds, seconds) = run.quick_or((1, 3), (10, 5));
        let router = Router::lay(Forwarder::Polder, Rules::Three, Wires::Whole, "")?;
        let mut stream = Stream::open(&router)?;
        let (mut sent, mut made) = (0, 0);
        let sheet = in_turn(
            run,
            rounds,
            [row],
            |row| (*row).to_owned(),
            |row, sheet| {
                stream.wait_until_carried(&router)?;
                let before = router.carried()?;
                let (count, seen) = stream.during(|| beside.during(&router, Duration::from_secs(seconds)))?;
                let carried = router.carried()?.checked_sub(before).context("the stream was entered anew")?;
                sheet.push(*row, 100.0 * ratio(carried, seen.arrivals.received + seen.answers));
                (sent, made) = (sent + seen.arrivals.sent, made + count);
                books.take(&seen);
                Ok(())
            },
        )?;
        sheet.record(run);
        run.remark(row, format!("of {sent} packets and an answer to each eighth, beside {made} changes"));
        books.unaccounted += router.stop()?;
    }
    Ok(())
}

impl Books {
    /// Adds what a stream has lost and reordered.
    fn take(&mut self, seen: &Seen) {
        self.reordered += seen.arrivals.reordered;
        self.unaccounted += seen.arrivals.lost;
        self.packets += seen.arrivals.sent;
    }
}

impl Beside {
    /// Number of changes, or of packets to unused addresses, in that time.
    fn during(self, router: &Router, time: Duration) -> anyhow::Result<u64> {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| match self {
                Self::Churn => churn(router, &over),
                Self::Sweep => sweep(router, &over),
            });
            let waited = interrupt::sleep(time);
            // Relaxed: a flag that orders nothing.
            over.store(true, Ordering::Relaxed);
            let made = changing.join().map_err(|_| anyhow!("a thread panicked"))?;
            waited?;
            made
        })
    }
}

/// Changes routes and neighbours that the stream does not use, by one process of `ip`.
fn churn(router: &Router, over: &AtomicBool) -> anyhow::Result<u64> {
    let mut ip = router.device.command("ip");
    ip.args(["-force", "-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut ip = ip.spawn().context("cannot run ip")?;
    let mut lines = ip.stdin.take().context("ip reads nothing")?;
    let mut made = 0_u64;
    while !over.load(Ordering::Relaxed) {
        let what = if made.is_multiple_of(2) { "replace" } else { "del" };
        let last = made % 200;
        writeln!(lines, "route {what} 198.51.100.{}/32 via {LEFT}", last / 2)?;
        writeln!(
            lines,
            "neighbour replace 172.20.1.77 lladdr 02:00:00:00:06:{last:02x} dev west nud permanent"
        )?;
        made += 1;
        std::thread::sleep(EVERY);
    }
    drop(lines);
    let status = ip.wait()?;
    ensure!(status.success(), "ip ended with {status}");
    Ok(2 * made)
}

/// Sends to unused addresses of the right network.
fn sweep(router: &Router, over: &AtomicBool) -> anyhow::Result<u64> {
    let socket = router.left.inside(|| UdpSocket::bind((LEFT, 0)))??;
    let mut sent = 0_u64;
    while !over.load(Ordering::Relaxed) {
        let last = 10 + u8::try_from(sent % u64::from(SWEPT)).unwrap_or_default();
        match socket.send_to(b"anybody", (Ipv4Addr::new(172, 20, 2, last), 9)) {
            Ok(_) => sent += 1,
            // The router's word that nobody is there.
            Err(error)
                if matches!(error.kind(), ErrorKind::HostUnreachable | ErrorKind::ConnectionRefused) => {}
            Err(error) => return Err(error).context("cannot sweep"),
        }
        std::thread::sleep(EVERY);
    }
    Ok(sent)
}
