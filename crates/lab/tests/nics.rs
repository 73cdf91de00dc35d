//! Polder with its defaults between two network cards of a guest, one cell of the table for each test.
#![cfg(test)]

use polder_lab::clock;
use polder_lab::scenarios::nics::{self, Above, CARDS, KERNELS};
use polder_lab::skip::skip;
use std::path::Path;

/// Examines cards with a kernel of the table; every `stride`th length is sent.
fn examine(test: &str, kernel: &str, cards: &[&str], (stride, turns): (usize, (usize, usize))) {
    let column = KERNELS.into_iter().find(|column| column.name == kernel).unwrap();
    let kernel = match column.find() {
        Ok(kernel) => kernel,
        Err(reason) => return skip(test, format!("{reason:#}")),
    };
    let program = Path::new(env!("CARGO_BIN_EXE_polder-lab"));
    for adapter in CARDS.into_iter().filter(|adapter| cards.contains(&adapter.name)) {
        let name = adapter.name;
        if let Err(reason) = nics::available(&kernel, &adapter) {
            skip(&format!("{test} ({name})"), format!("{reason:#}"));
            continue;
        }
        let start = clock::now();
        let says = |what: &str| println!("{:6.1} s {name}: {what}", (clock::now() - start).as_secs_f64());
        let verdict = nics::examine(program, &kernel, &adapter, (stride, turns), &says).unwrap();
        says("ended");
        println!("{}: {verdict:#?}", kernel.version());
        assert!(verdict.failed.is_empty(), "{name}: {:#?}", verdict.failed);
        assert_eq!((verdict.injected, verdict.untagged), (0, 0), "{name}");
        assert_eq!(
            (&verdict.false_alarms, &verdict.missed),
            (&Vec::new(), &Vec::new()),
            "{name}: `polder check`"
        );
        assert!(verdict.injected_meter > 0, "{name}: the meter does not find what a cut frame injects");
        // A VLAN interface of the kernel's has its tags in any case.
        let takes_tags_off =
            adapter.above != Above::Vlan && verdict.offloads.iter().any(|line| line.ends_with(": on"));
        assert!(
            verdict.untagged_control > 0 || !takes_tags_off,
            "{name}: the meter does not find a tag that is gone"
        );
    }
}

#[test]
fn virtio_and_e1000_carry_everything_with_defaults() {
    let cards = ["virtio", "e1000"];
    examine("virtio_and_e1000_carry_everything_with_defaults", "stable", &cards, (67, (1, 1)));
}

#[test]
#[ignore = "long: a guest for each kernel and network card"]
fn each_card_carries_everything_with_each_kernel() {
    let cards = CARDS.map(|adapter| adapter.name);
    for column in KERNELS {
        examine("each_card_carries_everything_with_each_kernel", column.name, &cards, (7, (1, 1)));
    }
}
