//! Walk through chains with a packet of which some fields are known.
//!
//! A test of a known field has a definite result; other tests may pass or not. An effect counts if it may be
//! reached, and the walk only ends where a packet surely leaves.

use super::ruleset::{Base, Chain, Effect, Family, Field, Rule, Ruleset, Step, Test, Tool, Value};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Maximum depth of nested chain calls; nf_tables allows 16.
const DEPTH: usize = 64;

/// A packet: possible values of each known field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet(HashMap<Field, Vec<Vec<u8>>>);

impl Packet {
    /// The packet, with a field that has one of these values.
    #[must_use]
    pub fn with(mut self, field: Field, values: Vec<Vec<u8>>) -> Self {
        self.0.insert(field, values);
        self
    }

    /// Result of a comparison.
    fn equals(&self, value: &Value, any: &[Vec<u8>]) -> Answer {
        let Some(known) = self.0.get(&value.field).filter(|known| !known.is_empty()) else {
            return Answer::Maybe;
        };
        let mut answers = known.iter().map(|known| compare(&masked(known, &value.mask), any));
        let first = answers.next().unwrap_or(Answer::Maybe);
        if answers.all(|answer| answer == first) { first } else { Answer::Maybe }
    }
}

fn masked(known: &[u8], mask: &[(u8, u8)]) -> Vec<u8> {
    if mask.is_empty() {
        return known.to_vec();
    }
    known.iter().zip(mask).map(|(byte, (and, xor))| byte & and ^ xor).collect()
}

fn compare(known: &[u8], any: &[Vec<u8>]) -> Answer {
    if any.iter().any(|wanted| wanted.len() > known.len()) {
        return Answer::Maybe;
    }
    if any.iter().any(|wanted| known.starts_with(wanted)) { Answer::Yes } else { Answer::No }
}

/// Result of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    Maybe,
}

/// First effect of a chain on a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FoundEffect {
    /// The effect, as text that follows "would".
    pub effect: String,
    /// Chain and handle (position in iptables) of the rule; `None` for the policy.
    pub rule: Option<(String, u64)>,
}

type Name<'a> = (Tool, Family, &'a str, &'a str);

/// All chains, by name.
#[derive(Debug)]
pub struct Chains<'a>(HashMap<Name<'a>, &'a Chain>);

impl<'a> Chains<'a> {
    /// The chains of these rulesets.
    pub fn of(rulesets: impl IntoIterator<Item = &'a Ruleset>) -> Self {
        let chains = rulesets.into_iter().flat_map(|ruleset| &ruleset.chains);
        let named =
            |chain: &'a Chain| ((chain.tool, chain.family, chain.table.as_str(), chain.name.as_str()), chain);
        Self(chains.map(named).collect())
    }

    /// Base chains, which hooks call.
    pub fn bases(&self) -> impl Iterator<Item = (&'a Chain, &'a Base)> {
        self.0.values().filter_map(|chain| Some((*chain, chain.base.as_ref()?)))
    }

    /// True if any rule inspects each packet.
    pub fn look_at_each_packet(&self) -> bool {
        let mut steps = self.0.values().flat_map(|chain| &chain.rules).flat_map(|rule| &rule.steps);
        steps.any(|step| matches!(step, Step::Each(_)))
    }

    /// First rule from a base chain on that may treat packets of one connection differently; all of them
    /// match `packet`.
    pub fn walk_each(&self, chain: &'a Chain, packet: &Packet) -> Option<FoundEffect> {
        let looks_for = Wanted::Each;
        let mut walk = ChainWalk { chains: self, packet, of: chain, known: HashMap::new(), looks_for };
        match walk.chain(&chain.name, DEPTH) {
            Outcome::FoundEffect(would) => Some(would),
            Outcome::Ends | Outcome::Falls => None,
        }
    }

    /// First possible effect of a base chain on `packet`; `None` without one.
    pub fn walk(&self, chain: &'a Chain, packet: &Packet) -> Option<FoundEffect> {
        let looks_for = Wanted::Effect;
        let mut walk = ChainWalk { chains: self, packet, of: chain, known: HashMap::new(), looks_for };
        match walk.chain(&chain.name, DEPTH) {
            Outcome::FoundEffect(would) => Some(would),
            Outcome::Ends => None,
            Outcome::Falls => chain
                .base
                .as_ref()
                .filter(|base| base.drops)
                .map(|_| FoundEffect { effect: DROP.to_owned(), rule: None }),
        }
    }
}

/// Result of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// The packet may be affected.
    FoundEffect(FoundEffect),
    /// The packet is always accepted.
    Ends,
    /// The packet may reach the chain's end.
    Falls,
}

/// Continuation after a part of a rule.
enum Next {
    Step,
    Rule,
    Leave(Outcome),
}

struct ChainWalk<'a, 'c> {
    chains: &'c Chains<'a>,
    packet: &'c Packet,
    of: &'a Chain,
    known: HashMap<&'a str, Outcome>,
    looks_for: Wanted,
}

/// Rules that a walk looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// Rules with an effect.
    Effect,
    /// Rules that inspect each packet.
    Each,
}

impl<'a> ChainWalk<'a, '_> {
    fn chain(&mut self, name: &'a str, depth: usize) -> Outcome {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        let key = (self.of.tool, self.of.family, self.of.table.as_str(), name);
        let Some(&chain) = self.chains.0.get(&key) else { return Outcome::Falls };
        if depth == 0 {
            let effect = format!(
                "pass them through more than {DEPTH} nested chains, which is too deep to \
                                  follow"
            );
            return Outcome::FoundEffect(FoundEffect { effect, rule: None });
        }
        // A recursive call, which the kernel refuses, ends here.
        self.known.insert(name, Outcome::Falls);
        let outcome = self.rules(chain, depth);
        self.known.insert(name, outcome.clone());
        outcome
    }

    fn rules(&mut self, chain: &'a Chain, depth: usize) -> Outcome {
        for rule in &chain.rules {
            if let Next::Leave(outcome) = self.rule((chain, rule), depth) {
                return outcome;
            }
        }
        Outcome::Falls
    }

    fn rule(&mut self, (chain, rule): (&'a Chain, &'a Rule), depth: usize) -> Next {
        let mut sure = true;
        for step in &rule.steps {
            let next = match step {
                Step::Test(test) => match self.test(test) {
                    Answer::No => Next::Rule,
                    answer @ (Answer::Yes | Answer::Maybe) => {
                        sure &= answer == Answer::Yes;
                        Next::Step
                    }
                },
                Step::Do(effect) => self.effect(effect, sure, (chain, rule), depth),
                Step::Choose(value, elements) => self.choose((value, elements), sure, (chain, rule), depth),
                Step::Each(said) if self.looks_for == Wanted::Each => would(chain, rule, said),
                Step::Each(_) => Next::Step,
            };
            match next {
                Next::Step => {}
                Next::Rule | Next::Leave(_) => return next,
            }
        }
        Next::Rule
    }

    fn test(&self, test: &Test) -> Answer {
        match test {
            Test::Other => Answer::Maybe,
            Test::Is { value, any, negated } => match (self.packet.equals(value, any), negated) {
                (Answer::Maybe, _) => Answer::Maybe,
                (Answer::Yes, false) | (Answer::No, true) => Answer::Yes,
                (Answer::Yes, true) | (Answer::No, false) => Answer::No,
            },
        }
    }

    fn choose(
        &mut self,
        (value, elements): (&'a Value, &'a [(Vec<u8>, Effect)]),
        sure: bool,
        place: (&'a Chain, &'a Rule),
        depth: usize,
    ) -> Next {
        for (key, effect) in elements {
            let answer = self.packet.equals(value, std::slice::from_ref(key));
            if answer == Answer::No {
                continue;
            }
            if let Next::Leave(outcome) = self.effect(effect, sure && answer == Answer::Yes, place, depth) {
                return Next::Leave(outcome);
            }
        }
        Next::Rule
    }

    fn effect(
        &mut self,
        effect: &'a Effect,
        sure: bool,
        (chain, rule): (&'a Chain, &'a Rule),
        depth: usize,
    ) -> Next {
        match effect {
            Effect::Nothing => Next::Step,
            // Later rules count as reachable although this rule may end the walk.
            Effect::Drop | Effect::Alter(_) if self.looks_for == Wanted::Each => Next::Step,
            Effect::Drop => would(chain, rule, DROP),
            Effect::Alter(effect) => would(chain, rule, effect),
            Effect::Accept if sure => Next::Leave(Outcome::Ends),
            Effect::Return if sure => Next::Leave(Outcome::Falls),
            Effect::Accept | Effect::Return => Next::Rule,
            Effect::Jump(to) | Effect::Goto(to) => match (self.chain(to, depth - 1), sure) {
                (Outcome::FoundEffect(would), _) => Next::Leave(Outcome::FoundEffect(would)),
                (Outcome::Ends, true) => Next::Leave(Outcome::Ends),
                (Outcome::Falls, true) if matches!(effect, Effect::Goto(_)) => Next::Leave(Outcome::Falls),
                (Outcome::Ends | Outcome::Falls, _) => Next::Rule,
            },
        }
    }
}

/// Ends the walk at a rule.
fn would(chain: &Chain, rule: &Rule, effect: &str) -> Next {
    let rule = Some((chain.name.clone(), rule.handle));
    Next::Leave(Outcome::FoundEffect(FoundEffect { effect: effect.to_owned(), rule }))
}

/// Text that follows "would".
const DROP: &str = "drop them";
