//! BPF filters at an interface's clsact queueing discipline, for Linux without TCX (before 6.6).
//!
//! A filter survives the process that created it, also if it is killed. With `on_exit = "kernel"` the filter
//! is a *guard*, which tail-calls the port's program in a table of one program. The kernel empties that table
//! when its last descriptor is closed ([`MapKind::Programs`]); after the end of the process the guard finds
//! no program, and leaves each packet to the next filters and the stack. With `on_exit = "drop"` the filter
//! is the port's program itself. Its TAP is deleted with the process, so the taken packets are dropped.
//!
//! The filter's name contains the number of its TAP: a filter is *left behind* if that TAP does not exist.
//! The name also tells if the queueing discipline was created for the filter; then both are removed together,
//! unless the discipline has another filter.

use super::attach::step;
use super::error::{Hook, OpenError};
use super::program;
use crate::af_xdp::attach::{BUSY_RETRIES, BUSY_WAIT};
use crate::af_xdp::link::{self, LinkInfo, Which};
use crate::af_xdp::{self, OnExit};
use crate::bpf::sys::{Map, MapKind, ProgramKind};
use crate::netlink::Client;
use crate::netlink::tc::{self, BpfFilter, EGRESS, INGRESS};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

/// The filter of a port: the interface's packets pass its program until this value is dropped.
#[derive(Debug)]
pub(super) struct Filter {
    interface: u32,
    filter: BpfFilter,
    on_exit: OnExit,
    /// The table with the port's program, for the guard; the kernel empties it when this process ends.
    _programs: Option<Map>,
}

impl Filter {
    /// Makes `program`, which sends to TAP number `tap`, the first ingress filter of the interface. A filter
    /// that an earlier process has left is replaced in one step.
    pub(super) fn attach(
        link: &LinkInfo,
        (program, tap): (&OwnedFd, u32),
        on_exit: OnExit,
        notes: &mut Vec<String>,
    ) -> Result<Self, OpenError> {
        let failed = |errno| step(link, "create a BPF table of programs", errno);
        let (programs, guard) = match on_exit {
            OnExit::Drop => (None, None),
            OnExit::Kernel => {
                let programs = Map::new(MapKind::Programs, "polder_port", 4, 4, 1).map_err(failed)?;
                programs.set(&[0; 4], &program.as_raw_fd().to_ne_bytes()).map_err(failed)?;
                let guard = program::guard(programs.as_fd());
                let guard = super::attach::load(link, ProgramKind::Tcx, "polder_guard", &guard)?;
                (Some(programs), Some(guard))
            }
        };
        let program = guard.as_ref().unwrap_or(program);
        let filter = match left_behind(link)? {
            Some(left) => {
                notes.push("took over the filter that an earlier process left behind".to_owned());
                let name = Name { tap, made: Name::of(&left).is_some_and(|name| name.made) };
                let filter = BpfFilter { name: name.text(), ..left };
                let body = tc::bpf(link.index, INGRESS, &filter, Some(program.as_raw_fd()));
                let replaced = Client::open(None).and_then(|mut client| client.replace(NEW_FILTER, &body));
                replaced.map_err(|errno| step(link, "replace the filter at clsact", errno))?;
                filter
            }
            None => make((link, link.index), INGRESS, program, tap)?,
        };
        Ok(Self { interface: link.index, filter, on_exit, _programs: programs })
    }

    /// True if the interface still has the filter.
    pub(super) fn is_attached(&self) -> bool {
        own(self.interface).is_ok_and(|found| found.contains(&self.filter))
    }

    /// Returns the name of a filter of any kind that sees packets before this one.
    pub(super) fn in_front(&self) -> Option<String> {
        let found = Client::open(None).and_then(|mut client| filters(&mut client, self.interface, INGRESS));
        let preferences = found.ok()?.into_iter().filter_map(|message| tc::preference(&message));
        let first = preferences.min().filter(|&first| first < self.filter.preference)?;
        Some(format!("of the tc filter with preference {first}"))
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // A filter that has replaced this one has another name.
        if self.on_exit == OnExit::Kernel && self.is_attached() {
            // This fails only if the interface or the filter is gone; then there is nothing to undo.
            let _ = remove(self.interface, &self.filter);
        }
    }
}

/// Attaches `program` as a filter of one direction of a TAP; it is deleted with the TAP.
pub(super) fn to_tap((link, tap): (&LinkInfo, u32), parent: u32, program: &OwnedFd) -> Result<(), OpenError> {
    make((link, tap), parent, program, tap).map(drop)
}

/// Creates a filter for all packets of one direction of an interface, before the existing filters if
/// possible.
fn make(
    (link, interface): (&LinkInfo, u32),
    parent: u32,
    program: &OwnedFd,
    tap: u32,
) -> Result<BpfFilter, OpenError> {
    let refused = |errno| OpenError::NoHook { interface: link.name.clone(), hook: Hook::Clsact, errno };
    let mut client = Client::open(None).map_err(refused)?;
    let made = match client.create(libc::RTM_NEWQDISC, &tc::clsact(interface)) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(refused(errno)),
    };
    let name = Name { tap, made }.text();
    let mut last = Errno::EXIST;
    for preference in 1..=MOST_PREFERENCES {
        let filter = BpfFilter { preference, handle: HANDLE, name: name.clone() };
        let body = tc::bpf(interface, parent, &filter, Some(program.as_raw_fd()));
        match client.create(NEW_FILTER, &body) {
            Ok(()) => return Ok(filter),
            // Another kind of filter, or one with the same handle, has that preference.
            Err(errno @ (Errno::INVAL | Errno::EXIST)) => last = errno,
            Err(errno) => {
                last = errno;
                break;
            }
        }
    }
    if made {
        let _ = client.ask(libc::RTM_DELQDISC, &tc::clsact(interface));
    }
    Err(refused(last))
}

/// Returns the filter that a process has left at an interface's ingress. Waits for a gateway that has just
/// ended.
fn left_behind(link: &LinkInfo) -> Result<Option<BpfFilter>, OpenError> {
    for _ in 0..BUSY_RETRIES {
        // Without clsact there are no filters; creating one shows if clsact is supported.
        let found = own(link.index).unwrap_or_default();
        if !found.iter().any(is_in_use) {
            return Ok(found.into_iter().next());
        }
        std::thread::sleep(BUSY_WAIT);
    }
    Err(af_xdp::OpenError::InUse(link.name.clone()).into())
}

/// Removes the filters that a process has left at the clsact of an interface in the calling thread's network
/// namespace; true if there were any. A filter in use stays, unless `even_in_use`.
///
/// # Errors
/// Errors of the kernel.
pub fn release(interface: &str, even_in_use: bool) -> Result<bool, Errno> {
    let Ok(link) = link::query(Which::Name(interface)) else { return Ok(false) };
    let mut released = false;
    for filter in own(link.index).unwrap_or_default() {
        if even_in_use || !is_in_use(&filter) {
            remove(link.index, &filter)?;
            released = true;
        }
    }
    Ok(released)
}

/// True if a Polder filter is at the clsact of an interface in the calling thread's network namespace.
pub fn is_left(interface: &str) -> bool {
    link::query(Which::Name(interface)).and_then(|link| own(link.index)).is_ok_and(|found| !found.is_empty())
}

/// True if a message describes one of Polder's filters.
pub fn is_own_filter(message: &[u8]) -> bool {
    tc::bpf_filter(message).is_some_and(|filter| Name::of(&filter).is_some())
}

/// True if the TAP that a filter sends to exists.
fn is_in_use(filter: &BpfFilter) -> bool {
    let tap = Name::of(filter).map(|name| link::query(Which::Index(name.tap)));
    tap.is_some_and(|tap| tap.is_ok_and(|tap| tap.kind == "tun"))
}

/// Returns Polder's filters at an interface's ingress.
fn own(interface: u32) -> Result<Vec<BpfFilter>, Errno> {
    let answers = filters(&mut Client::open(None)?, interface, INGRESS)?;
    let filters = answers.iter().filter_map(|message| tc::bpf_filter(message));
    Ok(filters.filter(|filter| Name::of(filter).is_some()).collect())
}

/// Returns the filters of one direction of an interface, as messages.
fn filters(client: &mut Client, interface: u32, parent: u32) -> Result<Vec<Vec<u8>>, Errno> {
    let answers = client.dump(libc::RTM_GETTFILTER, &tc::header(interface, 0, parent, 0))?;
    Ok(answers.into_iter().map(|(_, message)| message).collect())
}

/// Removes a filter, and the queueing discipline if it was created for the filter and has no other.
fn remove(interface: u32, filter: &BpfFilter) -> Result<(), Errno> {
    let mut client = Client::open(None)?;
    client.ask(libc::RTM_DELTFILTER, &tc::bpf(interface, INGRESS, filter, None))?;
    if Name::of(filter).is_some_and(|name| name.made) {
        for parent in [INGRESS, EGRESS] {
            if !filters(&mut client, interface, parent)?.is_empty() {
                return Ok(());
            }
        }
        client.ask(libc::RTM_DELQDISC, &tc::clsact(interface))?;
    }
    Ok(())
}

/// Information in a filter's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    /// Number of the TAP that the filter sends to.
    tap: u32,
    /// True if the queueing discipline was created for the filter.
    made: bool,
}

impl Name {
    fn of(filter: &BpfFilter) -> Option<Self> {
        let rest = filter.name.strip_prefix(PREFIX)?;
        let tap = rest.strip_suffix(MADE).unwrap_or(rest);
        Some(Self { tap: tap.parse().ok()?, made: tap.len() < rest.len() })
    }

    fn text(self) -> String {
        format!("{PREFIX}{}{}", self.tap, if self.made { MADE } else { "" })
    }
}

const PREFIX: &str = "polder to interface ";
const MADE: &str = ", clsact made for it";
/// Handle of Polder's filter ("POLD").
const HANDLE: u32 = 0x504f_4c44;
/// Number of preferences to try.
const MOST_PREFERENCES: u16 = 64;
const NEW_FILTER: u16 = libc::RTM_NEWTFILTER;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_the_tap_and_who_made_the_hook() {
        for name in [Name { tap: 17, made: true }, Name { tap: 4, made: false }] {
            let filter = BpfFilter { preference: 1, handle: HANDLE, name: name.text() };
            assert_eq!(Name::of(&filter), Some(name));
        }
        for foreign in
            ["cil_from_netdev", "polder to interface ", "polder to interface x", "bpf.o:[classifier]"]
        {
            let filter = BpfFilter { preference: 1, handle: 1, name: foreign.to_owned() };
            assert_eq!(Name::of(&filter), None);
        }
    }
}
