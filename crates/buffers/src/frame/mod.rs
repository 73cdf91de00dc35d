//! The only live name of one piece of memory, and the table by which it finds its bytes.

mod address;
mod aliases;
mod name;
pub(crate) mod table;

pub(crate) use address::{BufferAddress, SlotKind};
pub use aliases::SHARED_FRAMES;

pub use name::Frame;

impl Frame {
    /// Its size in bytes.
    #[inline]
    pub fn slot_bytes(&self) -> u32 {
        self.place.units() << table::unit_shift(self.place.region())
    }

    /// The distance of its first byte from the start of its region, in bytes.
    #[inline]
    pub fn offset_in_region(&self) -> u64 {
        let place = if self.is_shared() { table::target(self.place) } else { self.place };
        u64::from(place.index()) << table::unit_shift(place.region())
    }

    /// Another name of the same bytes; from here on nobody writes them. `None` when the region has no
    /// names left: it has [`SHARED_FRAMES`](crate::SHARED_FRAMES).
    ///
    /// The bytes go back to their pool with the last alias.
    ///
    /// Cost: two operations on a shared line for a name that is new, one for the count.
    pub fn share(&mut self) -> Option<Self> {
        if let Some(place) = self.is_shared().then(|| table::share_again(self.place)) {
            return place.map(Self::from_place);
        }
        let (mine, other) = table::share(self.place)?;
        self.place = mine;
        Some(Self::from_place(other))
    }

    /// The frame as the only name of its bytes again, which may be written.
    ///
    /// # Errors
    /// The frame itself as long as it has other names.
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

    /// All its bytes.
    #[inline]
    pub fn slot(&self) -> &[u8] {
        table::slot(self, 0, self.slot_bytes())
    }

    /// All its bytes, for writing.
    ///
    /// # Panics
    /// When the frame is shared.
    #[inline]
    pub fn slot_mut(&mut self) -> &mut [u8] {
        let length = self.slot_bytes();
        table::slot_mut(self, 0, length)
    }
}

impl Drop for Frame {
    #[cold]
    fn drop(&mut self) {
        table::send_stray_home(self.place);
    }
}
