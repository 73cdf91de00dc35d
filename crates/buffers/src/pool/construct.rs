//! Creation and end of a pool.

use super::{CACHE, FragmentEnd, Pool};
use crate::fragment::{Fragments, SharedFragments};
use crate::frame::SlotKind;
use crate::region::{Class, Region};
use crate::slot_reserve::SlotReserve;
use std::sync::Arc;

impl Region {
    /// Creates a pool of data slots for one worker.
    pub fn pool(&self) -> Pool {
        self.pool_of(Class::Data)
    }

    /// Creates a pool of one class for one worker.
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

    /// Adds this worker's fragment allocator: [`Pool::take_for`] uses it, and every release recognises its
    /// fragments.
    #[must_use]
    pub fn with_fragments(mut self, fragments: Fragments) -> Self {
        self.fragments = FragmentEnd::Own(fragments);
        self
    }

    /// Adds a fragment allocator that all threads share.
    #[must_use]
    pub fn with_shared_fragments(mut self, fragments: Arc<SharedFragments>) -> Self {
        self.fragments = FragmentEnd::Shared(fragments);
        self
    }

    /// Adds the same worker's pool of the control class: control buffers released here return to it without
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
