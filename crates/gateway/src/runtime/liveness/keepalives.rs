//! Keepalives of tunnels: sockets that send them, and checks for answers, whose arrival time workers record.

use super::probe::{NoKeepalive, keepalive};
use crate::config::model::{Configuration, Tunnel};
use crate::config::tunnel::Ttl;
use crate::keepalive::{State, Watch};
use crate::runtime::tunnels::keepalive_station;
use polder_buffers::PortId;
use polder_datapath::tunnel::{Carrier, TunnelState};
use polder_datapath::units::Nanos;
use rustix::net::sockopt::{
    set_ip_tos, set_ip_ttl, set_ipv6_tclass, set_ipv6_unicast_hops, set_socket_recv_buffer_size,
};
use rustix::net::{AddressFamily, Protocol, SendFlags, SocketFlags, SocketType, bind, sendto, socket_with};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Retry interval after a socket could not be opened.
pub(super) const RETRY: Nanos = Nanos::SECOND;

/// Class selector 6, network control (RFC 2474).
const CONTROL_CLASS: u8 = 0xc0;
/// TTL of a keepalive if the tunnel copies the inner packet's TTL.
const USUAL_TTL: u8 = 64;
/// Receive buffer of a GRE raw socket, which is never read: the kernel's minimum.
const UNREAD_BYTES: usize = 0;

/// All tunnels with keepalives.
#[derive(Default)]
pub(super) struct Keepalives(HashMap<PortId, Entry>);

struct Entry {
    tunnel: Tunnel,
    watch: Watch,
    /// Records the time of the last answer.
    state: Arc<TunnelState>,
    bytes: Result<Vec<u8>, NoKeepalive>,
    socket: Option<OwnedFd>,
    retry_at: Nanos,
    trouble: Option<String>,
    sent: u64,
}

/// Status of a tunnel's keepalives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepaliveStatus {
    /// State of the remote end.
    pub state: State,
    /// Time of the last change of the state.
    pub changed_at: Nanos,
    /// Time of the last answer.
    pub heard_at: Option<Nanos>,
    /// Number of consecutive unanswered keepalives.
    pub unanswered: u8,
    /// Number of sent keepalives.
    pub sent: u64,
    /// Reason why keepalives cannot be sent.
    pub trouble: Option<String>,
}

impl KeepaliveStatus {
    /// True if the tunnel may be used.
    pub fn carries(&self) -> bool {
        self.state != State::Down
    }
}

impl Keepalives {
    /// Replaces the keepalives. A tunnel whose addresses, key or VNI changed starts again.
    pub(super) fn set(
        &mut self,
        configuration: &Configuration,
        states: &HashMap<String, Arc<TunnelState>>,
        now: Nanos,
    ) {
        let mut old = std::mem::take(&mut self.0);
        for tunnel in &configuration.tunnels {
            let (Some(wanted), Some(state)) = (tunnel.keepalive, states.get(&tunnel.name)) else { continue };
            let settings = wanted.settings();
            let bytes = keepalive(tunnel, keepalive_station(tunnel, state.secret));
            let known = old.remove(&tunnel.id).filter(|old| old.is_for(tunnel, &bytes));
            let entry = match known {
                Some(mut entry) => {
                    entry.watch.set(settings);
                    entry.state = Arc::clone(state);
                    entry
                }
                None => Entry {
                    tunnel: tunnel.clone(),
                    watch: Watch::new(settings, now),
                    state: Arc::clone(state),
                    bytes,
                    socket: None,
                    retry_at: Nanos(0),
                    trouble: None,
                    sent: 0,
                },
            };
            self.0.insert(tunnel.id, entry);
        }
    }

    /// Checks for answers and sends due keepalives. Returns whether a state changed, and the time of the next
    /// work.
    pub(super) fn round(&mut self, now: Nanos) -> (bool, Option<Nanos>) {
        let mut has_changed = false;
        for entry in self.0.values_mut() {
            has_changed |= entry.work(now);
        }
        (has_changed, self.0.values().map(|entry| entry.watch.next_deadline(now)).min())
    }

    /// Keepalive status of a tunnel.
    pub(super) fn status(&self, tunnel: PortId) -> Option<KeepaliveStatus> {
        let Entry { watch, trouble, sent, .. } = self.0.get(&tunnel)?;
        Some(KeepaliveStatus {
            state: watch.state(),
            changed_at: watch.changed_at(),
            heard_at: watch.heard_at(),
            unanswered: watch.unanswered(),
            sent: *sent,
            trouble: trouble.clone(),
        })
    }
}

impl Entry {
    /// True if the state can be kept for a tunnel.
    fn is_for(&self, tunnel: &Tunnel, bytes: &Result<Vec<u8>, NoKeepalive>) -> bool {
        let Tunnel { name, local, remote, vxlan, ttl, .. } = &self.tunnel;
        let is_same = (name, local, remote) == (&tunnel.name, &tunnel.local, &tunnel.remote);
        is_same && (vxlan, ttl) == (&tunnel.vxlan, &tunnel.ttl) && self.bytes == *bytes
    }

    fn work(&mut self, now: Nanos) -> bool {
        let has_risen = self.watch.look(self.state.last_keepalive(), now);
        let (is_due, has_fallen) = self.watch.send(now);
        if is_due {
            self.send(now);
        }
        has_risen || has_fallen
    }

    fn send(&mut self, now: Nanos) {
        let Tunnel { local, remote, .. } = self.tunnel;
        if self.socket.is_none() && now >= self.retry_at {
            match open(&self.tunnel) {
                Ok(socket) => (self.socket, self.trouble) = (Some(socket), None),
                Err(error) => {
                    self.trouble = Some(format!("cannot send from {local} to {remote}: {error}"));
                    self.retry_at = now + RETRY;
                }
            }
        }
        let (Some(socket), Ok(bytes)) = (&self.socket, &self.bytes) else { return };
        let port = self.tunnel.carrier().port().unwrap_or(0);
        match sendto(socket, bytes, SendFlags::DONTWAIT, &SocketAddr::new(remote, port)) {
            Ok(_) => (self.sent, self.trouble) = (self.sent + 1, None),
            // ICMP errors of an unreachable remote end; missing answers decide.
            Err(error) => self.trouble = Some(format!("cannot send: {error}")),
        }
    }
}

/// A socket that sends outer packets from the host, by the kernel's routes and without the workers.
fn open(tunnel: &Tunnel) -> rustix::io::Result<OwnedFd> {
    let family = if tunnel.is_v6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = match tunnel.carrier() {
        Carrier::Udp(_) => socket_with(family, SocketType::DGRAM, flags, None)?,
        Carrier::Ip(protocol) => {
            let protocol = NonZeroU32::new(protocol.0.into()).map(Protocol::from_raw);
            socket_with(family, SocketType::RAW, flags, protocol)?
        }
    };
    set_socket_recv_buffer_size(&socket, UNREAD_BYTES)?;
    let ttl = match tunnel.ttl {
        Ttl::Inherit => USUAL_TTL,
        Ttl::Fixed(ttl) => ttl,
    };
    match tunnel.local {
        IpAddr::V4(_) => {
            set_ip_ttl(&socket, ttl.into())?;
            set_ip_tos(&socket, CONTROL_CLASS)?;
        }
        IpAddr::V6(_) => {
            set_ipv6_unicast_hops(&socket, Some(ttl))?;
            set_ipv6_tclass(&socket, CONTROL_CLASS.into())?;
        }
    }
    bind(&socket, &SocketAddr::new(tunnel.local, 0))?;
    Ok(socket)
}
