//! Polder with its defaults between two network cards of a guest, one cell of the table for each test.

use crate::{program, says};
use polder_lab::scenarios::nics::{self, Above, CARDS, KERNELS};
use polder_testbed::skip::skip;

/// Examines cards with a kernel of the table; every `stride`th length is sent.
fn examine(test: &str, kernel: &str, cards: &[&str], (stride, turns): (usize, (usize, usize))) {
    let column = KERNELS.into_iter().find(|column| column.name == kernel).unwrap();
    let kernel = match column.find() {
        Ok(kernel) => kernel,
        Err(reason) => return skip(test, format!("{reason:#}")),
    };
    for adapter in CARDS.into_iter().filter(|adapter| cards.contains(&adapter.name)) {
        let name = adapter.name;
        if let Err(reason) = nics::available(&kernel, &adapter) {
            skip(&format!("{test} ({name})"), format!("{reason:#}"));
            continue;
        }
        let told = says();
        let says = |what: &str| told(&format!("{name}: {what}"));
        let verdict = nics::examine(program(), &kernel, &adapter, (stride, turns), &says).unwrap();
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
fn virtio_carries_everything_with_defaults() {
    examine("virtio_carries_everything_with_defaults", "stable", &["virtio"], (67, (1, 1)));
}

#[test]
fn e1000_carries_everything_with_defaults() {
    examine("e1000_carries_everything_with_defaults", "stable", &["e1000"], (67, (1, 1)));
}

#[test]
#[ignore = "long: a guest for each kernel and network card"]
fn each_card_carries_everything_with_each_kernel() {
    let cards = CARDS.map(|adapter| adapter.name);
    for column in KERNELS {
        examine("each_card_carries_everything_with_each_kernel", column.name, &cards, (7, (1, 1)));
    }
}
