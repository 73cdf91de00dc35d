//! Forwarding information base (FIB) of one address family: writer, and safe access by readers.
//!
//! Cost of an update: one node of 256 slots is rewritten, and the nodes below that inherit its next hops. A
//! route shorter than most others (a default route) rewrites all nodes that inherit it. A next hop that
//! changes often is replaced in the next-hop table instead, which rewrites no node.

use super::NextHopId;
use super::arena::{Arena, NODE, SIZES, SLOTS, lines_of};
use super::branch::Branch;
use super::prefix::Prefix;
use super::view::{AWAY, Leave, Seat, View};
use crate::sync::{AtomicU64, Ordering, fence};
use polder_buffers::snapshot::{Reader, Snapshot};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of routes from which the first 16 bits of an address are looked up in one step.
const MANY: usize = 256;
/// Number of updates between two attempts to reclaim lines.
const UPDATES_A_LOOK: u32 = if cfg!(loom) { 1 } else { 64 };

/// State shared with readers.
#[derive(Debug)]
pub(super) struct Shared {
    arena: Snapshot<Arena>,
    /// Incremented each time that retired lines are reclaimed.
    epoch: AtomicU64,
    seats: Mutex<Vec<Arc<Seat>>>,
}

/// One table, owned by its writer.
#[derive(Debug)]
pub struct Fib {
    shared: Arc<Shared>,
    /// The writer's own reference to the arena.
    arena: Reader<Arena>,
    /// Nodes by number; number 0 is the root.
    branches: Vec<Branch>,
    vacant: Vec<u32>,
    routes: usize,
    is_v6: bool,
    next_line: u32,
    /// Free lines, by node size in lines.
    free: [Vec<u32>; SIZES],
    /// Lines that readers may still access: epoch of retirement, line, number of lines.
    retired: VecDeque<(u64, u32, u8)>,
    updates: u32,
}

/// Shared handle of a table, from which workers create readers; it keeps the memory alive.
#[derive(Clone, Debug)]
pub struct FibHandle(Arc<Shared>);

impl FibHandle {
    /// Creates a reader for one worker.
    pub fn reader(&self) -> FibReader {
        let seat = Arc::new(Seat(AtomicU64::new(AWAY)));
        self.0.seats.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&seat));
        FibReader { arena: self.0.arena.reader(), shared: Arc::clone(&self.0), seat }
    }

    /// True if the handle and the reader belong to the same table.
    pub fn is_of(&self, reader: &FibReader) -> bool {
        Arc::ptr_eq(&self.0, &reader.shared)
    }
}

/// One worker's access to a table.
#[derive(Debug)]
pub struct FibReader {
    shared: Arc<Shared>,
    arena: Reader<Arena>,
    seat: Arc<Seat>,
}

impl FibReader {
    /// Returns a view for one batch: its memory stays valid as long as the view lives, whatever updates
    /// follow.
    #[inline]
    pub fn view(&mut self) -> View<'_> {
        // Relaxed: an older epoch only delays reclamation.
        let epoch = self.shared.epoch.load(Ordering::Relaxed);
        self.seat.0.store(epoch, Ordering::Relaxed);
        // Pairs with the fence in `Fib::reclaim`: either the writer sees the seat taken, or this reader sees
        // the entries as they are after lines were retired.
        fence(Ordering::SeqCst);
        // A replaced arena is no longer written to, so it may be read too.
        self.arena.refresh();
        View::new(self.arena.get(), Leave(&self.seat))
    }
}

impl Drop for FibReader {
    fn drop(&mut self) {
        let mut seats = self.shared.seats.lock().unwrap_or_else(PoisonError::into_inner);
        seats.retain(|seat| !Arc::ptr_eq(seat, &self.seat));
    }
}

impl Fib {
    /// An empty table for IPv4.
    pub fn v4() -> Self {
        Self::new(false)
    }

    /// An empty table for IPv6.
    pub fn v6() -> Self {
        Self::new(true)
    }

    fn new(is_v6: bool) -> Self {
        let shared =
            Shared { arena: Snapshot::new(Arena::new()), epoch: AtomicU64::new(0), seats: Mutex::default() };
        Self {
            arena: shared.arena.reader(),
            shared: Arc::new(shared),
            branches: vec![Branch::default()],
            vacant: Vec::new(),
            routes: 0,
            is_v6,
            next_line: 0,
            free: core::array::from_fn(|_| Vec::new()),
            retired: VecDeque::new(),
            updates: 0,
        }
    }

    /// Shared handle of the table.
    pub fn handle(&self) -> FibHandle {
        FibHandle(Arc::clone(&self.shared))
    }

    /// Creates a reader for one worker.
    pub fn reader(&self) -> FibReader {
        self.handle().reader()
    }

    /// Number of routes.
    pub fn len(&self) -> usize {
        self.routes
    }

    /// True if the table has no route.
    pub fn is_empty(&self) -> bool {
        self.routes == 0
    }

    /// Memory in bytes: nodes, and the writer's records.
    pub fn bytes(&self) -> usize {
        let branches = self.branches.capacity() * size_of::<Branch>();
        let held: usize = self.branches.iter().map(Branch::bytes).sum();
        self.arena.get().bytes() + branches + held
    }

    /// Adds or changes a route; returns its previous next hop, if any.
    ///
    /// Inserting [`NextHopId::NONE`] removes the route.
    ///
    /// # Panics
    /// If the prefix is of the other family.
    pub fn insert(&mut self, prefix: Prefix, way: NextHopId) -> Option<NextHopId> {
        if way == NextHopId::NONE {
            return self.remove(prefix);
        }
        let old = self.change(prefix, Some(way.0));
        self.routes += usize::from(old.is_none());
        if self.routes > MANY && self.arena.get().direct().is_none() {
            self.replace_arena(self.arena.get().with_direct());
        }
        old
    }

    /// Removes a route; returns its next hop, `None` if there was no route.
    ///
    /// # Panics
    /// If the prefix is of the other family.
    pub fn remove(&mut self, prefix: Prefix) -> Option<NextHopId> {
        let old = self.change(prefix, None);
        self.routes -= usize::from(old.is_some());
        old
    }

    fn change(&mut self, prefix: Prefix, way: Option<u32>) -> Option<NextHopId> {
        assert_eq!(prefix.is_v6, self.is_v6, "a prefix of the table's family");
        let Prefix { bytes, bits, .. } = prefix;
        if bits == 0 {
            return self.change_default(way);
        }
        let last = usize::from((bits - 1) / 8);
        let mut path = [0_u32; 16];
        for depth in 0..last {
            let child = match self.branches[path[depth] as usize].child(bytes[depth]) {
                Some(child) => child,
                None if way.is_none() => return None,
                None => self.grow(path[depth], bytes[depth]),
            };
            path[depth + 1] = child;
        }
        let own = bits - 8 * (bits - 1).wrapping_div(8);
        let old = self.branches[path[last] as usize].change(own, bytes[last], way);
        if old != way {
            self.refresh(&path[..=last], &bytes);
        }
        self.settle();
        old.map(NextHopId)
    }

    /// Sets or removes the default route.
    fn change_default(&mut self, way: Option<u32>) -> Option<NextHopId> {
        let root = &mut self.branches[0];
        // The root inherits the default route's next hop; 0 means none.
        let old = core::mem::replace(&mut root.inherited, way.unwrap_or(0));
        if old != root.inherited {
            self.refresh(&[0], &[0; 16]);
        }
        self.settle();
        (old != 0).then_some(NextHopId(old))
    }

    fn grow(&mut self, parent: u32, slot: u8) -> u32 {
        let inherited = self.branches[parent as usize].next_hops()[usize::from(slot)];
        let branch = Branch { inherited, ..Branch::default() };
        let child = match self.vacant.pop() {
            Some(child) => {
                self.branches[child as usize] = branch;
                child
            }
            None => {
                self.branches.push(branch);
                u32::try_from(self.branches.len() - 1).expect("fewer nodes than lines")
            }
        };
        self.branches[parent as usize].adopt(slot, child);
        child
    }

    /// Rewrites the last node of a path, and the nodes above that must change with it.
    fn refresh(&mut self, path: &[u32], bytes: &[u8; 16]) {
        let mut depth = path.len() - 1;
        while depth > 0 && self.branches[path[depth] as usize].is_empty() {
            self.branches[path[depth - 1] as usize].disown(bytes[depth - 1]);
            // The lines are not reused before the end of this update, when no reader can reach them.
            self.fell(path[depth]);
            depth -= 1;
        }
        loop {
            let was_found = self.branches[path[depth] as usize].lines != 0;
            self.rewrite(path[depth], &bytes[..depth]);
            if was_found || depth == 0 {
                return self.link(&path[..=depth], bytes);
            }
            // The parent has no entry for the node yet.
            depth -= 1;
        }
    }

    /// Links the rewritten last node of a path, so that readers reach it.
    fn link(&self, path: &[u32], bytes: &[u8; 16]) {
        let Some((&branch, above)) = path.split_last() else { return };
        let entry = NODE | self.branches[branch as usize].line;
        match above.last() {
            None => self.arena.get().set_top(entry),
            Some(&parent) => {
                let line = self.branches[parent as usize].line;
                self.arena.get().set_entry(line, bytes[above.len() - 1], entry);
            }
        }
        if above.len() == 2 {
            self.arena.get().set_direct([bytes[0], bytes[1]], entry);
        }
    }

    /// Rewrites a node, and the nodes below whose inherited next hop changes. `at` is the node's path of
    /// address bytes. The caller links the node.
    fn rewrite(&mut self, branch: u32, at: &[u8]) {
        let mut entries = self.branches[branch as usize].next_hops();
        let children = core::mem::take(&mut self.branches[branch as usize].children);
        for &(slot, child) in &children {
            let inherited = entries[usize::from(slot)];
            let below = &mut self.branches[child as usize];
            if below.inherited != inherited || below.lines == 0 {
                below.inherited = inherited;
                self.rewrite(child, &[at, &[slot]].concat());
            }
            entries[usize::from(slot)] = NODE | self.branches[child as usize].line;
        }
        self.branches[branch as usize].children = children;
        let (line, lines) = self.place(&entries);
        self.arena.get().write(line, &entries);
        let branch = &mut self.branches[branch as usize];
        let old = (branch.line, branch.lines);
        (branch.line, branch.lines) = (line, lines);
        self.retire(old);
        self.write_direct(at, &entries);
    }

    /// Frees a node, and retires its lines.
    fn fell(&mut self, branch: u32) {
        let Branch { line, lines, .. } = core::mem::take(&mut self.branches[branch as usize]);
        self.retire((line, lines));
        self.vacant.push(branch);
    }

    /// Allocates lines for a node.
    fn place(&mut self, entries: &[u32; SLOTS]) -> (u32, u8) {
        let lines = lines_of(entries);
        let count = u8::try_from(lines).expect("17 lines at most");
        if let Some(line) = self.free[lines].pop() {
            return (line, count);
        }
        let line = self.next_line;
        let end = line.checked_add(u32::from(count)).filter(|end| end & NODE == 0);
        let end = end.expect("fewer than 2³¹ lines, which are 128 GiB");
        if end > self.arena.get().lines() {
            self.replace_arena(self.arena.get().larger(end, line));
        }
        self.next_line = end;
        (line, count)
    }

    /// Replaces the arena; readers switch with their next view.
    #[cold]
    fn replace_arena(&mut self, arena: Arena) {
        self.shared.arena.replace(arena);
        self.arena.refresh();
    }

    fn retire(&mut self, (line, lines): (u32, u8)) {
        if lines != 0 {
            // Relaxed: only this thread writes it.
            self.retired.push_back((self.shared.epoch.load(Ordering::Relaxed), line, lines));
        }
    }

    /// Reclaims lines every [`UPDATES_A_LOOK`] updates.
    fn settle(&mut self) {
        self.updates += 1;
        if self.updates >= UPDATES_A_LOOK {
            self.updates = 0;
            self.reclaim();
        }
    }

    fn reclaim(&mut self) {
        // Pairs with the fence in `FibReader::view`.
        fence(Ordering::SeqCst);
        let seats = self.shared.seats.lock().unwrap_or_else(PoisonError::into_inner);
        // Acquire pairs with the Release in `Leave`, and with the store of a later view.
        let oldest = seats.iter().map(|seat| seat.0.load(Ordering::Acquire)).min().unwrap_or(AWAY);
        drop(seats);
        while let Some(&(epoch, line, lines)) = self.retired.front()
            && epoch < oldest
        {
            self.retired.pop_front();
            self.free[usize::from(lines)].push(line);
        }
        // Release pairs with the Acquire-fence of a reader: a reader that begins in the new epoch sees all
        // links made before.
        self.shared.epoch.fetch_add(1, Ordering::Release);
    }

    /// Updates the table by the first 16 bits after a node of the first two levels was rewritten.
    fn write_direct(&self, at: &[u8], entries: &[u32; SLOTS]) {
        match *at {
            [] if self.arena.get().direct().is_some() => {
                for (first, &entry) in (0..=u8::MAX).zip(entries).filter(|(_, entry)| **entry & NODE == 0) {
                    (0..=u8::MAX).for_each(|second| self.arena.get().set_direct([first, second], entry));
                }
            }
            [first] => {
                let seconds = (0..=u8::MAX).zip(entries);
                seconds.for_each(|(second, &entry)| self.arena.get().set_direct([first, second], entry));
            }
            _ => {}
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
