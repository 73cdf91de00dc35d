//! A change that is taken back by itself unless it is confirmed in time.
//!
//! One change waits at a time. A further reload with a time of its own leaves the way back where it was: at the
//! configuration that was last confirmed.

use crate::config::model::Configuration;
use polder_datapath::units::Nanos;

/// The change that waits to be confirmed, if one does.
#[derive(Debug, Default)]
pub(super) struct Confirmation {
    pending: Option<Pending>,
    /// Time at which the last change was taken back.
    taken_back_at: Option<Nanos>,
}

/// A change that waits to be confirmed.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    /// Time at which it is taken back.
    pub(super) until: Nanos,
    /// Effect of taking it back.
    pub(super) back: Back,
    /// Interfaces that the change would leave closed, and that were open before.
    pub(super) closed: Vec<String>,
}

/// Effect of taking a change back.
#[derive(Clone, Debug)]
pub(super) enum Back {
    /// This configuration is in force again.
    To(Box<Configuration>),
    /// The gateway ends: it was started for a time.
    End,
}

/// Result of a confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Confirmed {
    /// In time; with as much time left.
    InTime(Nanos),
    /// The change was taken back, as long ago.
    Late(Nanos),
    /// Nothing waits.
    Nothing,
}

impl Confirmation {
    /// Makes a change wait. One that waits already keeps its way back, and has the new time.
    pub(super) fn wait(&mut self, new: Pending) {
        self.taken_back_at = None;
        match &mut self.pending {
            Some(pending) => {
                pending.until = new.until;
                pending.closed.extend(new.closed);
            }
            None => self.pending = Some(new),
        }
    }

    /// The change that waits.
    pub(super) fn pending(&self) -> Option<&Pending> {
        self.pending.as_ref()
    }

    /// Confirms the change that waits.
    pub(super) fn confirm(&mut self, now: Nanos) -> Confirmed {
        if let Some(pending) = self.pending.take() {
            return Confirmed::InTime(pending.until.since(now));
        }
        self.taken_back_at.map_or(Confirmed::Nothing, |at| Confirmed::Late(now.since(at)))
    }

    /// Gives the change out that is due to be taken back.
    pub(super) fn due(&mut self, now: Nanos) -> Option<Pending> {
        let due = self.pending.take_if(|pending| pending.until <= now)?;
        self.taken_back_at = Some(now);
        Some(due)
    }

    /// Time until something is due.
    pub(super) fn pause(&self, now: Nanos) -> Nanos {
        self.pending.as_ref().map_or(Nanos(u64::MAX), |pending| pending.until.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Nanos {
        Nanos::from_seconds(second)
    }

    fn pending(until: u64, back: Back) -> Pending {
        Pending { until: at(until), back, closed: vec![format!("until-{until}")] }
    }

    #[test]
    fn a_change_is_taken_back_once_and_a_late_confirmation_is_told() {
        let mut confirmation = Confirmation::default();
        assert_eq!(confirmation.confirm(at(1)), Confirmed::Nothing);
        confirmation.wait(pending(60, Back::End));
        assert_eq!(confirmation.pause(at(20)), at(40));
        assert!(confirmation.due(at(59)).is_none());
        assert!(matches!(confirmation.due(at(60)), Some(Pending { back: Back::End, .. })));
        assert!(confirmation.due(at(61)).is_none() && confirmation.pending().is_none());
        assert_eq!(confirmation.confirm(at(72)), Confirmed::Late(at(12)));
    }

    #[test]
    fn a_confirmed_change_stays() {
        let mut confirmation = Confirmation::default();
        confirmation.wait(pending(60, Back::End));
        assert_eq!(confirmation.confirm(at(15)), Confirmed::InTime(at(45)));
        assert!(confirmation.due(at(100)).is_none());
        assert_eq!(confirmation.confirm(at(101)), Confirmed::Nothing);
        assert_eq!(confirmation.pause(at(101)), Nanos(u64::MAX));
    }

    #[test]
    fn a_further_change_keeps_the_way_back() {
        let mut confirmation = Confirmation::default();
        confirmation.wait(pending(60, Back::To(Box::default())));
        confirmation.wait(pending(90, Back::End));
        assert!(confirmation.due(at(60)).is_none());
        let due = confirmation.due(at(90)).expect("it is due");
        assert!(matches!(due.back, Back::To(_)));
        assert_eq!(due.closed, ["until-60", "until-90"]);
    }
}
