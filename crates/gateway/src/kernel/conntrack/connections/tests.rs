//! The rules one by one, and long histories beside an oracle.

mod history;

use super::*;
use crate::kernel::conntrack::message::{Status, Tcp, events};
use std::time::Duration;

/// Netlink port of the requests.
const OWN: u32 = 4711;
const ASSURED: u32 = Status::ASSURED.0 | Status::SEEN_REPLY.0;

fn at(seconds: u64) -> Nanos {
    Nanos::from_seconds(1000 + seconds)
}

/// An event about a connection of a station, number `id` of the kernel.
fn record(protocol: u8, station: u8, id: u32) -> Record {
    let port = 1024 + u16::try_from(id).unwrap();
    let original = Tuple {
        source: [10, 0, 0, station].into(),
        destination: [192, 0, 2, 1].into(),
        protocol,
        source_port: port,
        destination_port: 80,
    };
    let reply = Tuple { destination: [198, 51, 100, 1].into(), ..original.reversed() };
    let tcp = Tcp { state: Tcp::ESTABLISHED, wscale_original: 7, wscale_reply: 9 };
    Record {
        id,
        family: 2,
        original,
        reply,
        status: Status(ASSURED),
        timeout: Some(Duration::from_secs(if protocol == 6 { 432_000 } else { 120 })),
        mark: 0,
        zone: 0,
        has_helper: false,
        has_sequence_adjustment: false,
        is_synproxy: false,
        tcp: (protocol == 6).then_some(tcp),
        port_id: 0,
        sequence: 0,
        is_dumped: false,
    }
}

fn udp(station: u8, id: u32) -> Record {
    record(17, station, id)
}

fn tcp(station: u8, id: u32) -> Record {
    record(6, station, id)
}

/// A request, as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request {
    sequence: u32,
    is_dump: bool,
    timeout: Option<u32>,
    loosens: bool,
}

fn requests(connections: &mut Connections, now: Nanos) -> Vec<Request> {
    let mut all = Vec::new();
    while let Some(datagram) = connections.next_requests(now) {
        all.extend(polder_devices::netlink::messages(&datagram).map(|message| {
            let find = |kind| polder_devices::netlink::find(&message.body[4..], kind);
            Request {
                sequence: message.sequence,
                is_dump: message.kind == 0x101,
                timeout: find(7).map(|value| u32::from_be_bytes(value.try_into().unwrap())),
                loosens: find(4).is_some(),
            }
        }));
    }
    all
}

fn answer(connections: &mut Connections, request: Request, code: i32, now: Nanos) {
    connections.take(Event::Error { code, sequence: request.sequence }, now);
}

/// The first dump is over, and has brought nothing.
fn settled(limits: Limits) -> Connections {
    let mut connections = Connections::new(limits, OWN, false);
    settle(&mut connections, &[], at(0));
    connections
}

/// Answers the dump that is due.
fn settle(connections: &mut Connections, records: &[Record], now: Nanos) {
    let [Request { sequence, is_dump: true, .. }] = requests(connections, now)[..] else { panic!("a dump") };
    for record in records {
        connections.take(Event::Changed(Record { sequence, is_dumped: true, port_id: OWN, ..*record }), now);
    }
    connections.take(Event::Done { sequence, is_interrupted: false }, now);
    assert!(connections.is_settled());
}

fn change(connections: &mut Connections, record: Record, now: Nanos) -> Vec<Change> {
    connections.take(Event::Changed(record), now);
    connections.changes()
}

/// The connection that was entered alone.
fn entered(changes: &[Change]) -> Connection {
    let [Change::Enter(connection)] = changes else { panic!("{changes:?}") };
    *connection
}

/// Enters a connection of UDP.
fn enter(connections: &mut Connections, record: Record, now: Nanos) -> ConnectionId {
    entered(&change(connections, record, now)).id
}

/// Enters a connection of TCP.
fn enter_tcp(connections: &mut Connections, record: Record, now: Nanos) -> ConnectionId {
    assert_eq!(change(connections, record, now), []);
    let [request] = requests(connections, now)[..] else { panic!("one update") };
    assert_eq!((request.timeout, request.loosens), (None, true));
    answer(connections, request, 0, now);
    entered(&connections.changes()).id
}

#[test]
fn udp_is_entered_when_it_is_assured() {
    let mut connections = settled(Limits::new(10));
    assert_eq!(change(&mut connections, Record { status: Status(2), ..udp(1, 1) }, at(0)), []);
    let connection = entered(&change(&mut connections, udp(1, 1), at(3)));
    assert_eq!((connection.original, connection.reply), (udp(1, 1).original, udp(1, 1).reply));
    let lite = entered(&change(&mut connections, record(136, 1, 2), at(3)));
    connections.take(Event::Destroyed(record(136, 1, 2)), at(3));
    assert_eq!(connections.changes(), [Change::Leave(lite.id)]);
    assert_eq!(change(&mut connections, record(1, 1, 3), at(3)), [], "ICMP");
    connections.take(Event::Destroyed(udp(1, 1)), at(4));
    assert_eq!(connections.changes(), [Change::Leave(connection.id)]);
    assert!(connections.is_empty());
}

#[test]
fn tcp_is_entered_when_the_kernel_accepts_any_segment_of_it() {
    let mut connections = settled(Limits::new(10));
    let state = |state| Record { tcp: Some(Tcp { state, ..Tcp::default() }), ..tcp(1, 1) };
    assert_eq!(change(&mut connections, state(2), at(0)), []);
    assert_eq!(change(&mut connections, Record { tcp: None, ..tcp(1, 1) }, at(0)), [], "an unknown state");
    assert_eq!(requests(&mut connections, at(0)), []);
    let id = enter_tcp(&mut connections, tcp(1, 1), at(0));
    assert_eq!(
        change(&mut connections, Record { tcp: None, ..tcp(1, 1) }, at(0)),
        [],
        "the state is as before"
    );
    assert_eq!(change(&mut connections, state(4), at(1)), [Change::Leave(id)], "FIN_WAIT");
    // One that ends before the kernel has answered is never entered.
    assert_eq!(change(&mut connections, tcp(1, 2), at(2)), []);
    let [request] = requests(&mut connections, at(2))[..] else { panic!() };
    connections.take(Event::Destroyed(tcp(1, 2)), at(2));
    answer(&mut connections, request, 0, at(2));
    assert_eq!(connections.changes(), []);
    assert!(connections.is_empty());
}

#[test]
fn an_answer_is_that_of_its_own_update() {
    let mut connections = settled(Limits::new(10));
    assert_eq!(change(&mut connections, tcp(1, 1), at(0)), []);
    let [old] = requests(&mut connections, at(0))[..] else { panic!() };
    connections.take(Event::Destroyed(tcp(1, 1)), at(0));
    // The same tuple, and by chance the same identity.
    assert_eq!(change(&mut connections, tcp(1, 1), at(0)), []);
    let [new] = requests(&mut connections, at(0))[..] else { panic!() };
    answer(&mut connections, old, 0, at(0));
    assert_eq!(connections.changes(), []);
    answer(&mut connections, new, 0, at(0));
    entered(&connections.changes());
}

#[test]
fn what_the_kernel_does_more_with_is_never_entered() {
    let base = udp(1, 1);
    let status = |bit: Status| Record { status: Status(ASSURED | bit.0), ..base };
    let never = [
        Record { has_helper: true, ..base },
        Record { has_sequence_adjustment: true, ..base },
        Record { is_synproxy: true, ..base },
        status(Status::OFFLOAD),
        status(Status::FIXED_TIMEOUT),
    ];
    for record in never {
        let mut connections = settled(Limits::new(10));
        assert_eq!(change(&mut connections, record, at(0)), [], "{record:?}");
        assert_eq!(change(&mut connections, base, at(0)), [], "an event leaves out what has not changed");
        connections.take(Event::Destroyed(base), at(0));
        let id = enter(&mut connections, base, at(0));
        assert_eq!(change(&mut connections, record, at(0)), [Change::Leave(id)], "{record:?}");
        assert_eq!(change(&mut connections, base, at(0)), []);
    }
    let elsewhere = |address: [u8; 4]| Record {
        original: Tuple { destination: address.into(), ..base.original },
        ..base
    };
    let only_now = [
        Record { zone: 7, ..base },
        status(Status::DYING),
        elsewhere([224, 0, 0, 1]),
        elsewhere([255, 255, 255, 255]),
        elsewhere([169, 254, 0, 1]),
        elsewhere([127, 0, 0, 1]),
    ];
    for record in only_now {
        let mut connections = settled(Limits::new(10));
        assert_eq!(change(&mut connections, record, at(0)), [], "{record:?}");
        let id = enter(&mut connections, base, at(0));
        let same = record.zone != 0 || record.original != base.original;
        assert_eq!(change(&mut connections, record, at(0)).contains(&Change::Leave(id)), !same, "{record:?}");
    }
}

#[test]
fn connections_of_this_machine_are_the_kernels() {
    let mut connections = settled(Limits::new(10));
    let id = enter(&mut connections, udp(1, 1), at(0));
    connections.set_local_addresses([[198, 51, 100, 1].into()]);
    assert_eq!(connections.changes(), [], "an address that hides others is no end of theirs");
    connections.set_local_addresses([[10, 0, 0, 2].into(), [192, 0, 2, 1].into()]);
    assert_eq!(connections.changes(), [Change::Leave(id)], "it answers itself");
    assert_eq!(change(&mut connections, udp(2, 2), at(0)), []);
}

/// An upgraded gateway: its predecessor has had the kernel tell of some connections, and not of older ones.
#[test]
fn the_kernel_is_asked_whether_it_tells_of_older_connections() {
    let mut connections = Connections::new(Limits::new(200), OWN, false);
    connections.set_local_addresses([[10, 0, 0, 9].into()]);
    let [Request { sequence, .. }] = requests(&mut connections, at(0))[..] else { panic!() };
    let unassured = Record { status: Status(2), ..udp(1, 150) };
    let all = (1..=100).map(|id| if id % 2 == 0 { udp(1, id) } else { tcp(1, id) });
    for record in all.chain([unassured, udp(9, 151)]) {
        let dumped = Record { sequence, is_dumped: true, port_id: OWN, ..record };
        connections.take(Event::Changed(dumped), at(0));
    }
    assert_eq!(requests(&mut connections, at(0)), [], "not before the dump is complete");
    connections.take(Event::Done { sequence, is_interrupted: false }, at(0));
    assert!(connections.next_deadline() <= Some(at(0)));
    let asked = requests(&mut connections, at(0));
    assert!(asked.len() == 100 && asked.iter().all(|asked| asked.timeout.is_none() && !asked.loosens));
    for &request in &asked {
        answer(&mut connections, request, 0, at(0));
    }
    assert_eq!(connections.changes(), [], "an answer is no event");
    let told = |record: Record| Event::Changed(Record { port_id: OWN, ..record });
    connections.take(told(Record { timeout: Some(Duration::from_secs(7)), ..udp(1, 2) }), at(0));
    assert_eq!(entered(&connections.changes()).original, udp(1, 2).original);
    // Seven seconds of 120 are left: it is to be set again at once when it has moved.
    let id = connections.entries.iter().flatten().next().unwrap().id;
    connections.moved(id, 100, at(0));
    assert!(requests(&mut connections, at(0)).iter().any(|request| request.timeout == Some(120)));
    connections.take(told(tcp(1, 3)), at(0));
    assert_eq!(connections.changes(), [], "TCP waits until the kernel accepts any segment");
    let [loosen] = requests(&mut connections, at(0))[..] else { panic!("one update") };
    assert!(loosen.loosens);
    // Another connection with the tuple of an older one.
    connections.take(told(Record { id: 4711, ..udp(1, 4) }), at(0));
    assert_eq!(connections.changes(), []);
}

#[test]
fn connections_that_may_be_older_than_the_events_are_entered_when_one_tells_of_them() {
    let mut connections = Connections::new(Limits::new(10), OWN, false);
    let [Request { sequence, .. }] = requests(&mut connections, at(0))[..] else { panic!() };
    let dumped = |record| Event::Changed(Record { sequence, is_dumped: true, port_id: OWN, ..record });
    // One of which an event has told, and one of which one tells behind the answer.
    let first = enter(&mut connections, udp(1, 2), at(0));
    for id in [1, 2, 3, 4] {
        connections.take(dumped(udp(1, id)), at(0));
    }
    assert_eq!(connections.changes(), []);
    let second = enter(&mut connections, udp(1, 3), at(0));
    connections.take(Event::Done { sequence, is_interrupted: false }, at(0));
    // After events were lost, one that has come since is entered without an event.
    connections.lost(at(10));
    assert_eq!(connections.changes(), [Change::Leave(first), Change::Leave(second)]);
    settle(&mut connections, &[udp(1, 1), udp(1, 5), udp(1, 4)], at(10));
    assert_eq!(entered(&connections.changes()).original, udp(1, 5).original);
    enter(&mut connections, udp(1, 1), at(11));
    // The end of an old one, and another one with its names.
    connections.take(Event::Destroyed(udp(1, 4)), at(11));
    connections.lost(at(12));
    connections.changes();
    settle(&mut connections, &[1, 4, 5].map(|id| udp(1, id)), at(12));
    assert_eq!(connections.changes().len(), 3);
}

#[test]
fn a_later_dump_brings_connections_that_no_event_tells_of() {
    let long = |id| Record { timeout: Some(Duration::from_secs(100_000)), ..udp(1, id) };
    let mut connections = settled(Limits { share: 3, ..Limits::new(3) });
    assert_eq!((requests(&mut connections, at(299)), connections.next_deadline()), (vec![], Some(at(300))));
    settle(&mut connections, &[long(1), long(2)], at(300));
    assert_eq!(connections.changes().len(), 2);
    // It has none make room.
    settle(&mut connections, &[long(1), long(3), long(4)], at(600));
    let Counters { entered, evicted, refused_full, .. } = *connections.counters();
    assert_eq!((connections.len(), entered, evicted, refused_full), (3, 3, 0, 0));
}

#[test]
fn with_events_of_all_connections_those_of_the_first_dump_are_entered() {
    let mut connections = Connections::new(Limits::new(10), OWN, true);
    settle(&mut connections, &[udp(1, 1)], at(0));
    entered(&connections.changes());
}

#[test]
fn an_answer_of_a_dump_is_not_believed_over_an_event() {
    let mut connections = Connections::new(Limits::new(10), OWN, true);
    connections.take(Event::Destroyed(udp(1, 1)), at(0));
    settle(&mut connections, &[udp(1, 1)], at(0));
    assert_eq!(connections.changes(), []);
    // Nor that of another dump, and one that was interrupted is repeated.
    connections.lost(at(1));
    let [Request { sequence, .. }] = requests(&mut connections, at(1))[..] else { panic!() };
    connections.take(Event::Changed(Record { sequence: sequence + 9, is_dumped: true, ..udp(1, 2) }), at(1));
    connections.take(Event::Done { sequence, is_interrupted: true }, at(1));
    assert!(!connections.is_settled());
    assert_eq!((connections.changes(), connections.next_deadline()), (vec![], Some(at(2))));
    let [again] = requests(&mut connections, at(2))[..] else { panic!() };
    answer(&mut connections, again, libc::EBUSY, at(2));
    assert_eq!(connections.next_deadline(), Some(at(3)));
    settle(&mut connections, &[udp(1, 2)], at(3));
    entered(&connections.changes());
}

#[test]
fn lost_events_end_everything() {
    let mut connections = settled(Limits::new(10));
    let first = enter(&mut connections, udp(1, 1), at(0));
    let second = enter_tcp(&mut connections, tcp(1, 2), at(0));
    assert_eq!(change(&mut connections, tcp(1, 3), at(0)), []);
    let [request] = requests(&mut connections, at(0))[..] else { panic!() };
    connections.lost(at(1));
    assert_eq!(connections.changes(), [Change::Leave(first), Change::Leave(second)]);
    answer(&mut connections, request, 0, at(1));
    assert_eq!((connections.changes(), connections.len()), (vec![], 0));
    assert!(requests(&mut connections, at(1))[0].is_dump);
}

#[test]
fn timers_are_set_again_at_a_quarter_if_packets_were_carried() {
    let mut connections = settled(Limits::new(10));
    let id = enter(&mut connections, udp(1, 1), at(0));
    connections.moved(id, 100, at(10));
    assert_eq!(requests(&mut connections, at(29)), []);
    let [request] = requests(&mut connections, at(30))[..] else { panic!() };
    assert_eq!((request.timeout, request.loosens), (Some(100), false), "20 s of 120 have passed");
    answer(&mut connections, request, 0, at(30));
    assert_eq!(requests(&mut connections, at(114)), [], "nothing has moved");
    connections.moved(id, 200, at(110));
    let [request] = requests(&mut connections, at(110))[..] else { panic!() };
    assert_eq!(request.timeout, Some(120), "the largest that was seen");
}

#[test]
fn the_largest_timeout_is_the_policy() {
    let mut connections = settled(Limits::new(10));
    let id = enter(&mut connections, udp(1, 1), at(0));
    let timeout = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(change(&mut connections, Record { timeout: timeout(180), ..udp(1, 1) }, at(1)), []);
    assert_eq!(change(&mut connections, Record { timeout: timeout(30), ..udp(1, 1) }, at(2)), []);
    connections.moved(id, 1, at(47));
    assert_eq!(requests(&mut connections, at(47))[0].timeout, Some(180));
    // Unacknowledged data hides the policy, and has shortened the timer.
    let id = enter_tcp(&mut connections, Record { timeout: timeout(299), ..tcp(1, 2) }, at(50));
    connections.moved(id, 1, at(60));
    let [request] = requests(&mut connections, at(60))[..] else { panic!() };
    assert_eq!(request.timeout, Some(432_000));
    answer(&mut connections, request, 0, at(60));
    connections.moved(id, 2, at(61));
    assert!(requests(&mut connections, at(60 + 107_999)).iter().all(|request| request.is_dump));
}

#[test]
fn a_packet_of_tcp_that_went_up_has_the_timer_set_within_75_seconds() {
    let mut connections = settled(Limits::new(10));
    let id = enter_tcp(&mut connections, tcp(1, 1), at(0));
    connections.went_up(id, (at(10), at(10)));
    connections.went_up(id, (at(80), at(80)));
    assert_eq!(requests(&mut connections, at(200)), [], "nothing was carried");
    connections.moved(id, 5, at(201));
    let [request] = requests(&mut connections, at(201))[..] else { panic!() };
    assert_eq!((request.timeout, request.loosens), (Some(432_000), true));
    answer(&mut connections, request, 0, at(201));
    connections.moved(id, 6, at(202));
    connections.went_up(id, (at(210), at(210)));
    assert_eq!(requests(&mut connections, at(284)), []);
    assert_eq!(connections.next_deadline(), Some(at(285)));
    assert_eq!(requests(&mut connections, at(285))[0].timeout, Some(432_000 - 75));
}

#[test]
fn each_gibibyte_has_the_kernel_forget_acknowledgements() {
    let mut connections = settled(Limits::new(10));
    let id = enter_tcp(&mut connections, tcp(1, 1), at(0));
    connections.moved(id, (1 << 30) - 1, at(1));
    assert_eq!(requests(&mut connections, at(1)), []);
    connections.moved(id, 1 << 30, at(2));
    let [request] = requests(&mut connections, at(2))[..] else { panic!() };
    assert!(request.loosens);
    connections.moved(id, 3 << 30, at(3));
    assert_eq!(requests(&mut connections, at(3)), [], "not before the kernel has answered");
    answer(&mut connections, request, 0, at(3));
    assert_eq!(requests(&mut connections, at(3)).len(), 1);
    let id = enter(&mut connections, udp(1, 2), at(4));
    connections.moved(id, 9 << 30, at(5));
    assert_eq!(requests(&mut connections, at(5)), [], "UDP has none");
}

#[test]
fn an_ended_connection_is_left_to_its_timer() {
    let mut connections = settled(Limits::new(10));
    let id = enter_tcp(&mut connections, tcp(1, 1), at(0));
    connections.moved(id, 1 << 40, at(1));
    connections.ended(id);
    assert_eq!(connections.changes(), [Change::Leave(id)]);
    assert!(requests(&mut connections, at(500_000)).iter().all(|request| request.is_dump));
    assert_eq!(change(&mut connections, Record { mark: 3, ..tcp(1, 1) }, at(2)), []);
    assert_eq!(requests(&mut connections, at(3)), []);
    connections.take(Event::Destroyed(tcp(1, 1)), at(4));
    enter_tcp(&mut connections, tcp(1, 1), at(5));
}

#[test]
fn a_connection_that_the_kernel_does_not_know_leaves() {
    for (code, is_barred) in [(libc::ENOENT, false), (libc::ETIME, false), (libc::EPERM, true)] {
        let mut connections = settled(Limits::new(10));
        let id = enter(&mut connections, udp(1, 1), at(0));
        connections.moved(id, 1, at(31));
        let [request] = requests(&mut connections, at(31))[..] else { panic!() };
        answer(&mut connections, request, code, at(31));
        assert_eq!(connections.changes(), [Change::Leave(id)]);
        assert_eq!(change(&mut connections, udp(1, 1), at(32)).is_empty(), is_barred, "{code}");
        assert_eq!(connections.counters().refused_by_kernel, u64::from(is_barred));
    }
}

#[test]
fn the_next_packet_is_the_kernels_when_its_timer_is_about_to_end() {
    let mut connections = settled(Limits::new(10));
    let id = enter(&mut connections, udp(1, 1), at(0));
    assert_eq!(connections.next_deadline(), Some(at(105)));
    assert_eq!(requests(&mut connections, at(105)), []);
    let changes = connections.changes();
    let [Change::Leave(left), Change::Enter(Connection { id: closed, .. })] = changes[..] else { panic!() };
    assert_eq!((left, closed.slot, closed.generation), (id, id.slot, id.generation + 1));
    connections.moved(id, 1, at(106));
    assert_eq!(requests(&mut connections, at(120)), [], "the old name");
    // The end of the timer has passed without a word of the kernel.
    let [request] = requests(&mut connections, at(121))[..] else { panic!() };
    assert_eq!((request.timeout, request.loosens), (None, false));
    // It is there, since packets went by the kernel: its own event tells the timer.
    let timeout = Some(Duration::from_secs(80));
    connections.take(Event::Changed(Record { port_id: OWN, timeout, ..udp(1, 1) }), at(121));
    answer(&mut connections, request, 0, at(121));
    assert_eq!((connections.changes(), connections.next_deadline()), (vec![], Some(at(202))));
    connections.moved(closed, 1, at(130));
    assert_eq!(requests(&mut connections, at(130 + 30)).len(), 1);
}

#[test]
fn events_of_ones_own_updates_are_skipped() {
    let mut connections = settled(Limits::new(10));
    assert_eq!(change(&mut connections, Record { port_id: OWN, ..udp(1, 1) }, at(0)), []);
    let id = enter(&mut connections, udp(1, 1), at(0));
    let dying = Record { port_id: OWN, status: Status(ASSURED | Status::DYING.0), ..udp(1, 1) };
    assert_eq!(change(&mut connections, dying, at(1)), []);
    let others = Record { port_id: OWN + 1, ..dying };
    assert_eq!(change(&mut connections, others, at(1)), [Change::Leave(id)]);
}

#[test]
fn another_mark_closes_the_entry() {
    let mut connections = settled(Limits::new(10));
    let id = enter(&mut connections, udp(1, 1), at(0));
    let changes = change(&mut connections, Record { mark: 7, ..udp(1, 1) }, at(1));
    let [Change::Leave(left), Change::Enter(connection)] = changes[..] else { panic!("{changes:?}") };
    assert_eq!((left, connection.mark), (id, 7));
}

#[test]
fn another_identity_is_another_connection() {
    let mut connections = settled(Limits::new(10));
    let id = enter(&mut connections, udp(1, 1), at(0));
    let other = Record { id: 99, ..udp(1, 1) };
    let changes = change(&mut connections, Record { status: Status(0), ..other }, at(1));
    assert_eq!(changes, [Change::Leave(id)]);
    let id = enter(&mut connections, other, at(2));
    connections.take(Event::Destroyed(udp(1, 1)), at(3));
    assert_eq!(connections.changes(), [], "the end of the earlier one is late");
    connections.take(Event::Destroyed(other), at(3));
    assert_eq!(connections.changes(), [Change::Leave(id)]);
}

#[test]
fn the_longest_idle_makes_room() {
    let mut connections = settled(Limits { share: 3, ..Limits::new(3) });
    let ids = [1, 2, 3].map(|id| enter(&mut connections, udp(1, id), at(id.into())));
    assert_eq!(change(&mut connections, udp(1, 4), at(10)), [], "none has been idle for 10 s");
    connections.moved(ids[0], 1, at(8));
    let changes = change(&mut connections, udp(1, 4), at(12));
    let [Change::Leave(left), Change::Enter(_)] = changes[..] else { panic!("{changes:?}") };
    assert_eq!(left, ids[1]);
    let Counters { evicted, refused_share, refused_full, .. } = *connections.counters();
    assert_eq!((evicted, refused_share, refused_full), (1, 1, 0));
}

#[test]
fn a_source_address_has_its_share() {
    let mut connections = settled(Limits { share: 2, ..Limits::new(4) });
    let first = [1, 2].map(|id| enter(&mut connections, udp(1, id), at(0)));
    assert_eq!(change(&mut connections, udp(1, 3), at(5)), []);
    let others = [4, 5].map(|id| enter(&mut connections, udp(2, id), at(5)));
    assert_eq!(change(&mut connections, udp(3, 6), at(6)), [], "the table is full");
    let Counters { refused_share, refused_full, .. } = *connections.counters();
    assert_eq!((refused_share, refused_full), (1, 1));
    connections.moved(first[0], 1, at(16));
    connections.moved(first[1], 1, at(17));
    let changes = change(&mut connections, udp(1, 3), at(26));
    assert_eq!(
        changes[0],
        Change::Leave(first[0]),
        "its own, and not the others', which idle for longer: {others:?}"
    );
    assert_eq!(Limits::new(100).share, 64);
    assert_eq!((Limits::new(1000).share, Limits::new(10).share), (250, 10));
}

#[test]
fn many_updates_go_in_batches_and_wait_for_answers() {
    let mut connections = settled(Limits { share: 2000, ..Limits::new(2000) });
    for id in 0..1500 {
        assert_eq!(change(&mut connections, tcp(1, id), at(0)), []);
    }
    let first = connections.next_requests(at(0)).unwrap();
    assert_eq!(polder_devices::netlink::messages(&first).count(), 64);
    assert_eq!(events(&first).count(), 64);
    let rest = requests(&mut connections, at(0));
    assert_eq!((rest.len(), connections.next_deadline()), (1024 - 64, Some(at(300))), "a dump");
    for request in rest {
        answer(&mut connections, request, 0, at(0));
    }
    assert_eq!(requests(&mut connections, at(0)).len(), 1500 - 1024);
    assert_eq!(connections.counters().updates, 1500);
}
