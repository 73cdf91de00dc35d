//! `polder run`: from a configuration file to a running gateway, until a signal ends it or a thread is lost.
//!
//! 1. The file is read and checked.
//! 2. The control socket is bound, which fails if a gateway runs already.
//! 3. Privileges that no thread needs are dropped, unless `sandbox = "off"`. Until here the process has one thread.
//!
//! The other steps happen on a thread of its own that the supervisor watches. The first thread of the process
//! drops nearly all privileges, waits for the outcome, and kills the process if its end hangs.
//!
//! 4. Ports are opened and workers started. Links that a driver resets when a program is attached come up again, or a
//!    time limit passes; then the gateway runs.
//! 5. The control loop: slow work for ports and tunnels, signals, the service manager's watchdog.
//! 6. The end: requests are refused, workers drain, ports close, totals are logged.

use super::announce::{announce, log_totals};
use super::confirmation::{Back, Pending};
use super::connections::Followed;
use super::ending::{self, Ending};
use super::gateway::{Gateway, Opener};
use super::hooks::{self, Watch, decision};
use super::host_traffic;
use super::links::wait_for_links;
use super::manager::{Manager, NotifyState};
use super::metrics;
use super::preflight::tags;
use super::service::{Service, closing, named, open as open_again};
use super::shared::{SharedGateway, lock};
use super::signals::{Signal, Signals, timespec};
use super::upgrade::{HandOver, InheritedSockets, Predecessor, TakenOver};
use crate::clock::Clock;
use crate::config;
use crate::config::model::{Configuration, Decide, Port, Role, Sandbox};
use crate::control::end_reason::{self, EndReason};
use crate::control::server::Server;
use crate::control::socket::{self, Claimed};
use crate::device;
use crate::events::EventKind;
use crate::kernel::conntrack::{self, AllEvents};
use crate::kernel::hooks::{self as kernel_hooks, Inspection};
use crate::metrics::listen::Bound;
use crate::metrics::server::Server as MetricsServer;
use crate::sandbox;
use crate::supervise::{Loss, LostThread, Supervisor, Threads};
use anyhow::{Context as _, Result, anyhow};
use polder_datapath::units::Nanos;
use polder_devices::af_xdp::{self, FailedRedirects, TraceError};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};

/// Consent of the caller of a start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consent {
    /// True if the host may lose its own addresses on ports.
    pub yes: bool,
    /// Seconds after which the gateway ends unless it is confirmed.
    pub confirm: Option<u32>,
}

/// Runs the gateway that `path` describes until SIGINT or SIGTERM; SIGHUP reloads the file.
///
/// # Errors
/// When the file is wrong, another gateway has the control socket, a port cannot be opened, or this host
/// would lose its addresses without consent; opened ports are closed again. [`LostThread`] when a thread is
/// lost.
pub fn run(path: &Path, consent: Consent) -> Result<()> {
    run_on(path, None, consent, None)
}

/// Takes over the running gateway behind `socket`, which `path` describes; with `dry_run`, stops before the
/// last step.
///
/// # Errors
/// As [`run`], and when the predecessor does not hand over; it continues then.
pub fn take_over(path: &Path, socket: &Path, dry_run: bool) -> Result<()> {
    // The parent and its terminal may end; a session leader keeps running, and the call fails for it.
    let _ = rustix::process::setsid();
    run_on(path, None, Consent { yes: true, confirm: None }, Some((socket, dry_run)))
}

/// As [`run`], with ports that the caller opens.
///
/// # Errors
/// As [`run`].
pub fn run_with(path: &Path, open: Opener) -> Result<()> {
    run_on(path, Some(open), Consent { yes: true, confirm: None }, None)
}

fn run_on(path: &Path, open: Option<Opener>, consent: Consent, before: Option<(&Path, bool)>) -> Result<()> {
    let prepared = prepare(path, consent, before)?;
    let (told, outcome) = sync_channel(2);
    let ending = Arc::new(Ending::default());
    let _: Result<(), _> = ending.socket.set(prepared.claimed.place().clone());
    let (last, lost_told) = (Arc::clone(&ending), told.clone());
    let supervisor = Supervisor::start(move |lost| {
        // Sent first, so that the first thread kills the process if the end hangs.
        let _ = lost_told.try_send(Outcome::Lost);
        last.end(lost)
    });
    let supervisor = supervisor.context("cannot start the supervisor's thread")?;
    let threads = supervisor.threads().clone();
    close_sockets(&threads)?;
    let gateway = threads.spawn("gateway", Loss::Ends, move || {
        let result = serve(prepared, open, &supervisor, &ending);
        // Sent before the supervisor is dropped at the end of this closure.
        let _ = told.send(Outcome::Ended(result));
    });
    gateway.context("cannot start the gateway's thread")?;
    sandbox::enter(sandbox::Role::Main);
    match outcome.recv() {
        Ok(Outcome::Ended(result)) => result,
        Ok(Outcome::Lost) | Err(_) => {
            std::thread::sleep(ending::PATIENCE);
            tracing::error!("stopping takes too long");
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
            Ok(())
        }
    }
}

/// End of a gateway, as reported to the first thread of the process.
enum Outcome {
    Ended(Result<()>),
    /// A thread was lost, and the supervisor is about to end the process.
    Lost,
}

/// State of a start before ports are opened.
struct Prepared {
    begun: Clock,
    configuration: Configuration,
    /// The configuration file.
    path: PathBuf,
    signals: Signals,
    claimed: Claimed,
    /// Listening socket of the metrics, if configured.
    metrics: Option<Bound>,
    ports: Vec<kernel_hooks::Port>,
    /// Packet hooks of the kernel that the ports bypass.
    found: Inspection,
    /// Reason why the previous gateway ended, from its file.
    before: Option<String>,
    /// Seconds after which the gateway ends unless it is confirmed.
    confirm: Option<u32>,
    /// Open interfaces that the gateway would close at its end.
    closed: Vec<String>,
    /// Predecessor to take over from.
    inheritance: Option<Arc<Predecessor>>,
    /// Counters of failed redirects, opened early because they need a capability that is dropped.
    failed: Result<FailedRedirects, TraceError>,
    /// The sysctl for conntrack events, if connections may be followed.
    events: Option<AllEvents>,
}

/// Reads the file, binds the control socket, and confines the process before any thread is started.
fn prepare(
    path: &Path,
    Consent { yes, confirm }: Consent,
    predecessor: Option<(&Path, bool)>,
) -> Result<Prepared> {
    let begun = Clock::start();
    let config::Loaded { mut configuration, warnings } = config::load(path)?;
    for warning in warnings.findings() {
        tracing::warn!("{}:{}: {}", warning.file, warning.line, warning.message);
    }
    let path = std::path::absolute(path).context("there is no current directory")?;
    device::set_lock_file(&path);
    device::identify_machine();
    let signals = Signals::new().context("cannot listen for signals")?;
    let inheritance =
        predecessor.map(|(socket, dry_run)| Predecessor::receive(socket, dry_run)).transpose()?;
    // Dropped before threads start, so that they have normal priority.
    let _stepped_back = inheritance.as_ref().and_then(Predecessor::step_back);
    let (claimed, metrics) = match &inheritance {
        None => {
            let metrics = configuration.metrics.listen.as_ref();
            (socket::claim(&configuration.gateway.control)?, metrics.map(Bound::new).transpose()?)
        }
        Some(inheritance) => {
            let added = named(&inheritance.added());
            if !added.is_empty() {
                configuration = config::load_with(&path, &added)?.configuration;
            }
            configuration = inheritance.configuration(&configuration)?;
            (inheritance.claimed(&configuration.gateway.control)?, inheritance.metrics())
        }
    };
    decision::settle(&mut configuration);
    if let Some(hook) = &configuration.decided {
        tracing::info!("the kernel decides about the router's packets: {hook}");
    }
    let ports = hooks::ports(&configuration);
    let found = hooks::admit(&configuration, &ports)?;
    host_traffic::admit(&configuration, yes)?;
    tags::admit(None, &configuration)?;
    let closed = if confirm.is_some() { closing(configuration.ports.iter()) } else { Vec::new() };
    let before = end_reason::before(&configuration.gateway.control);
    // A gateway that was not confirmed has lost no thread.
    let before = before.filter(|words| !words.contains(NOT_CONFIRMED));
    // Done before confinement, because it reads other processes' state.
    af_xdp::forget_gone_offloads();
    let failed = FailedRedirects::new();
    let events = events_of_connections(&configuration, inheritance.is_some());
    confine(&configuration, &path);
    Ok(Prepared {
        begun,
        configuration,
        path,
        signals,
        claimed,
        metrics,
        ports,
        found,
        before,
        confirm,
        closed,
        inheritance: inheritance.map(Arc::new),
        failed,
        events,
    })
}

/// The sysctl that enables events for all connections, where ports carry connections or may do so later.
fn events_of_connections(configuration: &Configuration, goes_on: bool) -> Option<AllEvents> {
    let may_carry = |port: &Port| port.role == Role::Router && port.decide != Decide::Router;
    if !configuration.ports.iter().any(may_carry) {
        if let Err(error) = conntrack::restore_left() {
            tracing::warn!(
                "cannot restore net.netfilter.nf_conntrack_events, which a killed gateway has changed: \
                 {error}"
            );
        }
        return None;
    }
    let is_needed = configuration.ports.iter().any(|port| port.decide == Decide::Kernel);
    if is_needed {
        // The setting is there once the module is. Whether that fails is told when connections are followed.
        let _ = conntrack::load();
    }
    let events = AllEvents::open(goes_on);
    if let Some(error) = events.as_ref().err().filter(|_| is_needed) {
        tracing::warn!("only connections that begin later are carried: {error}");
    }
    events.ok()
}

/// Starts the thread that closes AF_XDP sockets, for which workers have neither time nor privileges.
fn close_sockets(threads: &Threads) -> Result<()> {
    let Some(closer) = af_xdp::Closer::new() else { return Ok(()) };
    let thread = threads.spawn("close-af-xdp", Loss::Ends, move || closer.run());
    thread.map(drop).context("cannot start the thread that closes AF_XDP sockets")
}

fn serve(prepared: Prepared, open: Option<Opener>, supervisor: &Supervisor, ending: &Ending) -> Result<()> {
    let Prepared {
        begun,
        configuration,
        path,
        mut signals,
        claimed,
        metrics,
        ports,
        found,
        before,
        confirm,
        closed,
        inheritance,
        failed,
        events,
    } = prepared;
    let control = configuration.gateway.control.clone();
    let threads = supervisor.threads();
    let started = begin(configuration, threads, (open, inheritance.as_ref()))?;
    let Some((mut gateway, taken)) = started else { return Ok(()) };
    gateway.before = before;
    take_rights(&mut gateway, failed, events);
    gateway.hooks = Watch::start(threads, gateway.clock, ports, found)
        .context("cannot start the threads that monitor the kernel's packet hooks")?;
    gateway.tell_hooks();
    let clock = gateway.clock;
    let gateway = Arc::new(Mutex::new(gateway));
    let _: Result<(), _> = ending.gateway.set(Arc::downgrade(&gateway));
    let manager = Manager::new();
    let until = |seconds: u32| clock.now() + Nanos::from_seconds(seconds.into());
    let pending = confirm.map(|seconds| Pending { until: until(seconds), back: Back::End, closed });
    let heritage = heritage(&claimed, metrics.as_ref(), &signals).context("cannot prepare for upgrades")?;
    let giver = Arc::new(HandOver::new(Arc::clone(&gateway), heritage));
    let service = Service::new(Arc::clone(&gateway), manager, path, Arc::clone(&giver), pending);
    let service = Arc::new(service);
    let (answering, taking) = (Arc::clone(&service), Arc::clone(&service));
    let take = move |ask, stream| taking.take(ask, stream);
    let answer = move |request| answering.answer(request);
    let server = Server::start((claimed, clock), threads, answer, take)
        .context("cannot start the control socket's thread")?;
    let metrics = serve_metrics(metrics, &gateway, threads)?;
    let ended = match wait_for_links(&gateway, &mut signals, supervisor) {
        Ok(true) => {
            announce(&lock(&gateway), begun.elapsed());
            if let Some(seconds) = confirm {
                tracing::warn!("the gateway stops in {seconds} s unless `polder confirm` is run");
            }
            manager.tell(&[NotifyState::Ready]);
            taken.iter().try_for_each(report)?;
            attend(&mut signals, &service, manager, supervisor)
        }
        Ok(false) => Ok(None),
        Err(lost) => Err(lost),
    };
    if giver.successor().is_none() {
        note_end(&gateway, manager);
    }
    // Dropped first: the socket's thread holds the gateway too.
    drop((server, metrics));
    // Captures end, with the packets written so far.
    drop(service);
    stop(&gateway, &control, ended, confirm)
}

/// Moves resources that need dropped capabilities into the gateway.
fn take_rights(
    gateway: &mut Gateway,
    failed: Result<FailedRedirects, TraceError>,
    events: Option<AllEvents>,
) {
    gateway.trace_redirects(failed);
    gateway.connections = Followed::by(events);
}

/// Starts a gateway, or takes over and reports the pause; `None` for a dry run.
fn begin(
    configuration: Configuration,
    threads: &Threads,
    (open, inheritance): (Option<Opener>, Option<&Arc<Predecessor>>),
) -> Result<Option<(Gateway, Option<TakenOver>)>> {
    let Some(before) = inheritance else {
        return Ok(Some((Gateway::start(configuration, threads, open)?, None)));
    };
    let Some((gateway, pause_us)) = Gateway::inherit(configuration, threads, before)? else {
        report(&before.report(0))?;
        return Ok(None);
    };
    Ok(Some((gateway, Some(before.report(pause_us)))))
}

/// Reports the result of a take-over to the parent process.
fn report(taken: &TakenOver) -> Result<()> {
    let line = serde_json::to_string(taken)?;
    // The parent may have ended.
    let _: std::io::Result<()> = writeln!(std::io::stdout(), "{line}");
    Ok(())
}

/// Sockets for a successor process.
fn heritage(
    claimed: &Claimed,
    metrics: Option<&Bound>,
    signals: &Signals,
) -> std::io::Result<InheritedSockets> {
    Ok(InheritedSockets {
        listener: claimed.listener.try_clone()?,
        place: claimed.place().clone(),
        metrics: metrics.map(Bound::share).transpose()?,
        end: signals.ender.try_clone()?,
    })
}

/// Stops the gateway, and returns the reason as an error unless a signal asked for it.
fn stop(
    gateway: &Mutex<Gateway>,
    control: &Path,
    ended: Result<Option<Pending>, LostThread>,
    confirm: Option<u32>,
) -> Result<()> {
    let mut gateway = lock(gateway);
    gateway.stop();
    log_totals(&gateway);
    let words = EndReason::of(control);
    let why = match ended {
        Ok(None) => {
            words.forget();
            return Ok(());
        }
        Ok(Some(pending)) => {
            open_again(&pending.closed);
            anyhow!("{NOT_CONFIRMED} within {} s, and was stopped", confirm.unwrap_or_default())
        }
        Err(lost) => lost.into(),
    };
    words.say(&why.to_string()).context("cannot write the end reason beside the control socket")?;
    Err(why)
}

/// Reason of a gateway that ends because its start was not confirmed.
const NOT_CONFIRMED: &str = "the gateway was not confirmed";

/// Records an orderly end, and restores the kernel's setting.
fn note_end(gateway: &Mutex<Gateway>, manager: Manager) {
    manager.tell(&[NotifyState::Stopping]);
    let mut gateway = lock(gateway);
    gateway.connections.restore();
    let name = gateway.configuration.gateway.name.clone();
    gateway.events.note_silently(EventKind::Stopping { gateway: name });
}

/// Starts the metrics threads, if configured.
fn serve_metrics(
    bound: Option<Bound>,
    gateway: &SharedGateway,
    threads: &Threads,
) -> Result<Option<MetricsServer>> {
    let Some(bound) = bound else { return Ok(None) };
    tracing::info!("metrics at {}: /metrics, /healthz, /readyz", bound.address());
    let clock = lock(gateway).clock;
    let mut collector = metrics::Collector::new(Arc::clone(gateway));
    let server = MetricsServer::start((bound, clock), threads, move || collector.collect());
    server.map(Some).context("cannot start the metrics' threads")
}

/// Drops privileges that no thread of the gateway needs, and logs them.
fn confine(configuration: &Configuration, path: &Path) {
    if configuration.gateway.sandbox == Sandbox::Off {
        tracing::debug!("not confined: `sandbox = \"off\"` in [gateway]");
        return;
    }
    let confinement = sandbox::confine_process(configuration, path);
    tracing::info!("confined: {}", confinement.summary());
    confinement.missing().iter().for_each(|lack| tracing::warn!("{lack}"));
}

/// The control loop, until a signal, an unconfirmed start (which is returned) or the loss of a thread.
fn attend(
    signals: &mut Signals,
    service: &Service,
    manager: Manager,
    supervisor: &Supervisor,
) -> Result<Option<Pending>, LostThread> {
    let mut watchdog = manager.watchdog();
    let clock = lock(service.gateway()).clock;
    let mut status = String::new();
    loop {
        supervisor.check()?;
        if let Some(pending) = service.look() {
            return Ok(Some(pending));
        }
        let unconfirmed = service.pause();
        let (pause, ear, news) = {
            let mut gateway = lock(service.gateway());
            let pause = gateway.tick();
            gateway.turn_due = clock.now() + pause;
            watchdog.look(&gateway);
            let now = gateway.status();
            if now != status {
                manager.tell(&[NotifyState::Status(&now)]);
                status = now;
            }
            (pause, gateway.ear(), gateway.tunnel_news())
        };
        let events = [supervisor.event(), ear.as_deref(), news.as_deref()];
        let end = clock.now() + pause.min(watchdog.pause()).min(supervisor.pause()).min(unconfirmed);
        let mut signal = signals.wait(timespec(end.since(clock.now())), events);
        while matches!(signal, Some(Signal::News)) {
            let pause = lock(service.gateway()).take_news();
            let left = end.since(clock.now());
            if left == Nanos(0) {
                break;
            }
            supervisor.check()?;
            signal = signals.wait(timespec(pause.min(left)), events);
        }
        match signal {
            Some(Signal::End) => return Ok(None),
            Some(Signal::Reload) => service.reload_by_signal(),
            Some(Signal::News) | None => {}
        }
    }
}
