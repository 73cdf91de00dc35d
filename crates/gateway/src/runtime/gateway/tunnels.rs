//! Tunnels that are down by BFD or keepalive: bridges and routes do not use them.

use super::Gateway;
use crate::bfd::{Diagnostic, State};
use crate::config::model::{Configuration, Tunnel};
use crate::events::EventKind;
use crate::keepalive;
use crate::runtime::liveness::{KeepaliveStatus, SessionKey, SessionStatus};
use crate::runtime::tables::Lasting;
use polder_buffers::PortId;
use polder_datapath::units::Nanos;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl Gateway {
    /// Starts, changes and ends BFD sessions and keepalives as the configuration asks.
    pub(in crate::runtime) fn watch_tunnels(&mut self) {
        let interfaces = self.facts().into_iter().filter_map(|(id, facts)| Some((id, facts.index?)));
        let interfaces = interfaces.collect();
        let Self { liveness, configuration, lasting, clock, threads, .. } = self;
        if let Err(error) = liveness.watch(configuration, &lasting.tunnels, &interfaces, *clock, threads) {
            tracing::error!(
                "cannot start the thread that monitors tunnels: {error}; all tunnels are \
                             treated as up"
            );
        }
    }

    /// Descriptor that is readable when [`Gateway::take_news`] has work; `None` if no tunnel has BFD or
    /// keepalives.
    pub fn tunnel_news(&self) -> Option<Arc<OwnedFd>> {
        self.liveness.news()
    }

    /// Handles changes of tunnel states and the kernel's routing messages. Call it when [`Gateway::ear`] or
    /// [`Gateway::tunnel_news`] is readable. Returns the time until the next call.
    pub fn take_news(&mut self) -> Nanos {
        if self.is_left {
            return Nanos::SECOND;
        }
        self.look_at_tunnels();
        if self.lasting.routing.ear().is_some() { self.follow() } else { Nanos::SECOND }
    }

    /// BFD session of a tunnel, if it has one.
    pub(in crate::runtime) fn session(&self, tunnel: &Tunnel) -> Option<SessionStatus> {
        self.liveness.status(&SessionKey::of(tunnel)?, self.clock.now())
    }

    /// Keepalive state of a tunnel, if it has keepalives.
    pub(in crate::runtime) fn keepalive(&self, tunnel: &Tunnel) -> Option<KeepaliveStatus> {
        self.liveness.keepalive(tunnel.id)
    }

    /// State of the remote end of a tunnel with BFD or keepalives.
    fn end(&self, tunnel: &Tunnel) -> Option<EndStatus> {
        let session = self.session(tunnel).map(EndStatus::Bfd);
        session.or_else(|| self.keepalive(tunnel).map(EndStatus::Keepalive))
    }

    /// Removes tunnels that went down from bridges and routes, and brings back tunnels that came up.
    pub(super) fn look_at_tunnels(&mut self) {
        self.liveness.heard();
        let mut news = Vec::new();
        for tunnel in &self.configuration.tunnels {
            let end = self.end(tunnel);
            let carries = end.as_ref().is_none_or(EndStatus::carries);
            let is_up = end.as_ref().is_some_and(EndStatus::is_up);
            let is_new = is_up && !self.lasting.alive.contains(&tunnel.id);
            if is_new || carries == self.lasting.dead.contains(&tunnel.id) {
                news.push((tunnel.id, carries));
                let state = end.map_or_else(|| "not watched".to_owned(), |end| end.describe());
                let tunnel = tunnel.name.clone();
                self.events.note(EventKind::Tunnel { tunnel, state, up: carries });
            }
        }
        let gone = self.lasting.dead.iter().filter(|id| self.configuration.tunnel(**id).is_none());
        news.extend(gone.map(|id| (*id, true)));
        for (id, carries) in news {
            let Lasting { dead, alive, .. } = &mut self.lasting;
            let (from, to) = if carries { (dead, alive) } else { (alive, dead) };
            from.remove(&id);
            to.insert(id);
            self.note_tunnel(id, carries);
        }
        let configuration = &self.configuration;
        self.lasting.alive.retain(|id| is_watched(configuration, *id));
    }
}

/// True if a tunnel has BFD or keepalives.
fn is_watched(configuration: &Configuration, id: PortId) -> bool {
    configuration.tunnel(id).is_some_and(Tunnel::is_watched)
}

/// State of the remote end of a tunnel.
enum EndStatus {
    /// From its BFD session.
    Bfd(SessionStatus),
    /// From its keepalives.
    Keepalive(KeepaliveStatus),
}

impl EndStatus {
    /// True if the tunnel may be used.
    fn carries(&self) -> bool {
        match self {
            Self::Bfd(session) => session.carries,
            Self::Keepalive(keepalive) => keepalive.carries(),
        }
    }

    /// True if the remote end is known to be up.
    fn is_up(&self) -> bool {
        match self {
            Self::Bfd(session) => session.state == State::Up,
            Self::Keepalive(keepalive) => keepalive.state == keepalive::State::Up,
        }
    }

    /// The state as text.
    fn describe(&self) -> String {
        match self {
            Self::Bfd(session) => describe(session),
            Self::Keepalive(KeepaliveStatus { state, unanswered, trouble, .. }) => {
                let state = state.name();
                match (trouble, unanswered) {
                    (Some(trouble), _) => format!("keepalive {state}: {trouble}"),
                    (None, 0) => format!("keepalive {state}"),
                    (None, unanswered) => format!("keepalive {state}: {unanswered} were not answered"),
                }
            }
        }
    }
}

/// The state of a BFD session as text.
fn describe(session: &SessionStatus) -> String {
    let SessionStatus { state, diagnostic, trouble, heard_at, carries, .. } = session;
    match (trouble, heard_at) {
        (Some(trouble), _) if !carries => format!("BFD {}: {trouble}", state.name()),
        (_, None) => format!("BFD {}: no packet received from the other end", state.name()),
        (_, Some(_)) if *diagnostic == Diagnostic::NONE => format!("BFD {}", state.name()),
        (_, Some(_)) => format!("BFD {}: {diagnostic}", state.name()),
    }
}
