//! Lists of flows or hosts that take turns, linked by index.

/// Index that ends a list.
const NONE: u32 = u32::MAX;

/// Item with a link to the next one of its list.
pub(super) trait Linked {
    /// The link.
    fn link(&mut self) -> &mut Link;
}

/// Link to the next item of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link(u32);

impl Default for Link {
    fn default() -> Self {
        Self(NONE)
    }
}

/// First in, first out; an item is in one list at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl List {
    /// First item.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Item after `item`.
    pub(super) fn after<T: Linked>(item: u32, items: &mut [T]) -> Option<u32> {
        let Link(next) = *items[item as usize].link();
        (next != NONE).then_some(next)
    }

    /// Appends an item that is in no list.
    #[inline]
    pub(super) fn push<T: Linked>(&mut self, item: u32, items: &mut [T]) {
        *items[item as usize].link() = Link(NONE);
        match items.get_mut(self.last as usize) {
            Some(last) => *last.link() = Link(item),
            None => self.first = item,
        }
        self.last = item;
    }

    /// Removes the first item.
    #[inline]
    pub(super) fn pop<T: Linked>(&mut self, items: &mut [T]) -> Option<u32> {
        let first = self.first;
        let Link(next) = *items.get_mut(first as usize)?.link();
        self.first = next;
        if next == NONE {
            self.last = NONE;
        }
        Some(first)
    }
}

/// List in which a flow or a host takes turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Turn {
    /// None: it has no packets.
    #[default]
    Idle,
    /// The list of new ones, which go first.
    New,
    /// The list of those that have had a quantum.
    Old,
}

/// Lists of new and old flows or hosts (RFC 8290, 4.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    pub(super) new: List,
    pub(super) old: List,
}

impl Turns {
    /// First item: a new one if there is one.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        self.new.first().or_else(|| self.old.first())
    }

    /// Removes the [first](Self::first) item.
    #[inline]
    pub(super) fn pop<T: Linked>(&mut self, items: &mut [T]) -> Option<u32> {
        if self.new.first().is_some() { self.new.pop(items) } else { self.old.pop(items) }
    }
}
