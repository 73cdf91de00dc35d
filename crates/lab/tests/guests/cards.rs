//! Guests with each kernel and each network card: the card's driver carries packets to a TAP of this machine.

use crate::program;
use polder_testbed::guest::{Card, FarEnd, Guest, Kernel, Model, Options};
use polder_testbed::skip::skip;
use polder_testbed::topology::{Topology, is_root};
use std::path::Path;

const COMMON: [Model; 5] = [
    Model::Virtio { queues: 2, offloads: true, platform: false },
    Model::Virtio { queues: 1, offloads: false, platform: true },
    Model::E1000,
    Model::E1000e,
    Model::Vmxnet3,
];

/// A guest with all of `models`; pings each card from its own far end.
fn carries(test: &str, kernel: anyhow::Result<Kernel>, models: &[Model]) {
    if !is_root() || !Path::new("/dev/net/tun").exists() {
        return skip(test, "needs root and /dev/net/tun");
    }
    let kernel = match kernel.and_then(|kernel| Guest::available_with(models, &kernel).map(|()| kernel)) {
        Ok(kernel) => kernel,
        Err(reason) => return skip(test, format!("{reason:#}")),
    };
    let mut topology = Topology::new().unwrap();
    let numbers = (0_u8..).take(models.len()).collect::<Vec<_>>();
    let far =
        numbers.iter().map(|number| topology.namespace(&format!("far{number}")).unwrap()).collect::<Vec<_>>();
    let cards = models.iter().zip(&numbers).map(|(&model, &number)| {
        let namespace = &far[usize::from(number)];
        Card {
            model,
            mac: [2, 0x70, 0x6f, 0, 1, number],
            far_end: FarEnd::Tap { namespace, interface: "far" },
        }
    });
    let cards = cards.collect::<Vec<_>>();
    let options = Options { processors: 2, cards: &cards, ..Options::of(program(), &[], &["ip", "ethtool"]) };
    let mut guest = Guest::boot(&kernel, &options).unwrap();
    println!("{}", kernel.version());
    for ((card, &number), far) in cards.iter().zip(&numbers).zip(&far) {
        let name = guest.interface(card.mac).unwrap();
        let driver = guest.run(&format!("ethtool -i {name}")).unwrap();
        assert!(driver.contains(&format!("driver: {}\n", card.model.driver())), "{driver}");
        guest.run(&format!("ip address add 10.77.{number}.2/24 dev {name}")).unwrap();
        guest.run(&format!("ip link set {name} up")).unwrap();
        far.ip(&["address", "add", &format!("10.77.{number}.1/24"), "dev", "far"]).unwrap();
        let mut ping = far.command("ping");
        ping.args(["-n", "-q", "-c", "3", "-i", "0.2", "-w", "60", &format!("10.77.{number}.2")]);
        let said = polder_testbed::command::run(&mut ping);
        assert!(said.is_ok(), "{} is silent: {said:?}", card.model.driver());
    }
    guest.power_off().unwrap();
}

#[test]
fn each_card_carries_packets() {
    carries("each_card_carries_packets", Kernel::find(), &COMMON);
}

#[test]
#[ignore = "long: two more guests"]
fn each_card_carries_packets_with_other_kernels() {
    let models = [COMMON.as_slice(), &[Model::Igb, Model::Rtl8139]].concat();
    for suite in ["bookworm-backports", "trixie-backports"] {
        let test = "each_card_carries_packets_with_other_kernels";
        carries(test, Kernel::of_suite(suite), &models);
    }
}
