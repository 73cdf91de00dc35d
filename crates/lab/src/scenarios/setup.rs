//! Forwarder or service between injector and sink, and its resources.

use polder_testbed::peers::asks::Asks;
use polder_testbed::peers::bare::Bare;
use polder_testbed::peers::echo::{EchoPeer, Service};
use polder_testbed::peers::kernel::{Kernel, Napi};
use polder_testbed::peers::ovs::Ovs;
use polder_testbed::peers::polder::{self, Polder};
use polder_testbed::peers::testpmd::{Mode, Testpmd};
use polder_testbed::peers::{CLIENT, Device, LOCAL, NETWORK, REMOTE, Receiving, SERVER, Site, Task, Tunnel};
use polder_testbed::topology::Topology;
use polder_testbed::traffic::packet::{Mac, Outer, PROBE_AT, Talk, Wrap};

/// The sink's timer in nanoseconds: a third of the time in which a million packets a second fill the
/// wire's ring of 256.
const SINK_TIMER: u32 = 80_000;
/// The device's input.
pub(super) const INPUT: Mac = [0x02, 0, 0, 0, 4, 0x01];

/// Forwarder or service under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    /// `polder run`; its tunnel is gretap.
    Polder,
    /// Polder with a VXLAN tunnel.
    PolderVxlan,
    /// [`Polder`](Self::Polder) with `mode = "skb"`, so that TCX programs carry flows.
    PolderTcx,
    /// Polder with `mode = "skb"` and a VXLAN tunnel.
    PolderTcxVxlan,
    /// Polder with ports in the mode that the gateway chooses.
    PolderAuto,
    /// [`Polder`](Self::Polder) with a budget of 32 packets.
    Polder32,
    /// A TCX program that redirects, and nothing else.
    Bare,
    /// DPDK's testpmd over AF_XDP.
    Testpmd,
    /// Open vSwitch's userspace datapath; its tunnel is GRE.
    Ovs,
    /// Open vSwitch with a VXLAN tunnel.
    OvsVxlan,
    /// The kernel; by default its receive work is done on the sender's core.
    Kernel(Napi),
    /// The kernel with GRE in place of VXLAN, its receive work threaded.
    KernelGretap,
    /// A service that answers, and sends its answers to the sink.
    Echo(Service),
}

/// Contenders by their names in tables of rows.
const NAMES: [(&str, Contender); 13] = [
    ("polder", Contender::Polder),
    ("polder_vxlan", Contender::PolderVxlan),
    ("polder_tcx", Contender::PolderTcx),
    ("polder_tcx_vxlan", Contender::PolderTcxVxlan),
    ("polder_auto", Contender::PolderAuto),
    ("polder_32", Contender::Polder32),
    ("bare", Contender::Bare),
    ("testpmd", Contender::Testpmd),
    ("ovs", Contender::Ovs),
    ("ovs_vxlan", Contender::OvsVxlan),
    ("kernel", Contender::Kernel(Napi::Threaded)),
    ("kernel_softirq", Contender::Kernel(Napi::Softirq)),
    ("kernel_gretap", Contender::KernelGretap),
];

impl Contender {
    /// The contender of that name.
    pub(super) fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, contender)| *contender)
    }
}

/// Parameters of a testbed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) contender: Contender,
    pub(super) task: Task,
    /// Length of the frame inside, FCS included.
    pub(super) frame_bytes: usize,
    pub(super) flows: u32,
    /// Moderation of the device's input, in microseconds; Polder's own default when `None`.
    pub(super) moderation_us: Option<u16>,
    /// Moderation of the sink, in nanoseconds.
    pub(super) sink_timer: u32,
    /// Empty polls of that timer before a packet's interrupt wakes the sink again.
    pub(super) sink_patience: u32,
    /// Supply of Polder's receive rings.
    pub(super) receiving: Option<Receiving>,
    /// True if the device's threads come before all ordinary ones of their core.
    pub(super) puts_first: bool,
}

impl Setup {
    /// Setup with interrupt moderation only at the sink.
    pub(super) fn new(contender: Contender, task: Task, frame_bytes: usize, flows: u32) -> Self {
        let (moderation_us, sink_timer, sink_patience) = (None, SINK_TIMER, 1);
        let (receiving, puts_first) = (None, true);
        Self {
            contender,
            task,
            frame_bytes,
            flows,
            moderation_us,
            sink_timer,
            sink_patience,
            receiving,
            puts_first,
        }
    }

    pub(super) fn start(&self, site: &Site<'_>, topology: &Topology) -> anyhow::Result<Box<dyn Device>> {
        let files = topology.directory();
        Ok(match self.contender {
            Contender::Polder | Contender::PolderVxlan => Box::new(Polder::start(site, files)?),
            Contender::PolderTcx | Contender::PolderTcxVxlan => {
                Box::new(Polder::start_in(polder::Mode::Skb, site, files)?)
            }
            Contender::PolderAuto => Box::new(Polder::start_in(polder::Mode::Auto, site, files)?),
            Contender::Polder32 => Box::new(Polder::start_in(polder::Mode::Native32, site, files)?),
            Contender::Bare => Box::new(Bare::start(site)?),
            Contender::Testpmd => Box::new(Testpmd::between_interfaces(site, Mode::Io)?),
            Contender::Ovs | Contender::OvsVxlan => Box::new(Ovs::start(site, files)?),
            Contender::Kernel(napi) => Box::new(Kernel::start(site, napi)?),
            Contender::KernelGretap => Box::new(Kernel::start(site, Napi::Threaded)?),
            Contender::Echo(service) => Box::new(EchoPeer::start(site, files, service)?),
        })
    }

    /// Kind of requests to the device.
    pub(super) fn asks(&self) -> Asks {
        if let Contender::Echo(service) = self.contender { service.asks } else { Asks::Echo }
    }

    /// Encapsulation of the device's tunnel.
    pub(super) fn tunnel(&self) -> Tunnel {
        match self.contender {
            Contender::Kernel(_)
            | Contender::PolderVxlan
            | Contender::PolderTcxVxlan
            | Contender::OvsVxlan => Tunnel::Vxlan,
            Contender::Polder
            | Contender::PolderTcx
            | Contender::PolderAuto
            | Contender::Polder32
            | Contender::Bare
            | Contender::Testpmd
            | Contender::Ovs
            | Contender::KernelGretap
            | Contender::Echo(_) => Tunnel::Gretap,
        }
    }

    /// The tunnel as packets have it.
    fn wrap(&self) -> Wrap {
        match self.tunnel() {
            Tunnel::Vxlan => Wrap::Vxlan(NETWORK),
            Tunnel::Gretap => Wrap::Gretap(None),
        }
    }

    pub(super) fn talk(&self) -> Talk {
        let talk = Talk { flows: self.flows, ..Talk::simple(CLIENT, SERVER) };
        match self.task {
            Task::Bridge | Task::Encapsulate => talk,
            Task::Route => Talk { destination: (INPUT, SERVER.1), ..talk },
            Task::Decapsulate => {
                let outer = Outer { wrap: self.wrap(), source: REMOTE, destination: (INPUT, LOCAL) };
                Talk { outer: Some(outer), ..talk }
            }
        }
    }

    pub(super) fn probe_at_sink(&self) -> usize {
        let outer = if self.task == Task::Encapsulate { self.wrap().bytes() } else { 0 };
        outer + PROBE_AT
    }
}
