//! Tunnels that are dead: no destination of a bridge, and no next hop.

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
    /// Keeps the BFD sessions and keepalives that the configuration asks for.
    pub(in crate::runtime) fn watch_tunnels(&mut self) {
        let interfaces = self.facts().into_iter().filter_map(|(id, facts)| Some((id, facts.index?)));
        let interfaces = interfaces.collect();
        let Self { liveness, configuration, lasting, clock, threads, .. } = self;
        if let Err(error) = liveness.watch(configuration, &lasting.tunnels, &interfaces, *clock, threads) {
            tracing::error!("cannot start the thread that watches tunnels: {error}; they are taken to be up");
        }
    }

    /// Descriptor that is readable when [`Gateway::take_news`] has work, if a tunnel is watched.
    pub fn tunnel_news(&self) -> Option<Arc<OwnedFd>> {
        self.liveness.news()
    }

    /// Takes over at once what is found out of tunnels and what the kernel says of routes. To be called when
    /// [`Gateway::ear`] or [`Gateway::tunnel_news`] is readable. Returns the time until the next call.
    pub fn take_news(&mut self) -> Nanos {
        if self.is_left {
            return Nanos::SECOND;
        }
        self.look_at_tunnels();
        if self.lasting.routing.ear().is_some() { self.follow() } else { Nanos::SECOND }
    }

    /// The BFD session of a tunnel, if it has one.
    pub(in crate::runtime) fn session(&self, tunnel: &Tunnel) -> Option<SessionStatus> {
        self.liveness.status(&SessionKey::of(tunnel)?, self.clock.now())
    }

    /// The keepalives of a tunnel, if it has them.
    pub(in crate::runtime) fn keepalive(&self, tunnel: &Tunnel) -> Option<KeepaliveStatus> {
        self.liveness.keepalive(tunnel.id)
    }

    /// State of the other end of a tunnel that is watched.
    fn end(&self, tunnel: &Tunnel) -> Option<EndStatus> {
        let session = self.session(tunnel).map(EndStatus::Bfd);
        session.or_else(|| self.keepalive(tunnel).map(EndStatus::Keepalive))
    }

    /// Takes dead tunnels from bridges and routes, and brings those that live again back.
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

/// True if a tunnel is watched.
fn is_watched(configuration: &Configuration, id: PortId) -> bool {
    configuration.tunnel(id).is_some_and(Tunnel::is_watched)
}

/// State of the other end of a tunnel.
enum EndStatus {
    /// By its BFD session.
    Bfd(SessionStatus),
    /// By keepalives.
    Keepalive(KeepaliveStatus),
}

impl EndStatus {
    /// True if the tunnel is to be used.
    fn carries(&self) -> bool {
        match self {
            Self::Bfd(session) => session.carries,
            Self::Keepalive(keepalive) => keepalive.carries(),
        }
    }

    /// True if the other end is known to live.
    fn is_up(&self) -> bool {
        match self {
            Self::Bfd(session) => session.state == State::Up,
            Self::Keepalive(keepalive) => keepalive.state == keepalive::State::Up,
        }
    }

    /// The state in words, for people.
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

/// The state of a session in words, for people.
fn describe(session: &SessionStatus) -> String {
    let SessionStatus { state, diagnostic, trouble, heard_at, carries, .. } = session;
    match (trouble, heard_at) {
        (Some(trouble), _) if !carries => format!("BFD {}: {trouble}", state.name()),
        (_, None) => format!("BFD {}: nothing has come from the other end", state.name()),
        (_, Some(_)) if *diagnostic == Diagnostic::NONE => format!("BFD {}", state.name()),
        (_, Some(_)) => format!("BFD {}: {diagnostic}", state.name()),
    }
}
