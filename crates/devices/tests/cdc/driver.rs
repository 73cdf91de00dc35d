//! Our driver on the honest model: the conformance suite, what it negotiates, what it packs.

use crate::stand::{Side, Stand, frame, open, plug_in};
use polder_buffers::Region;
use polder_datapath::drops::DropReason;
use polder_datapath::units::Nanos;
use polder_devices::AnyQueue;
use polder_devices::cdc::descriptor::capability;
use polder_devices::cdc::model::{Options as Model, Style};
use polder_devices::cdc::request::NtbParameters;
use polder_devices::cdc::{Format, InitError, OpenError, Options, Subclass};
use polder_devices::conformance::{self, Fixture, Limits, Wire};
use polder_devices::usb::{Speed, Techniques};
use std::time::Duration;

struct Functions {
    model: Model,
    options: Options,
    side: Option<Side>,
}

impl Fixture for Functions {
    fn limits(&self) -> Limits {
        Limits {
            longest: usize::from(self.model.longest),
            longest_received: usize::from(self.model.longest),
            chains: true,
            backlog: 20,
            patience: Duration::from_secs(5),
        }
    }

    fn open(&mut self, _region: &Region) -> Result<(AnyQueue, Box<dyn Wire>), String> {
        let (local, side) = plug_in(self.model.clone());
        let port = open(local, &self.options).map_err(|error| error.to_string())?;
        self.side = Some(side.clone());
        Ok((port.queue, Box::new(side)))
    }
}

fn conforms(model: Model, options: Options) {
    let mut functions = Functions { model, options, side: None };
    let report = conformance::run(&mut functions);
    assert!(report.is_clean(), "{report}");
    let side = functions.side.expect("it was opened");
    assert_eq!(side.lock().bench.adapter.violations(), []);
}

#[test]
fn ncm_conforms_at_high_speed() {
    conforms(Model::default(), Options { receive_urbs: Some(40), ..Options::default() });
}

#[test]
fn ncm_conforms_with_wide_fields_checksums_and_odd_alignment() {
    let parameters = NtbParameters {
        in_divisor: 32,
        in_remainder: 2,
        in_alignment: 16,
        out_divisor: 64,
        out_remainder: 10,
        out_alignment: 8,
        out_datagrams: 5,
        ..Model::default().parameters
    };
    let style = Style { per_table: 2, table_at_end: false, ..Style::default() };
    let model = Model { speed: Speed::Super, parameters, style, ..Model::default() };
    let format = Some(Format::Ntb32);
    conforms(model, Options { format, crc: true, receive_urbs: Some(40), ..Options::default() });
}

#[test]
fn ecm_conforms() {
    conforms(Model { subclass: Subclass::Ecm, ..Model::default() }, Options::default());
}

#[test]
fn ncm_conforms_with_each_technique_off() {
    let on = Techniques::ON;
    for techniques in [
        Techniques { urb_pools: false, ..on },
        Techniques { pending_queue: false, ..on },
        Techniques { resubmit_in_cycle: false, ..on },
    ] {
        conforms(Model::default(), Options { techniques, receive_urbs: Some(40), ..Options::default() });
    }
}

#[test]
fn formats_checksums_and_sizes_are_negotiated_before_data_flow() {
    for (format, crc, block_bytes, negotiated) in [
        (None, false, None, (false, false, 16 * 1024)),
        (Some(Format::Ntb32), false, None, (true, false, 16 * 1024)),
        (None, true, Some(4096), (false, true, 4096)),
        (None, false, Some(1), (false, false, 2048)),
    ] {
        let options = Options { format, crc, block_bytes, ..Options::default() };
        let mut stand = Stand::new(Model::default(), &options);
        assert_eq!(stand.side.lock().bench.adapter.negotiated(), negotiated);
        let frames: Vec<_> = (0..40).map(|number| frame(number, 60 + 30 * usize::from(number))).collect();
        stand.send(&frames);
        let _ = stand.settle();
        assert_eq!(stand.sent(), frames);
        for frame in &frames {
            assert!(stand.side.inject(frame));
        }
        assert_eq!(stand.settle(), frames);
        stand.assert_obeyed();
    }
}

#[test]
fn a_filter_is_set_where_there_is_one() {
    let filter = |capabilities| {
        let stand = Stand::new(Model { capabilities, ..Model::default() }, &Options::default());
        stand.assert_obeyed();
        stand.side.lock().bench.adapter.filter()
    };
    assert_eq!(filter(capability::PACKET_FILTER), Some(0x1f));
    assert_eq!(filter(0), None);
}

#[test]
fn the_address_is_the_strings_or_the_files() {
    let stand = Stand::new(Model::default(), &Options::default());
    assert_eq!(stand.port.mac, Model::default().mac);
    let own = [2, 3, 4, 5, 6, 7];
    let stand = Stand::new(Model::default(), &Options { mac: Some(own), ..Options::default() });
    assert_eq!(stand.port.mac, own);
    let group = Model { mac: [0xff; 6], ..Model::default() };
    assert_eq!(Stand::new(group, &Options::default()).port.mac[0] & 3, 2, "an address of our own making");
}

#[test]
fn the_mtu_is_what_the_segment_size_leaves() {
    let mtu = |longest, mtu| {
        let (local, _side) = plug_in(Model { longest, ..Model::default() });
        open(local, &Options { mtu, ..Options::default() }).map(|port| port.mtu)
    };
    assert_eq!(mtu(1514, None).unwrap(), 1500);
    assert_eq!(mtu(1294, None).unwrap(), 1280);
    assert_eq!(mtu(9014, Some(9000)).unwrap(), 9000);
    let refused = mtu(1514, Some(1501)).unwrap_err();
    let is_right =
        matches!(refused, OpenError::Init { error: InitError::Mtu { mtu: 1501, largest: 1500 }, .. });
    assert!(is_right, "{refused}");
}

#[test]
fn links_and_speeds_are_told_and_followed() {
    for splits_notifications in [false, true] {
        let mut stand = Stand::new(Model { splits_notifications, ..Model::default() }, &Options::default());
        let _ = stand.settle();
        let link = stand.port.status.facts().link;
        assert_eq!((link.up, link.speed, link.full_duplex), (true, 425, true));
        stand.side.lock().bench.adapter.set_link(false);
        let _ = stand.settle();
        assert!(!stand.port.status.facts().link.up);
        stand.send(&[frame(1, 60)]);
        assert_eq!(stand.port.queue.tx.counters().drops.get(DropReason::PortDown), 1);
        stand.side.lock().bench.adapter.set_link(true);
        let _ = stand.settle();
        stand.send(&[frame(1, 60)]);
        assert_eq!(stand.sent().len(), 1);
    }
    let mut silent = Stand::new(Model { is_silent: true, ..Model::default() }, &Options::default());
    let _ = silent.settle();
    assert!(!silent.port.status.facts().link.up, "nothing was told of a link");
}

/// Some adapters repeat speed and link every 32 ms for as long as they run. That is no news, and takes nothing from packets.
#[test]
fn repeated_notifications_change_nothing() {
    const INTERVAL: Nanos = Nanos::from_millis(32);
    for splits_notifications in [false, true] {
        let model = Model { splits_notifications, repeats: Some(INTERVAL), ..Model::default() };
        let mut stand = Stand::new(model, &Options::default());
        let _ = stand.settle();
        let before = stand.port.status.facts().link;
        assert_eq!((before.up, before.speed), (true, 425));
        for number in 0..100 {
            let told = stand.side.lock().bench.adapter.notified();
            stand.side.pass(INTERVAL);
            // All of its notifications, one after another, change the link at no time.
            for _ in 0..8 {
                let (_, frames) = stand.receive(64);
                assert!(frames.is_empty());
                assert_eq!(stand.port.status.facts().link, before);
            }
            let all = if splits_notifications { 3 } else { 2 };
            assert!(stand.side.lock().bench.adapter.notified() >= told + all, "{number}");
            assert!(stand.side.inject(&frame(number, 60)));
            assert_eq!(stand.settle(), [frame(number, 60)]);
            stand.send(&[frame(number, 61)]);
            assert_eq!(stand.sent().len(), 1);
        }
        let status = &stand.port.status;
        assert_eq!((status.bad_requests.get(), status.bad_transfers.get()), (0, 0));
        // One that is different is still heard.
        stand.side.lock().bench.adapter.set_link(false);
        let _ = stand.settle();
        assert!(!stand.port.status.facts().link.up);
    }
}

#[test]
fn blocks_leave_full_under_load_and_at_once_without() {
    let mut stand = Stand::new(Model::default(), &Options::default());
    let _ = stand.settle();
    stand.send(&[frame(1, 60)]);
    assert_eq!(stand.port.status.sent_transfers.get(), 1);
    assert_eq!(stand.sent().len(), 1);
    // The model takes transfers at once; the whole batch is there when the first one is filled.
    let frames: Vec<_> = (0..60).map(|number| frame(number, 1514)).collect();
    stand.send(&frames);
    // Ten frames of 1516 bytes with their padding, entries and header in 16 KiB.
    assert_eq!(stand.port.status.sent_transfers.get() - 1, 6);
    assert_eq!(stand.sent(), frames);
    stand.assert_obeyed();
}

#[test]
fn a_transfer_of_whole_packets_is_ended() {
    // Displaylink wants a packet without data, the others a byte of padding.
    for identity in [(0x0525, 0xa4a1), (0x17e9, 1), (0x12d1, 1)] {
        let mut stand = Stand::new(Model { identity, ..Model::default() }, &Options::default());
        let _ = stand.settle();
        // 512 bytes with header, table and padding among them.
        let frames: Vec<_> = (430..=520).map(|length| frame(3, length)).collect();
        for frame in &frames {
            stand.send(core::slice::from_ref(frame));
            let _ = stand.settle();
        }
        assert_eq!(stand.sent(), frames);
        stand.assert_obeyed();
    }
}

#[test]
fn ecm_ends_every_frame() {
    let model = Model { subclass: Subclass::Ecm, ..Model::default() };
    let mut stand = Stand::new(model, &Options::default());
    let _ = stand.settle();
    let frames: Vec<_> = (500..=520).chain(1020..=1030).map(|length| frame(3, length)).collect();
    stand.send(&frames);
    let _ = stand.settle();
    assert_eq!(stand.sent(), frames);
    for frame in &frames {
        assert!(stand.side.inject(frame));
    }
    assert_eq!(stand.settle(), frames);
    stand.assert_obeyed();
}

#[test]
fn a_closed_port_leaves_the_function_at_rest() {
    let Stand { port, side, region, .. } = Stand::new(Model::default(), &Options::default());
    assert_eq!(side.lock().bench.adapter.setting(), 1);
    drop(port);
    assert_eq!(side.lock().bench.adapter.setting(), 0);
    assert_eq!(region.free_slots(), region.slots());
}

#[test]
fn a_silent_device_is_asked_every_second() {
    let mut stand = Stand::new(Model::default(), &Options::default());
    let _ = stand.settle();
    stand.side.pass(Nanos::from_millis(3000));
    let _ = stand.settle();
    assert!(!stand.port.status.facts().closed);
    assert_eq!(stand.port.status.bad_requests.get(), 0);
}
