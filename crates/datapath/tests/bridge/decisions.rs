//! Decisions of the stage, one by one.

use crate::bench::{BROADCAST, Bench, station};

#[test]
fn unknown_goes_everywhere_and_known_to_one_port() {
    let mut bench = Bench::transparent(3);
    assert_eq!(bench.ports(0, station(2), station(1)), [1, 2]);
    assert_eq!(bench.ports(1, station(1), station(2)), [0]);
    assert_eq!(bench.ports(0, station(2), station(1)), [1]);
    assert_eq!(bench.ports(2, BROADCAST, station(3)), [0, 1]);
    assert_eq!(bench.drops.total(), 0);
    assert_eq!(bench.state.counters().learned.get(), 3);
    assert_eq!(bench.state.counters().flooded.get(), 2);
}
