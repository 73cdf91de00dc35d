//! Lock-free stack of numbers (magazines, blocks). Any thread pushes and pops.
//!
//! Numbers are linked through one word each, so nothing is allocated. The head contains a change counter: if
//! a number was popped and pushed again between another thread's load and its compare-and-swap, the swap
//! fails although the number is the same (ABA).

use crate::prefetch::prefetch_to_write;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// Bits of a number; the higher bits of a link are its weight.
const BITS: u32 = 23;
/// End of the list, and mask of a number.
const NIL: u32 = (1 << BITS) - 1;
/// Increment of the change counter, above the number: it wraps after 2⁴¹ changes.
const CHANGE: u64 = 1 << BITS;
/// Maximum weight.
pub(crate) const HEAVIEST: u16 = (1 << (32 - BITS)) - 1;

/// Head of a stack of numbers below 2²³ − 1, each with a weight of at most [`HEAVIEST`].
pub(crate) struct Head {
    top: AtomicU64,
    /// Sum of the weights; raised before a push, lowered after a pop.
    level: AtomicU32,
}

/// Link of each number: the number below it, and its own weight. Stacks may share links if no number is on
/// two of them.
pub(crate) trait Link {
    /// Link of a number.
    fn of(&self, number: u32) -> &AtomicU32;
}

/// Links (lower 23 bits: the number below in the stack; upper bits: own weight), [`APART`] words apart.
pub(crate) struct Links<const WORDS: usize = APART>(Box<[AtomicU32]>);

/// Distance of links in words, so that no two share a cache line.
const APART: usize = 32;

impl<const WORDS: usize> Links<WORDS> {
    /// Links of the numbers below `numbers`.
    pub(crate) fn new(numbers: u32) -> Self {
        assert!(numbers < NIL, "a stack links numbers of 23 bits");
        Self((0..numbers as usize * WORDS).map(|_| AtomicU32::new(NIL)).collect())
    }
}

impl<const WORDS: usize> Link for Links<WORDS> {
    #[inline(always)]
    fn of(&self, number: u32) -> &AtomicU32 {
        &self.0[number as usize * WORDS]
    }
}

impl Head {
    /// Limit of a stack's numbers.
    pub(crate) const NUMBERS: u32 = NIL;

    /// Head of an empty stack.
    pub(crate) fn new() -> Self {
        Self { top: AtomicU64::new(u64::from(NIL)), level: AtomicU32::new(0) }
    }

    /// Pushes `number`. The caller owns the object with that number, and gives it up.
    #[inline]
    pub(crate) fn push(&self, links: &impl Link, number: u32, weight: u16) {
        let below = links.of(number);
        self.level.fetch_add(u32::from(weight), Ordering::Relaxed);
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            below.store(u32::from(weight) << BITS | number_in(top), Ordering::Relaxed);
            // Release pairs with the Acquire of `pop`. Only read-modify-writes change the head, so a thread
            // that reads any later value synchronises with this push too.
            let new = changed(top, number);
            match self.top.compare_exchange_weak(top, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(current) => top = current,
            }
        }
    }

    /// Pops a number with its weight; the caller then owns the object with that number. `hint` gets the
    /// likely number early.
    #[inline]
    pub(crate) fn pop(&self, links: &impl Link, hint: impl Fn(u32)) -> Option<(u32, u16)> {
        // The cache line will be written, so it is fetched exclusively at once.
        prefetch_to_write(&self.top);
        // Acquire pairs with the Release of `push`, here and below.
        let mut top = self.top.load(Ordering::Acquire);
        loop {
            let number = number_in(top);
            if number == NIL {
                return None;
            }
            prefetch_to_write(links.of(number));
            hint(number);
            // If another thread has popped the number and changed its link meanwhile, the head has changed
            // too, and the value read here is discarded.
            let link = links.of(number).load(Ordering::Relaxed);
            let new = changed(top, link & NIL);
            match self.top.compare_exchange_weak(top, new, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => {
                    let weight = link >> BITS;
                    self.level.fetch_sub(weight, Ordering::Relaxed);
                    return Some((number, u16::try_from(weight).unwrap_or(HEAVIEST)));
                }
                Err(current) => top = current,
            }
        }
    }

    /// Number on top at this moment, which another thread may pop; prefetches its link.
    #[inline]
    pub(crate) fn likely_next(&self, links: &impl Link) -> Option<u32> {
        // Relaxed: a hint. Nothing is read through it.
        let number = number_in(self.top.load(Ordering::Relaxed));
        if number == NIL {
            return None;
        }
        prefetch_to_write(links.of(number));
        Some(number)
    }

    /// Sum of the weights on the stack; exact while no thread pushes or pops.
    #[inline]
    pub(crate) fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }
}

/// Stack of many rarely used numbers, with adjacent links.
pub(crate) struct Stack {
    head: CachePadded<Head>,
    links: Links<1>,
}

impl Stack {
    /// An empty stack for numbers below `numbers`.
    pub(crate) fn new(numbers: u32) -> Self {
        Self { head: CachePadded::new(Head::new()), links: Links::new(numbers) }
    }

    /// Pushes `number`. The caller owns the object with that number, and gives it up.
    pub(crate) fn push(&self, number: u32) {
        self.head.push(&self.links, number, 1);
    }

    /// Pops a number; the caller then owns the object with that number.
    pub(crate) fn pop(&self) -> Option<u32> {
        self.head.pop(&self.links, |_| ()).map(|(number, _)| number)
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the number is the lower half")]
fn number_in(top: u64) -> u32 {
    top as u32 & NIL
}

#[inline]
fn changed(top: u64, number: u32) -> u64 {
    (top & !u64::from(NIL)).wrapping_add(CHANGE) | u64::from(number)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn last_in_is_first_out_with_its_weight() {
        let (head, links) = (Head::new(), Links::<APART>::new(3));
        let (push, pop) = (|number, weight| head.push(&links, number, weight), || head.pop(&links, |_| ()));
        push(2, HEAVIEST);
        push(0, 1);
        push(1, 64);
        assert_eq!(head.level(), 576);
        assert_eq!([pop(), pop()], [Some((1, 64)), Some((0, 1))]);
        push(1, 7);
        assert_eq!([pop(), pop(), pop()], [Some((1, 7)), Some((2, HEAVIEST)), None]);
        assert_eq!(head.level(), 0);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// One thread pops and pushes back while another pops: the change counter prevents the ABA problem.
    #[test]
    fn a_number_has_one_owner() {
        loom::model(|| {
            let stack = Arc::new(Stack::new(3));
            let owners = Arc::new([AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0)]);
            for number in 0..3 {
                stack.push(number);
            }
            let take = |stack: &Stack, owners: &[AtomicU32; 3]| {
                let number = stack.pop()?;
                assert_eq!(owners[number as usize].fetch_add(1, Ordering::Relaxed), 0, "{number} twice");
                Some(number)
            };
            let give = |stack: &Stack, owners: &[AtomicU32; 3], number: u32| {
                owners[number as usize].fetch_sub(1, Ordering::Relaxed);
                stack.push(number);
            };
            let (other_stack, other_owners) = (Arc::clone(&stack), Arc::clone(&owners));
            let thread = loom::thread::spawn(move || {
                let (first, second) = (take(&other_stack, &other_owners), take(&other_stack, &other_owners));
                if let Some(first) = first {
                    give(&other_stack, &other_owners, first);
                }
                second
            });
            let here = take(&stack, &owners);
            let there = thread.join().expect("the other thread does not panic");
            for number in [here, there].into_iter().flatten() {
                give(&stack, &owners, number);
            }
            let mut left = std::iter::from_fn(|| stack.pop()).collect::<Vec<_>>();
            left.sort_unstable();
            assert_eq!(left, [0, 1, 2]);
            assert_eq!(stack.head.level(), 0);
        });
    }
}
