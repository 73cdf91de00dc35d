//! `order = "auto"`: a flow that is more than its worker can carry is found, spread, and in order; then it
//! is gathered again.

use crate::bench::Bench;
use crate::cable::frame;
use polder_datapath::steer::Hasher;
use std::time::{Duration, Instant};

const GATEWAY: &str = "version = 1\n[gateway]\nname = \"auto\"\nworkers = 2\nflow_hash = \"toeplitz\"\n\
     [port.a]\ntap = \"a\"\norder = \"auto\"\n[port.b]\ntap = \"b\"\n\
     [bridge.br0]\nmembers = [\"a\", \"b\"]\n";

/// Buckets of big flows that are spread at the moment, and the heaviest flow as people see it.
fn look(bench: &Bench) -> (usize, Option<String>) {
    let boards = bench.gateway.workers.iter().filter_map(|worker| worker.board.as_ref());
    let boards = boards.collect::<Vec<_>>();
    let spread = boards.iter().flat_map(|board| board.buckets()).filter(|bucket| bucket.spread).count();
    let flows = boards.iter().flat_map(|board| board.flows().heaviest).filter_map(|(_, name)| name);
    (spread, flows.map(|name| name.ends.to_string()).next())
}

/// Keeps as many packets of one flow on their way as the cable holds, until `is_over`. They go round, so that the
/// worker has more to do with them than who sends them.
fn press(bench: &mut Bench, what: &str, is_over: impl Fn(&Bench) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_over(bench) {
        assert!(Instant::now() < deadline, "{what}: {:?}, {:?}", look(bench), bench.accounts());
        // What was dropped does not come round again.
        if bench.sent - bench.seen - bench.accounts().dropped < 4000 {
            bench.send(1024, 1, 200);
        }
        (0..64).for_each(|_| bench.circulate());
    }
}

/// A flow of worker 0, which receives everything: then worker 1 has time, whatever else the machine does.
fn at_home_with_its_receiver(bench: &Bench) -> u64 {
    let (hasher, mut pool) = (Hasher::toeplitz(false), bench.region.pool());
    let is_at_home = |&flow: &u64| {
        let packet = frame(flow, 0, 200, &mut pool);
        // Buckets are dealt to workers in turn, and there is an even number of them.
        let home = hasher.flow(&packet, false).hash % 2;
        pool.release_packet(packet);
        home == 0
    };
    (0..100).find(is_at_home).expect("every other flow is")
}

#[test]
fn a_big_flow_is_spread_while_it_is_big() {
    let mut bench = Bench::new(GATEWAY, [1, 1]);
    bench.first = at_home_with_its_receiver(&bench);
    press(&mut bench, "never spread", |bench| look(bench).0 > 0);
    press(&mut bench, "never named", |bench| look(bench).1.is_some());
    press(&mut bench, "no ticket was drawn", |bench| bench.sum(|worker| worker.order.tickets.get()) > 100);
    bench.settle();
    let name = look(&bench).1.expect("it has been seen");
    assert!(name.starts_with("UDP 10.0.0.1:") && name.ends_with("10.0.0.2:5201"), "{name}");
    // It becomes small: one packet now and then, until it is hashed again.
    let deadline = Instant::now() + Duration::from_secs(60);
    while look(&bench).0 > 0 {
        assert!(Instant::now() < deadline, "never gathered: {:?}", look(&bench));
        bench.send(1, 1, 200);
        bench.settle();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(bench.overtaken, 0);
    assert!(bench.sum(|worker| worker.order.changes.get()) >= 2);
    bench.finish();
}
