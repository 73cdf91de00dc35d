//! Configuration changes that are rolled back unless they are confirmed in time.
//!
//! At most one change is pending. A further reload with a time limit keeps the roll-back target, which is the
//! configuration that was confirmed last.

use crate::config::model::Configuration;
use polder_datapath::units::Nanos;

/// The pending change, if any.
#[derive(Debug, Default)]
pub(super) struct Confirmation {
    pending: Option<Pending>,
    /// Time of the last roll-back.
    taken_back_at: Option<Nanos>,
}

/// A change that needs confirmation.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    /// Time at which the change is rolled back.
    pub(super) until: Nanos,
    /// Effect of the roll-back.
    pub(super) back: Back,
    /// Interfaces that were open and that the change would close when the gateway ends.
    pub(super) closed: Vec<String>,
}

/// Effect of a roll-back.
#[derive(Clone, Debug)]
pub(super) enum Back {
    /// Applies this configuration again.
    To(Box<Configuration>),
    /// Ends the gateway: the start itself was not confirmed.
    End,
}

/// Result of a confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Confirmed {
    /// Confirmed in time, with this much time left.
    InTime(Nanos),
    /// The change was rolled back this long ago.
    Late(Nanos),
    /// No change was pending.
    Nothing,
}

impl Confirmation {
    /// Makes a change pending. A change that is pending already keeps its roll-back target and takes the new
    /// time.
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

    /// The pending change.
    pub(super) fn pending(&self) -> Option<&Pending> {
        self.pending.as_ref()
    }

    /// Confirms the pending change.
    pub(super) fn confirm(&mut self, now: Nanos) -> Confirmed {
        if let Some(pending) = self.pending.take() {
            return Confirmed::InTime(pending.until.since(now));
        }
        self.taken_back_at.map_or(Confirmed::Nothing, |at| Confirmed::Late(now.since(at)))
    }

    /// Takes the pending change out if its time has expired.
    pub(super) fn due(&mut self, now: Nanos) -> Option<Pending> {
        let due = self.pending.take_if(|pending| pending.until <= now)?;
        self.taken_back_at = Some(now);
        Some(due)
    }

    /// Time until the pending change expires; the maximum if none is pending.
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
