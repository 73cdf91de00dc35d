//! Frames: owners of buffers, and the table that maps them to addresses.

mod address;
mod aliases;
mod name;
pub(crate) mod table;

pub(crate) use address::{BufferAddress, SlotKind};
pub use aliases::SHARED_FRAMES;

pub use name::Frame;

impl Frame {
    /// Size of the buffer in bytes.
    #[inline]
    pub fn slot_bytes(&self) -> u32 {
        self.place.units() << table::unit_shift(self.place.region())
    }

    /// Offset of the buffer in its region, in bytes.
    #[inline]
    pub fn offset_in_region(&self) -> u64 {
        let place = if self.is_shared() { table::target(self.place) } else { self.place };
        u64::from(place.index()) << table::unit_shift(place.region())
    }

    /// Creates an alias of the same bytes, which are read-only from now on. `None` if the region has no free
    /// alias: it has [`SHARED_FRAMES`].
    ///
    /// The buffer is freed with its last alias.
    ///
    /// Cost: two operations on a shared cache line for the alias, one for the count.
    pub fn share(&mut self) -> Option<Self> {
        if let Some(place) = self.is_shared().then(|| table::share_again(self.place)) {
            return place.map(Self::from_place);
        }
        let (mine, other) = table::share(self.place)?;
        self.place = mine;
        Some(Self::from_place(other))
    }

    /// Converts the last alias back to an exclusive, writable frame.
    ///
    /// # Errors
    /// The frame itself while there are other aliases.
    pub fn into_own(self) -> Result<Self, Self> {
        if !self.is_shared() {
            return Ok(self);
        }
        match table::end_sharing(self.place) {
            Some(place) => {
                core::mem::forget(self);
                Ok(Self::from_place(place))
            }
            None => Err(self),
        }
    }

    /// All bytes of the buffer.
    #[inline]
    pub fn slot(&self) -> &[u8] {
        table::slot(self, 0, self.slot_bytes())
    }

    /// All bytes of the buffer, for writing.
    ///
    /// # Panics
    /// If the frame is shared.
    #[inline]
    pub fn slot_mut(&mut self) -> &mut [u8] {
        let length = self.slot_bytes();
        table::slot_mut(self, 0, length)
    }
}

impl Drop for Frame {
    #[cold]
    fn drop(&mut self) {
        table::free_late(self.place);
    }
}
