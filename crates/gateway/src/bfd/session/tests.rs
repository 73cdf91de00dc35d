//! Two sessions on a link in virtual time, and single ones against the letter of the RFC.

use super::super::packet::{Diagnostic, Packet, State};
use super::{Handed, Refused, Session, Settings, next};
use polder_datapath::units::Nanos;
use proptest::prelude::*;

const MILLISECOND: u64 = 1_000_000;

fn settings(milliseconds: u64, multiplier: u8) -> Settings {
    Settings { interval: Nanos(milliseconds * MILLISECOND), multiplier }
}

/// Two ends; a packet takes a millisecond.
struct Link {
    now: Nanos,
    ends: [Session; 2],
    flying: Vec<(Nanos, usize, Packet)>,
    /// By sender: true if its packets are lost.
    lost: [bool; 2],
    /// By sender: times and packets, lost ones included.
    sent: [Vec<(Nanos, Packet)>; 2],
    random: u32,
}

impl Link {
    fn new(settings: [Settings; 2]) -> Self {
        let now = Nanos::SECOND;
        let ends = [Session::new(settings[0], 11, now), Session::new(settings[1], 22, now)];
        Self { now, ends, flying: Vec::new(), lost: [false; 2], sent: [Vec::new(), Vec::new()], random: 0 }
    }

    /// Runs for a time, in steps of 250 µs.
    fn run(&mut self, milliseconds: u64) {
        let end = self.now + Nanos(milliseconds * MILLISECOND);
        while self.now < end {
            self.now = self.now + Nanos(MILLISECOND / 4);
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.now;
        let arrived = self.flying.extract_if(.., |(at, ..)| *at <= now).collect::<Vec<_>>();
        for (_, sender, packet) in arrived {
            self.ends[1 - sender].receive(&packet, now).expect("for the other end");
        }
        for sender in 0..2 {
            self.ends[sender].expire(now);
            self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [.., random] = self.random.to_le_bytes();
            while let Some(packet) = self.ends[sender].transmit(now, random) {
                self.sent[sender].push((now, packet));
                let arrives = (now + Nanos(MILLISECOND), sender, packet);
                self.flying.extend((!self.lost[sender]).then_some(arrives));
            }
        }
    }

    fn states(&self) -> [State; 2] {
        [self.ends[0].state(), self.ends[1].state()]
    }

    fn up(settings: [Settings; 2]) -> Self {
        let mut link = Self::new(settings);
        link.run(4000);
        assert_eq!(link.states(), [State::Up; 2]);
        link
    }

    /// Pauses between the periodic packets of an end, in nanoseconds.
    fn pauses(&self, sender: usize) -> Vec<u64> {
        let periodic = self.sent[sender].iter().filter(|(_, packet)| !packet.is_final);
        let times = periodic.map(|(at, _)| at.0).collect::<Vec<_>>();
        times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

/// Source: RFC 5880, 6.2, the diagram, and 6.8.6 for AdminDown.
#[test]
fn states_follow_the_diagram() {
    use State::{AdminDown, Down, Init, Up};
    let table = [
        (Down, [None, Some(Init), Some(Up), None]),
        (Init, [Some(Down), None, Some(Up), Some(Up)]),
        (Up, [Some(Down), Some(Down), None, None]),
        (AdminDown, [None; 4]),
    ];
    for (ours, after) in table {
        for (theirs, expected) in [AdminDown, Down, Init, Up].into_iter().zip(after) {
            assert_eq!(next(ours, theirs).map(|(state, _)| state), expected, "{ours:?} hears {theirs:?}");
        }
    }
}

#[test]
fn both_ends_come_up_and_speed_up() {
    let mut link = Link::new([settings(50, 3), settings(50, 3)]);
    link.run(20);
    let slow = link
        .sent
        .iter()
        .flatten()
        .all(|(_, packet)| packet.state != State::Up && packet.desired_min_tx == 1_000_000);
    let (_, last) = link.sent[0].last().expect("a packet at once");
    assert!(slow || last.state == State::Up, "not fast before it is up");
    link.run(3000);
    assert_eq!(link.states(), [State::Up; 2]);
    assert_eq!(link.ends[0].discriminators(), (11, 22));
    assert_eq!(link.ends[0].detection_time(), Some(Nanos(150 * MILLISECOND)));
    link.sent = [Vec::new(), Vec::new()];
    link.run(1000);
    let count = link.sent[0].len();
    assert!((20..=27).contains(&count), "{count} packets in a second at 50 ms");
    let (_, packet) = link.sent[0].last().expect("packets");
    assert!(!packet.poll, "the poll sequence has ended");
    assert_eq!(
        (packet.desired_min_tx, packet.required_min_rx, packet.required_min_echo_rx),
        (50_000, 50_000, 0)
    );
}

/// Source: RFC 5880, 6.8.3.
#[test]
fn packets_are_seldom_while_nobody_answers() {
    let fresh = Link::new([settings(50, 3), settings(50, 3)]);
    let known = Link::up([settings(50, 3), settings(50, 3)]);
    for mut link in [fresh, known] {
        link.lost = [true, true];
        link.run(1000);
        link.sent = [Vec::new(), Vec::new()];
        link.run(10_000);
        assert!(link.pauses(0).iter().all(|pause| *pause >= 750 * MILLISECOND), "{:?}", link.pauses(0));
        assert!(link.sent[0].len() >= 9);
        assert!(link.sent[0].iter().all(|(_, packet)| packet.desired_min_tx == 1_000_000));
    }
}

#[test]
fn silence_is_noticed_after_the_detection_time_and_not_before() {
    let mut link = Link::up([settings(50, 3), settings(50, 3)]);
    link.lost[1] = true;
    let heard = link.ends[0].heard_at().expect("heard");
    let begun = link.now;
    while link.ends[0].state() == State::Up {
        link.run(1);
    }
    let (from_last, from_loss) =
        (link.now.since(heard).0 / MILLISECOND, link.now.since(begun).0 / MILLISECOND);
    assert!((100..=152).contains(&from_loss), "{from_loss} ms");
    assert!((150..=202).contains(&from_last), "{from_last} ms: one more may have been under way");
    assert_eq!(link.ends[0].diagnostic(), Diagnostic::TIME_EXPIRED);
    assert_eq!(link.ends[0].discriminators().1, 0, "forgotten (RFC 5880, 6.8.1)");
    // The other end hears that it is not heard.
    link.run(10);
    assert_eq!(link.states(), [State::Down; 2]);
    assert_eq!(link.ends[1].diagnostic(), Diagnostic::NEIGHBOR_DOWN);
    link.lost[1] = false;
    link.run(4000);
    assert_eq!(link.states(), [State::Up; 2], "and it heals");
}

/// Between the two processes of an upgrade there is a pause, in which packets come to nobody.
#[test]
fn a_session_that_another_process_goes_on_with_stays_up() {
    let both = settings(50, 3);
    let mut link = Link::up([both, both]);
    let changed = link.ends.each_ref().map(Session::changed_at);
    let handed = serde_json::to_string(&link.ends[0].handed()).expect("text");
    link.lost = [true, true];
    link.run(90);
    link.lost = [false, false];
    let handed = serde_json::from_str::<Handed>(&handed).expect("a session");
    link.ends[0] = Session::resumed(both, &handed, link.now);
    link.run(2000);
    assert_eq!(link.states(), [State::Up; 2]);
    assert_eq!(link.ends.each_ref().map(Session::changed_at), changed, "nobody has noticed");
    assert_eq!(link.ends[0].discriminators(), (11, 22));
    assert_eq!(link.ends[0].detection_time(), Some(Nanos(150 * MILLISECOND)));
    link.lost = [true, true];
    link.run(160);
    assert_eq!(link.states(), [State::Down; 2], "and silence is noticed");
    // A process that begins anew is another session: the other end goes down.
    let mut link = Link::up([both, both]);
    link.ends[0] = Session::new(both, 33, link.now);
    link.flying.clear();
    link.lost[1] = true;
    link.run(100);
    assert_ne!(link.ends[1].state(), State::Up);
}

/// One that is down is down at once in the next process, too, and is known to have been up.
#[test]
fn a_session_that_is_down_is_handed_over_as_it_is() {
    let both = settings(50, 3);
    let mut link = Link::up([both, both]);
    link.lost = [true, true];
    link.run(500);
    let before = link.ends[0].clone();
    link.ends[0] = Session::resumed(both, &before.handed(), link.now);
    let after = &link.ends[0];
    assert_eq!((after.state(), after.diagnostic()), (State::Down, Diagnostic::TIME_EXPIRED));
    assert_eq!((after.changed_at(), after.has_been_up()), (before.changed_at(), true));
    link.run(2000);
    assert_eq!(link.states(), [State::Down; 2]);
    link.lost = [false, false];
    link.run(4000);
    assert_eq!(link.states(), [State::Up; 2], "and it heals");
}

#[test]
fn two_of_three_may_be_lost() {
    let mut link = Link::up([settings(50, 3), settings(50, 3)]);
    for _ in 0..20 {
        link.lost = [true, true];
        link.run(99);
        link.lost = [false, false];
        link.run(60);
        assert_eq!(link.states(), [State::Up; 2]);
    }
}

#[test]
fn packets_are_early_by_up_to_a_quarter() {
    for (multiplier, longest, least_longest) in [(3, 100, 99), (1, 90, 88)] {
        let mut link = Link::up([settings(100, multiplier), settings(100, 5)]);
        link.sent = [Vec::new(), Vec::new()];
        link.run(30_000);
        let pauses = link.pauses(0);
        let (min, max) =
            (pauses.iter().min().unwrap() / MILLISECOND, pauses.iter().max().unwrap() / MILLISECOND);
        assert!((75..=78).contains(&min), "{min} ms, multiplier {multiplier}");
        assert!((least_longest - 2..=longest).contains(&max), "{max} ms, multiplier {multiplier}");
    }
}

#[test]
fn the_slower_of_both_decides() {
    let mut link = Link::up([settings(50, 3), settings(400, 2)]);
    assert_eq!(
        link.ends[0].detection_time(),
        Some(Nanos(800 * MILLISECOND)),
        "their multiplier, their interval"
    );
    assert_eq!(link.ends[1].detection_time(), Some(Nanos(1200 * MILLISECOND)));
    link.sent = [Vec::new(), Vec::new()];
    link.run(8000);
    for sender in 0..2 {
        assert!(link.pauses(sender).iter().all(|pause| *pause >= 300 * MILLISECOND));
    }
}

#[test]
fn slower_packets_wait_for_the_answer_to_a_poll() {
    let mut link = Link::up([settings(50, 3), settings(50, 3)]);
    link.lost[0] = true;
    link.ends[0].set(settings(300, 3));
    link.sent = [Vec::new(), Vec::new()];
    link.run(120);
    assert!(link.sent[0].len() >= 3, "as often as before until the answer");
    assert!(link.sent[0].iter().all(|(_, packet)| packet.poll && packet.desired_min_tx == 300_000));
    assert!(link.pauses(0).iter().all(|pause| *pause <= 51 * MILLISECOND), "as before until the answer");
    link.lost[0] = false;
    link.run(2000);
    assert_eq!(link.states(), [State::Up; 2]);
    let (_, last) = link.sent[0].last().expect("packets");
    assert!(!last.poll);
    assert!(*link.pauses(0).last().unwrap() >= 220 * MILLISECOND);
    assert_eq!(link.ends[1].detection_time(), Some(Nanos(900 * MILLISECOND)));
}

#[test]
fn a_shorter_detection_time_waits_for_the_answer_too() {
    let mut link = Link::up([settings(300, 3), settings(50, 3)]);
    assert_eq!(link.ends[0].detection_time(), Some(Nanos(900 * MILLISECOND)));
    link.lost[0] = true;
    link.ends[0].set(settings(50, 3));
    link.run(60);
    assert_eq!(link.ends[0].detection_time(), Some(Nanos(900 * MILLISECOND)));
    link.lost[0] = false;
    link.run(1000);
    assert_eq!(link.ends[0].detection_time(), Some(Nanos(150 * MILLISECOND)));
    assert_eq!(link.states(), [State::Up; 2]);
}

fn heard(state: State, poll: bool) -> Packet {
    let your_discriminator = if state == State::Down { 0 } else { 11 };
    Packet {
        state,
        poll,
        multiplier: 3,
        my_discriminator: 22,
        your_discriminator,
        desired_min_tx: 50_000,
        required_min_rx: 50_000,
        ..Packet::default()
    }
}

fn up_session(now: Nanos) -> Session {
    let mut session = Session::new(settings(50, 3), 11, now);
    session.receive(&heard(State::Init, false), now).expect("taken");
    assert_eq!(session.state(), State::Up);
    while session.transmit(now, 0).is_some() {}
    session
}

#[test]
fn a_poll_is_answered_at_once_and_beside_the_timer() {
    let now = Nanos::SECOND;
    let mut session = up_session(now);
    let due = session.next_deadline();
    session.receive(&heard(State::Up, true), now).expect("taken");
    assert_eq!(session.next_deadline(), Some(Nanos(0)));
    let answer = session.transmit(now, 0).expect("an answer");
    assert!(answer.is_final && !answer.poll);
    assert_eq!((session.transmit(now, 0), session.next_deadline()), (None, due));
}

#[test]
fn packets_for_others_change_nothing() {
    let now = Nanos::SECOND;
    let mut session = up_session(now);
    let wrong = Packet { your_discriminator: 12, ..heard(State::Up, false) };
    assert_eq!(session.receive(&wrong, now), Err(Refused::OtherDiscriminator));
    for state in [State::Init, State::Up] {
        let unknown = Packet { your_discriminator: 0, ..heard(state, false) };
        assert_eq!(session.receive(&unknown, now), Err(Refused::NoDiscriminator));
    }
    assert_eq!((session.state(), session.discriminators()), (State::Up, (11, 22)));
    // One that has begun anew does not know the discriminator, and is heard (RFC 5880, 6.8.6).
    assert_eq!(session.receive(&heard(State::Down, false), now), Ok(true));
    assert_eq!((session.state(), session.diagnostic()), (State::Down, Diagnostic::NEIGHBOR_DOWN));
}

#[test]
fn who_is_switched_off_says_so_and_hears_nothing() {
    let mut link = Link::up([settings(50, 3), settings(50, 3)]);
    link.ends[0].disable(link.now);
    link.run(100);
    assert_eq!(link.states(), [State::AdminDown, State::Down]);
    assert_eq!(link.ends[1].diagnostic(), Diagnostic::NEIGHBOR_DOWN);
    assert_eq!(link.ends[1].remote_state(), (State::AdminDown, Diagnostic::ADMIN_DOWN));
    let heard = link.ends[0].heard_at();
    link.run(5000);
    assert_eq!(link.states(), [State::AdminDown, State::Down]);
    assert_eq!(link.ends[0].heard_at(), heard, "packets are discarded (RFC 5880, 6.8.6)");
}

#[test]
fn periodic_packets_stop_where_they_are_not_wanted() {
    let now = Nanos::SECOND;
    let mut session = up_session(now);
    let silent = Packet { required_min_rx: 0, is_final: true, ..heard(State::Up, false) };
    session.receive(&silent, now).expect("taken");
    assert_eq!(session.transmit(now + Nanos(60 * MILLISECOND), 0), None);
    let mut session = up_session(now);
    let demand = Packet { demand: true, is_final: true, ..heard(State::Up, false) };
    session.receive(&demand, now).expect("taken");
    assert_eq!(session.transmit(now + Nanos(60 * MILLISECOND), 0), None);
    // What has changed is told.
    session.disable(now);
    assert!(
        session
            .transmit(now + Nanos(60 * MILLISECOND), 0)
            .is_some_and(|packet| packet.state == State::AdminDown)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is lost, an end that hears nothing for the detection time is not up, and both are up again after a while.
    #[test]
    fn losses_are_noticed_and_heal(losses in prop::collection::vec((any::<bool>(), any::<bool>(), 1_u64..400), 1..12)) {
        let mut link = Link::up([settings(50, 3), settings(100, 2)]);
        for (near, far, milliseconds) in losses {
            link.lost = [near, far];
            link.run(milliseconds);
            for end in &link.ends {
                let silent = link.now.since(end.heard_at().expect("heard"));
                let limit = end.detection_time().map(|limit| limit + Nanos(MILLISECOND));
                prop_assert!(end.state() != State::Up || limit.is_some_and(|limit| silent <= limit));
            }
        }
        link.lost = [false; 2];
        link.run(4000);
        prop_assert_eq!(link.states(), [State::Up; 2]);
    }
}
