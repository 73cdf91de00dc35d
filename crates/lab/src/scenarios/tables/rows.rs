//! The rows of the five tables.

use super::verdict;
use crate::report::Better;
use crate::scenarios::{Goal, Promise};

const fn row(name: &'static str, unit: &'static str, better: Better, goal: Goal) -> Promise {
    Promise { name, unit, better, goal }
}

/// The rows of techniques, by name, unit and direction.
macro_rules! techniques {
    ($(($name:literal, $unit:literal, $better:ident)),* $(,)?) => {
        &[$([
            row(concat!("tables.", $name, ".on"), $unit, Better::$better, Goal::None),
            row(concat!("tables.", $name, ".off"), $unit, Better::$better, Goal::None),
            row(concat!("tables.", $name, ".gain"), "%", Better::Higher, Goal::None),
            row(concat!("tables.", $name, ".planted"), "%", Better::Higher, Goal::None),
        ]),*]
    };
}

/// Techniques of the sources, of which there are verdicts. E1 is recorded: there is nothing to switch.
pub(super) const COUNTED: [&str; 27] = [
    "A.A1", "A.A2", "A.A3", "A.A4", "A.A5", "A.A6", "B.B1", "B.B2", "B.B3", "C.C1", "C.C2", "C.C3", "C.C4",
    "C.C5", "D.D1", "D.D2", "D.D3", "D.D4", "D.D5", "D.D6", "E.E2", "E.E3", "E.E4", "E.E5", "E.E6", "E.E7",
    "E.E8",
];

const TECHNIQUES: &[[Promise; 4]] = techniques![
    ("A.A1", "ns", Lower),
    ("A.A2", "ns", Lower),
    ("A.A3", "ns", Lower),
    ("A.A4", "ns", Lower),
    ("A.A5", "ns", Lower),
    ("A.A6", "Mbit/s", Higher),
    ("B.B1", "requests/s", Higher),
    ("B.B1_latency", "µs", Lower),
    ("B.B2", "requests/s", Higher),
    ("B.B2_latency", "µs", Lower),
    ("B.B2_neighbour", "µs", Lower),
    ("B.B3", "requests/s", Higher),
    ("B.B3_latency", "µs", Lower),
    ("B.fixed_32", "requests/s", Higher),
    ("B.B1_native", "requests/s", Higher),
    ("B.B1_latency_native", "µs", Lower),
    ("B.B2_native", "requests/s", Higher),
    ("B.B2_latency_native", "µs", Lower),
    ("B.B2_neighbour_native", "µs", Lower),
    ("B.B3_native", "requests/s", Higher),
    ("B.B3_latency_native", "µs", Lower),
    ("B.fixed_32_native", "requests/s", Higher),
    ("C.C1", "ns", Lower),
    ("C.C1_fragments", "ns", Lower),
    ("C.C1_one_core", "ns", Lower),
    ("C.cold_pages", "ns", Lower),
    ("C.reuse", "ns", Lower),
    ("C.C2", "ns", Lower),
    ("C.C3", "%", Higher),
    ("C.C4", "%", Lower),
    ("C.C5", "ns", Lower),
    ("C.C5_af_xdp", "ns", Lower),
    ("C.contention_one_pool", "ns", Lower),
    ("C.contention_no_pool", "ns", Lower),
    ("D.D1", "ns", Lower),
    ("D.D2", "ns", Lower),
    ("D.D3", "ns", Lower),
    ("D.D4", "%", Higher),
    ("D.D5", "ns", Lower),
    ("D.D6", "ns", Lower),
    ("D.control_udp", "ns", Lower),
    ("D.control_routing", "ns", Lower),
    ("D.control_long_posted", "ns", Lower),
    ("D.control_coalescing", "ns", Lower),
    ("D.stream", "ns", Lower),
    ("D.stream_D1", "ns", Lower),
    ("D.stream_D2", "ns", Lower),
    ("D.stream_D3", "ns", Lower),
    ("D.stream_D5", "ns", Lower),
    ("D.stream_D6", "ns", Lower),
    ("E.E2", "packets/s", Higher),
    ("E.E2_constant_hash", "packets/s", Higher),
    ("E.E3", "packets/s", Higher),
    ("E.E4", "packets/s", Higher),
    ("E.E4_64", "packets/s", Higher),
    ("E.E5", "packets/s", Higher),
    ("E.E5_1518", "packets/s", Higher),
    ("E.E6", "packets/s", Higher),
    ("E.E6_1518", "packets/s", Higher),
    ("E.E7", "packets/s", Higher),
    ("E.E7_64", "packets/s", Higher),
    ("E.E8", "packets/s", Higher),
    ("E.E8_unrestored", "packets/s", Higher),
    ("E.all_64_flows_1", "Mbit/s", Higher),
    ("E.all_64_flows_64", "Mbit/s", Higher),
    ("E.all_128_flows_1", "Mbit/s", Higher),
    ("E.all_128_flows_64", "Mbit/s", Higher),
    ("E.all_256_flows_1", "Mbit/s", Higher),
    ("E.all_256_flows_64", "Mbit/s", Higher),
    ("E.all_512_flows_1", "Mbit/s", Higher),
    ("E.all_512_flows_64", "Mbit/s", Higher),
    ("E.all_1024_flows_1", "Mbit/s", Higher),
    ("E.all_1024_flows_64", "Mbit/s", Higher),
    ("E.all_1518_flows_1", "Mbit/s", Higher),
    ("E.all_1518_flows_64", "Mbit/s", Higher),
    ("E.work_64_flows_1_workers_1", "Mbit/s", Higher),
    ("E.work_64_flows_64_workers_1", "Mbit/s", Higher),
    ("E.work_128_flows_1_workers_1", "Mbit/s", Higher),
    ("E.work_128_flows_64_workers_1", "Mbit/s", Higher),
    ("E.work_256_flows_1_workers_1", "Mbit/s", Higher),
    ("E.work_256_flows_64_workers_1", "Mbit/s", Higher),
    ("E.work_512_flows_1_workers_1", "Mbit/s", Higher),
    ("E.work_512_flows_64_workers_1", "Mbit/s", Higher),
    ("E.work_1024_flows_1_workers_1", "Mbit/s", Higher),
    ("E.work_1024_flows_64_workers_1", "Mbit/s", Higher),
    ("E.work_1518_flows_1_workers_1", "Mbit/s", Higher),
    ("E.work_1518_flows_64_workers_1", "Mbit/s", Higher),
    ("E.work_64_flows_1_workers_2", "Mbit/s", Higher),
    ("E.work_64_flows_64_workers_2", "Mbit/s", Higher),
    ("E.work_128_flows_1_workers_2", "Mbit/s", Higher),
    ("E.work_128_flows_64_workers_2", "Mbit/s", Higher),
    ("E.work_256_flows_1_workers_2", "Mbit/s", Higher),
    ("E.work_256_flows_64_workers_2", "Mbit/s", Higher),
    ("E.work_512_flows_1_workers_2", "Mbit/s", Higher),
    ("E.work_512_flows_64_workers_2", "Mbit/s", Higher),
    ("E.work_1024_flows_1_workers_2", "Mbit/s", Higher),
    ("E.work_1024_flows_64_workers_2", "Mbit/s", Higher),
    ("E.work_1518_flows_1_workers_2", "Mbit/s", Higher),
    ("E.work_1518_flows_64_workers_2", "Mbit/s", Higher),
];

const OTHERS: [Promise; 11] = [
    row("tables.D.alone.one_block", "%", Better::Higher, Goal::None),
    row("tables.D.alone.several_blocks", "%", Better::Higher, Goal::None),
    row("tables.D.jumbo_in_32_kib.on", "frames", Better::Higher, Goal::None),
    row("tables.D.jumbo_in_32_kib.off", "frames", Better::Higher, Goal::None),
    row("tables.D.jumbo_per_second", "frames/s", Better::Higher, Goal::None),
    row("tables.E.E1.bandwidth", "GB/s", Better::Higher, Goal::None),
    row("tables.E.E1.latency", "ns", Better::Lower, Goal::None),
    row(verdict::ROWS[0].0, "techniques", Better::Higher, Goal::Value(20.0)),
    row(verdict::ROWS[1].0, "techniques", Better::Lower, Goal::Value(7.0)),
    row(verdict::ROWS[2].0, "techniques", Better::Lower, Goal::Value(0.0)),
    row(verdict::ROWS[3].0, "techniques", Better::Lower, Goal::Value(0.0)),
];

const EACH: usize = 4;

/// All rows of the scenario.
pub(super) const PROMISES: &[Promise] = &{
    let mut all = [OTHERS[0]; TECHNIQUES.len() * EACH + OTHERS.len()];
    let mut at = 0;
    while at < all.len() {
        let technique = at / EACH;
        all[at] = if technique < TECHNIQUES.len() {
            TECHNIQUES[technique][at % EACH]
        } else {
            OTHERS[at - TECHNIQUES.len() * EACH]
        };
        at += 1;
    }
    all
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::contrast;

    #[test]
    fn each_technique_that_counts_has_its_rows() {
        for technique in COUNTED {
            for ending in contrast::ENDINGS {
                let name = contrast::row(technique, ending);
                assert!(PROMISES.iter().any(|promise| promise.name == name), "{name}");
            }
        }
        let letters = COUNTED.map(|technique| technique.chars().next());
        let of = |letter| letters.iter().filter(|found| **found == Some(letter)).count();
        assert_eq!(['A', 'B', 'C', 'D', 'E'].map(of), [6, 3, 5, 6, 7], "and E1");
    }
}
