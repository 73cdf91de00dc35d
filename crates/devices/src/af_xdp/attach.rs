//! The attachment of the XDP program to its interface: attaching, taking over, and detaching at the end.

use super::error::OpenError;
use super::link::{self, LinkInfo, Which};
use super::options::{Hook, OnExit};
use super::pin::{LinkKind, Pinned, PinnedLink};
use crate::bpf::sys;
use core::time::Duration;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A BPF link that attaches our program, or will at [`Attachment::commit`].
#[derive(Debug)]
pub(crate) struct Attachment {
    link: OwnedFd,
    /// The link's pin in the BPF file system, if it has one.
    pinned: Option<Pinned>,
    /// True if an earlier process left the link; its program runs until `commit`.
    inherited: bool,
    committed: bool,
    on_exit: OnExit,
}

/// Attaches `program`, or takes over the link that an earlier process has left pinned.
///
/// A new link attaches the program at once: until sockets exist it passes or drops all packets, as `on_exit`
/// says. A link taken over keeps its old program, so the interface stays closed until [`Attachment::commit`].
pub(super) fn attach(
    link: &LinkInfo,
    program: &OwnedFd,
    (on_exit, hooks): (OnExit, &[Hook]),
    notes: &mut Vec<String>,
) -> Result<(Attachment, Hook), OpenError> {
    let mut hook = if link.xdp.native.is_some() { Hook::Native } else { Hook::Generic };
    let attach = |notes: &mut Vec<String>| {
        let (fd, found) = attach_new(link, program, hooks, notes)?;
        hook = found;
        Ok(fd)
    };
    let attachment = take_over_or(link, (LinkKind::Xdp, on_exit), None, notes, attach)?;
    Ok((attachment, hook))
}

/// Takes over the link of kind `kind` that an earlier process has `given` or left pinned, or makes a new one.
/// A pinned link of another kind, or of a deleted interface, is removed once the new link exists.
pub(crate) fn take_over_or(
    link: &LinkInfo,
    (kind, on_exit): (LinkKind, OnExit),
    given: Option<OwnedFd>,
    notes: &mut Vec<String>,
    attach: impl FnOnce(&mut Vec<String>) -> Result<OwnedFd, OpenError>,
) -> Result<Attachment, OpenError> {
    let place = match on_exit {
        OnExit::Kernel => PinnedLink::of(&link.name).ok(),
        OnExit::Drop => Some(PinnedLink::make(&link.name)?),
    };
    let found = place.as_ref().map(PinnedLink::find).transpose()?.flatten();
    let (inherited, stale) = match (found, &place) {
        (Some(pinned), Some(place)) if (pinned.interface, pinned.kind) == (link.index, Some(kind)) => {
            notes.push(format!("took over the link pinned at {}", place.path().display()));
            (Some(pinned), None)
        }
        (found, _) => (None, found),
    };
    if let Some(pinned) = inherited {
        let fd = pinned.link.try_clone().map_err(|error| {
            step(link, "copy a descriptor", Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })?;
        return Ok(Attachment { link: fd, pinned: Some(pinned), inherited: true, committed: false, on_exit });
    }
    let inherited = given.is_some();
    let fd = given.map_or_else(|| attach(notes), Ok)?;
    if let Some(stale) = stale {
        stale.unpin().map_err(|errno| step(link, "remove a stale pin", errno))?;
    }
    let pinned = match (place, on_exit) {
        (Some(place), OnExit::Drop) => Some(place.pin(&fd, (link.index, kind))?),
        (_, OnExit::Drop | OnExit::Kernel) => None,
    };
    Ok(Attachment { link: fd, pinned, inherited, committed: false, on_exit })
}

/// Removes the interface's pinned link when its packets are taken at another hook.
pub(crate) fn remove_stale(link: &LinkInfo) -> Result<(), OpenError> {
    let Ok(place) = PinnedLink::of(&link.name) else { return Ok(()) };
    let Some(stale) = place.find()? else { return Ok(()) };
    stale.unpin().map_err(|errno| step(link, "remove a stale pin", errno))
}

fn attach_new(
    link: &LinkInfo,
    program: &OwnedFd,
    hooks: &[Hook],
    notes: &mut Vec<String>,
) -> Result<(OwnedFd, Hook), OpenError> {
    let interface = || link.name.clone();
    let mut reasons = Vec::new();
    for &hook in hooks {
        let errno = match link_patiently(link, program, hook) {
            Ok(fd) => {
                notes.append(&mut reasons);
                return Ok((fd, hook));
            }
            Err(errno) => errno,
        };
        match errno {
            Errno::BUSY | Errno::EXIST => {
                return Err(match attached(link.index) {
                    Some(name) if name.starts_with(OUR_PREFIX) => OpenError::InUse(interface()),
                    Some(name) if name.starts_with(NAMELESS) => {
                        OpenError::UnknownProgram { interface: interface(), program: name }
                    }
                    name => {
                        let program = name.unwrap_or_else(|| "(unknown)".to_owned());
                        OpenError::ForeignProgram { interface: interface(), program }
                    }
                });
            }
            Errno::PERM | Errno::ACCESS => {
                return Err(OpenError::Permission { interface: interface(), step: "attach an XDP program" });
            }
            Errno::NODEV => return Err(OpenError::NoInterface(interface())),
            errno => reasons.push(format!("{hook}: {}", why(hook, errno))),
        }
    }
    Err(OpenError::Attach { interface: interface(), reasons: reasons.join("; ") })
}

/// Attaches the program; retries while a gateway that has just ended still occupies the interface.
fn link_patiently(link: &LinkInfo, program: &OwnedFd, hook: Hook) -> Result<OwnedFd, Errno> {
    for _ in 0..BUSY_RETRIES {
        let result = sys::link_xdp(program.as_fd(), link.index, hook.flag());
        let busy = matches!(result, Err(Errno::BUSY | Errno::EXIST));
        let may_be_ours = |name: &String| name.starts_with(OUR_PREFIX) || name.starts_with(NAMELESS);
        if !busy || attached(link.index).is_some_and(|name| !may_be_ours(&name)) {
            return result;
        }
        std::thread::sleep(BUSY_WAIT);
    }
    Err(Errno::BUSY)
}

/// Returns name and number of the attached program.
fn attached(interface: u32) -> Option<String> {
    let link = link::query(Which::Index(interface)).ok()?;
    link.xdp.program().map(program_name)
}

/// Returns the meaning of a hook's error.
fn why(hook: Hook, errno: Errno) -> String {
    match (hook, errno) {
        (Hook::Native, Errno::OPNOTSUPP) => "the driver does not support it".to_owned(),
        (Hook::Native, Errno::NOSPC) => "the driver has too few queues for it; of a veth, the peer must not \
            have more transmit queues than this end has receive queues"
            .to_owned(),
        (Hook::Native, Errno::RANGE | Errno::INVAL) => {
            format!("the driver refuses ({errno}); a frequent cause is the MTU or an offload such as LRO")
        }
        (Hook::Native | Hook::Generic, errno) => format!("{errno}"),
    }
}

impl Attachment {
    /// Replaces the attached program by `program`. A link taken over keeps its old program until
    /// [`commit`](Self::commit).
    pub(super) fn replace(&self, link: &LinkInfo, program: &OwnedFd) -> Result<(), OpenError> {
        if self.inherited { Ok(()) } else { self.renew(link, program) }
    }

    /// Replaces the attached program by `program`, also on a link taken over.
    pub(crate) fn renew(&self, link: &LinkInfo, program: &OwnedFd) -> Result<(), OpenError> {
        sys::update_link(self.link.as_fd(), program.as_fd())
            .map_err(|errno| step(link, "replace the program of the BPF link", errno))
    }

    /// Makes `program` the attached program for good, in one step: the interface is never without a program.
    pub(crate) fn commit(&mut self, link: &LinkInfo, program: &OwnedFd) -> Result<(), OpenError> {
        if self.inherited {
            sys::update_link(self.link.as_fd(), program.as_fd())
                .map_err(|errno| step(link, "take over the pinned BPF link", errno))?;
        }
        self.committed = true;
        if self.on_exit == OnExit::Kernel
            && let Some(pinned) = self.pinned.take()
        {
            pinned.unpin().map_err(|errno| step(link, "remove the pin", errno))?;
        }
        Ok(())
    }

    /// Returns the link's descriptor, to hand over to the successor process.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    /// Keeps the link when this value is dropped: the successor process goes on with the link.
    pub(crate) fn leave(&mut self) {
        (self.inherited, self.committed) = (true, false);
    }

    /// True if the link still has its interface.
    pub(crate) fn is_attached(&self) -> bool {
        sys::object_info(self.link.as_fd()).is_ok_and(|info| LinkKind::of(&info).1 != 0)
    }

    /// True if dropping this value detaches the link.
    fn ends_with_us(&self) -> bool {
        match (self.committed, self.inherited, self.on_exit) {
            (true, _, OnExit::Kernel) => true,
            (true, _, OnExit::Drop) => false,
            // A failed start restores the earlier state: open, or closed by an earlier process.
            (false, inherited, _) => !inherited,
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if !self.ends_with_us() {
            return;
        }
        // Both fail only if the interface or the file is gone; then there is nothing to undo.
        let _ = sys::detach_link(self.link.as_fd());
        let _ = self.pinned.take().map(|pinned| pinned.unpin());
    }
}

/// Returns name and number of a loaded program.
pub(crate) fn program_name(id: u32) -> String {
    let info = sys::open_program(id).and_then(|program| sys::object_info(program.as_fd()));
    let name = info.ok().map(|info| {
        let name = &info[64..80];
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        String::from_utf8_lossy(&name[..end]).into_owned()
    });
    match name.filter(|name| !name.is_empty()) {
        Some(name) => format!("{name} (number {id})"),
        None => format!("{NAMELESS} {id}"),
    }
}

fn step(link: &LinkInfo, step: &'static str, errno: Errno) -> OpenError {
    OpenError::Step { interface: link.name.clone(), step, errno }
}

/// Prefix of the names of Polder's BPF programs.
pub(crate) const OUR_PREFIX: &str = "polder_";
/// Shown for a program whose name is unreadable (CAP_SYS_ADMIN is missing).
const NAMELESS: &str = "number";
/// Number of attempts on a busy interface, and the pause between two: half a second in total.
pub(crate) const BUSY_RETRIES: u32 = 50;
pub(crate) const BUSY_WAIT: Duration = Duration::from_millis(10);
