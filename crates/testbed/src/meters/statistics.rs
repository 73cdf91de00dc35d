//! Medians with their spread, and runs that take turns.

/// Results of repeated runs of one measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// None yet.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds the result of a run.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Number of runs that there were.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The middle one; of an even number the mean of the two in the middle.
    pub fn median(&self) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => None,
            length if length % 2 == 1 => Some(sorted[middle]),
            _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
        }
    }

    /// The differences to runs that were made beside these, one by one; `None` when there are not as many.
    pub fn minus(&self, others: &Self) -> Option<Self> {
        let pairs = self.0.iter().zip(&others.0);
        (self.count() == others.count()).then(|| pairs.map(|(one, other)| one - other).collect())
    }

    /// The ratios to runs that were made beside these, one by one; none when there are not as many.
    pub fn over(&self, others: &Self) -> Vec<f64> {
        if self.count() != others.count() {
            return Vec::new();
        }
        self.0.iter().zip(&others.0).map(|(one, other)| one / other).collect()
    }

    /// The ratios to the best of `loads`, run by run; which is the best is judged by the other runs. The best of several that
    /// are equal is the luckiest, and its own runs say too much.
    ///
    /// None where a load has another number of runs.
    pub fn over_best(&self, loads: &[Self]) -> Vec<f64> {
        if loads.iter().any(|load| load.count() != self.count()) {
            return Vec::new();
        }
        let without = |load: &Self, run| {
            let others = load.0.iter().enumerate().filter(|&(at, _)| at != run).map(|(_, &value)| value);
            others.collect::<Self>().median().unwrap_or(0.0)
        };
        let over = |(run, value): (usize, &f64)| {
            let best = loads.iter().max_by(|a, b| without(a, run).total_cmp(&without(b, run)))?;
            Some(value / best.0[run])
        };
        self.0.iter().enumerate().filter_map(over).collect()
    }

    /// All of them times `factor`.
    pub fn scaled(&self, factor: f64) -> Self {
        self.0.iter().map(|value| value * factor).collect()
    }

    /// Between which two of the values the median of all runs that could be made lies, with 95 % confidence, whatever their
    /// distribution; `None` below six runs, which cannot say that.
    ///
    /// Source: order statistics of the sign test (Conover, *Practical Nonparametric Statistics*, 3.2).
    pub fn interval(&self) -> Option<(f64, f64)> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let count = i32::try_from(sorted.len()).ok()?;
        // Of fair coins, so many show the same side with at most 2.5 %.
        let (mut chance, mut below, mut outside) = (0.5_f64.powi(count), 0.0, 0);
        for heads in 0..count {
            below += chance;
            if below > 0.025 {
                break;
            }
            outside += 1;
            chance *= f64::from(count - heads) / f64::from(heads + 1);
        }
        let first = usize::checked_sub(outside, 1)?;
        Some((sorted[first], sorted[sorted.len() - outside]))
    }

    /// The least and the largest.
    pub fn spread(&self) -> Option<(f64, f64)> {
        let low = self.0.iter().copied().min_by(f64::total_cmp)?;
        let high = self.0.iter().copied().max_by(f64::total_cmp)?;
        Some((low, high))
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

/// Runs A, B, A, B, …: what drifts on the machine meanwhile drifts for both.
///
/// # Errors
/// The first error of any run.
pub fn interleaved<E>(
    rounds: usize,
    mut a: impl FnMut() -> Result<f64, E>,
    mut b: impl FnMut() -> Result<f64, E>,
) -> Result<(Samples, Samples), E> {
    let (mut of_a, mut of_b) = (Samples::default(), Samples::default());
    for _ in 0..rounds {
        of_a.push(a()?);
        of_b.push(b()?);
    }
    Ok((of_a, of_b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_does_not_move_the_median() {
        let samples = [10.0, 1000.0, 11.0].into_iter().collect::<Samples>();
        assert_eq!((samples.median(), samples.spread()), (Some(11.0), Some((10.0, 1000.0))));
        assert_eq!([4.0, 2.0].into_iter().collect::<Samples>().median(), Some(3.0));
        assert_eq!(Samples::default().median(), None);
        assert_eq!(samples.scaled(0.5).spread(), Some((5.0, 500.0)));
    }

    #[test]
    fn the_best_of_equals_is_not_the_luckiest() {
        // Five loads of ten runs with a noise of 10 %; the last is worth `part` of the others.
        let mut state = 1_u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            1.0 + 0.2 * (f64::from(state >> 8) / f64::from(1 << 24) - 0.5)
        };
        let mut mean_ratio = |part: f64| {
            let mut trial = || {
                let mut loads =
                    (0..5).map(|_| (0..10).map(|_| noise()).collect::<Samples>()).collect::<Vec<_>>();
                loads[4] = loads[4].scaled(part);
                loads[4].over_best(&loads).into_iter().collect::<Samples>().median().unwrap()
            };
            (0..500).map(|_| trial()).sum::<f64>() / 500.0
        };
        let ratios = [1.0, 0.9, 0.5].map(&mut mean_ratio);
        assert!((ratios[0] - 1.0).abs() < 0.015 && (ratios[1] - 0.9).abs() < 0.015, "{ratios:?}");
        assert!((ratios[2] - 0.5).abs() < 0.01, "{ratios:?}");
        assert!(Samples::new().over_best(&[[1.0].into_iter().collect()]).is_empty());
    }

    #[test]
    fn an_interval_has_the_ranks_of_the_sign_test() {
        let of = |count: i32| (1..=count).map(f64::from).collect::<Samples>().interval();
        // Ranks as in the tables of the sign test.
        assert_eq!((of(5), of(6), of(9)), (None, Some((1.0, 6.0)), Some((2.0, 8.0))));
        assert_eq!((of(15), of(40)), (Some((4.0, 12.0)), Some((14.0, 27.0))));
    }

    #[test]
    fn a_known_difference_is_found_in_what_drifts() {
        let drift = |round: i32| 50.0 + f64::from(round * round % 17);
        let plain = (0..20).map(drift).collect::<Samples>();
        let slower = (0..20).map(|round| drift(round) + 3.0).collect::<Samples>();
        let pairs = slower.minus(&plain).unwrap();
        assert_eq!((pairs.median(), pairs.interval()), (Some(3.0), Some((3.0, 3.0))));
        assert_eq!(slower.minus(&Samples::default()), None);
    }

    #[test]
    fn runs_take_turns() {
        let order = std::cell::RefCell::new(String::new());
        let note = |name| {
            order.borrow_mut().push(name);
            Ok::<_, ()>(1.0)
        };
        let (a, b) = interleaved(3, || note('a'), || note('b')).unwrap();
        assert_eq!((order.borrow().as_str(), a.count(), b.count()), ("ababab", 3, 3));
    }
}
