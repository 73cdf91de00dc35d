//! The writer's record of a node: the routes in it.

use super::arena::SLOTS;

/// A route in a node: the upper `bits` (1 to 8) bits of the node's address byte, the others zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Twig {
    pub(super) bits: u8,
    pub(super) slot: u8,
    pub(super) way: u32,
}

/// A node as the writer sees it.
#[derive(Debug, Default)]
pub(super) struct Branch {
    /// Line of the node, and its number of lines; 0 lines before it is written.
    pub(super) line: u32,
    pub(super) lines: u8,
    /// Next hop of slots without a route: that of the longest prefix that covers the whole node.
    pub(super) inherited: u32,
    /// Routes, shorter prefixes first.
    pub(super) twigs: Vec<Twig>,
    /// Slots with longer routes, and the nodes of these; sorted by slot.
    pub(super) children: Vec<(u8, u32)>,
}

impl Branch {
    /// Sets or removes a route; returns its previous next hop, if any.
    pub(super) fn change(&mut self, bits: u8, slot: u8, way: Option<u32>) -> Option<u32> {
        let found = self.twigs.binary_search_by_key(&(bits, slot), |twig| (twig.bits, twig.slot));
        match (found, way) {
            (Ok(index), Some(way)) => Some(core::mem::replace(&mut self.twigs[index].way, way)),
            (Ok(index), None) => Some(self.twigs.remove(index).way),
            (Err(index), Some(way)) => {
                self.twigs.insert(index, Twig { bits, slot, way });
                None
            }
            (Err(_), None) => None,
        }
    }

    /// Child node of a slot; `None` without longer routes.
    pub(super) fn child(&self, slot: u8) -> Option<u32> {
        self.position(slot).ok().map(|index| self.children[index].1)
    }

    pub(super) fn adopt(&mut self, slot: u8, child: u32) {
        if let Err(index) = self.position(slot) {
            self.children.insert(index, (slot, child));
        }
    }

    pub(super) fn disown(&mut self, slot: u8) {
        if let Ok(index) = self.position(slot) {
            self.children.remove(index);
        }
    }

    fn position(&self, slot: u8) -> Result<usize, usize> {
        self.children.binary_search_by_key(&slot, |child| child.0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.twigs.is_empty() && self.children.is_empty()
    }

    /// Next hops of all slots, children not considered.
    pub(super) fn next_hops(&self) -> [u32; SLOTS] {
        let mut next_hops = [self.inherited; SLOTS];
        for twig in &self.twigs {
            let (first, count) = (usize::from(twig.slot), 1 << (8 - twig.bits));
            next_hops[first..first + count].fill(twig.way);
        }
        next_hops
    }

    /// Memory in bytes, the struct itself excluded.
    pub(super) fn bytes(&self) -> usize {
        self.twigs.capacity() * size_of::<Twig>() + self.children.capacity() * size_of::<(u8, u32)>()
    }
}
