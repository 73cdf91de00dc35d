//! Weights of ports, from the configuration to the packets that leave: with a fixed budget, so that
//! no clock is read.

use crate::cable::{configuration, frame, opener};
use polder::runtime::gateway::Gateway;
use polder_buffers::{Batch, BufferManager, BufferOptions};
use polder_datapath::port::{Budget, RxQueue as _, TxQueue as _};
use polder_devices::pair::{self, Options};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Packets that wait in each of two ports before the worker begins.
const EACH: usize = 1536;
/// Packets a turn of a port of ordinary weight.
const BUDGET: usize = 16;

fn text(a: &str, b: &str) -> String {
    format!(
        "version = 1\n[gateway]\nname = \"weight\"\nbudget = {BUDGET}\n\
         [port.a]\ntap = \"a\"\n{a}\n[port.b]\ntap = \"b\"\n{b}\n[port.c]\ntap = \"c\"\n\
         [bridge.br0]\nmembers = [\"a\", \"b\", \"c\"]\n\
         [[bridge.br0.static]]\nmac = \"02:00:00:00:00:02\"\nport = \"c\"\n"
    )
}

/// Number of packets of ports that a and b have left by c while both had more of them.
fn while_both_wait(a: &str, b: &str) -> [usize; 2] {
    let memory = Arc::new(BufferManager::new(BufferOptions::fixed(2048, 512, 16_384)).expect("memory"));
    let region = memory.region().clone();
    let mut pool = region.pool();
    let cable = || pair::cable(Options { ring: 4096, ..Options::default() }).expect("a cable");
    let [(mut from_a, end_a), (mut from_b, end_b), (mut to, end_c)] = [cable(), cable(), cable()];
    let mut batch = Batch::new();
    for (flow, near) in [&mut from_a, &mut from_b].into_iter().enumerate() {
        for number in 0..EACH {
            let mut packet = frame(flow as u64, number as u64, 100, &mut pool);
            packet.bytes_mut()[11] = u8::try_from(flow + 3).expect("two");
            batch.push(packet).expect("there is room");
            if batch.is_full() {
                near[0].tx.transmit(&mut batch, &mut pool);
            }
        }
        assert!(batch.is_empty(), "all of it waits in the cable");
    }
    let ends = [("a", end_a), ("b", end_b), ("c", end_c)].map(|(name, end)| (name.to_owned(), end));
    let mut gateway =
        Gateway::start_on(configuration(&text(a, b)), &memory, opener(ends)).expect("it starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut came = Vec::new();
    while came.len() < 2 * EACH {
        assert!(Instant::now() < deadline, "{} came: {:?}", came.len(), gateway.accounts());
        let _ = to[0].rx.receive(&mut Budget::new(64), &mut batch, &mut pool);
        came.extend(batch.iter().map(|packet| usize::from(packet.bytes()[11]) - 3));
        pool.release(&mut batch);
    }
    gateway.stop();
    let accounts = gateway.accounts();
    assert_eq!((accounts.unaccounted(), accounts.held, accounts.dropped), (0, 0, 0), "{accounts:?}");
    let ended = [0, 1].map(|flow| came.iter().rposition(|&of| of == flow).expect("some of each"));
    let both = &came[..ended[0].min(ended[1])];
    [0, 1].map(|flow| both.iter().filter(|&&of| of == flow).count())
}

#[test]
fn ports_that_have_more_than_they_can_bring_have_turns_by_weight() {
    for (a, b, parts) in
        [("", "", [1, 1]), ("weight = 300", "", [3, 1]), ("weight = 25", "weight = 100", [1, 4])]
    {
        let moved = while_both_wait(a, b);
        let differ = (moved[0] * parts[1]).abs_diff(moved[1] * parts[0]);
        assert!(differ <= 4 * BUDGET, "{moved:?} of weights {a:?} and {b:?}");
        assert!(
            moved[0].max(moved[1]) > EACH - 4 * BUDGET,
            "the heavier one was never kept waiting: {moved:?}"
        );
    }
}

#[test]
fn a_reload_changes_the_weight_of_an_open_port() {
    let memory = Arc::new(BufferManager::new(BufferOptions::fixed(2048, 512, 4096)).expect("memory"));
    let cable = || pair::cable(Options::default()).expect("a cable");
    let (cables, ends): (Vec<_>, Vec<_>) = ["a", "b", "c"]
        .map(|name| (name.to_owned(), cable()))
        .map(|(name, (far, end))| (far, (name, end)))
        .into_iter()
        .unzip();
    let mut gateway =
        Gateway::start_on(configuration(&text("", "")), &memory, opener(ends)).expect("it starts");
    for (weight, budget) in [(700, 7 * BUDGET), (50, BUDGET), (10_000, 100 * BUDGET)] {
        gateway.reload(configuration(&text(&format!("weight = {weight}"), ""))).expect("a reload");
        let deadline = Instant::now() + Duration::from_secs(30);
        // The largest budget is that of the heaviest port.
        while gateway.worker_counters()[0].budget.get() != budget as u64 {
            assert!(Instant::now() < deadline, "{:?}", gateway.worker_counters()[0].budget);
        }
        assert_eq!(gateway.ports[0].configuration.weight, weight);
        assert_eq!(gateway.ports[0].openings, 1, "nothing was opened anew");
    }
    // What else can change without the device.
    let merged = |gateway: &Gateway| gateway.ports[0].configuration.coalesce;
    assert!(merged(&gateway));
    gateway.reload(configuration(&text("coalesce = false", ""))).expect("a reload");
    assert!(!merged(&gateway) && gateway.ports[0].openings == 1);
    gateway.stop();
    drop(cables);
}
