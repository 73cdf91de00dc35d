use super::*;

fn windows() -> Option<Windows> {
    // Without the right to make maps there is nothing to look at; the namespace tests say so.
    Windows::new(2, 1 << 20).ok()
}

#[test]
fn an_empty_queue_ends_what_was_counted_differently() {
    let Some(windows) = windows() else { return };
    let (mut window, other) = (windows.of(1), windows.of(0));
    windows.word(WORDS + ADMITTED).store(5000, Ordering::Relaxed);
    let admitted = |charges, packets| Admitted { charges, packets };
    assert_eq!((window.admitted(), other.admitted()), (admitted(5000, 0), admitted(0, 0)));
    window.consume(2, 100);
    let consumed = || windows.word(WORDS + CONSUMED).load(Ordering::Relaxed);
    assert_eq!(consumed(), 2 * 1024 + 100);
    window.empty(admitted(5000, 2));
    assert_eq!(consumed(), 5000);
}

#[test]
fn the_worker_is_through_with_what_it_has_read_and_with_nothing_else() {
    let Some(windows) = windows() else { return };
    let mut window = windows.of(0);
    let completed = || windows.word(COMPLETED).load(Ordering::Relaxed);
    let admitted = |packets| Admitted { charges: 0, packets };
    window.consume(3, 0);
    assert_eq!(completed(), 0, "they are being sent");
    window.complete();
    assert_eq!(completed(), 3);
    // One has its number, and is not in the TAP yet.
    window.empty(admitted(4));
    window.complete();
    assert_eq!(completed(), 3);
    // The kernel has made two of one.
    window.consume(2, 0);
    window.empty(admitted(4));
    window.complete();
    assert_eq!(completed(), 4);
    // Some of it waits in front of a device.
    window.consume(1, 0);
    window.hold(true);
    window.complete();
    assert_eq!(completed(), 4);
    window.hold(false);
    window.complete();
    assert_eq!(completed(), 5);
    // One is lost.
    for _ in 1..LOST_TIMES {
        window.empty(admitted(6));
    }
    std::thread::sleep(LOST_AFTER);
    window.complete();
    assert_eq!(completed(), 5);
    window.empty(admitted(6));
    window.complete();
    assert_eq!(completed(), 6);
}

#[test]
fn lost_packets_are_through_when_nothing_else_is_missing() {
    let Some(windows) = windows() else { return };
    let mut window = windows.of(0);
    let completed = || windows.word(COMPLETED).load(Ordering::Relaxed);
    let admitted = |packets| Admitted { charges: 0, packets };
    // Of ten two are lost, and three that came before those are on their way.
    window.consume(5, 0);
    assert!(!window.empty_but(admitted(10), 2));
    window.complete();
    assert_eq!(completed(), 5);
    window.consume(3, 0);
    assert!(window.empty_but(admitted(10), 2));
    window.complete();
    assert_eq!(completed(), 10);
    assert!(window.empty_but(admitted(10), 0));
}

#[test]
fn each_drop_is_counted_once() {
    let Some(windows) = windows() else { return };
    let mut window = windows.of(0);
    for (word, count) in [(OVERRUNS, 17), (OVERRUNS_CONTROL, 5), (FENCED, 3)] {
        windows.word(word).store(count, Ordering::Relaxed);
    }
    assert_eq!((window.dropped(), window.dropped()), ([17, 5, 3], [0; 3]));
}

#[test]
fn another_receiver_goes_on_where_one_has_ended() {
    let Some(windows) = windows() else { return };
    let mut window = windows.of(1);
    windows.word(WORDS + OVERRUNS).store(7, Ordering::Relaxed);
    windows.word(WORDS + USED).store(300, Ordering::Relaxed);
    window.consume(3, 8000);
    window.set_limit(Some(100));
    window.complete();
    assert_eq!(window.dropped(), [7, 0, 0]);
    windows.word(WORDS + OVERRUNS).store(9, Ordering::Relaxed);
    let map = windows.as_fd().try_clone_to_owned().expect("a descriptor can be copied");
    assert!(Windows::adopt(map, 1, 1 << 20).is_err(), "of another number of queues");
    let map = windows.as_fd().try_clone_to_owned().expect("a descriptor can be copied");
    let mut next = Windows::adopt(map, 2, 1 << 20).expect("the same map").of(1);
    let state =
        |window: &Window| (window.consumed, window.read, window.completed, window.limit, window.credit);
    assert_eq!(state(&next), state(&window));
    assert_eq!(next.dropped(), [2, 0, 0], "those that nobody has counted");
}

#[test]
fn a_deep_window_has_room_whatever_the_limit_is() {
    let Some(windows) = windows() else { return };
    let mut window = windows.of(1);
    let limit = || windows.word(WORDS + LIMIT).load(Ordering::Relaxed);
    window.set_limit(Some(100));
    windows.deepen(true);
    assert_eq!(limit(), DEEP_BYTES.into(), "at once, also for a receiver without a turn");
    for packets in [Some(100), Some(200), None] {
        window.set_limit(packets);
        assert_eq!(limit(), DEEP_BYTES.into());
    }
    windows.deepen(false);
    window.set_limit(Some(100));
    assert_eq!(limit(), 100 * 1024);
}

#[test]
fn a_limit_is_in_packets_as_long_as_they_were_and_never_more_than_the_window_allows() {
    let Some(windows) = windows() else { return };
    let mut window = windows.of(1);
    let limit = || windows.word(WORDS + LIMIT).load(Ordering::Relaxed);
    assert_eq!(limit(), 3 << 18, "three quarters of the window");
    window.set_limit(Some(100));
    assert_eq!(limit(), 100 * 1024);
    for _ in 0..64 {
        window.consume(10, 10 * 4096);
    }
    window.set_limit(Some(100));
    assert!((490_000..=512_000).contains(&limit()), "{}", limit());
    for packets in [Some(u32::MAX), None] {
        window.set_limit(packets);
        assert_eq!(limit(), 3 << 18);
    }
}

#[test]
fn credit_is_a_part_of_what_was_read_and_bounded_by_the_reserve() {
    let Some(windows) = windows() else { return };
    let mut window = windows.of(0);
    let credit = || windows.word(CREDIT).load(Ordering::Relaxed);
    const RESERVE: u64 = 1 << 18;
    assert_eq!(credit(), RESERVE);
    window.consume(1000, 1_000_000);
    assert_eq!(credit(), RESERVE, "none was used");
    windows.word(USED).store(RESERVE, Ordering::Relaxed);
    window.consume(10, 10 * (8192 - 1024));
    assert_eq!(credit(), RESERVE + 10 * 1024);
    for _ in 0..1000 {
        window.consume(10, 10 * (8192 - 1024));
    }
    assert_eq!(credit(), 2 * RESERVE);
}
