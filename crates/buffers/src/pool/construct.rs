//! Making and giving up a worker's cache.

use super::{CACHE, FragmentEnd, Pool};
use crate::fragment::{Fragments, SharedFragments};
use crate::frame::SlotKind;
use crate::region::{Class, Region};
use crate::slot_reserve::SlotReserve;
use std::sync::Arc;

impl Region {
    /// A cache of free data slots for one worker.
    pub fn pool(&self) -> Pool {
        self.pool_of(Class::Data)
    }

    /// A cache of free slots of one class for one worker.
    pub fn pool_of(&self, class: Class) -> Pool {
        let kind = SlotKind::new(self.id(), class == Class::Control);
        Pool::new(self.clone(), Arc::clone(self.reserve(class)), kind)
    }
}

impl Pool {
    pub(crate) fn new(region: Region, reserve: Arc<SlotReserve>, kind: SlotKind) -> Self {
        Self {
            free: Box::new([kind.slot(0); CACHE]),
            count: 0,
            most: reserve.cache(),
            kind,
            counters: reserve.counters().open(),
            reserve,
            region,
            fragments: FragmentEnd::None,
            control: None,
            taken: 0,
            exhausted: 0,
        }
    }

    /// Adds this worker's end of a memory of fragments: [`Pool::take_for`] takes from it, and every
    /// release knows its fragments.
    #[must_use]
    pub fn with_fragments(mut self, fragments: Fragments) -> Self {
        self.fragments = FragmentEnd::Own(fragments);
        self
    }

    /// The same with an end that all threads share.
    #[must_use]
    pub fn with_shared_fragments(mut self, fragments: Arc<SharedFragments>) -> Self {
        self.fragments = FragmentEnd::Shared(fragments);
        self
    }

    /// Adds the same worker's pool of the control class: what is released here goes home to it without a
    /// shared access, and [`Pool::take_control_for`] falls back on it.
    #[must_use]
    pub fn with_control(mut self, control: Self) -> Self {
        self.control = Some(Box::new(control));
        self
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.give_back();
        self.reserve.counters().close(&self.counters);
    }
}
