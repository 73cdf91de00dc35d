//! Targets of the fuzzer, with what must hold for any bytes.

use polder_datapath::units::Nanos;
use polder_devices::cdc::mbim::Wanted;
use polder_devices::cdc::mbim::service::Access;
use polder_devices::cdc::mbim::session::Session;
use polder_devices::cdc::network_function;
use polder_devices::cdc::ntb::{Block, Channel, Cursor, Fault, Format, Signatures};

/// A target and its name.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// All targets.
pub(crate) const TARGETS: &[Target] = &[
    ("cdc_block", block),
    ("cdc_descriptor", descriptor),
    ("mbim_block", packets),
    ("mbim_message", messages),
];

/// Datagrams of a block of Ethernet frames whose checksum is not wrong, and the fault that ends it.
pub(crate) fn datagrams(bytes: &[u8], wide: bool) -> (Vec<Vec<u8>>, Option<Fault>) {
    let (found, fault) = read(bytes, wide, Signatures::Ncm, 14);
    (found.into_iter().map(|(_, bytes)| bytes).collect(), fault)
}

/// Datagrams of a block whose checksum is not wrong, with their channel, and the fault that ends it.
pub(crate) fn read(
    bytes: &[u8],
    wide: bool,
    signatures: Signatures,
    shortest: usize,
) -> (Vec<(Channel, Vec<u8>)>, Option<Fault>) {
    let format = if wide { Format::Ntb32 } else { Format::Ntb16 };
    let block = Block { format, signatures, shortest };
    let mut cursor = Cursor::default();
    let mut found = Vec::new();
    let mut fault = None;
    let mut left = bytes.len();
    while let Some(next) = block.next(&mut cursor, bytes) {
        assert!(fault.is_none(), "nothing stands behind a fault");
        match next {
            Ok(datagram) => {
                assert!(datagram.bytes.len() >= shortest);
                if !datagram.is_damaged {
                    found.push((datagram.channel, datagram.bytes.to_vec()));
                }
            }
            Err(error) => fault = Some(error),
        }
        assert!(cursor.left(bytes) <= left, "what is left grows");
        left = cursor.left(bytes);
    }
    (found, fault)
}

/// A block of any bytes: reading ends, and gives no more than was received.
fn block(bytes: &[u8]) {
    for wide in [false, true] {
        let (found, _) = datagrams(bytes, wide);
        assert!(found.iter().map(Vec::len).sum::<usize>() <= bytes.len(), "more than was received");
    }
}

/// A block of IP packets of any bytes.
fn packets(bytes: &[u8]) {
    for wide in [false, true] {
        let (found, _) = read(bytes, wide, Signatures::Mbim, 20);
        assert!(found.iter().map(|(_, packet)| packet.len()).sum::<usize>() <= bytes.len());
        assert!(found.iter().all(|(channel, _)| *channel != Channel::Frames), "frames in a block of packets");
    }
}

/// Bytes of a control transfer, at most.
const MESSAGE_BYTES: usize = 64;

/// Transfers of any bytes from a modem, each with its length in front: the dialogue goes on, and never says more
/// than it was told.
fn messages(bytes: &[u8]) {
    let wanted = Wanted { sessions: vec![(0, Access::default())], pin: Some("1234".to_owned()) };
    let mut session = Session::new(wanted, MESSAGE_BYTES);
    let (mut rest, mut now) = (bytes, Nanos(0));
    while let [low, high, tail @ ..] = rest {
        while let Some(fragment) = session.poll(now) {
            assert!((12..=MESSAGE_BYTES).contains(&fragment.len()), "a fragment of {} bytes", fragment.len());
        }
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(tail.len());
        let (transfer, behind) = tail.split_at(length);
        session.received(transfer, now);
        rest = behind;
        // Later than any pause of the dialogue, and earlier than its deadlines.
        now = now + Nanos::from_millis(1100);
    }
    let state = session.state();
    assert!(state.messages + state.refused <= 2 * (bytes.len() as u64 / 2), "more messages than transfers");
    for session in &state.sessions {
        let configuration = &session.configuration;
        assert!(
            session.active || configuration.addresses.is_empty(),
            "addresses of a session that is not active"
        );
        assert!(configuration.addresses.iter().all(|(address, bits)| {
            *bits <= if address.is_ipv4() { 32 } else { 128 } && !address.is_multicast()
        }));
    }
    let provider = state.registration.iter().map(|registration| &registration.provider);
    let caps = state.caps.iter().flat_map(|caps| [&caps.device, &caps.firmware, &caps.hardware]);
    assert!(provider.chain(caps).all(|text| !text.chars().any(char::is_control)));
}

/// A configuration of any bytes.
fn descriptor(bytes: &[u8]) {
    if let Ok(Some(function)) = network_function(bytes) {
        assert!(function.endpoints.bulk_in & 0x80 != 0 && function.endpoints.bulk_out & 0x80 == 0);
    }
}
