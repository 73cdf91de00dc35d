//! Circles of a graph.

use std::collections::{BTreeMap, BTreeSet};

/// Groups of nodes that reach each other.
pub(super) fn circles<'a>(uses: impl Iterator<Item = &'a (String, String)>) -> Vec<BTreeSet<String>> {
    let mut targets = BTreeMap::<&str, BTreeSet<&str>>::new();
    for (from, to) in uses {
        targets.entry(from).or_default().insert(to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        targets.keys().map(|&from| (from, reached(from, &targets))).collect();
    let mut circles = BTreeSet::new();
    for (from, all) in &reached {
        let returns = |to: &&&str| reached.get(**to).is_some_and(|back| back.contains(from));
        let circle: BTreeSet<String> = all.iter().filter(returns).map(|&to| to.to_owned()).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reached<'a>(from: &'a str, targets: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(node) = next.pop() {
        let behind = targets.get(node).into_iter().flatten();
        next.extend(behind.filter(|&&target| reached.insert(target)));
    }
    reached
}
