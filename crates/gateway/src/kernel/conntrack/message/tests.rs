//! Messages as a kernel writes them, and such as it does not.

use super::*;
use proptest::prelude::*;

fn tuple(text: &str) -> Tuple {
    let words: Vec<&str> = text.split(' ').collect();
    let [protocol, source, source_port, destination, destination_port] = words[..] else { panic!("{text}") };
    Tuple {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        protocol: protocol.parse().unwrap(),
        source_port: source_port.parse().unwrap(),
        destination_port: destination_port.parse().unwrap(),
    }
}

/// Attributes of a masqueraded connection of TCP, without an identity.
fn attributes_of(original: &Tuple, reply: &Tuple) -> Vec<u8> {
    let mut body = Vec::new();
    nest(&mut body, CTA_TUPLE_ORIG, &tuple_attributes(original));
    nest(&mut body, CTA_TUPLE_REPLY, &tuple_attributes(reply));
    put(&mut body, CTA_STATUS, &0x19e_u32.to_be_bytes());
    put(&mut body, CTA_TIMEOUT, &432_000_u32.to_be_bytes());
    let (mut protocol, mut tcp) = (Vec::new(), Vec::new());
    put(&mut tcp, CTA_PROTOINFO_TCP_STATE, &[3]);
    put(&mut tcp, CTA_PROTOINFO_TCP_WSCALE_ORIGINAL, &[7]);
    put(&mut tcp, CTA_PROTOINFO_TCP_WSCALE_REPLY, &[9]);
    nest(&mut protocol, CTA_PROTOINFO_TCP, &tcp);
    nest(&mut body, CTA_PROTOINFO, &protocol);
    body
}

fn masqueraded() -> Vec<u8> {
    attributes_of(&tuple("6 10.0.0.1 4000 192.0.2.1 80"), &tuple("6 192.0.2.1 80 198.51.100.1 1024"))
}

fn with(mut body: Vec<u8>, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    attributes.iter().for_each(|(kind, value)| put(&mut body, *kind, value));
    body
}

/// The event in a message of that type, flags and attributes.
fn read(kind: u16, flags: u16, attributes: &[u8]) -> Event {
    let datagram = netlink::message(kind, flags, 5, &[&[2, 0, 0, 0][..], attributes].concat());
    let all: Vec<Event> = events(&datagram).collect();
    assert_eq!(all.len(), 1);
    all[0]
}

fn record_of(attributes: &[(u16, &[u8])]) -> Record {
    let body = with(masqueraded(), &[(CTA_ID, &[0, 0, 0, 9])]);
    changed(read(CONNECTION_NEW, 0, &with(body, attributes)))
}

fn changed(event: Event) -> Record {
    let Event::Changed(record) = event else { panic!("{event:?}") };
    record
}

#[test]
fn an_event_is_read() {
    let record = record_of(&[(CTA_MARK, &[0, 0, 1, 0])]);
    let expected = Record {
        id: 9,
        family: 2,
        original: tuple("6 10.0.0.1 4000 192.0.2.1 80"),
        reply: tuple("6 192.0.2.1 80 198.51.100.1 1024"),
        status: Status(0x19e),
        timeout: Some(Duration::from_secs(432_000)),
        mark: 256,
        zone: 0,
        has_helper: false,
        has_sequence_adjustment: false,
        is_synproxy: false,
        tcp: Some(Tcp { state: Tcp::ESTABLISHED, wscale_original: 7, wscale_reply: 9 }),
        port_id: 0,
        sequence: 5,
        is_dumped: false,
    };
    assert_eq!(record, expected);
    assert!(record.status.has(Status::ASSURED) && !record.status.has(Status::DYING));
    assert_eq!(record.reply.reversed(), tuple("6 198.51.100.1 1024 192.0.2.1 80"));
}

#[test]
fn flags_and_types_tell_changed_dumped_and_destroyed() {
    let body = with(masqueraded(), &[(CTA_ID, &[0; 4])]);
    let is_dumped = |flags| changed(read(CONNECTION_NEW, flags, &body)).is_dumped;
    assert_eq!([0, 0x600, 2].map(is_dumped), [false, false, true]);
    assert!(matches!(read(CONNECTION_DELETE, 0, &body), Event::Destroyed(Record { sequence: 5, .. })));
    assert_eq!(read(0x200, 0, &body), Event::Other, "an expectation");
}

#[test]
fn zones_helpers_and_changed_sequence_numbers_are_seen() {
    assert_eq!(record_of(&[(CTA_ZONE, &[0, 7])]).zone, 7);
    assert_eq!(record_of(&[(CTA_ZONE, &[7])]).zone, u16::MAX, "a zone that cannot be read");
    for direction in [CTA_TUPLE_ORIG, CTA_TUPLE_REPLY] {
        let tuple = with(tuple_attributes(&tuple("17 10.0.0.1 1 10.0.0.2 2")), &[(CTA_TUPLE_ZONE, &[0, 7])]);
        let other = tuple_attributes(&super::tuple(&tuple).unwrap().0);
        let mut body = with(Vec::new(), &[(CTA_ID, &[0; 4]), (direction, &tuple)]);
        put(&mut body, CTA_TUPLE_ORIG + CTA_TUPLE_REPLY - direction, &other);
        let record = changed(read(CONNECTION_NEW, 0, &body));
        assert_eq!(record.zone, 7, "the zone of one direction");
    }
    assert!(record_of(&[(CTA_HELP, &[])]).has_helper);
    assert!(record_of(&[(CTA_STATUS, &0x2000_u32.to_be_bytes())]).has_helper);
    assert!(record_of(&[(CTA_SEQ_ADJ_REPLY, &[])]).has_sequence_adjustment);
    assert!(record_of(&[(CTA_STATUS, &0x40_u32.to_be_bytes())]).has_sequence_adjustment);
    assert!(record_of(&[(CTA_SYNPROXY, &[])]).is_synproxy);
    assert_eq!(record_of(&[(CTA_PROTOINFO, &[])]).tcp, None, "information of another protocol");
}

#[test]
fn a_message_without_identity_or_with_odd_tuples_is_no_event() {
    assert_eq!(read(CONNECTION_NEW, 0, &masqueraded()), Event::Other);
    let id = [(CTA_ID, &[0, 0, 0, 9][..])];
    let (v4, v6) = (tuple("6 10.0.0.1 4000 192.0.2.1 80"), tuple("6 2001:db8::1 4000 2001:db8::2 80"));
    let read_tuples = |original, reply| read(CONNECTION_NEW, 0, &with(attributes_of(original, reply), &id));
    assert!(matches!(read_tuples(&v6, &v6), Event::Changed(record) if record.original == v6));
    assert_eq!(read_tuples(&v4, &v6), Event::Other);
    assert_eq!(read_tuples(&v4, &Tuple { protocol: 17, ..v4 }), Event::Other);
    let body = with(masqueraded(), &id);
    for end in 0..body.len() {
        assert_eq!(read(CONNECTION_NEW, 0, &body[..end]), Event::Other, "{end}");
    }
}

#[test]
fn answers_are_read() {
    let answer = |kind, flags, code: i32| {
        events(&netlink::message(kind, flags, 7, &code.to_ne_bytes())).collect::<Vec<_>>()
    };
    assert_eq!(answer(NLMSG_ERROR, 0, -libc::ENOENT), [Event::Error { code: libc::ENOENT, sequence: 7 }]);
    assert_eq!(answer(NLMSG_ERROR, 0, 0), [Event::Error { code: 0, sequence: 7 }]);
    let done = |is_interrupted| [Event::Done { sequence: 7, is_interrupted }];
    assert_eq!(answer(NLMSG_DONE, 2, 0), done(false));
    assert_eq!(answer(NLMSG_DONE, 2 | INTERRUPTED, 0), done(true));
    assert_eq!(answer(NLMSG_DONE, 2, -libc::ENOMEM), done(true));
    assert_eq!(events(&netlink::message(NLMSG_ERROR, 0, 7, &[])).collect::<Vec<_>>(), [Event::Other]);
}

#[test]
fn an_update_names_the_connection_and_creates_none() {
    let original = tuple("6 10.0.0.1 4000 192.0.2.1 80");
    let bytes = update(3, &original, Update { timeout: Some(90), loosen: true });
    let message = netlink::messages(&bytes).next().unwrap();
    assert_eq!((message.kind, message.flags, message.sequence), (CONNECTION_NEW, 0x005, 3));
    assert_eq!(message.body[..4], [2, 0, 0, 0]);
    let rest = &message.body[4..];
    let (written, zone) = super::tuple(find(rest, CTA_TUPLE_ORIG).unwrap()).unwrap();
    assert_eq!((written, zone, find(rest, CTA_TIMEOUT)), (original, 0, Some(&[0, 0, 0, 90][..])));
    let tcp = find(find(rest, CTA_PROTOINFO).unwrap(), CTA_PROTOINFO_TCP).unwrap();
    let flags: Vec<_> = attributes(tcp).collect();
    assert_eq!(flags, [(4, &[0x08, 0x28][..]), (5, &[0x08, 0x28])]);
    let bytes = update(4, &tuple("17 2001:db8::1 1 2001:db8::2 2"), Update::default());
    let message = netlink::messages(&bytes).next().unwrap();
    assert_eq!((message.body[0], attributes(&message.body[4..]).count()), (10, 1), "the tuple alone");
}

proptest! {
    #[test]
    fn any_bytes_are_read(
        datagram in proptest::collection::vec(any::<u8>(), 0..300),
        kind in prop_oneof![0_u16..4, 0x100_u16..0x103],
        flags in any::<u16>(),
    ) {
        events(&datagram).count();
        events(&netlink::message(kind, flags, 1, &datagram)).count();
    }

    #[test]
    fn a_changed_message_is_read(changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..8)) {
        let body = with(masqueraded(), &[(CTA_ID, &[0; 4]), (CTA_ZONE, &[0; 2])]);
        let mut datagram = netlink::message(CONNECTION_NEW, 0, 1, &[&[2, 0, 0, 0][..], &body].concat());
        for (index, value) in changes {
            let at = index.index(datagram.len());
            datagram[at] = value;
        }
        events(&datagram).count();
    }

    #[test]
    fn the_kernel_reads_back_what_an_update_says(
        addresses in any::<([u8; 4], [u8; 4])>(), ports in any::<(u16, u16)>(), protocol in any::<u8>(), seconds in any::<u32>(),
    ) {
        let original = Tuple {
            source: IpAddr::from(addresses.0),
            destination: IpAddr::from(addresses.1),
            protocol,
            source_port: ports.0,
            destination_port: ports.1,
        };
        let bytes = update(1, &original, Update { timeout: Some(seconds), loosen: false });
        let message = netlink::messages(&bytes).next().unwrap();
        prop_assert_eq!(bytes.len() % 4, 0, "requests stand one behind the other");
        let read = super::tuple(find(&message.body[4..], CTA_TUPLE_ORIG).unwrap());
        prop_assert_eq!(read, Some((original, 0)));
    }
}
