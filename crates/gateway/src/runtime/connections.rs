//! The thread that follows the kernel's connections, and enters those that ports may carry.
//!
//! ```text
//! ctnetlink ─▶ which connections may be carried, their timers ─▶ table of connections, closed ◀─ evidence: programs
//!      ▲                       │                                        │ each second: packets, ends
//!      └── timers, TCP flags ──┘◀───────────────────────────────────────┘
//! ```
//!
//! If it is lost, entries stay as they are: the programs close them with the next change of the kernel's, and the kernel has
//! each connection whose timer ends.

use crate::clock::Clock;
use crate::kernel::conntrack::{self, Change, Connections, Limits, Reading, Socket};
use crate::supervise::{Loss, Thread, Threads};
use anyhow::{Context as _, Result};
use polder_datapath::units::Nanos;
use polder_devices::netlink::{Client, find};
use polder_devices::skb::connections::{Connection, ConnectionTable, Direction, Transport, Tuple};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bytes of events that may wait to be read.
const BUFFER_BYTES: usize = 8 << 20;
/// Interval at which the entries of the table are read.
const INTERVAL: Nanos = Nanos::SECOND;

/// The running thread; it ends with this.
#[derive(Debug)]
pub(super) struct Following {
    end: Arc<OwnedFd>,
    _thread: Thread<()>,
}

impl Following {
    /// Subscribes to the kernel's events, and starts the thread.
    ///
    /// # Errors
    /// If the kernel tracks no connections, or no thread can be started.
    pub(super) fn start(threads: &Threads, clock: Clock, table: Arc<ConnectionTable>) -> Result<Self> {
        let socket = Socket::open(BUFFER_BYTES).context("the kernel's connections cannot be followed")?;
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let limits = Limits { timeouts: conntrack::timeouts(), ..Limits::new(table.most() as usize) };
        let connections = Connections::new(limits, socket.port_id(), false);
        let until = Arc::clone(&end);
        let mut follower = Follower {
            socket,
            connections,
            table,
            clock,
            known: HashMap::new(),
            generation: 0,
            local: BTreeSet::new(),
        };
        follower.learn_addresses();
        let thread = threads.spawn("connections", Loss::Ends, move || follower.run(&until))?;
        Ok(Self { end, _thread: thread })
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // A counter that is full is raised as well.
        let _: Result<usize, rustix::io::Errno> = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
    }
}

struct Follower {
    socket: Socket,
    connections: Connections,
    table: Arc<ConnectionTable>,
    clock: Clock,
    known: HashMap<conntrack::ConnectionId, Entered>,
    /// Generation of the table at the last look.
    generation: u64,
    /// Addresses of this machine.
    local: BTreeSet<IpAddr>,
}

/// A connection in the table.
#[derive(Clone, Copy, Debug)]
struct Entered {
    connection: Connection,
    /// Bytes carried in both directions at the last look.
    bytes: u64,
}

impl Follower {
    fn run(&mut self, end: &OwnedFd) {
        let mut look_at = self.clock.now() + INTERVAL;
        loop {
            let now = self.clock.now();
            if now >= look_at {
                self.look(now);
                look_at = now + INTERVAL;
            }
            self.ask(now);
            self.enter();
            let look = (!self.known.is_empty()).then_some(look_at);
            let due = self.connections.next_deadline().into_iter().chain(look).min();
            if !wait(end, &self.socket, due.map(|due| due.since(self.clock.now()))) {
                break;
            }
            if let Err(error) = self.read() {
                tracing::error!(%error, "the kernel's connections cannot be followed any more");
                break;
            }
        }
        for entered in self.known.values() {
            self.table.leave(&entered.connection);
        }
    }

    /// Brings the addresses of this machine up to date: its own connections are the kernel's.
    fn learn_addresses(&mut self) {
        match local_addresses() {
            Ok(addresses) if addresses != self.local => {
                self.connections.set_local_addresses(addresses.iter().copied());
                self.local = addresses;
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the addresses of this machine cannot be read"),
        }
    }

    /// Takes all events that wait.
    fn read(&mut self) -> Result<()> {
        loop {
            let now = self.clock.now();
            match self.socket.read()? {
                Reading::Datagram(datagram) => {
                    conntrack::events(datagram).for_each(|event| self.connections.take(event, now));
                }
                Reading::Lost => self.connections.lost(now),
                Reading::Nothing => return Ok(()),
            }
        }
    }

    /// Sends what is due.
    fn ask(&mut self, now: Nanos) {
        while let Some(requests) = self.connections.next_requests(now) {
            if self.socket.send(&requests).is_err() {
                self.connections.lost(now);
                break;
            }
        }
    }

    /// Brings the table up to date.
    fn enter(&mut self) {
        for change in self.connections.changes() {
            let (id, connection) = match change {
                Change::Enter(entered) => (entered.id, carried(&entered)),
                Change::Leave(id) => (id, None),
            };
            if let Some(left) = self.known.remove(&id) {
                self.table.leave(&left.connection);
            }
            // One that finds no room stays the kernel's.
            let entered = connection.filter(|connection| self.table.enter(connection).is_ok());
            self.known.extend(entered.map(|connection| (id, Entered { connection, bytes: 0 })));
        }
    }

    /// Reads what the programs have carried.
    fn look(&mut self, now: Nanos) {
        self.learn_addresses();
        let generation = self.table.generation();
        let has_changed = core::mem::replace(&mut self.generation, generation) != generation;
        let directions = match self.table.directions() {
            Ok(directions) => directions.into_iter().collect::<HashMap<Tuple, Direction>>(),
            Err(error) => return tracing::warn!(%error, "the table of connections cannot be read"),
        };
        for (id, entered) in &mut self.known {
            let state = [entered.connection.original, entered.connection.reply]
                .map(|tuple| directions.get(&tuple).copied().unwrap_or_default());
            let bytes = state.iter().map(|direction| direction.bytes).sum();
            if state.iter().any(|direction| direction.has_ended) {
                self.connections.ended(*id);
                continue;
            }
            if core::mem::replace(&mut entered.bytes, bytes) != bytes {
                self.connections.moved(*id, bytes, now);
            }
            if has_changed || !state.iter().all(|direction| direction.is_open) {
                self.connections.went_up(*id, now);
            }
        }
    }
}

/// Addresses of all interfaces.
fn local_addresses() -> Result<BTreeSet<IpAddr>> {
    let answers = Client::open(None)?.dump(RTM_GETADDR, &[0; 8])?;
    let address = |body: &[u8]| {
        // `ifaddrmsg`, then attributes: IFA_LOCAL of point-to-point links, else IFA_ADDRESS.
        let rest = body.get(8..)?;
        let value = find(rest, IFA_LOCAL).or_else(|| find(rest, IFA_ADDRESS))?;
        let v4 = || <[u8; 4]>::try_from(value).ok().map(IpAddr::from);
        <[u8; 16]>::try_from(value).ok().map(IpAddr::from).or_else(v4)
    };
    Ok(answers.iter().filter_map(|(_, body)| address(body)).collect())
}

/// linux/rtnetlink.h, linux/if_addr.h.
const RTM_GETADDR: u16 = 22;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// Waits for events, until the time is over; false at the end.
fn wait(end: &OwnedFd, socket: &Socket, time: Option<Nanos>) -> bool {
    let mut files = [PollFd::new(end, PollFlags::IN), PollFd::new(socket, PollFlags::IN)];
    let time = time.map(|time| Timespec {
        tv_sec: i64::try_from(time.0 / Nanos::SECOND.0).unwrap_or(1),
        tv_nsec: i64::try_from(time.0 % Nanos::SECOND.0).unwrap_or(0),
    });
    // An interrupted wait ends early.
    let _: Result<usize, rustix::io::Errno> = poll(&mut files, time.as_ref());
    files[0].revents().is_empty()
}

/// The connection as the table has it; `None` for one whose packets are not rewritten by programs.
fn carried(connection: &conntrack::Connection) -> Option<Connection> {
    let tuple = |tuple: &conntrack::Tuple| {
        let transport = match i32::from(tuple.protocol) {
            libc::IPPROTO_TCP => Transport::Tcp,
            libc::IPPROTO_UDP => Transport::Udp,
            _ => return None,
        };
        Some(Tuple {
            source: tuple.source,
            destination: tuple.destination,
            source_port: tuple.source_port,
            destination_port: tuple.destination_port,
            transport,
        })
    };
    let connection = Connection {
        original: tuple(&connection.original)?,
        reply: tuple(&connection.reply)?,
        window_shifts: connection.window_scales,
    };
    (connection.original.source.is_ipv4() || !connection.is_translated()).then_some(connection)
}
