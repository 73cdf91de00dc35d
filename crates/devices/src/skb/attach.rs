//! Attachment of the programs to their hooks: the interface's ingress, and both directions of the TAP.

use super::clsact::{self, Filter};
use super::connections::{self, ConnectionTable};
use super::error::{Hook, OpenError};
use crate::af_xdp::attach::{
    Attachment, BUSY_RETRIES, BUSY_WAIT, OUR_PREFIX, program_name, remove_stale, take_over_or,
};
use crate::af_xdp::link::LinkInfo;
use crate::af_xdp::pin::LinkKind;
use crate::af_xdp::{self, OnExit};
use crate::bpf::sys::{self, ProgramKind, Side};
use crate::netlink::tc::{EGRESS, INGRESS};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// The program at the interface's ingress.
#[derive(Debug)]
pub(super) enum Attached {
    Tcx(Attachment),
    Clsact(Filter),
}

impl Attached {
    /// True if the interface still has the program.
    pub(super) fn is_attached(&self) -> bool {
        match self {
            Self::Tcx(attachment) => attachment.is_attached(),
            Self::Clsact(filter) => filter.is_attached(),
        }
    }

    /// Returns the name of a foreign program that sees the packets of the interface's ingress before
    /// `program`, the port's own.
    pub(super) fn in_front(&self, interface: u32, program: &OwnedFd) -> Option<String> {
        match self {
            Self::Tcx(_) => {
                let port = number(program)?;
                let programs = sys::tcx_programs(interface, Side::Ingress).ok()?;
                let mut in_front = programs.into_iter().take_while(|&found| found != port);
                in_front.find(|&found| !is_own(found)).map(program_name)
            }
            Self::Clsact(filter) => filter.in_front(),
        }
    }
}

/// Attaches `program`, which sends to TAP number `tap`, to the interface's ingress, or takes over the link
/// that an earlier process has `given` or left.
pub(super) fn to_interface(
    (link, hook): (&LinkInfo, Hook),
    (program, tap): (&OwnedFd, u32),
    (on_exit, given): (OnExit, Option<OwnedFd>),
    notes: &mut Vec<String>,
) -> Result<Attached, OpenError> {
    match hook {
        Hook::Tcx => by_link(link, program, (on_exit, given), notes).map(Attached::Tcx),
        Hook::Clsact => {
            let filter = Filter::attach(link, (program, tap), on_exit, notes)?;
            remove_stale(link)?;
            Ok(Attached::Clsact(filter))
        }
    }
}

fn by_link(
    link: &LinkInfo,
    program: &OwnedFd,
    (on_exit, given): (OnExit, Option<OwnedFd>),
    notes: &mut Vec<String>,
) -> Result<Attachment, OpenError> {
    let mut refusal = None;
    let attach = |_: &mut Vec<String>| {
        wait_for_others(link)?;
        sys::link_tcx(program.as_fd(), link.index, Side::Ingress).map_err(|errno| {
            if is_unknown(errno) {
                refusal = Some(errno);
            }
            step(link, "attach a TCX program", errno)
        })
    };
    let attached = take_over_or(link, (LinkKind::Tcx, on_exit), given, notes, attach);
    attached.map_err(|error| match refusal {
        Some(errno) => no_tcx(link, errno),
        None => error.into(),
    })
}

fn no_tcx(link: &LinkInfo, errno: Errno) -> OpenError {
    OpenError::NoHook { interface: link.name.clone(), hook: Hook::Tcx, errno }
}

/// True for the errors of kernels without TCX.
fn is_unknown(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::OPNOTSUPP)
}

/// Waits until a gateway that has just ended releases the interface. Capture programs end by themselves.
fn wait_for_others(link: &LinkInfo) -> Result<(), af_xdp::OpenError> {
    let is_ours = |&program: &u32| {
        let name = program_name(program);
        name.starts_with(OUR_PREFIX) && !name.starts_with(COPIES)
    };
    let is_in_use =
        || sys::tcx_programs(link.index, Side::Ingress).is_ok_and(|programs| programs.iter().any(is_ours));
    for _ in 0..BUSY_RETRIES {
        if !is_in_use() {
            return Ok(());
        }
        std::thread::sleep(BUSY_WAIT);
    }
    Err(af_xdp::OpenError::InUse(link.name.clone()))
}

/// Returns the number of foreign TCX programs at an interface's ingress or egress.
///
/// # Errors
/// Errors of the kernel; Linux before 6.6 does not know the request.
pub fn foreign_programs(interface: u32, is_egress: bool) -> Result<usize, Errno> {
    let side = if is_egress { Side::Egress } else { Side::Ingress };
    // Programs of another Polder process, or left by one, are recognised by their name, if it is readable.
    let is_foreign = |program: &u32| !is_own(*program) && !program_name(*program).starts_with(OUR_PREFIX);
    Ok(sys::tcx_programs(interface, side)?.iter().filter(|program| is_foreign(program)).count())
}

/// Returns the ids of the TCX programs at an interface's ingress or egress that this process has not loaded,
/// in their order.
///
/// # Errors
/// As [`foreign_programs`].
pub fn programs_of_others(interface: u32, is_egress: bool) -> Result<Vec<u32>, Errno> {
    let side = if is_egress { Side::Egress } else { Side::Ingress };
    let mut programs = sys::tcx_programs(interface, side)?;
    programs.retain(|program| !is_own(*program));
    Ok(programs)
}

/// Name of the programs of captures.
pub(super) const COPIES: &str = "polder_copies";

/// Records a program as this process's own.
pub(super) fn own(program: &OwnedFd) {
    if let Some(number) = number(program) {
        OWN.lock().unwrap_or_else(PoisonError::into_inner).insert(number);
    }
}

/// True if this process has loaded the program of id `program`.
fn is_own(program: u32) -> bool {
    OWN.lock().unwrap_or_else(PoisonError::into_inner).contains(&program)
}

fn number(program: &OwnedFd) -> Option<u32> {
    let [_, _, _, _, a, b, c, d, ..] = sys::object_info(program.as_fd()).ok()?;
    Some(u32::from_ne_bytes([a, b, c, d]))
}

/// Ids of the programs that this process has loaded.
static OWN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Attaches a program to one direction of the TAP, until the returned link is closed or the TAP is deleted.
pub(super) fn to_tap(
    (link, tap, hook): (&LinkInfo, u32, Hook),
    side: Side,
    name: &str,
    instructions: &[u64],
) -> Result<OwnedFd, OpenError> {
    let program = load(link, ProgramKind::Tcx, name, instructions)?;
    if hook == Hook::Clsact {
        let parent = match side {
            Side::Ingress => INGRESS,
            Side::Egress => EGRESS,
        };
        clsact::to_tap((link, tap), parent, &program)?;
        return Ok(program);
    }
    sys::link_tcx(program.as_fd(), tap, side).map_err(|errno| match errno {
        errno if is_unknown(errno) => no_tcx(link, errno),
        errno => step(link, "attach a TCX program to the TAP", errno).into(),
    })
}

/// Attaches the program that collects evidence of connections to the interface's egress, until the returned
/// link is closed.
///
/// # Errors
/// [`OpenError::NoHook`] for a port at clsact: only TCX carries connections.
pub(super) fn to_egress(
    (link, hook): (&LinkInfo, Hook),
    table: &ConnectionTable,
) -> Result<OwnedFd, OpenError> {
    if hook == Hook::Clsact {
        return Err(no_tcx(link, Errno::OPNOTSUPP));
    }
    let program =
        load(link, ProgramKind::Tcx, "polder_evidence", &connections::evidence(table.maps(), link.layer))?;
    let linked = sys::link_tcx(program.as_fd(), link.index, Side::Egress);
    Ok(linked.map_err(|errno| step(link, "attach a TCX program to the egress", errno))?)
}

/// Loads a program.
pub(super) fn load(
    link: &LinkInfo,
    kind: ProgramKind,
    name: &str,
    instructions: &[u64],
) -> Result<OwnedFd, af_xdp::OpenError> {
    let loaded = sys::load(kind, name, instructions).inspect(own);
    loaded.map_err(|refused| af_xdp::OpenError::loading(&link.name, refused))
}

/// Returns the error of a step of opening.
pub(super) fn step(link: &LinkInfo, step: &'static str, errno: Errno) -> af_xdp::OpenError {
    af_xdp::OpenError::at(&link.name, step, errno)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::af_xdp::link::Which;
    use crate::bpf::assembler::Assembler;

    #[test]
    fn a_program_that_the_verifier_refuses_says_what_it_said() {
        let link = af_xdp::link::query(Which::Name("lo")).expect("there is a loopback interface");
        // It answers a register that nothing was written to.
        let mut program = Assembler::new();
        program.exit();
        match load(&link, ProgramKind::Tcx, "polder_bad", &program.finish()) {
            Err(af_xdp::OpenError::Program { log, .. }) => assert!(log.contains("R0 !read_ok"), "{log}"),
            // Without the right to load programs there is nothing to look at; the namespace tests say so.
            refused => assert!(matches!(refused, Err(af_xdp::OpenError::Permission { .. })), "{refused:?}"),
        }
    }
}
