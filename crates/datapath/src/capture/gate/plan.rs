//! Arranges conditions as tests of words: few windows, each with as many tests as fit.

use super::condition::{Condition, Field};
use super::{Bits, Exception, Gate, LANES, Lanes, Test, WINDOW};

/// Maximum number of tests and exceptions of a gate.
const MOST: usize = 8;
/// Length in bytes that nearly every packet has.
const USUAL: u16 = 60;
/// Low bits in which two values of a field may differ to be tested as one.
const LAST_BITS: u32 = 7;

/// Gate that passes each packet that fulfils one of `conditions`; each has a list of the conditions known
/// before it. `None` if the gate would be too large.
pub(super) fn plan(conditions: Vec<(Condition, &[Condition])>) -> Option<Gate> {
    let (equal, others): (Vec<_>, Vec<_>) =
        conditions.into_iter().partition(|(condition, _)| condition.equal);
    let mut exceptions = Vec::new();
    for (condition, facts) in others {
        let exception = exception(&condition, facts);
        if !exceptions.contains(&exception) {
            exceptions.push(exception);
        }
    }
    let mut left = merged(equal.into_iter().map(|(condition, _)| condition).collect());
    left.sort_by_key(|condition| core::cmp::Reverse(condition.end()));
    let mut tests = Vec::new();
    while let Some(last) = left.first().map(Condition::end) {
        // The last word is read in any case; choose the window that contains most others.
        let fits = |at: &u16| at + WINDOW <= last.max(USUAL);
        let starts = (last.saturating_sub(WINDOW)..=last.saturating_sub(4)).filter(fits);
        let filled = starts.map(|at| fill(at, &left)).max_by_key(|(_, placed)| placed.len())?;
        let (test, placed) = filled;
        if placed.is_empty() {
            return None;
        }
        left =
            left.into_iter().enumerate().filter(|(at, _)| !placed.contains(at)).map(|(_, it)| it).collect();
        tests.push(test);
    }
    let count = tests.len() + exceptions.len();
    (1..=MOST).contains(&count).then(|| Gate::new(tests.into(), exceptions.into()))
}

/// Merges conditions on one field whose values differ in the last bits only; the merged condition is weaker.
fn merged(conditions: Vec<Condition>) -> Vec<Condition> {
    let mut merged = Vec::<Condition>::new();
    for condition in conditions {
        let Field { offset, bytes, mask } = condition.field;
        let similar = merged.iter_mut().find_map(|other| {
            let same =
                (other.field.offset, other.field.bytes) == (offset, bytes) && other.field.mask & !mask == 0;
            let difference = (other.value ^ condition.value) & other.field.mask;
            let is_near = difference <= LAST_BITS && other.field.mask.count_ones() >= 16;
            (same && (difference == 0 || is_near)).then_some((other, difference))
        });
        match similar {
            None => merged.push(condition),
            Some((other, difference)) if difference > 0 => {
                other.field.mask &= !LAST_BITS;
                other.value &= !LAST_BITS;
            }
            Some(_) => {}
        }
    }
    merged
}

/// Test of the window at offset `at` with the conditions that fit, and the indices of these.
fn fill(at: u16, conditions: &[Condition]) -> (Test, Vec<usize>) {
    let (mut lanes, mut placed) = (Lanes::NONE, Vec::new());
    for (number, condition) in conditions.iter().enumerate() {
        let Some(lane) = condition.field.offset.checked_sub(at).map(|distance| distance / 4) else {
            continue;
        };
        let (place, word) = (usize::from(lane), at + 4 * lane);
        let is_free = place < LANES && condition.is_within(word) && lanes.value[place] == 1;
        if is_free && lanes.mask[place] == 0 {
            let Bits { mask, value } = condition.bits(word);
            (lanes.mask[place], lanes.value[place]) = (mask, value);
            placed.push(number);
        }
    }
    (Test { at, lanes }, placed)
}

/// Exception for a condition of inequality, joined with the known facts about the same word.
fn exception(condition: &Condition, facts: &[Condition]) -> Exception {
    let at = condition.end().saturating_sub(4);
    let facts = facts.iter().filter(|fact| fact.is_within(at)).map(|fact| fact.bits(at));
    Exception { at, equal: facts.fold(Bits::ANY, Bits::joined), unequal: condition.bits(at) }
}

impl Bits {
    /// Conjunction of both; if they contradict, no packet has either, and `self` is returned.
    fn joined(self, other: Self) -> Self {
        if (self.value ^ other.value) & self.mask & other.mask != 0 {
            return self;
        }
        Self { mask: self.mask | other.mask, value: self.value | other.value }
    }
}
