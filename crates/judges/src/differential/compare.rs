//! Compares the packets of two routers in a case, and explains differences by a table.

use super::cases::Case;
use super::explained::{EXPLANATIONS, NORMAL};
use super::watch::Seen;

/// Packets that left each router; the comparison removes explained differences from them.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) kernel: Vec<Seen>,
    pub(super) polder: Vec<Seen>,
}

/// A difference that is known, and why it is.
pub(super) struct Explanation {
    /// A few words.
    pub(super) name: &'static str,
    /// Reason why the routers differ.
    pub(super) reason: &'static str,
    /// Removes the difference from both where it is found.
    pub(super) remove: fn(&Case, &mut Pair),
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    Same,
    /// The difference is accepted for these reasons.
    Explained(Vec<&'static str>),
    Different,
}

/// Compares.
pub(super) fn judge(case: &Case, kernel: &[Seen], polder: &[Seen]) -> Judgement {
    let mut pair = Pair { kernel: kernel.to_vec(), polder: polder.to_vec() };
    for seen in pair.kernel.iter_mut().chain(&mut pair.polder) {
        NORMAL.iter().for_each(|overwrite| overwrite(&mut seen.frame));
    }
    if pair.is_same() {
        return Judgement::Same;
    }
    // One explanation is better than several.
    for explanation in EXPLANATIONS {
        let mut one = pair.clone();
        (explanation.remove)(case, &mut one);
        if one.is_same() {
            return Judgement::Explained(vec![explanation.name]);
        }
    }
    let mut needed = Vec::new();
    for explanation in EXPLANATIONS {
        let before = pair.clone();
        (explanation.remove)(case, &mut pair);
        if before.kernel != pair.kernel || before.polder != pair.polder {
            needed.push(explanation.name);
        }
        if pair.is_same() {
            return Judgement::Explained(needed);
        }
    }
    Judgement::Different
}

impl Pair {
    /// Order between links means nothing, and none is promised within.
    fn is_same(&self) -> bool {
        let sorted = |list: &[Seen]| {
            let mut list = list.to_vec();
            list.sort();
            list
        };
        sorted(&self.kernel) == sorted(&self.polder)
    }
}
