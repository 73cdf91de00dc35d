//! Odd packets through the kernel's router and through Polder's: what leaves them is the same, or explained.

use polder_judges::differential;
use polder_testbed::clock;
use polder_testbed::skip::skip;

/// Examines every `step`-th case.
fn examine(name: &str, step: usize, packets: usize) {
    if let Err(reason) = differential::available() {
        return skip(name, format!("{reason:#}"));
    }
    let start = clock::now();
    let says = |what: &str| println!("{:6.1} s {what}", (clock::now() - start).as_secs_f64());
    let verdict = differential::examine(step, &says).unwrap();
    says("ended");
    let counts = verdict.explained.iter().map(|(name, cases)| (name, cases.len())).collect::<Vec<_>>();
    println!(
        "{} cases, {} packets, {counts:#?}, {:#?}",
        verdict.cases, verdict.packets, verdict.faults.caught
    );
    assert!(
        verdict.unexplained.is_empty(),
        "{} differ: {:#?}",
        verdict.unexplained.len(),
        verdict.unexplained
    );
    verdict.faults.require().unwrap();
    assert!(verdict.packets >= packets, "{} packets", verdict.packets);
}

#[test]
fn odd_packets_leave_polder_as_they_leave_the_kernel() {
    examine("odd_packets_leave_polder_as_they_leave_the_kernel", 4, 500);
}

#[test]
#[ignore = "long: every case"]
fn all_odd_packets_leave_polder_as_they_leave_the_kernel() {
    examine("all_odd_packets_leave_polder_as_they_leave_the_kernel", 1, 2000);
}
