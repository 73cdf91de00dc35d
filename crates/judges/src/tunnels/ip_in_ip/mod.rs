//! IPv4 in IPv4 and IPv6 in IPv4: a guest's `ipip` and `sit` judge Polder's.
//!
//! ```text
//!  host stack ── TAP ── Polder ── radio0 ── [ the wire ] ── eth1 ── ipip
//!  10.79.N.2            router, tunnel N                            10.78.N.2
//!  host stack ── TAP ── Polder ── radio0 ── [ the wire ] ── eth1 ── sit
//!  fd79:N::2            router, tunnel N                            fd78:N::2
//! ```
//!
//! A tunnel is known by its ends, so each has ends of its own. Each is routed to a TAP of its own. A fault names the check
//! that has to find it; every check of a tunnel has one.

mod checks;
mod drops;
mod faults;
mod header;
mod tunnel;

use super::guest::{self, GuestEnd, InGuest};
use super::{Encapsulation, Refusal};
use faults::Fault;
use tunnel::Tunnel;

/// The kernel's `ipip`.
pub(super) type Ipip = Kernel<false>;
/// The kernel's `sit`.
pub(super) type Sit = Kernel<true>;
/// Polder and the guest.
type Judge<const V6: bool> = super::Judge<Kernel<V6>>;
/// Check of one tunnel.
type Check<const V6: bool> = super::Check<Kernel<V6>>;

/// The guest, whose kernel judges; `V6` is true if IPv6 is inside.
pub(super) struct Kernel<const V6: bool>(GuestEnd);

impl<const V6: bool> From<GuestEnd> for Kernel<V6> {
    fn from(end: GuestEnd) -> Self {
        Self(end)
    }
}

impl<const V6: bool> InGuest for Kernel<V6> {
    const MODULES: &'static [&'static str] = if V6 { &["sit"] } else { &["ipip"] };

    fn guest(&mut self) -> &mut GuestEnd {
        &mut self.0
    }
}

impl<const V6: bool> Encapsulation for Kernel<V6> {
    type Tunnel = Tunnel;
    type Fault = Fault;

    fn faults() -> Vec<Fault> {
        let own = if V6 { faults::OF_SIT } else { faults::OF_IPIP };
        [faults::ALL, own].concat()
    }

    fn tunnels() -> Vec<&'static Tunnel> {
        tunnel::all(V6).iter().collect()
    }

    fn checks(_: &Tunnel) -> Vec<Check<V6>> {
        let own = if V6 { Self::OF_SIT } else { Self::OF_IPIP };
        [Self::CHECKS, own].concat()
    }

    fn tunnels_of(fault: Fault) -> Vec<&'static Tunnel> {
        vec![&tunnel::all(V6)[fault.tunnel as usize]]
    }

    fn telling(fault: Fault, tunnel: &Tunnel) -> Vec<Check<V6>> {
        Self::checks(tunnel).into_iter().filter(|(name, _)| *name == fault.check).collect()
    }

    fn set_fault(judge: &mut Judge<V6>, fault: Option<Fault>) -> anyhow::Result<()> {
        let before = std::mem::replace(&mut judge.wire.ways().fault, fault);
        if fault.or(before).is_some_and(Fault::is_of_configuration) {
            let text = Self::configuration();
            judge.gateway.reload(&fault.map_or_else(|| text.clone(), |fault| fault.configure(&text)))?;
        }
        Ok(())
    }

    fn reaches(judge: &mut Judge<V6>, tunnel: &Tunnel) -> anyhow::Result<()> {
        guest::reaches(judge, tunnel)
    }

    /// Outer packets are counted with those inside.
    fn marks(_: &Tunnel) -> u64 {
        2
    }

    /// These stand among the checks of each tunnel.
    fn refusals() -> Vec<Refusal<Self>> {
        Vec::new()
    }

    fn run(&mut self, line: &str) -> anyhow::Result<String> {
        self.0.run(line)
    }

    fn read(&mut self, path: &str) -> anyhow::Result<String> {
        self.0.read(path)
    }

    fn end(self) -> anyhow::Result<()> {
        self.0.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnels::wire::Faulty as _;
    use std::collections::BTreeSet;

    fn has_faults<const V6: bool>() {
        let checks = Kernel::<V6>::checks(&tunnel::all(V6)[0]);
        let names = checks.iter().map(|(name, _)| *name).collect::<BTreeSet<_>>();
        let faults = Kernel::<V6>::faults();
        let found = faults.iter().map(|fault| fault.check).collect::<BTreeSet<_>>();
        assert_eq!((names.len(), &names), (checks.len(), &found));
        let faults = faults.iter().map(|fault| fault.name()).collect::<Vec<_>>();
        assert_eq!(faults.iter().collect::<BTreeSet<_>>().len(), faults.len());
    }

    #[test]
    fn every_check_has_a_fault_that_it_finds() {
        has_faults::<false>();
        has_faults::<true>();
    }
}
