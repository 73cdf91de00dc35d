//! Tunnels that are dead: no destination of a bridge, and no next hop.

use super::Gateway;
use crate::bfd::{Diagnostic, State};
use crate::config::model::{Configuration, Tunnel};
use crate::events::EventKind;
use crate::runtime::liveness::{SessionKey, SessionStatus};
use crate::runtime::tables::Lasting;
use polder_buffers::PortId;
use polder_datapath::units::Nanos;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl Gateway {
    /// Keeps the BFD sessions that the configuration asks for.
    pub(super) fn watch_tunnels(&mut self) {
        if let Err(error) = self.liveness.watch(&self.configuration, self.clock, &self.threads) {
            tracing::error!("cannot start the thread of BFD: {error}; tunnels are taken to be up");
        }
    }

    /// Descriptor that is readable when [`Gateway::take_news`] has work, if a tunnel has BFD.
    pub fn tunnel_news(&self) -> Option<Arc<OwnedFd>> {
        self.liveness.news()
    }

    /// Takes over at once what BFD has found out and what the kernel says of routes. To be called when
    /// [`Gateway::ear`] or [`Gateway::tunnel_news`] is readable. Returns the time until the next call.
    pub fn take_news(&mut self) -> Nanos {
        self.look_at_tunnels();
        if self.lasting.routing.ear().is_some() { self.follow() } else { Nanos::SECOND }
    }

    /// The BFD session of a tunnel, if it has one.
    pub(in crate::runtime) fn session(&self, tunnel: &Tunnel) -> Option<SessionStatus> {
        self.liveness.status(&SessionKey::of(tunnel)?, self.clock.now())
    }

    /// Takes dead tunnels from bridges and routes, and brings those that live again back.
    pub(super) fn look_at_tunnels(&mut self) {
        self.liveness.heard();
        let mut news = Vec::new();
        for tunnel in &self.configuration.tunnels {
            let session = self.session(tunnel);
            let carries = session.as_ref().is_none_or(|session| session.carries);
            let is_up = session.as_ref().is_some_and(|session| session.state == State::Up);
            let is_new = is_up && !self.lasting.alive.contains(&tunnel.id);
            if is_new || carries == self.lasting.dead.contains(&tunnel.id) {
                news.push((tunnel.id, carries));
                let state = session.map_or_else(|| "not watched".to_owned(), |session| describe(&session));
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
            self.note_link(id, carries);
        }
        let configuration = &self.configuration;
        self.lasting.alive.retain(|id| is_watched(configuration, *id));
    }
}

/// True if a tunnel has BFD.
fn is_watched(configuration: &Configuration, id: PortId) -> bool {
    configuration.tunnel(id).is_some_and(|tunnel| tunnel.bfd.is_some())
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
