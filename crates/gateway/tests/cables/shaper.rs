//! Packets that come in by a port wait in one queue, at its rate, in front of the stages.

use crate::bench::Bench;
use crate::cable::configuration;
use polder_buffers::BufferPlace;
use polder_datapath::drops::DropReason;
use std::time::{Duration, Instant};

const FRAME: usize = 1000;

/// A gateway with `workers` workers whose port a has these keys and shares its packets by `order`.
fn text(keys: &str, order: &str, workers: usize) -> String {
    format!(
        "version = 1\n[gateway]\nname = \"shaper\"\nworkers = {workers}\n\
         [port.a]\ntap = \"a\"\nqueues = 1\norder = \"{order}\"\n{keys}\n\
         [port.b]\ntap = \"b\"\n\
         [bridge.br0]\nmembers = [\"a\", \"b\"]\n"
    )
}

fn bench(keys: &str, order: &str, workers: usize) -> Bench {
    Bench::new(&text(keys, order, workers), [1, 1])
}

#[test]
fn what_comes_in_keeps_to_the_rate_in_order_whoever_works_on_it() {
    // 10,000 frames of 1000 bytes a second.
    let keys = "shaper = { down = \"80 Mbit/s\" }";
    for (order, workers) in [("queue", 1), ("hash", 2), ("spread", 3)] {
        let mut bench = bench(keys, order, workers);
        let (start, mut looked) = (Instant::now(), Duration::ZERO);
        while looked < Duration::from_millis(700) {
            if bench.sent - bench.seen - bench.accounts().dropped < 400 {
                bench.send(64, 8, FRAME);
            }
            bench.receive();
            looked = start.elapsed();
        }
        let most = 1.02 * 10_000.0 * looked.as_secs_f64() + 100.0;
        let seen = u32::try_from(bench.seen).expect("few");
        assert!(f64::from(seen) < most && seen > 1000, "{order}: {seen} in {looked:?}, {most} at most");
        bench.settle();
        assert_eq!(bench.overtaken, 0, "{order}");
        let queue = bench.gateway.ports[0].inlets[0].counters.clone();
        assert_eq!(queue.entered.get(), queue.left.get() + queue.full.get() + queue.delay.get(), "{order}");
        assert_eq!(queue.left.get(), bench.seen, "{order}");
        assert!(bench.gateway.ports[0].queues.is_empty(), "no queue is in front of the port");
        bench.finish();
    }
}

#[test]
fn what_waits_to_come_in_is_held_and_the_rest_is_dropped() {
    // 125 packets of 100 bytes a second.
    let queue = "queue = { kind = \"drop-tail\", limit_bytes = 100_000 }";
    let mut bench = bench(&format!("{queue}\nshaper = {{ down = \"100 kbit/s\" }}"), "queue", 1);
    bench.send(400, 1, 100);
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let queue = &bench.gateway.ports[0].inlets[0].counters;
        let came = queue.entered.get() == 400 && queue.full.get() > 0;
        let accounts = bench.accounts();
        let held = bench.memory.counted(BufferPlace::Held);
        if came && accounts.unaccounted() == 0 && held == queue.waiting.get() {
            assert!((150..=195).contains(&accounts.held), "{accounts:?}");
            assert_eq!([queue.waiting.get(), held], [accounts.held; 2], "a slot for each packet");
            assert_eq!(bench.dropped(DropReason::QueueFull), queue.full.get());
            break;
        }
        assert!(Instant::now() < deadline, "{accounts:?}, {queue:?}");
        bench.receive();
    }
    // A gateway that stops lets them through.
    let accounts = bench.finish();
    assert_eq!(accounts.dropped + accounts.transmitted, 400, "{accounts:?}");
    assert!(accounts.transmitted >= 150, "{accounts:?}");
}

/// Waits until all packets that were sent have been received by the gateway.
fn all_in(bench: &Bench) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while bench.gateway.accounts().received < bench.sent || bench.accounts().unaccounted() != 0 {
        assert!(Instant::now() < deadline, "{:?}", bench.accounts());
    }
}

#[test]
fn a_shaper_comes_changes_and_goes_while_packets_wait() {
    let slow = "shaper = { down = \"100 kbit/s\" }";
    let mut bench = bench("", "queue", 1);
    let reload = |bench: &mut Bench, keys: &str, workers: usize| {
        bench.gateway.reload(configuration(&text(keys, "queue", workers))).expect("a reload");
    };
    bench.send(64, 2, FRAME);
    bench.settle();
    reload(&mut bench, slow, 1);
    bench.send(150, 2, FRAME);
    all_in(&bench);
    assert!(bench.accounts().held > 130, "it is slow: {:?}", bench.accounts());
    // Another rate: the same queue goes on. Another discipline: its packets move.
    reload(&mut bench, "shaper = { down = \"200 kbit/s\" }", 1);
    reload(
        &mut bench,
        "queue = { kind = \"fq_codel\", target_ms = 1000, interval_ms = 10_000 }\nshaper = { down = \"100 Mbit/s\" }",
        1,
    );
    bench.settle();
    assert_eq!((bench.seen, bench.overtaken, bench.accounts().dropped), (214, 0, 0));
    // None, while packets wait: they come in at once.
    reload(&mut bench, slow, 1);
    bench.send(150, 2, FRAME);
    all_in(&bench);
    assert!(bench.accounts().held > 130, "{:?}", bench.accounts());
    reload(&mut bench, "", 1);
    bench.settle();
    assert_eq!((bench.seen, bench.overtaken, bench.accounts().dropped), (364, 0, 0));
    // Other workers, while packets wait.
    reload(&mut bench, slow, 1);
    bench.send(150, 2, FRAME);
    all_in(&bench);
    reload(&mut bench, slow, 2);
    bench.send(50, 2, FRAME);
    all_in(&bench);
    assert!(bench.accounts().held > 30, "the queue is there again: {:?}", bench.accounts());
    reload(&mut bench, "", 2);
    bench.settle();
    assert_eq!((bench.seen, bench.overtaken, bench.accounts().dropped), (564, 0, 0));
    assert_eq!(bench.gateway.ports[0].openings, 1, "the port was open all the time");
    bench.finish();
}
