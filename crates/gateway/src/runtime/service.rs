//! Answers of the running gateway to requests by the control socket, or by a signal.

use super::capture::Captures;
use super::filters::{keep_on_exit, told_of};
use super::gateway::Gateway;
use super::hooks;
use super::manager::{Manager, NotifyState};
use super::run::{SharedGateway, lock};
use super::show::show;
use super::trace::Tracer;
use crate::capture::CaptureRequest;
use crate::config::{self, LoadError, detail};
use crate::control::{Answer, Ask, Fault, Refusal, Reloaded, Request, Response};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Mutex;

/// A gateway and the file that describes it.
pub(super) struct Service {
    gateway: SharedGateway,
    manager: Manager,
    path: PathBuf,
    captures: Captures,
    tracer: Tracer,
}

impl Service {
    pub(super) fn new(gateway: SharedGateway, manager: Manager, path: PathBuf) -> Self {
        Self { gateway, manager, path, captures: Captures::default(), tracer: Tracer::default() }
    }

    pub(super) fn gateway(&self) -> &Mutex<Gateway> {
        &self.gateway
    }

    /// Ends captures whose thread was lost.
    pub(super) fn look(&self) {
        self.captures.look(&self.gateway);
    }

    /// Begins a capture for the client at the other end of `stream`.
    pub(super) fn capture(&self, request: &CaptureRequest, stream: UnixStream) {
        self.captures.begin(&self.gateway, request, stream);
    }

    /// Answers a request of the control socket.
    pub(super) fn answer(&self, request: Request) -> Response {
        Response::new(match request.ask {
            Ask::Show { what } => Answer::Shown(Box::new(show(&self.gateway, what))),
            Ask::Reload { dry_run } => match self.reload(dry_run) {
                Ok(reloaded) => Answer::Reloaded(reloaded),
                Err(refusal) => Answer::Error(refusal),
            },
            Ask::Trace(request) => match self.tracer.trace(&self.gateway, &request) {
                Ok(trace) => Answer::Traced(Box::new(trace)),
                Err(refusal) => Answer::Error(refusal),
            },
            // The server hands these to `capture`.
            Ask::Capture(_) => Answer::Error(refusal(Fault::Request, "not to be captured here".to_owned())),
        })
    }

    /// Reloads because of SIGHUP: whoever sent it reads the log.
    pub(super) fn reload_by_signal(&self) {
        // What happened is in the log already.
        let _: Result<Reloaded, Refusal> = self.reload(false);
    }

    /// Reads the file again and applies the changes, all of them or none.
    fn reload(&self, dry_run: bool) -> Result<Reloaded, Refusal> {
        if dry_run {
            return self.change(true);
        }
        self.manager.reloading();
        let outcome = self.change(false);
        match &outcome {
            Ok(Reloaded { changes, .. }) if changes.is_empty() => {
                tracing::info!("reloaded: nothing has changed")
            }
            Ok(Reloaded { changes, .. }) => {
                changes.iter().for_each(|change| tracing::info!("reloaded: {change}"))
            }
            Err(refusal) => {
                tracing::error!("not reloaded, everything goes on as before:");
                refusal.message.lines().for_each(|line| tracing::error!("{line}"));
            }
        }
        self.manager.tell(&[NotifyState::Ready]);
        outcome
    }

    fn change(&self, dry_run: bool) -> Result<Reloaded, Refusal> {
        let mut loaded = config::load(&self.path).map_err(|error| match error {
            LoadError::Invalid(report) => refusal(Fault::Input, report.to_string()),
            LoadError::Unreadable { .. } => refusal(Fault::Input, error.to_string()),
        })?;
        let mut gateway = lock(&self.gateway);
        let kept = keep_on_exit(&gateway.configuration, &mut loaded.configuration);
        let failed = |error: anyhow::Error| refusal(Fault::Runtime, format!("{error:#}"));
        let plan = gateway.plan(&loaded.configuration).map_err(failed)?;
        let ports = hooks::ports(&loaded.configuration);
        let hooks =
            hooks::admit_new(&gateway.configuration, &loaded.configuration, &ports).map_err(failed)?;
        let changes = detail::describe(&gateway.configuration, &plan.difference);
        let found = plan.warnings.iter().map(|warning| format!("warning: {warning}")).collect::<Vec<_>>();
        if !dry_run && !plan.difference.is_empty() {
            gateway.carry_out(plan).map_err(failed)?;
            let threads = gateway.threads.clone();
            gateway.hooks.follow(&threads, ports, hooks);
        }
        let kept = told_of(&kept, &gateway.configuration);
        let warnings = [loaded.warnings.to_string(), found.join("\n"), kept];
        let warnings = warnings.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n");
        Ok(Reloaded { applied: !dry_run, changes, warnings })
    }
}

fn refusal(kind: Fault, message: String) -> Refusal {
    Refusal { kind, message }
}
