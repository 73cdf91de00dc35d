//! Answers of the running gateway to control requests and signals.

use super::capture::Captures;
use super::confirmation::{self, Confirmation, Pending};
use super::gateway::Gateway;
use super::manager::{Manager, NotifyState};
use super::patterns::Skipped;
use super::shared::{SharedGateway, lock};
use super::show::show_of;
use super::trace::Tracer;
use super::upgrade::HandOver;
use crate::config::model::Rate;
use crate::config::patterns::Pattern;
use crate::control::{
    Answer, Ask, Compared, Confirmed, Draining, Fault, HandOverRequest, Logging, ModemOrder, RateRequest,
    Rated, ReadFile, Refusal, ReloadRequest, Reloaded, Request, Response,
};
use crate::events::EventKind;
use crate::journal::{self, FilterError};
use crate::kernel::notices::Notices;
use crate::show::layout::duration;
use crate::show::modem::ModemRow;
use polder_datapath::units::Nanos;
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

mod change;
mod patterns;

pub(super) use change::{closing, named, open};

/// Interfaces that match patterns, as found last.
#[derive(Debug, Default)]
struct Seen {
    notices: Option<Notices>,
    patterns: Vec<Pattern>,
    /// Interfaces that became no port and were reported.
    skipped: BTreeSet<Skipped>,
    /// Time of the next check without a change of interfaces.
    retry_at: Option<Nanos>,
    /// Number of hooks that have appeared so far.
    hooks: u64,
}

/// A gateway and the file that describes it.
pub(super) struct Service {
    gateway: SharedGateway,
    manager: Manager,
    path: PathBuf,
    captures: Captures,
    tracer: Tracer,
    giver: Arc<HandOver>,
    /// Held while the file is read and applied; locked before the confirmation.
    reload: Mutex<()>,
    /// State of the patterns, used by the control thread alone; locked before all other locks.
    seen: Mutex<Seen>,
    /// Locked before the gateway.
    confirmation: Mutex<Confirmation>,
}

impl Service {
    /// A service; `pending` is the start itself if it needs confirmation.
    pub(super) fn new(
        gateway: SharedGateway,
        manager: Manager,
        path: PathBuf,
        giver: Arc<HandOver>,
        pending: Option<Pending>,
    ) -> Self {
        let mut confirmation = Confirmation::default();
        pending.into_iter().for_each(|pending| confirmation.wait(pending));
        let (captures, tracer) = (Captures::default(), Tracer::default());
        let (reload, confirmation) = (Mutex::default(), Mutex::new(confirmation));
        Self { gateway, manager, path, captures, tracer, giver, reload, seen: Mutex::default(), confirmation }
    }

    pub(super) fn gateway(&self) -> &Mutex<Gateway> {
        &self.gateway
    }

    /// Ends captures whose thread was lost, follows interfaces and kernel hooks, and rolls back an
    /// unconfirmed change. Returns the pending change if it is the start: the gateway must end then.
    pub(super) fn look(&self) -> Option<Pending> {
        self.captures.look(&self.gateway);
        self.follow_patterns();
        self.follow_hooks();
        self.take_back()
    }

    /// Time until a pending change expires.
    pub(super) fn pause(&self) -> Nanos {
        let now = lock(&self.gateway).clock.now();
        self.confirmation().pause(now)
    }

    fn confirmation(&self) -> MutexGuard<'_, Confirmation> {
        self.confirmation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request whose answer is followed by a stream, to the client behind `stream`.
    pub(super) fn take(&self, ask: Ask, stream: UnixStream) {
        match ask {
            Ask::Capture(request) => self.captures.begin(&self.gateway, &request, stream),
            Ask::HandOver(request) => self.hand_over(request, stream),
            Ask::Show { .. }
            | Ask::Reload(_)
            | Ask::File
            | Ask::Port(_)
            | Ask::Confirm
            | Ask::Diff
            | Ask::Drain { .. }
            | Ask::Trace(_)
            | Ask::Events { .. }
            | Ask::Log { .. }
            | Ask::Modem { .. }
            | Ask::Rate(_) => {}
        }
    }

    /// Hands the gateway over to the process at the other end of `stream`.
    fn hand_over(&self, request: HandOverRequest, stream: UnixStream) {
        let waits = self.confirmation().pending().is_some();
        let added = lock(&self.gateway).added.clone();
        let differs = match self.compare(&added) {
            _ if waits => Some("a change waits for confirmation: `polder confirm` keeps it".to_owned()),
            Ok(compared) if compared.changes.is_empty() => None,
            Ok(compared) => Some(format!(
                "an upgrade replaces only the program, but {} differs from the running configuration: \
                 `polder diff` shows the difference, and `polder reload` applies it",
                compared.file
            )),
            Err(refusal) => Some(refusal.message),
        };
        self.giver.begin(request, stream, differs);
    }

    /// Answers a request of the control socket.
    pub(super) fn answer(&self, request: Request) -> Response {
        let answer = match request.ask {
            Ask::Show { what, of, since_seconds, most } => {
                match show_of(&self.gateway, what, (of.as_deref(), most), since_seconds) {
                    Ok(shown) => Ok(Answer::Shown(Box::new(shown))),
                    Err(message) => Err(refusal(Fault::Input, message)),
                }
            }
            Ask::Events { from } => Ok(Answer::Events(lock(&self.gateway).events.read(from))),
            Ask::Log { filter } => match self.log(filter.as_deref()) {
                Ok(filter) => Ok(Answer::Logging(Logging { filter })),
                Err(error) => Err(refusal(Fault::Input, error.to_string())),
            },
            Ask::Reload(request) => self.reload(request).map(Answer::Reloaded),
            Ask::File => Ok(Answer::File(ReadFile { file: self.path.clone() })),
            Ask::Port(request) => {
                let change = || self.change_port(&request);
                self.announced(request.dry_run, change).map(Answer::Reloaded)
            }
            Ask::Confirm => self.confirm().map(Answer::Confirmed),
            Ask::Diff => self.diff().map(Answer::Compared),
            Ask::Drain { undo } => Ok(Answer::Draining(self.drain(!undo))),
            Ask::Modem { port, order } => self.modem(&port, order).map(|row| Answer::Modem(Box::new(row))),
            Ask::Rate(request) => self.rate(&request).map(Answer::Rated),
            Ask::Trace(request) => {
                let traced = self.tracer.trace(&self.gateway, &request);
                traced.map(|trace| Answer::Traced(Box::new(trace)))
            }
            // The server passes these to `take`.
            Ask::Capture(_) | Ask::HandOver(_) => {
                Err(refusal(Fault::Request, "this request is not possible on this socket".to_owned()))
            }
        };
        Response::new(answer.unwrap_or_else(Answer::Error))
    }

    /// Compares the running configuration with the files. Ports from patterns count as configured.
    fn diff(&self) -> Result<Compared, Refusal> {
        let mut added = lock(&self.gateway).added.clone();
        added.retain(|port| port.of.is_some());
        self.compare(&added)
    }

    /// Returns the log filter, or sets a new one.
    fn log(&self, filter: Option<&str>) -> Result<String, FilterError> {
        let Some(filter) = filter else { return Ok(journal::in_force()) };
        let filter = journal::set(filter)?;
        lock(&self.gateway).events.note(EventKind::LogLevel { filter: filter.clone() });
        Ok(filter)
    }

    /// Marks the gateway as not ready, or as ready again.
    fn drain(&self, draining: bool) -> Draining {
        let mut gateway = lock(&self.gateway);
        if std::mem::replace(&mut gateway.draining, draining) != draining {
            gateway.events.note(EventKind::Draining { draining });
        }
        // Ports' programs carry packets, too.
        gateway.count_carried();
        let name = gateway.configuration.gateway.name.clone();
        Draining { gateway: name, draining, received: gateway.accounts().received }
    }

    /// The modem row of a port, after carrying out `order`.
    fn modem(&self, port: &str, order: Option<ModemOrder>) -> Result<ModemRow, Refusal> {
        let gateway = lock(&self.gateway);
        let state = gateway.ports.iter().find(|state| state.configuration.name == port);
        let Some(state) = state else {
            return Err(refusal(
                Fault::Input,
                format!("there is no port {port}: `polder show ports` lists them"),
            ));
        };
        let Some(handle) = state.handle() else {
            let why = state.trouble.as_deref().unwrap_or("its device is missing");
            return Err(refusal(Fault::Runtime, format!("port {port} is closed: {why}")));
        };
        if let Some(order) = order {
            handle.order_modem(order == ModemOrder::Connect);
        }
        let none = || refusal(Fault::Input, format!("port {port} has no modem"));
        handle.modem_row().ok_or_else(none)
    }

    /// Changes the rate of a queue.
    fn rate(&self, request: &RateRequest) -> Result<Rated, Refusal> {
        let rate = request.rate.parse::<Rate>().map_err(|why| {
            let remedy = "write a rate from \"100 kbit/s\" to \"400 Gbit/s\"";
            refusal(Fault::Input, format!("the rate \"{}\" {why}: {remedy}", request.rate))
        })?;
        let mut gateway = lock(&self.gateway);
        let changed = gateway.set_rate(&request.port, request.way, rate);
        let before = changed.map_err(|why| refusal(Fault::Input, why))?;
        Ok(Rated { before_kbit: before.map(u64::from), rate_kbit: rate.kbit().into() })
    }

    /// Reloads because of SIGHUP; the result is logged.
    pub(super) fn reload_by_signal(&self) {
        // The reload has logged its result already.
        let _: Result<Reloaded, Refusal> = self.reload(ReloadRequest::default());
    }

    /// Reads the file again and applies all of its changes or none.
    fn reload(&self, request: ReloadRequest) -> Result<Reloaded, Refusal> {
        self.announced(request.dry_run, || self.change(request))
    }

    /// Makes a change, and reports it unless it is a dry run.
    fn announced(
        &self,
        is_dry: bool,
        change: impl FnOnce() -> Result<Reloaded, Refusal>,
    ) -> Result<Reloaded, Refusal> {
        if is_dry {
            return change();
        }
        self.manager.reloading();
        let outcome = change();
        let has_changed = outcome.as_ref().ok().map(|reloaded| !reloaded.changes.is_empty());
        let mut gateway = lock(&self.gateway);
        gateway.reloads.note(has_changed);
        let generation = gateway.reloads.generation;
        let event = match &outcome {
            Ok(reloaded) => EventKind::Reloaded { generation, changes: reloaded.changes.clone() },
            Err(refusal) => {
                let why = refusal.brief.as_ref().unwrap_or(&refusal.message);
                EventKind::ReloadRefused { why: why.clone() }
            }
        };
        let text = event.text();
        gateway.events.note_silently(event);
        drop(gateway);
        match &outcome {
            Ok(Reloaded { changes, .. }) if changes.is_empty() => {
                tracing::info!("reloaded: nothing has changed");
            }
            Ok(Reloaded { changes, confirm, .. }) => {
                changes.iter().for_each(|change| tracing::info!("reloaded: {change}"));
                if let Some(seconds) = confirm {
                    tracing::warn!("reverted in {seconds} s unless `polder confirm` is run");
                }
            }
            Err(_) => tracing::error!("{text}"),
        }
        self.manager.tell(&[NotifyState::Ready]);
        outcome
    }

    /// Confirms the pending change.
    fn confirm(&self) -> Result<Confirmed, Refusal> {
        let mut confirmation = self.confirmation();
        let now = lock(&self.gateway).clock.now();
        match confirmation.confirm(now) {
            confirmation::Confirmed::InTime(left) => {
                let seconds_left = left.0 / Nanos::SECOND.0;
                tracing::info!("confirmed with {seconds_left} s left");
                Ok(Confirmed { seconds_left })
            }
            confirmation::Confirmed::Late(ago) => Err(refusal(
                Fault::Runtime,
                format!(
                    "too late: the change was reverted {} ago; the file still has it, and `polder reload \
                     --confirm 60` applies it again",
                    duration(ago.0)
                ),
            )),
            confirmation::Confirmed::Nothing => {
                Err(refusal(Fault::Runtime, "no change waits for confirmation".to_owned()))
            }
        }
    }
}

fn refusal(kind: Fault, message: String) -> Refusal {
    Refusal { kind, message, brief: None }
}
