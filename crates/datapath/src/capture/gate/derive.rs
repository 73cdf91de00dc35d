//! Derives necessary conditions of a match from a program.
//!
//! The program is unfolded into a graph: a node is an instruction with the known register values, an edge
//! leads to a successor, with its condition on the packet's bytes if that is simple. A matching packet passes
//! from the start to the match, so it fulfils a condition of every set of edges that separates the two. The
//! cheapest such set (minimum cut) is the gate.
//!
//! IPv4 headers are assumed to have no options, so that later offsets are constant; packets with options pass
//! the gate.

use super::Gate;
use super::condition::{Condition, Field};
use super::flow::{Net, UNCUTTABLE};
use super::plan::plan;
use crate::capture::program::{Arithmetic, Operand, Step, Test, Width};
use std::collections::BTreeMap;

/// Maximum number of nodes; larger programs have no gate.
const MOST_NODES: usize = 512;
/// Maximum cost of a gate in picoseconds per packet: less than the program's.
const MOST_COST: u32 = 6000;
/// Number of bytes from the packet's start that a gate may read.
const REACH: u64 = 128;
/// Length of an IPv4 header without options, in bytes.
const PLAIN_HEADER: u32 = 20;

/// Derives the gate of a program; `None` if it is not worth its cost.
pub(in crate::capture) fn derive(steps: &[Step]) -> Option<Gate> {
    let Unfolding { mut net, edges, .. } = Unfolding::of(steps)?;
    let cut = net.cut(MOST_COST)?;
    let cut = cut.into_iter().map(|edge| edges.get(edge)).collect::<Option<Vec<_>>>()?;
    let mut conditions = Vec::new();
    for edge in cut {
        conditions.push((edge.condition?, &*edge.facts));
    }
    plan(conditions)
}

/// Known value of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Unknown,
    Constant(u32),
    Field(Field),
}

/// Instruction with the register values known before it; ordered by instruction first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    at: usize,
    accumulator: Value,
    index: Option<u32>,
}

/// End of an edge.
enum End {
    To(State),
    Match,
}

/// Node to be processed: its number, and the conditions that hold on every path to it.
struct Waiting {
    number: usize,
    facts: Vec<Condition>,
}

struct Edge {
    condition: Option<Condition>,
    facts: Vec<Condition>,
}

/// Graph of a program.
struct Unfolding {
    net: Net,
    edges: Vec<Edge>,
    waiting: BTreeMap<State, Waiting>,
    nodes: usize,
}

impl Unfolding {
    /// Unfolds a program; `None` if the graph is too large.
    fn of(steps: &[Step]) -> Option<Self> {
        let start = State { at: 0, accumulator: Value::Constant(0), index: Some(0) };
        let waiting = BTreeMap::from([(start, Waiting { number: 0, facts: Vec::new() })]);
        let mut unfolding = Self { net: Net::new(), edges: Vec::new(), waiting, nodes: 2 };
        // All edges lead forward, so the first node in order has all its incoming edges.
        while let Some((state, node)) = unfolding.waiting.pop_first() {
            let step = steps.get(state.at)?;
            for (end, condition) in ways(step, state).into_iter().flatten() {
                unfolding.lead(&node, end, condition);
            }
            if unfolding.nodes > MOST_NODES {
                return None;
            }
        }
        Some(unfolding)
    }

    fn lead(&mut self, from: &Waiting, end: End, condition: Option<Condition>) {
        let weight = condition.map_or(UNCUTTABLE, |condition| condition.cost());
        let to = match end {
            End::Match => 1,
            End::To(state) => {
                let fact = condition.filter(|condition| condition.equal);
                let facts = from.facts.iter().copied().chain(fact);
                match self.waiting.get_mut(&state) {
                    Some(waiting) => {
                        let known = facts.collect::<Vec<_>>();
                        waiting.facts.retain(|fact| known.contains(fact));
                        waiting.number
                    }
                    None => {
                        let (number, facts) = (self.nodes, facts.collect());
                        self.nodes += 1;
                        self.waiting.insert(state, Waiting { number, facts });
                        number
                    }
                }
            }
        };
        self.net.connect(from.number, to, weight);
        self.edges.push(Edge { condition, facts: from.facts.clone() });
    }
}

type Ways = [Option<(End, Option<Condition>)>; 2];

/// Successors of an instruction, except for the end without a match.
fn ways(step: &Step, state: State) -> Ways {
    let next = State { at: state.at + 1, ..state };
    let on = |next| [Some((End::To(next), None)), None];
    let with = |accumulator| on(State { accumulator, ..next });
    match *step {
        Step::Load(width, offset) => with(field(width, u64::from(offset))),
        Step::LoadIndexed(width, offset) => match state.index {
            Some(index) => with(field(width, u64::from(offset) + u64::from(index))),
            None => with(Value::Unknown),
        },
        Step::LoadLength | Step::LoadMemory(_) | Step::Negate => with(Value::Unknown),
        Step::LoadConstant(constant) => with(Value::Constant(constant)),
        Step::IndexHeader(offset) => index_header(offset, next),
        Step::IndexConstant(constant) => on(State { index: Some(constant), ..next }),
        Step::IndexLength | Step::IndexMemory(_) => on(State { index: None, ..next }),
        Step::Store(_) | Step::StoreIndex(_) => on(next),
        Step::Compute(arithmetic, operand) => with(computed(arithmetic, operand, state)),
        Step::Jump(to) => on(State { at: to.into(), ..state }),
        Step::Branch(test, operand, yes, no) => branch(test, operand, [yes, no], state),
        Step::Return(0) => [None, None],
        Step::Return(_) | Step::ReturnAccumulator => [Some((End::Match, None)), None],
        Step::ToIndex => {
            let index = match state.accumulator {
                Value::Constant(constant) => Some(constant),
                Value::Unknown | Value::Field(_) => None,
            };
            on(State { index, ..next })
        }
        Step::FromIndex => with(state.index.map_or(Value::Unknown, Value::Constant)),
    }
}

fn field(width: Width, offset: u64) -> Value {
    let (bytes, mask) = match width {
        Width::Word => (4, u32::MAX),
        Width::Half => (2, 0xffff),
        Width::Byte => (1, 0xff),
    };
    match u16::try_from(offset) {
        Ok(offset) if u64::from(offset) + u64::from(bytes) <= REACH => {
            Value::Field(Field { offset, bytes, mask })
        }
        _ => Value::Unknown,
    }
}

/// The index becomes the length of an IPv4 header: 20, or else the packet passes.
fn index_header(offset: u32, next: State) -> Ways {
    let Value::Field(first) = field(Width::Byte, offset.into()) else {
        return [Some((End::To(State { index: None, ..next }), None)), None];
    };
    let field = Field { mask: 0xf, ..first };
    let unusual = Condition { field, value: PLAIN_HEADER / 4, equal: false, share: 2 };
    let plain = State { index: Some(PLAIN_HEADER), ..next };
    [Some((End::To(plain), None)), Some((End::Match, Some(unusual)))]
}

fn computed(arithmetic: Arithmetic, operand: Operand, state: State) -> Value {
    let operand = match operand {
        Operand::Constant(constant) => Some(constant),
        Operand::Index => state.index,
    };
    match (arithmetic, state.accumulator, operand) {
        (Arithmetic::And, Value::Field(field), Some(constant)) => {
            Value::Field(Field { mask: field.mask & constant, ..field })
        }
        _ => Value::Unknown,
    }
}

/// Successors of a test: if it holds, and if it does not.
fn branch(test: Test, operand: Operand, ends: [u16; 2], state: State) -> Ways {
    let operand = match operand {
        Operand::Constant(constant) => Some(constant),
        Operand::Index => state.index,
    };
    let [yes, no] = ends.map(|at| End::To(State { at: at.into(), ..state }));
    match (test, state.accumulator, operand) {
        _ if ends[0] == ends[1] => [Some((yes, None)), None],
        (Test::Equal, Value::Field(field), Some(value)) => {
            let is = (value & !field.mask == 0).then(|| Condition::is(field, value));
            let is_not = Condition { field, value, equal: false, share: 100 };
            // Bits outside of the mask are never set.
            [is.map(|is| (yes, Some(is))), Some((no, is.map(|_| is_not)))]
        }
        (Test::AnyBit, Value::Field(field), Some(bits)) => {
            let field = Field { mask: field.mask & bits, ..field };
            let [any, none] =
                [(false, 30), (true, 80)].map(|(equal, share)| Condition { field, value: 0, equal, share });
            [Some((yes, Some(any))), Some((no, Some(none)))]
        }
        _ => [Some((yes, None)), Some((no, None))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{Instruction, Program};

    fn program(instructions: &[(u16, u8, u8, u32)]) -> Program {
        let instructions = instructions.iter().map(|&(code, yes, no, k)| Instruction { code, yes, no, k });
        Program::load(&instructions.collect::<Vec<_>>()).expect("a program")
    }

    /// Words that are looked for, with their masks; and exceptions: where, equal, unequal.
    type Plain = (Vec<(u16, u32, u32)>, Vec<(u16, (u32, u32), (u32, u32))>);

    fn tests(instructions: &[(u16, u8, u8, u32)]) -> Option<Plain> {
        let Gate { tests, exceptions, .. } = program(instructions).gate?;
        let pair = |mask: u32, value: u32| (u32::from_be(mask), u32::from_be(value));
        let mut words = Vec::new();
        for test in &tests {
            let lanes = test.lanes.mask.into_iter().zip(test.lanes.value);
            let used = (test.at..).step_by(4).zip(lanes).filter(|(_, (mask, _))| *mask != 0);
            words.extend(used.map(|(at, (mask, value))| (at, u32::from_be(mask), u32::from_be(value))));
        }
        let exceptions = exceptions.iter().map(|exception| {
            let [equal, unequal] =
                [exception.equal, exception.unequal].map(|bits| pair(bits.mask, bits.value));
            (exception.at, equal, unequal)
        });
        Some((words, exceptions.collect()))
    }

    /// `tcpdump -ddd 'udp dst port 67'`.
    #[test]
    fn ports_are_looked_for_where_headers_have_no_options() {
        let found = tests(&[
            (0x28, 0, 0, 12),
            (0x15, 0, 4, 0x86dd),
            (0x30, 0, 0, 20),
            (0x15, 0, 11, 17),
            (0x28, 0, 0, 56),
            (0x15, 8, 9, 67),
            (0x15, 0, 8, 0x800),
            (0x30, 0, 0, 23),
            (0x15, 0, 6, 17),
            (0x28, 0, 0, 20),
            (0x45, 4, 0, 0x1fff),
            (0xb1, 0, 0, 14),
            (0x48, 0, 0, 16),
            (0x15, 0, 1, 67),
            (6, 0, 0, 0x40000),
            (6, 0, 0, 0),
        ]);
        // And what is of IPv4, and whose header is not 5 words long.
        let unusual = (11, (0x00ff_ff00, 0x0008_0000), (0xf, 5));
        let (words, exceptions) = found.expect("a gate");
        assert_eq!(exceptions, [unusual]);
        // Where the bits begin that are looked at, how many they are, and what they are to be.
        let field = |(at, mask, value): (u16, u32, u32)| {
            let place = mask.leading_zeros();
            (u32::from(at) + place / 8, mask.count_ones(), value << place >> 16)
        };
        assert_eq!(words.into_iter().map(field).collect::<Vec<_>>(), [(56, 16, 67), (36, 16, 67)]);
    }

    #[test]
    fn what_nearly_everybody_fulfils_is_no_gate() {
        assert_eq!(Program::everything().gate, None);
        // 'ip', 'not udp', and the length of the packet, of which nothing is in its bytes.
        assert_eq!(tests(&[(0x28, 0, 0, 12), (0x15, 0, 1, 0x800), (6, 0, 0, 1), (6, 0, 0, 0)]), None);
        assert_eq!(tests(&[(0x30, 0, 0, 23), (0x15, 1, 0, 17), (6, 0, 0, 1), (6, 0, 0, 0)]), None);
        assert_eq!(tests(&[(0x80, 0, 0, 0), (0x25, 0, 1, 100), (6, 0, 0, 1), (6, 0, 0, 0)]), None);
        // 'arp'.
        let arp = tests(&[(0x28, 0, 0, 12), (0x15, 0, 1, 0x806), (6, 0, 0, 1), (6, 0, 0, 0)]);
        assert_eq!(arp.map(|(words, _)| words.len()), Some(1));
    }

    /// An offset of 16 bits and the bytes behind it reach further than 16 bits say.
    #[test]
    fn the_last_offsets_are_beyond_any_gate() {
        for (code, offset) in [(0x28, 65_535), (0x20, 65_533), (0x30, 65_535), (0x20, 0x7fff_ffff)] {
            assert_eq!(tests(&[(code, 0, 0, offset), (0x15, 0, 1, 1), (6, 0, 0, 1), (6, 0, 0, 0)]), None);
        }
    }

    /// Tests of single bits are joined with known bits of the same word.
    #[test]
    fn bits_and_masks() {
        let found = tests(&[
            (0x30, 0, 0, 46),
            (0x15, 0, 4, 9),
            (0x30, 0, 0, 47),
            (0x54, 0, 0, 0x13),
            (0x45, 0, 1, 2),
            (6, 0, 0, 1),
            (6, 0, 0, 0),
        ]);
        assert_eq!(found, Some((vec![], vec![(44, (0xff00, 0x900), (2, 0))])));
    }
}
