//! Time for which a port still yields after a packet hook has gone.

use polder_datapath::units::Nanos;

/// Yield state of one port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hold {
    /// Start of the current yield.
    pub(super) since: Option<Nanos>,
    /// Time at which the last hook of the current yield disappeared.
    gone: Option<Nanos>,
    /// Time without a hook after which the yield ends.
    pause: Nanos,
    /// End of the last yield.
    ended: Nanos,
    /// Number of yields.
    pub(super) times: u64,
    /// Total time of the ended yields.
    total: Nanos,
}

/// Change of a port's yield state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The kernel receives the port's packets from now on.
    Begins,
    /// No change.
    Stays,
    /// Polder takes the port's packets again, after this time.
    Ends(Nanos),
}

impl Hold {
    /// Records whether a hook exists.
    pub(super) fn look(&mut self, is_there: bool, now: Nanos) -> Turn {
        match (self.since, is_there) {
            (None, false) => Turn::Stays,
            (None, true) => {
                let is_quiet = self.times == 0 || now.since(self.ended) >= QUIET;
                self.pause = if is_quiet { SHORTEST } else { self.longer() };
                (self.since, self.gone) = (Some(now), None);
                self.times += 1;
                Turn::Begins
            }
            (Some(_), true) => {
                if self.gone.take().is_some() {
                    self.pause = self.longer();
                }
                Turn::Stays
            }
            (Some(since), false) => {
                let gone = *self.gone.get_or_insert(now);
                if now.since(gone) < self.pause {
                    return Turn::Stays;
                }
                (self.since, self.gone, self.ended) = (None, None, now);
                let time = now.since(since);
                self.total = self.total + time;
                Turn::Ends(time)
            }
        }
    }

    /// Ends the yield of a port that cannot yield any more.
    pub(super) fn give_up(&mut self, now: Nanos) -> Turn {
        let Some(since) = self.since.take() else { return Turn::Stays };
        (self.gone, self.ended) = (None, now);
        self.total = self.total + now.since(since);
        Turn::Ends(now.since(since))
    }

    /// Time until the yield ends; `None` while a hook exists or without a yield.
    pub(super) fn due(&self, now: Nanos) -> Option<Nanos> {
        let end = self.gone? + self.pause;
        Some(Nanos(end.0.saturating_sub(now.0)))
    }

    /// Total time for which the port has yielded.
    pub(super) fn total(&self, now: Nanos) -> Nanos {
        self.since.map_or(self.total, |since| self.total + now.since(since))
    }

    fn longer(&self) -> Nanos {
        Nanos(self.pause.0 * 2).clamp(SHORTEST, LONGEST)
    }
}

/// Minimum and maximum time without a hook after which a yield ends.
const SHORTEST: Nanos = Nanos::from_seconds(2);
const LONGEST: Nanos = Nanos::from_seconds(60);
/// Time without a hook after which the minimum applies again.
const QUIET: Nanos = Nanos::from_seconds(60);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(milliseconds: u64) -> Nanos {
        Nanos::SECOND + Nanos::from_millis(milliseconds)
    }

    #[test]
    fn a_hook_has_to_be_gone_for_two_seconds() {
        let mut hold = Hold::default();
        assert_eq!(hold.look(false, at(0)), Turn::Stays);
        assert_eq!(hold.look(true, at(10)), Turn::Begins);
        assert_eq!((hold.look(true, at(5000)), hold.due(at(5000))), (Turn::Stays, None));
        assert_eq!(
            (hold.look(false, at(6000)), hold.due(at(6500))),
            (Turn::Stays, Some(Nanos::from_millis(1500)))
        );
        assert_eq!(hold.look(false, at(7999)), Turn::Stays);
        assert_eq!(hold.look(false, at(8000)), Turn::Ends(Nanos::from_millis(7990)));
        assert_eq!((hold.times, hold.total(at(9000))), (1, Nanos::from_millis(7990)));
    }

    #[test]
    fn a_hook_that_flaps_has_to_be_gone_for_longer_up_to_a_minute_and_after_a_quiet_one_for_two_seconds() {
        let mut hold = Hold::default();
        hold.look(true, at(0));
        let mut time = 0;
        for seconds in [4, 8, 16, 32, 60, 60] {
            hold.look(false, at(time + 50));
            hold.look(true, at(time + 100));
            hold.look(false, at(time + 150));
            assert_eq!(hold.due(at(time + 150)), Some(Nanos::from_seconds(seconds)));
            time += 200;
            hold.look(true, at(time));
            hold.pause = Nanos::from_seconds(seconds);
        }
        hold.look(false, at(time));
        assert!(matches!(hold.look(false, at(time + 60_000)), Turn::Ends(_)));
        // Again before a minute is over.
        assert_eq!(hold.look(true, at(time + 60_100)), Turn::Begins);
        assert_eq!(hold.pause, Nanos::from_seconds(60));
        hold.look(false, at(time + 60_200));
        assert!(matches!(hold.look(false, at(time + 120_200)), Turn::Ends(_)));
        assert_eq!((hold.look(true, at(time + 180_200)), hold.pause), (Turn::Begins, Nanos::from_seconds(2)));
    }

    proptest! {
        /// No yield ends while a hook is there or before it was gone for two seconds, and each ends after a minute.
        #[test]
        fn yields_end_in_time(looks in proptest::collection::vec((any::<bool>(), 1_u64..4000), 1..200)) {
            let (mut hold, mut time, mut gone) = (Hold::default(), 0, None);
            for (is_there, pause) in looks {
                time += pause;
                gone = if is_there { None } else { gone.or(Some(time)) };
                let turn = hold.look(is_there, at(time));
                let absent = gone.map_or(0, |gone| time - gone);
                match turn {
                    Turn::Ends(_) => prop_assert!(!is_there && absent >= 2000),
                    Turn::Begins | Turn::Stays => prop_assert!(hold.since.is_none() || absent < 60_000),
                }
                prop_assert!(!is_there || hold.since.is_some());
            }
            prop_assert!(hold.total(at(time)) <= Nanos::from_millis(time));
        }
    }
}
