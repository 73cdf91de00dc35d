//! One worker's cache of free slots, and its end of the fragments.
//!
//! A worker takes and releases from its own cache without any shared access. When the cache is
//! empty it is filled by one magazine, when it is full one magazine goes back, so that half of it
//! stays: a worker that swings around the edge does not pay at every swing. A slot freed on another
//! core than it was taken on travels home the same way, a magazine at a time.

use crate::batch::Batch;
use crate::book::{Book, Takings};
use crate::depot::MAGAZINE;
use crate::fragment::{Fragments, SharedFragments};
use crate::frame::{Frame, Place, SlotKind};
use crate::packet::Packet;
use crate::region::Region;
use crate::stock::SlotStock;
use crate::table;
use core::panic::Location;
use std::sync::Arc;

/// Slots that a cache holds at most; a power of two.
const CACHE: usize = 2 * MAGAZINE;
const _: () = assert!(CACHE.is_power_of_two());

/// One worker's cache of free slots.
#[derive(Debug)]
pub struct Pool {
    /// The first `count` are free slots; those that were released last come last.
    free: Box<[Place; CACHE]>,
    count: usize,
    /// Slots that it keeps after a release.
    most: usize,
    kind: SlotKind,
    stock: Arc<SlotStock>,
    region: Region,
    fragments: FragmentEnd,
    /// The same worker's pool of the control class.
    control: Option<Box<Self>>,
    taken: u64,
    exhausted: u64,
    book: Arc<Book>,
}

/// Where a pool's fragments come from.
#[derive(Debug)]
enum FragmentEnd {
    /// There are none: everything is a slot.
    None,
    /// This worker's own end.
    Own(Fragments),
    /// One that all threads share (D5 off).
    Shared(Arc<SharedFragments>),
}

impl Pool {
    pub(crate) fn new(region: Region, stock: Arc<SlotStock>, kind: SlotKind) -> Self {
        Self {
            free: Box::new([kind.slot(0); CACHE]),
            count: 0,
            most: stock.cache(),
            kind,
            book: stock.books().open(),
            stock,
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

    /// The pool to take control traffic's buffers from: that of the control class, if it was added.
    #[inline]
    pub fn control(&mut self) -> &mut Self {
        match self.control {
            Some(ref mut control) => control,
            None => self,
        }
    }

    /// Takes a frame for what must not fail because of data traffic: as [`Pool::take_for`], and from the
    /// control class when data has used up its own.
    pub fn take_control_for(&mut self, bytes: u32) -> Option<Frame> {
        self.take_for(bytes).or_else(|| self.control.as_mut()?.take_for(bytes))
    }

    /// The region that the slots come from.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Takes one free slot; `None` when there is none anywhere. Its bytes are what its last owner left.
    ///
    /// Cost: a few instructions; once in a magazine two operations on a shared line.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn take(&mut self) -> Option<Frame> {
        if self.count == 0 && !self.refill() {
            return None;
        }
        self.count -= 1;
        self.taken += 1;
        // The mask keeps the index inside without a branch; the count is below the size here.
        let frame = Frame::from_place(self.free[self.count & (CACHE - 1)]);
        table::trace_taken(frame.place(), Location::caller());
        Some(frame)
    }

    /// Takes up to `wanted` free slots and puts them at the end of `frames`; how many there were.
    ///
    /// Cost: a quarter of a nanosecond a slot from the cache.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn take_bulk(&mut self, wanted: usize, frames: &mut Vec<Frame>) -> usize {
        let (mut left, site) = (wanted, Location::caller());
        while left > 0 && (self.count > 0 || self.refill()) {
            let count = left.min(self.count);
            let (kept, taken) = self.free[..self.count].split_at(self.count - count);
            frames.extend(taken.iter().map(|&place| Frame::from_place(place)));
            if cfg!(debug_assertions) {
                let made = &frames[frames.len() - count..];
                made.iter().for_each(|frame| table::trace_taken(frame.place(), site));
            }
            self.count = kept.len();
            left -= count;
        }
        self.taken += (wanted - left) as u64;
        wanted - left
    }

    /// Takes a frame of at least `bytes`: a fragment when they are few and there is one, or a slot.
    ///
    /// `None` when the slots are shorter, or when there is none.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn take_for(&mut self, bytes: u32) -> Option<Frame> {
        let slot_bytes = self.region.slot_bytes();
        if bytes > slot_bytes / 2 {
            return if bytes > slot_bytes { None } else { self.take() };
        }
        let fragment = match &mut self.fragments {
            FragmentEnd::Own(fragments) => fragments.take(bytes),
            FragmentEnd::Shared(fragments) => fragments.take(bytes),
            FragmentEnd::None => None,
        };
        match fragment {
            Some(fragment) => Some(fragment),
            None => self.take(),
        }
    }

    /// Takes up to `wanted` frames of at least `bytes`, as [`Pool::take_for`] does, and puts them at the end
    /// of `frames`; how many there were.
    ///
    /// Cost: about a nanosecond a fragment.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn take_bulk_for(&mut self, bytes: u32, wanted: usize, frames: &mut Vec<Frame>) -> usize {
        let slot_bytes = self.region.slot_bytes();
        if bytes > slot_bytes {
            return 0;
        }
        let mut count = 0;
        if bytes <= slot_bytes / 2
            && let FragmentEnd::Own(fragments) = &mut self.fragments
        {
            count = fragments.take_bulk(bytes, wanted, frames);
        }
        while count < wanted && bytes <= slot_bytes / 2 && matches!(self.fragments, FragmentEnd::Shared(_)) {
            let Some(frame) = self.take_for(bytes) else { return count };
            frames.push(frame);
            count += 1;
        }
        count + self.take_bulk(wanted - count, frames)
    }

    /// Releases all packets of `batch` with all their frames.
    ///
    /// Cost: about a nanosecond a packet of one frame.
    pub fn release(&mut self, batch: &mut Batch) {
        if batch.iter().all(|packet| packet.is_contiguous() && self.kind.has(packet.head().place())) {
            self.put_slots(batch, |packet| packet.head().place());
            // The slots are in the cache; the packets name them no more.
            return batch.drain().for_each(core::mem::forget);
        }
        for packet in batch.drain() {
            self.put_packet(packet);
        }
        self.settle();
    }

    /// Releases a packet with all its frames.
    #[inline]
    pub fn release_packet(&mut self, packet: Packet) {
        self.put_packet(packet);
        self.settle();
    }

    /// Releases one frame.
    ///
    /// A frame of a region or class that this pool does not know goes home over its region's list.
    #[inline]
    pub fn release_frame(&mut self, frame: Frame) {
        self.put(frame);
        self.settle();
    }

    /// Releases all of `frames`.
    ///
    /// Cost: a quarter of a nanosecond a slot into the cache; fragments of one block are released together.
    #[inline]
    pub fn release_bulk(&mut self, frames: &mut Vec<Frame>) {
        if !self.put_all(frames) {
            return self.put_mixed(frames);
        }
        frames.drain(..).for_each(core::mem::forget);
    }

    /// Puts frames into the cache if there is room and all of them are slots of this kind; the caller
    /// gives them up then.
    #[inline]
    fn put_all(&mut self, frames: &[Frame]) -> bool {
        let Some(room) = self.free.get_mut(self.count..self.count + frames.len()) else { return false };
        // Without an early end the processor copies several at a time; what is strange is overwritten.
        let strange = room.iter_mut().zip(frames).fold(0, |bits, (cell, frame)| {
            *cell = frame.place();
            bits | self.kind.difference(frame.place())
        });
        if strange != 0 || self.count + frames.len() > self.most {
            return false;
        }
        if cfg!(debug_assertions) {
            frames.iter().for_each(|frame| table::trace_released(frame.place()));
        }
        self.count += frames.len();
        true
    }

    /// Releases frames that do not all go into the cache.
    #[cold]
    fn put_mixed(&mut self, frames: &mut Vec<Frame>) {
        let strange = frames.iter().fold(0, |bits, frame| bits | self.kind.difference(frame.place()));
        if strange == 0 {
            self.put_slots(frames, Frame::place);
            return frames.drain(..).for_each(core::mem::forget);
        }
        if let FragmentEnd::Own(fragments) = &mut self.fragments
            && frames.iter().all(|frame| fragments.owns(frame))
        {
            return fragments.release_bulk(frames);
        }
        frames.drain(..).for_each(|frame| self.put(frame));
        self.settle();
    }

    /// Puts slots of this region into the cache; the caller gives up their frames.
    #[inline]
    fn put_slots<T>(&mut self, mut owners: &[T], place: impl Fn(&T) -> Place) {
        if cfg!(debug_assertions) {
            owners.iter().for_each(|owner| table::trace_released(place(owner)));
        }
        while !owners.is_empty() {
            // What is not kept after a release may have come with a refill.
            if self.count > self.most {
                self.flush();
                continue;
            }
            let room = &mut self.free[self.count..self.most + 1];
            let (fitting, left) = owners.split_at(room.len().min(owners.len()));
            room.iter_mut().zip(fitting).for_each(|(cell, owner)| *cell = place(owner));
            self.count += fitting.len();
            owners = left;
            if self.count > self.most {
                self.flush();
            }
        }
    }

    #[inline]
    fn put_packet(&mut self, packet: Packet) {
        match packet.into_single() {
            Ok(segment) => self.put(segment.frame),
            Err(chain) => chain.into_segments().for_each(|segment| self.put(segment.frame)),
        }
    }

    #[inline]
    fn put(&mut self, frame: Frame) {
        if !self.kind.has(frame.place()) {
            return self.put_elsewhere(frame);
        }
        table::trace_released(frame.place());
        self.free[self.count & (CACHE - 1)] = frame.into_place();
        self.count += 1;
        if self.count > self.most {
            self.flush();
        }
    }

    #[inline]
    fn put_elsewhere(&mut self, frame: Frame) {
        if frame.is_shared() {
            return self.put_name(frame);
        }
        if let Some(control) = self.control.as_mut().filter(|control| control.is_home_of(&frame)) {
            return control.put(frame);
        }
        match &mut self.fragments {
            FragmentEnd::Own(fragments) if fragments.owns(&frame) => fragments.release(frame),
            FragmentEnd::Own(_) | FragmentEnd::Shared(_) | FragmentEnd::None => {
                table::send_home(frame.into_place());
            }
        }
    }

    /// Ends one of several names; the bytes go home with the last one.
    #[cold]
    fn put_name(&mut self, frame: Frame) {
        if let Some(place) = table::release_name(frame.into_place()) {
            self.put(Frame::from_place(place));
        }
    }

    /// Whether a frame, which is not shared, is released without going over its region's list.
    #[inline]
    fn is_home_of(&self, frame: &Frame) -> bool {
        let owns = |fragments: &Fragments| fragments.owns(frame);
        self.kind.has(frame.place()) || matches!(&self.fragments, FragmentEnd::Own(end) if owns(end))
    }

    /// Tells other workers what was released of their fragments.
    #[inline]
    fn settle(&mut self) {
        if let Some(control) = &mut self.control {
            control.settle();
        }
        if let FragmentEnd::Own(fragments) = &mut self.fragments {
            fragments.settle();
        }
    }

    /// Free slots that this worker can take without going to the depot.
    pub fn cached(&self) -> usize {
        self.count
    }

    /// How often a slot was wanted and none was free.
    pub fn exhausted(&self) -> u64 {
        self.exhausted
    }

    /// Gives the whole cache back and lets go of all blocks, for a worker that goes to sleep for long.
    pub fn give_back(&mut self) {
        while self.count > 0 {
            self.flush();
        }
        if let FragmentEnd::Own(fragments) = &mut self.fragments {
            fragments.give_back();
        }
        if let Some(control) = &mut self.control {
            control.give_back();
        }
        self.publish();
    }

    /// Publishes what this pool has and did, for [`BufferManager::accounts`](crate::BufferManager); a
    /// worker does so at the end of a turn. Exchanges publish by themselves.
    pub fn publish(&self) {
        let Self { count, taken, exhausted, .. } = *self;
        self.book.write(Takings { cached: count as u64, taken, exhausted });
        if let FragmentEnd::Own(fragments) = &self.fragments {
            fragments.publish();
        }
        if let Some(control) = &self.control {
            control.publish();
        }
    }

    /// Fills an empty cache by a magazine; whether there was one.
    #[cold]
    fn refill(&mut self) -> bool {
        let mut slots = [0; MAGAZINE];
        self.count = self.stock.take(&mut slots, || self.region.collect_strays());
        let kind = self.kind;
        self.free.iter_mut().zip(&slots[..self.count]).for_each(|(cell, &slot)| *cell = kind.slot(slot));
        self.exhausted += u64::from(self.count == 0);
        self.publish();
        self.count > 0
    }

    /// Gives a magazine back: the oldest slots, since what was released last is warm in this
    /// core's cache.
    #[cold]
    fn flush(&mut self) {
        let mut slots = [0; MAGAZINE];
        let count = self.count.min(MAGAZINE);
        slots.iter_mut().zip(&self.free[..count]).for_each(|(slot, place)| *slot = place.index());
        let taken = self.stock.put(&slots[..count]);
        if taken == 0 {
            // Every magazine is in use, most of them partly filled.
            self.count -= 1;
            self.region.bring_home(self.free[self.count].index());
            return;
        }
        self.free.copy_within(taken..self.count, 0);
        self.count -= taken;
        self.publish();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.give_back();
        self.stock.books().close(&self.book);
    }
}
