//! Punt path: packets that user space returns to the kernel, at the interface that received them.
//!
//! A TAP has a program at its ingress that reads the number of the ingress port from a service tag
//! ([`TapTx::naming_ingress`](crate::tap::TapTx::naming_ingress)), removes the tag, and redirects the packet to the
//! ingress of that port's interface. There it passes netfilter, policy routing and forwarding like a packet that
//! Polder has not taken.
//!
//! ```text
//!   user space ──▶ TAP ──▶ remove tag, look up interface, mark ──▶ ingress of the interface ──▶ kernel
//! ```
//!
//! The mark is 64 bits of the packet's control block, by which a port's own TCX program recognises the packet
//! (`pass_marked`). A native XDP program does not run on such a packet. A generic one does, so a port in that mode
//! has no punt path.
//!
//! A program before the port's may overwrite the control block: then the port's program takes the packet again, and
//! user space punts it again, endlessly. Both programs count, so that the gateway detects this ([`Punt::returned`],
//! [`Port::recognized`](super::Port::recognized)) and ends it by [`Punt::set_ports`].
//!
//! Cost: one `write` per packet, and a second pass through the interface's ingress. Source: Linux,
//! net/core/filter.c (`BPF_F_INGRESS`).

use super::attach;
use super::connections::{self, ConnectionMaps};
use super::error::{Hook, OpenError};
use super::program::{CONTROL_BLOCK, DROP, NEXT, VLAN_TAG};
use super::settings;
use crate::af_xdp;
use crate::af_xdp::link::{self, Which};
use crate::bpf::assembler::{Assembler, Condition, Helper, Label, Register, Width};
use crate::bpf::sys::{Map, MapKind, Side};
use crate::bpf::window::RECOGNIZED_AT;
use crate::tap::{self, Offloads, TapError};
use crate::{AnyQueue, Interface, Queue, Receiving};
use Register::{R0, R1, R2, R6, R7, R8, R10};
use polder_buffers::{PortId, Region};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// An open punt path; packets can be punted until this value is dropped.
#[derive(Debug)]
pub struct Punt {
    /// The TAP.
    pub interface: Interface,
    /// True if UDP super-packets may be punted unsegmented.
    pub udp_segments: bool,
    /// True if super-packets in tunnels over UDP may be punted unsegmented.
    pub tunnel_segments: bool,
    /// By port number: the port's interface, and the number of packets punted there.
    ports: Map,
    entered: Mutex<BTreeMap<PortId, u32>>,
    _programs: [OwnedFd; 2],
}

/// A punt path and its queue.
pub type OpenedPunt = crate::Opened<Punt>;

/// Opens the punt path of a gateway.
///
/// # Errors
/// [`OpenError`] if the TAP or a program cannot be created; the text names the remedy.
pub fn open(receiving: Receiving, region: &Region) -> Result<OpenedPunt, OpenError> {
    let options = tap::Options {
        mtu: Some(super::init::LARGEST_MTU),
        offloads: Offloads::Checksum,
        receiving,
        ..tap::Options::new(super::init::NAME)
    };
    let of_tap = |source: TapError| OpenError::Tap { interface: PURPOSE.to_owned(), source };
    let tap = tap::open(&options, region).map_err(of_tap)?;
    let index = tap.interface.index;
    let link = link::query(Which::Index(index))
        .map_err(|_| af_xdp::OpenError::NoInterface(tap.interface.name.clone()))?;
    let step = |step| move |errno| OpenError::from(af_xdp::OpenError::at(PURPOSE, step, errno));
    settings::prepare(index, PURPOSE, 0).map_err(step("set up the TAP"))?;
    let ports = Map::new(MapKind::Hash, "polder_punt", 4, VALUE_BYTES, MOST_PORTS)
        .map_err(step("create a BPF map"))?;
    let attached =
        [(Side::Egress, "polder_closed", closed()), (Side::Ingress, "polder_punt", returned(ports.as_fd()))]
            .map(|(side, name, program)| {
                let attach = |hook| attach::to_tap((&link, index, hook), side, name, &program);
                attach(Hook::Tcx).or_else(|_| attach(Hook::Clsact))
            });
    let [egress, ingress] = attached;
    let programs = [egress?, ingress?];
    settings::switch_on(index).map_err(step("set the TAP up"))?;
    let queue = |Queue { rx, tx }: Queue<tap::TapRx, tap::TapTx>| -> AnyQueue {
        Queue { rx, tx: tx.naming_ingress() }.boxed()
    };
    let port = Punt {
        interface: tap.interface,
        udp_segments: tap.udp_segments,
        tunnel_segments: tap.tunnel_segments,
        ports,
        entered: Mutex::default(),
        _programs: programs,
    };
    Ok(OpenedPunt { port, queues: tap.queues.into_iter().map(queue).collect() })
}

impl Punt {
    /// Sets the ports whose packets can be punted, each with its interface index.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn set_ports(&self, ports: &BTreeMap<PortId, u32>) -> Result<(), Errno> {
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        for (port, interface) in ports.iter().filter(|(port, interface)| entered.get(port) != Some(interface))
        {
            let mut value = [0; VALUE_BYTES as usize];
            value[..4].copy_from_slice(&interface.to_ne_bytes());
            self.ports.set(&key(*port), &value)?;
        }
        for port in entered.keys().filter(|port| !ports.contains_key(port)) {
            match self.ports.remove(&key(*port)) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        entered.clone_from(ports);
        Ok(())
    }

    /// Returns the number of packets punted at a port's interface since the port was added by
    /// [`set_ports`](Self::set_ports); `None` for another port.
    pub fn returned(&self, port: PortId) -> Option<u64> {
        let mut value = [0; VALUE_BYTES as usize];
        self.ports.get(&key(port), &mut value).ok()?;
        value.last_chunk().map(|count| u64::from_ne_bytes(*count))
    }
}

/// Returns the map key of a port: the control information of its tag, as the program loads it.
fn key(port: PortId) -> [u8; 4] {
    u32::from(port.0).to_ne_bytes()
}

/// Returns a program that redirects packets to the ingress of the interface of the port in their tag, and
/// drops all others.
fn returned(ports: BorrowedFd<'_>) -> Vec<u64> {
    let mut program = Assembler::new();
    let drop = program.label();
    program.copy(R6, R1);
    program.load(Width::Word, R2, R6, VLAN_TAG);
    program.store(Width::Word, R10, KEY, R2);
    program.map(R1, ports);
    program.copy(R2, R10);
    program.add(R2, i32::from(KEY));
    program.call(Helper::MapLookup);
    program.jump_value(Condition::Equal, R0, 0, drop);
    program.copy(R8, R0);
    program.load(Width::Word, R7, R8, 0);
    program.copy(R1, R6);
    program.call(Helper::VlanPop);
    program.jump_value(Condition::NotEqual, R0, 0, drop);
    program.set(R1, 1);
    program.count(R8, COUNT_AT, R1);
    for (part, offset) in MARK.into_iter().zip([CONTROL_BLOCK, CONTROL_BLOCK + 4]) {
        program.set(R1, part);
        program.store(Width::Word, R6, offset, R1);
    }
    program.copy(R1, R7);
    program.set(R2, TO_INGRESS);
    program.call(Helper::Redirect);
    program.exit();
    program.place(drop);
    program.set(R0, DROP);
    program.exit();
    program.finish()
}

/// Returns a program that drops every packet: the TAP sends nothing.
fn closed() -> Vec<u64> {
    let mut program = Assembler::new();
    program.set(R0, DROP);
    program.exit();
    program.finish()
}

/// Leaves a punted packet to the next program, and so to the kernel, and counts it in the first of `windows`.
/// If the kernel decides, the packet is stamped like any that passes. The context is in R6; R0 and R1 change,
/// and for a punted packet R5 and R8.
pub(super) fn pass_marked(
    program: &mut Assembler,
    windows: BorrowedFd<'_>,
    connections: Option<ConnectionMaps<'_>>,
) {
    let unmarked = program.label();
    unless_marked(program, unmarked);
    if let Some(maps) = connections {
        connections::stamp_returned(program, maps);
    }
    // The mark is valid for one pass.
    program.set(R0, 0);
    program.store(Width::Word, R6, CONTROL_BLOCK, R0);
    program.map_value(R0, windows);
    program.set(R1, 1);
    program.count(R0, RECOGNIZED_AT, R1);
    program.set(R0, NEXT);
    program.exit();
    program.place(unmarked);
}

fn unless_marked(program: &mut Assembler, unmarked: Label) {
    for (part, offset) in MARK.into_iter().zip([CONTROL_BLOCK, CONTROL_BLOCK + 4]) {
        program.load(Width::Word, R0, R6, offset);
        program.jump_value(Condition::NotEqual, R0, part, unmarked);
    }
}

/// Mark of a punted packet. A received packet has other values here: zeros, or remains of generic receive
/// offload, which are small numbers and kernel addresses.
const MARK: [i32; 2] = [0x706f_6c64, 0x7075_6e74];
/// Bytes of a port's map value: its interface, and at [`COUNT_AT`] its packets.
const VALUE_BYTES: u32 = 16;
const COUNT_AT: i16 = 8;
/// Offset of the key on the stack.
const KEY: i16 = -8;
/// `BPF_F_INGRESS`.
const TO_INGRESS: i32 = 1;
/// Maximum number of ports of a gateway.
const MOST_PORTS: u32 = 16_384;
/// Purpose of the TAP, in its alias and in errors.
const PURPOSE: &str = "packets returned to the kernel";
