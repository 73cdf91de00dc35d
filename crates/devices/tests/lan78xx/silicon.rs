//! Properties of silicon that a lenient model would not show: shared pins, small counters, levels, chips without a PHY.

use crate::bench::Stand;
use crate::hand::{Hand, frame};
use polder_datapath::units::Nanos;
use polder_devices::conformance::Wire;
use polder_devices::lan78xx::descriptor::Chip;
use polder_devices::lan78xx::model::{AddressSource, FaultyDevice, Options as Model, Partner};
use polder_devices::lan78xx::regs::{
    HW_CFG, MAC_CR, MAC_RGMII_ID, RGMII_TX_BYP_DLL, RGMII_TX_DLL, hw_cfg, mac_cr, mac_rgmii_id,
};
use polder_devices::lan78xx::statistics::Statistic;
use polder_devices::lan78xx::{MacSource, Options};

#[test]
fn the_eeprom_is_read_while_its_pins_are_no_leds() {
    let stand = Stand::new(Model::default(), &Options::default());
    assert_eq!(stand.port.status.facts().mac, Some((Model::default().mac, MacSource::Eeprom)));
    let configuration = stand.side.lock().bench.adapter.peek(HW_CFG);
    assert_eq!(configuration & hw_cfg::LEDS_OF_EEPROM, hw_cfg::LEDS_OF_EEPROM, "the LEDs are on again");
}

#[test]
fn a_busy_eeprom_is_none() {
    let faulty = FaultyDevice { eeprom_busy: true, ..FaultyDevice::default() };
    let model = Model { faulty, address: AddressSource::Otp, ..Model::default() };
    let stand = Stand::new(model, &Options::default());
    assert_eq!(stand.port.status.facts().mac, Some((Model::default().mac, MacSource::Otp)));
}

#[test]
fn a_random_address_stays() {
    let mac = || {
        let model = Model { address: AddressSource::None, ..Model::default() };
        Stand::new(model, &Options::default()).port.mac
    };
    assert_eq!(mac(), mac());
}

#[test]
fn a_chip_whose_phy_is_dead_has_no_link() {
    let faulty = FaultyDevice { no_phy: true, ..FaultyDevice::default() };
    for (chip, up) in [(Chip::Lan7800, false), (Chip::Lan7850, false), (Chip::Lan7801, true)] {
        let stand = Stand::new(Model { chip, faulty, ..Model::default() }, &Options::default());
        assert_eq!(stand.port.status.facts().link.up, up, "{chip:?}");
    }
}

#[test]
fn the_rgmii_of_a_lan7801_is_set_up() {
    for no_phy in [false, true] {
        let faulty = FaultyDevice { no_phy, ..FaultyDevice::default() };
        let model = Model { chip: Chip::Lan7801, faulty, ..Model::default() };
        let mut stand = Stand::new(model, &Options::default());
        let host = stand.side.lock();
        let adapter = &host.bench.adapter;
        let clocks = hw_cfg::CLOCK_125 | hw_cfg::REFERENCE_CLOCK_25;
        assert_eq!(adapter.peek(HW_CFG) & clocks, clocks);
        assert_eq!(adapter.peek(MAC_CR) & mac_cr::GMII, 0);
        let delays = (adapter.peek(MAC_RGMII_ID), adapter.peek(RGMII_TX_BYP_DLL));
        let wired = (mac_rgmii_id::TRANSMIT_DELAY, RGMII_TX_DLL);
        assert_eq!(delays, if no_phy { wired } else { (0, 0) });
        drop(host);
        assert!(stand.side.inject(&frame([2; 6], 100)));
        assert_eq!(stand.settle().len(), 1);
    }
}

/// The shortest frames at 1 Gbit/s, for two seconds: the adapter's counter goes around three times.
#[test]
fn counters_of_twenty_bits_are_read_in_time() {
    let mut stand = Stand::new(Model::default(), &Options::default());
    let mut came = 0_u64;
    for _ in 0..20 {
        stand.side.lock().bench.adapter.count_frames(Statistic::RxUnicast, 148_809);
        came += 148_809;
        stand.side.pass(Nanos::from_millis(100));
        let _ = stand.settle();
    }
    stand.port.status.refresh();
    let _ = stand.settle();
    let totals = stand.port.status.facts().statistics.unwrap();
    assert_eq!(totals.get(Statistic::RxUnicast), came);
}

/// When the adapter asks for a pause, a frame is on its way in, and the partner has begun another.
#[test]
fn a_pause_comes_early_enough_for_what_is_on_its_way() {
    for length in [200, 700, 1000, 1514] {
        let partner = Partner { pause: true, ..Partner::default() };
        let model = Model { partner, ..Model::default() };
        let mut stand = Stand::new(model, &Options { receive_urbs: Some(1), ..Options::default() });
        while !stand.side.lock().bench.adapter.holds_partner() {
            assert!(stand.side.inject(&frame([2; 6], length)));
        }
        assert!(stand.side.inject(&frame([2; 6], 1514)));
        let dropped = stand.side.lock().bench.adapter.statistics().get(Statistic::RxDropped);
        assert_eq!(dropped, 0, "frames of {length} bytes");
    }
}

/// A bulk-out transfer of whole packets ends with one without data; otherwise the adapter waits for more.
#[test]
fn a_transfer_of_whole_packets_is_ended() {
    // 8 bytes of command words and 1016 of a frame.
    let mut stand = Stand::new(Model::default(), &Options::default());
    stand.send(&[frame([2; 6], 1016)]);
    assert_eq!(stand.sent().len(), 1);
    let mut hand = Hand::ready(Model::default());
    let whole = frame([2; 6], 1016);
    let command = polder_devices::lan78xx::frame::TxCommand::plain(whole.len()).unwrap();
    let _ = hand.send_without_end(&[(command, &whole)]);
    assert!(hand.left().is_empty(), "there may be more");
    let _ = hand.send(&[(command, &whole)]);
    assert_eq!(hand.left().len(), 2);
}
