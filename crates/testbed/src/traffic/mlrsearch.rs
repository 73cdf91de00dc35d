//! Multiple Loss Ratio search, RFC 9971: conditional throughput for several goals, in trials that may be noisy.
//!
//! A load is a lower bound for a goal when trials of that load were long enough together, and no larger part
//! of them than the *exceed ratio* lost more than the *loss ratio*; an upper bound when that cannot come true
//! any more. Short trials count against a load alone. A search narrows down both bounds, first in short trials,
//! then in those of the goal.

use std::time::Duration;

/// Search goal (section 4.6 there).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Part of the packets that may be lost.
    pub loss_ratio: f64,
    /// Part of the time in which more may be lost.
    pub exceed_ratio: f64,
    /// Distance of the bounds, as a part of the upper one.
    pub width: f64,
    /// Duration of a trial.
    pub trial: Duration,
    /// Duration of all trials of a load together.
    pub sum: Duration,
}

/// One trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Intended load in packets a second.
    pub load: f64,
    /// Its duration.
    pub time: Duration,
    /// Part of the packets that were lost.
    pub loss_ratio: f64,
}

/// Class of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The goal is reached.
    Lower,
    /// The goal is not reached.
    Upper,
    /// More trials are needed.
    Undecided,
}

/// Result for a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoalResult {
    /// Conditional throughput in packets a second.
    pub throughput: f64,
    /// Relevant lower bound in packets a second.
    pub lower: f64,
    /// Relevant upper bound in packets a second; `None` where the highest load reaches the goal.
    pub upper: Option<f64>,
}

/// A search for several goals.
#[derive(Clone, Debug)]
pub struct Search {
    goals: Vec<Goal>,
    least: f64,
    most: f64,
    trials: Vec<Trial>,
}

/// Trials and width of the first phase, as parts of those of the goal.
const FIRST_TRIAL: u32 = 4;
const FIRST_WIDTH: f64 = 4.0;

impl Goal {
    /// The first phase's: one short trial a load.
    fn roughly(self) -> Self {
        let trial = self.trial / FIRST_TRIAL;
        Self { trial, sum: trial, width: self.width * FIRST_WIDTH, ..self }
    }

    /// Class of a load by its trials (appendix A).
    pub fn classify<'a>(&self, trials: impl Iterator<Item = &'a Trial>) -> Bound {
        let (mut long_low, mut long_high, mut short_low, mut short_high) = (0.0, 0.0, 0.0, 0.0);
        for trial in trials {
            let sum = match (trial.time >= self.trial, trial.loss_ratio > self.loss_ratio) {
                (true, false) => &mut long_low,
                (true, true) => &mut long_high,
                (false, false) => &mut short_low,
                (false, true) => &mut short_high,
            };
            *sum += trial.time.as_secs_f64();
        }
        let balance = short_low * self.exceed_ratio / (1.0 - self.exceed_ratio);
        let high = long_high + f64::max(0.0, short_high - balance);
        let whole = f64::max(high + long_low, self.sum.as_secs_f64());
        let quantile = whole * self.exceed_ratio;
        match (high <= quantile, whole - long_low <= quantile) {
            (true, true) => Bound::Lower,
            (false, false) => Bound::Upper,
            (true, false) | (false, true) => Bound::Undecided,
        }
    }

    /// Throughput of a load that is a lower bound, without what the worst of the tolerable trials lost (appendix B).
    fn conditional_throughput(&self, load: f64, trials: impl Iterator<Item = Trial>) -> f64 {
        let mut long = trials.collect::<Vec<_>>();
        long.sort_by(|one, other| one.loss_ratio.total_cmp(&other.loss_ratio));
        let whole = long.iter().map(|trial| trial.time.as_secs_f64()).sum::<f64>();
        let mut left = f64::max(whole, self.sum.as_secs_f64()) * (1.0 - self.exceed_ratio);
        let mut lost = 1.0;
        for trial in long {
            lost = trial.loss_ratio;
            left -= trial.time.as_secs_f64();
            if left <= 0.0 {
                break;
            }
        }
        load * (1.0 - lost)
    }
}

impl Search {
    /// A search between two loads in packets a second.
    pub fn new(goals: impl Into<Vec<Goal>>, (least, most): (f64, f64)) -> Self {
        Self { goals: goals.into(), least, most, trials: Vec::new() }
    }

    /// Load and duration of the next trial; `None` when all goals are decided.
    pub fn next(&self) -> Option<(f64, Duration)> {
        self.goals.iter().find_map(|goal| {
            let rough = goal.roughly();
            let roughly = self.bounds(&rough);
            let next = |goal: &Goal, hint| self.next_of(goal, hint).map(|load| (load, goal.trial));
            // Bounds of the first phase are its hint for the second.
            next(&rough, (None, None)).or_else(|| next(goal, roughly))
        })
    }

    /// Takes the result of a trial.
    pub fn tell(&mut self, trial: Trial) {
        self.trials.push(trial);
    }

    /// Trials so far.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// Trials of the goal's duration at one load.
    pub fn full_length(&self, goal: &Goal, load: f64) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(move |trial| trial.load == load && trial.time >= goal.trial)
    }

    /// Result for a goal; `None` where no load reaches it so far.
    pub fn result(&self, goal: &Goal) -> Option<GoalResult> {
        let (lower, upper) = self.bounds(goal);
        let lower = lower?;
        let throughput = goal.conditional_throughput(lower, self.full_length(goal, lower).copied());
        Some(GoalResult { throughput, lower, upper })
    }

    fn class(&self, goal: &Goal, load: f64) -> Bound {
        goal.classify(self.trials.iter().filter(|trial| trial.load == load))
    }

    /// Relevant bounds: the lowest upper one, and the highest lower one below.
    fn bounds(&self, goal: &Goal) -> (Option<f64>, Option<f64>) {
        let loads = |class| {
            self.trials.iter().map(|trial| trial.load).filter(move |&load| self.class(goal, load) == class)
        };
        let upper = loads(Bound::Upper).min_by(f64::total_cmp);
        let lower =
            loads(Bound::Lower).filter(|&load| upper.is_none_or(|upper| load < upper)).max_by(f64::total_cmp);
        (lower, upper)
    }

    fn next_of(&self, goal: &Goal, (low_hint, high_hint): (Option<f64>, Option<f64>)) -> Option<f64> {
        let (lower, upper) = self.bounds(goal);
        let is_between =
            |load: f64| lower.is_none_or(|lower| load > lower) && upper.is_none_or(|upper| load < upper);
        // One that was begun is gone on with.
        let begun = |trial: &&Trial| {
            trial.time >= goal.trial
                && is_between(trial.load)
                && self.class(goal, trial.load) == Bound::Undecided
        };
        if let Some(trial) = self.trials.iter().rev().find(begun) {
            return Some(trial.load);
        }
        let hint = [low_hint, high_hint].into_iter().flatten().find(|&load| is_between(load));
        match (lower, upper) {
            (Some(lower), _) if lower >= self.most => None,
            (_, Some(upper)) if upper <= self.least => None,
            (Some(lower), Some(upper)) if upper - lower <= goal.width * upper => None,
            _ if hint.is_some() => hint,
            (Some(lower), Some(upper)) => Some(f64::midpoint(lower, upper)),
            (_, None) => Some(self.most),
            (None, Some(upper)) => Some(self.below(upper, goal)),
        }
    }

    /// A load below an upper bound: the forwarded load at that bound, or half of the bound.
    fn below(&self, upper: f64, goal: &Goal) -> f64 {
        let lost = self
            .trials
            .iter()
            .filter(|trial| trial.load == upper)
            .map(|trial| trial.loss_ratio)
            .fold(1.0, f64::min);
        let forwarded = upper * (1.0 - lost) / (1.0 - goal.loss_ratio);
        let is_lower = forwarded < upper * (1.0 - goal.width);
        f64::max(self.least, if is_lower { f64::max(forwarded, upper / 8.0) } else { upper / 2.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);
    const NONE_LOST: Goal =
        Goal { loss_ratio: 0.0, exceed_ratio: 0.5, width: 0.02, trial: SECOND, sum: Duration::from_secs(7) };

    fn trials(losses: &[f64], time: Duration) -> Vec<Trial> {
        losses.iter().map(|&loss_ratio| Trial { load: 1000.0, time, loss_ratio }).collect()
    }

    /// Half of seven seconds: four trials decide.
    #[test]
    fn loads_are_classified_by_the_part_of_bad_trials() {
        let class = |losses: &[f64]| NONE_LOST.classify(trials(losses, SECOND).iter());
        assert_eq!(class(&[]), Bound::Undecided);
        assert_eq!(class(&[0.0; 3]), Bound::Undecided);
        assert_eq!(class(&[0.0; 4]), Bound::Lower);
        assert_eq!(class(&[0.1, 0.0, 0.1, 0.0, 0.1, 0.0]), Bound::Undecided);
        assert_eq!(class(&[0.1, 0.0, 0.1, 0.0, 0.1, 0.0, 0.0]), Bound::Lower);
        assert_eq!(class(&[0.1, 0.1, 0.1, 0.1]), Bound::Upper);
    }

    /// They can say that a load is too high, and not that it is not.
    #[test]
    fn short_trials_count_against_a_load_alone() {
        let class = |losses: &[f64]| NONE_LOST.classify(trials(losses, SECOND / 4).iter());
        assert_eq!(class(&[0.0; 100]), Bound::Undecided);
        assert_eq!(class(&[0.1; 14]), Bound::Undecided);
        assert_eq!(class(&[0.1; 15]), Bound::Upper);
        assert_eq!(class(&[[0.1; 15], [0.0; 15]].concat()), Bound::Undecided);
    }

    /// The median of four trials and three that are missing is the worst of the four.
    #[test]
    fn throughput_is_without_what_tolerable_trials_lost() {
        let lossy = Goal { loss_ratio: 0.1, ..NONE_LOST };
        let of = |losses: &[f64]| lossy.conditional_throughput(1000.0, trials(losses, SECOND).into_iter());
        assert!((of(&[0.0, 0.01, 0.02, 0.03]) - 970.0).abs() < 1e-6);
        assert!((of(&[0.0, 0.01, 0.02, 0.03, 0.5, 0.5, 0.5]) - 970.0).abs() < 1e-6);
        assert!((of(&[0.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.5]) - 1000.0).abs() < 1e-6);
    }

    /// Runs a search against a device that forwards `limit` packets a second, and nothing of all trials of which
    /// `is_bad` says so.
    fn found(goals: &[Goal], limit: f64, mut is_bad: impl FnMut() -> bool) -> Search {
        let mut search = Search::new(goals, (1e3, 4e6));
        while let Some((load, time)) = search.next() {
            assert!(search.trials().len() < 2000, "the search ends");
            assert!((1e3..=4e6).contains(&load));
            let loss_ratio = if is_bad() { 0.5 } else { f64::max(0.0, 1.0 - limit / load) };
            search.tell(Trial { load, time, loss_ratio });
        }
        search
    }

    #[test]
    fn loads_beyond_the_range_are_results_of_a_kind() {
        let fast = found(&[NONE_LOST], 1e9, || false);
        assert_eq!(fast.result(&NONE_LOST).map(|it| (it.lower, it.upper)), Some((4e6, None)));
        assert_eq!(found(&[NONE_LOST], 10.0, || false).result(&NONE_LOST), None);
        assert_eq!(found(&[NONE_LOST], 1e6, || true).result(&NONE_LOST), None);
    }

    proptest! {
        /// Both goals are found within their width, also if a quarter of the trials is disturbed.
        #[test]
        fn limits_are_found(limit in 2e3..3.9e6, seed in any::<u64>(), is_noisy in any::<bool>()) {
            let partial = Goal { loss_ratio: 0.005, sum: Duration::from_secs(21), ..NONE_LOST };
            let goals = [Goal { sum: Duration::from_secs(21), ..NONE_LOST }, partial];
            let mut random = fastrand::Rng::with_seed(seed);
            let search = found(&goals, limit, || is_noisy && random.u8(..) < 30);
            for (goal, limit) in goals.iter().zip([limit, limit / 0.995]) {
                let result = search.result(goal).expect("there is a load without loss");
                prop_assert!(result.lower <= limit, "{result:?} for {limit}");
                // A disturbed load may be taken for an upper bound, and seldom is.
                let slack = if is_noisy { 0.8 } else { 1.0 - goal.width };
                prop_assert!(result.lower >= slack * limit, "{result:?} for {limit}");
                prop_assert!(result.throughput <= result.lower && result.throughput > result.lower * 0.99);
            }
        }
    }
}
