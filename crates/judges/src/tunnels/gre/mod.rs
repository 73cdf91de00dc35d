//! GRE: the tunnels of a guest with Debian's kernel judge Polder's.
//!
//! ```text
//!  host stack ── TAP ── Polder ── radio0 ── [ the wire ] ── eth1 ── gretap, ip6gretap
//!  10.78.N.1            bridge N, tunnel N                          10.78.N.2
//!  host stack ── TAP ── Polder ── radio0 ── [ the wire ] ── eth1 ── gre, ip6gre
//!  10.79.N.2            router, tunnel N                            10.78.N.2
//! ```
//!
//! Tunnels are told apart by family, ends and key. One of frames is in a bridge with a TAP of its own; one of packets is
//! routed to a TAP of its own, so that the host's packets have gone by one router.

mod checks;
mod drops;
mod faults;
mod header;
mod tunnel;

use super::Encapsulation;
use super::guest::{self, GuestEnd, InGuest};
use faults::{FAULTS, Fault};
use tunnel::{TUNNELS, Tunnel};

/// Polder and a guest.
type Judge = super::Judge<Kernel>;
/// Check with damaged packets.
type Refusal = super::Refusal<Kernel>;
/// Check of one tunnel.
type Check = super::Check<Kernel>;

/// The guest, whose kernel judges.
pub(super) struct Kernel(GuestEnd);

impl From<GuestEnd> for Kernel {
    fn from(end: GuestEnd) -> Self {
        Self(end)
    }
}

impl InGuest for Kernel {
    const MODULES: &'static [&'static str] = &["ip_gre", "ip6_gre"];

    fn guest(&mut self) -> &mut GuestEnd {
        &mut self.0
    }
}

impl Encapsulation for Kernel {
    type Tunnel = Tunnel;
    type Fault = Fault;

    fn faults() -> Vec<Fault> {
        FAULTS.to_vec()
    }

    fn tunnels() -> Vec<&'static Tunnel> {
        TUNNELS.iter().collect()
    }

    fn checks(tunnel: &Tunnel) -> Vec<Check> {
        let routed: &[Check] = if tunnel.routed { &checks::ROUTED } else { &[] };
        [&checks::ALL, routed].concat()
    }

    /// One tunnel over each address family.
    fn tunnels_of(fault: Fault) -> Vec<&'static Tunnel> {
        fault.tunnels.to_vec()
    }

    fn telling(_: Fault, _: &Tunnel) -> Vec<Check> {
        checks::TELLING.to_vec()
    }

    fn reaches(judge: &mut Judge, tunnel: &Tunnel) -> anyhow::Result<()> {
        guest::reaches(judge, tunnel)
    }

    fn marks(_: &Tunnel) -> u64 {
        1
    }

    fn refusals() -> Vec<Refusal> {
        drops::refusals()
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
