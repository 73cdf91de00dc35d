//! Inputs from a modem: blocks of packets, and dialogues.

use super::Seeds;
use polder_datapath::units::Nanos;
use polder_devices::cdc::mbim::Wanted;
use polder_devices::cdc::mbim::model::{Modem, ModemFault, ModemOptions};
use polder_devices::cdc::mbim::service::Access;
use polder_devices::cdc::mbim::session::Session;
use polder_devices::cdc::model::{Style, encode};

pub(super) fn blocks() -> Seeds {
    let packets = |count: usize| {
        (0..count).map(|number| [&[0x45][..], &vec![0x5a; 39 + number]].concat()).collect::<Vec<_>>()
    };
    let of = |session, style| Style { session: Some(session), ..style };
    let usual = Style::default();
    let mut stream = encode(&packets(2), &of(0, usual));
    let table = usize::from(u16::from_le_bytes([stream[10], stream[11]]));
    stream[table..table + 3].copy_from_slice(b"DSS");
    vec![
        ("one", encode(&packets(1), &of(0, usual))),
        ("several", encode(&packets(9), &of(7, usual))),
        ("chained", encode(&packets(9), &of(0, Style { per_table: 2, ..usual }))),
        ("wide", encode(&packets(3), &of(255, Style { wide: true, ..usual }))),
        ("stream", stream),
        ("frames", encode(&packets(2), &usual)),
        ("empty", Vec::new()),
    ]
}

pub(super) fn messages() -> Seeds {
    let plain = ModemOptions { message_bytes: 64, ..ModemOptions::default() };
    let locked = ModemOptions { pin: Some("1234".to_owned()), ..plain.clone() };
    vec![
        ("dialogue", dialogue(plain.clone(), &[])),
        ("pin", dialogue(locked, &[])),
        ("outside", dialogue(plain.clone(), &[ModemFault::Outside])),
        ("many-addresses", dialogue(plain.clone(), &[ModemFault::ManyAddresses])),
        ("swapped", dialogue(plain.clone(), &[ModemFault::FragmentsSwapped])),
        ("twice", dialogue(plain.clone(), &[ModemFault::Twice])),
        ("forgets", dialogue(plain.clone(), &[ModemFault::Forgets])),
        ("not-text", dialogue(plain, &[ModemFault::NotText])),
        ("empty", Vec::new()),
    ]
}

/// Transfers of a modem in a dialogue, each with its length in front.
fn dialogue(options: ModemOptions, lies: &[ModemFault]) -> Vec<u8> {
    let mut modem = Modem::new(options);
    modem.lie(lies);
    let wanted = Wanted { sessions: vec![(0, Access::default())], pin: Some("1234".to_owned()) };
    let mut session = Session::new(wanted, 64);
    let (mut said, mut now) = (Vec::new(), Nanos(0));
    for _ in 0..60 {
        while let Some(fragment) = session.poll(now) {
            modem.receive(&fragment);
        }
        let transfer = modem.respond();
        if transfer.is_empty() && said.len() > 2000 {
            break;
        }
        said.extend(u16::try_from(transfer.len()).unwrap_or(u16::MAX).to_le_bytes());
        said.extend(&transfer);
        session.received(&transfer, now);
        now = now + Nanos::from_millis(1100);
    }
    said
}
