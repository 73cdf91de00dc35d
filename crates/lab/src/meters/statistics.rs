//! Medians with their spread, and runs that take turns.

/// What several runs of the same thing gave.
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

    /// How many runs there were.
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
