//! The queue in front of a port: behind reordering, counted, and never out of order.

use crate::bench::Bench;
use crate::cable::configuration;
use polder_buffers::BufferPlace;
use polder_datapath::drops::DropReason;
use std::time::{Duration, Instant};

/// A gateway whose port b has that queue; the packets of port a find their workers in that order.
fn bench(queue: &str, order: &str, workers: usize) -> Bench {
    Bench::new(&text(&format!("queue = {{ {queue} }}"), order, workers), [1, 1])
}

fn text(queue: &str, order: &str, workers: usize) -> String {
    format!(
        "version = 1\n[gateway]\nname = \"queue\"\nworkers = {workers}\n\
         [port.a]\ntap = \"a\"\norder = \"{order}\"\n\
         [port.b]\ntap = \"b\"\n{queue}\n\
         [bridge.br0]\nmembers = [\"a\", \"b\"]\n"
    )
}

const FRAME: usize = 1000;

#[test]
fn codel_behind_a_spread_flow_drops_and_nothing_is_overtaken() {
    // 40 packets of 1000 bytes in a millisecond.
    let mut bench =
        bench("kind = \"codel\", target_ms = 1, interval_ms = 4, rate_kbit = 320_000", "spread", 3);
    let start = Instant::now();
    let deadline = start + Duration::from_secs(30);
    while bench.dropped(DropReason::QueueDelay) < 200 {
        assert!(Instant::now() < deadline, "{:?}", bench.accounts());
        // More than can leave, less than what would fill the queue.
        if bench.sent - bench.seen - bench.accounts().dropped < 600 {
            bench.send(64, 2, FRAME);
        }
        bench.receive();
    }
    bench.settle();
    let elapsed = start.elapsed();
    // The rate is a promise in one direction: a busy machine is slower.
    let most = 1.02 * 40.0 * elapsed.as_secs_f64() * 1000.0 + 200.0;
    let seen = u32::try_from(bench.seen).expect("few");
    assert!(f64::from(seen) < most, "{seen} left in {elapsed:?}");
    assert_eq!(bench.overtaken, 0);
    assert!(bench.sum(|worker| worker.order.tickets.get()) > 10, "it was spread");
    let queue = bench.gateway.ports[1].queues[0].counters.clone();
    assert_eq!(queue.delay.get(), bench.dropped(DropReason::QueueDelay));
    assert_eq!(queue.entered.get(), queue.left.get() + queue.delay.get() + queue.full.get());
    let waited = |least: u64| {
        let classes =
            queue.waits.classes().filter(|(longest, _)| longest.is_none_or(|longest| longest.0 > least));
        classes.map(|(_, packets)| packets).sum::<u64>()
    };
    assert_eq!(waited(0), queue.left.get());
    assert!(
        waited(1_000_000) > 0,
        "it has dropped, and yet nothing waited for the target: {:?}",
        queue.waits
    );
    bench.finish();
}

#[test]
fn what_waits_is_held_and_what_finds_no_room_is_counted() {
    // 125 packets of 100 bytes a second: hardly any leaves while the test looks.
    let mut bench = bench("kind = \"drop-tail\", limit_bytes = 100_000, rate_kbit = 100", "queue", 1);
    bench.send(400, 1, 100);
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let queue = &bench.gateway.ports[1].queues[0].counters;
        let came = queue.entered.get() == 400 && queue.full.get() > 0;
        let accounts = bench.accounts();
        let held = bench.memory.counted(BufferPlace::Held);
        if came && accounts.unaccounted() == 0 && held == queue.waiting.get() {
            // 195 fit, for a short packet takes a frame like any other; more came as some left.
            assert!((390..=400).contains(&(queue.full.get() + queue.waiting.get() + queue.left.get())));
            assert!((150..=195).contains(&accounts.held), "{accounts:?}");
            assert_eq!([queue.waiting.get(), held], [accounts.held; 2], "a slot for each packet");
            assert_eq!(bench.dropped(DropReason::QueueFull), queue.full.get());
            break;
        }
        assert!(Instant::now() < deadline, "{accounts:?}, {queue:?}");
        bench.receive();
    }
    // The end comes before all have left: the rest is dropped, and counted.
    let accounts = bench.finish();
    assert!(accounts.dropped > 200 && accounts.transmitted < 200, "{accounts:?}");
}

#[test]
fn without_pressure_a_queue_is_not_noticed() {
    let mut bench = bench("kind = \"codel\"", "hash", 2);
    for _ in 0..200 {
        bench.send(64, 8, FRAME);
        while bench.seen < bench.sent {
            bench.receive();
        }
    }
    assert_eq!(bench.overtaken, 0);
    let accounts = bench.finish();
    assert_eq!((accounts.dropped, accounts.transmitted), (0, 12_800));
}

/// Packets that wait when the queue is another one leave in order, or are counted.
#[test]
fn a_queue_is_exchanged_while_packets_wait_in_it() {
    let slow = "queue = { kind = \"drop-tail\", limit_bytes = 100_000, rate_kbit = 100 }";
    let mut bench = Bench::new(&text(slow, "queue", 1), [1, 1]);
    let reload = |bench: &mut Bench, queue: &str| {
        bench.gateway.reload(configuration(&text(queue, "queue", 1))).expect("a reload");
    };
    let wait = |bench: &mut Bench, number: u64| {
        bench.send(number, 1, FRAME / 10);
        let (deadline, before) = (Instant::now() + Duration::from_secs(20), bench.sent - number);
        while bench.gateway.accounts().received < before + number || bench.accounts().unaccounted() != 0 {
            assert!(Instant::now() < deadline, "{:?}", bench.accounts());
        }
    };
    wait(&mut bench, 150);
    assert!(bench.accounts().held > 100, "it is slow: {:?}", bench.accounts());
    // Another rate, and another discipline: all of them leave.
    reload(&mut bench, "queue = { kind = \"codel\", target_ms = 1000, interval_ms = 10_000 }");
    bench.settle();
    assert_eq!((bench.seen, bench.overtaken, bench.accounts().dropped), (150, 0, 0));
    // No queue, while packets wait: the device has room for all of them.
    reload(&mut bench, slow);
    wait(&mut bench, 150);
    reload(&mut bench, "");
    bench.settle();
    assert_eq!((bench.seen, bench.overtaken, bench.accounts().dropped), (300, 0, 0));
    wait(&mut bench, 64);
    bench.settle();
    // A queue where there was none; then one with less room: what is too much is counted.
    reload(&mut bench, slow);
    wait(&mut bench, 150);
    reload(&mut bench, "queue = { kind = \"drop-tail\", limit_bytes = 10_000, rate_kbit = 100_000 }");
    bench.settle();
    let dropped = bench.dropped(DropReason::QueueFull);
    assert!((40..=90).contains(&dropped), "64 find room: {dropped}");
    assert_eq!((bench.seen, bench.overtaken), (514 - dropped, 0));
    let state = &bench.gateway.ports[1];
    assert_eq!((state.openings, state.queues.len()), (1, 1), "the port was open all the time");
    let queue = state.queues[0].counters.clone();
    assert_eq!(queue.entered.get(), queue.left.get() + queue.full.get());
    assert_eq!(queue.full.get(), dropped);
    bench.finish();
}
