//! The demonstration without root, from beginning to end.

use super::Forwarder;
use super::cables::{Cables, Until, WINDOW};
use super::print::{self, Rate};
use anyhow::{Error, ensure};
use polder::runtime::shared::lock;
use polder::runtime::show::show_of;
use polder::show::{Layout, What};
use polder_testbed::clock;
use polder_testbed::interrupt;
use polder_testbed::screen::Screen;
use polder_testbed::traffic::sockets::per_second;
use std::time::Duration;

const FRAMES: [usize; 3] = [64, 512, 1518];
const TIME: Duration = Duration::from_secs(2);
const PING_PONGS: u64 = 20_000;
const IDLE_TIME: Duration = Duration::from_secs(1);

/// Two gateways and a gretap tunnel between cables in memory.
pub(super) fn run(screen: Screen) -> anyhow::Result<()> {
    let begun = clock::now();
    print::title(screen, Forwarder::Polder);
    print::without_root(screen);
    let mut cables = Cables::lay()?;
    print::done(screen, "two gateways, three in-memory cables; packets pass", clock::now() - begun);

    let step = screen.step("measuring: CPU use without traffic");
    let idle = idle()?;
    step.says("measuring: one packet at a time");
    let outcome = cables.exchange(true, 64, 1, Until::Packets(PING_PONGS))?;
    print::one_at_a_time(screen, &outcome);
    print::rates_heading(screen);
    for (direction, forth) in [("client → server", true), ("server → client", false)] {
        for frame_bytes in FRAMES {
            step.says(&format!("measuring: {frame_bytes}-byte frames, {direction}"));
            let start = clock::now();
            let outcome = cables.exchange(forth, frame_bytes, WINDOW, Until::Time(TIME))?;
            let packets_per_second = per_second(outcome.arrivals.received, clock::now() - start);
            print::rate(screen, &Rate { direction, frame_bytes, packets_per_second, outcome });
        }
    }
    print::idle_process(screen, idle);
    drop(step);

    let gateways = [("access point", &cables.access_point), ("station", &cables.station)];
    for (name, what) in [("drops", What::Drops), ("path", What::Path)] {
        for (title, gateway) in gateways {
            let shown = show_of(gateway, what, (None, None), None).map_err(Error::msg)?;
            let layout = Layout { colour: screen.is_styled(), ..Layout::PLAIN };
            print::shown(screen, name, title, &shown.draw(layout));
        }
    }
    let balanced = gateways.map(|(title, gateway)| print::balance(screen, title, &lock(gateway).accounts()));
    for (_, gateway) in gateways {
        lock(gateway).stop();
    }
    print::end(screen, clock::now() - begun);
    ensure!(balanced == [true, true], "some packets are unaccounted for");
    Ok(())
}

/// CPU time of this process in percent of one core, while nothing is sent.
fn idle() -> anyhow::Result<f64> {
    let before = clock::process_cpu();
    interrupt::sleep(IDLE_TIME)?;
    let used = clock::process_cpu() - before;
    Ok(used.as_secs_f64() / IDLE_TIME.as_secs_f64() * 100.0)
}
