//! The successor's side of an upgrade: accepts the offer, and continues where the gateway stops.

use super::{FORMAT, Message, Offer, PortOffer, STEP, TAKE, wire::Channel};
use crate::clock::Clock;
use crate::config::model::{Configuration, Port};
use crate::control::client::{Client, ClientError};
use crate::control::socket::{Claimed, Place};
use crate::control::{Answer, Ask, Fault, HandOverRequest};
use crate::device::{Parts, why_not_passed};
use crate::metrics::listen::Bound;
use crate::runtime::gateway::AddedPorts;
use crate::runtime::gateway::Gateway;
use crate::runtime::history::HandedDrops;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::process::{getpriority_process, setpriority_process};
use serde::Serialize;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Lowest nice value: every other thread runs first.
const LAST: i32 = 19;

/// A gateway that this process takes over.
pub(in crate::runtime) struct Predecessor {
    channel: Channel,
    offer: Offer,
    /// Listening control socket, until it is served.
    listener: Mutex<Option<OwnedFd>>,
    metrics: Mutex<Option<OwnedFd>>,
    /// Descriptors of ports, until the ports are opened.
    parts: Mutex<BTreeMap<String, Parts>>,
    /// Ports that must be opened again, each with the reason.
    anew: Mutex<BTreeMap<String, String>>,
    /// Listening control socket, once it is served.
    served: OnceLock<OwnedFd>,
    /// True while the predecessor owns the paths of sockets.
    is_left: Arc<AtomicBool>,
    /// True once the predecessor has closed its devices.
    is_gone: AtomicBool,
    /// True for a dry run.
    dry_run: bool,
    /// Nice value of the process, if its threads may return to it.
    nice: Option<i32>,
}

/// Report of a successor on standard output, for the process that started it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub(crate) struct TakenOver {
    /// Version of the predecessor's program.
    pub(crate) before: String,
    /// Version of this program.
    pub(crate) version: String,
    /// True for a dry run; the predecessor continues.
    pub(crate) dry_run: bool,
    /// Time for which no worker ran, in microseconds; 0 for a dry run.
    pub(crate) pause_us: u64,
    /// Ports that are opened again, each with the reason.
    pub(crate) anew: BTreeMap<String, String>,
}

impl Predecessor {
    /// Asks the gateway behind `socket` for a hand-over.
    ///
    /// # Errors
    /// When it refuses or is too old.
    pub(in crate::runtime) fn receive(socket: &Path, dry_run: bool) -> Result<Self> {
        let mut client = Client::connect(socket)?;
        let answer = client.ask(Ask::HandOver(HandOverRequest { format: FORMAT })).map_err(older)?;
        let Answer::HandingOver(_) = answer else {
            bail!("unexpected answer of the gateway to the upgrade request: {answer:?}")
        };
        let channel = Channel::new(client.into_stream()?.into_inner(), STEP)?;
        channel.send(&Message::Begin, &[])?;
        let (message, sockets) =
            channel.receive(STEP).context("the gateway did not offer its ports to this program")?;
        let Message::Offer(offer) = message else {
            bail!("unexpected message of the gateway in place of an offer: {message:?}")
        };
        let mut sockets = sockets.into_iter();
        let (listener, metrics) = (sockets.next(), sockets.next());
        ensure!(listener.is_some(), "the gateway did not pass its control socket to this program");
        let (mut parts, mut anew) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..offer.ports {
            let (message, descriptors) =
                channel.receive(STEP).context("the gateway did not pass all of its ports to this program")?;
            let Message::Port(PortOffer { name, kind }) = message else {
                bail!(
                    "unexpected message in place \
                        of a port: {message:?}"
                )
            };
            match kind.obstacle() {
                None => drop(parts.insert(name, Parts { kind, descriptors })),
                Some(obstacle) => drop(anew.insert(name, obstacle)),
            }
        }
        Ok(Self {
            channel,
            offer: *offer,
            listener: Mutex::new(listener),
            metrics: Mutex::new(metrics),
            parts: Mutex::new(parts),
            anew: Mutex::new(anew),
            served: OnceLock::new(),
            is_left: Arc::new(AtomicBool::new(true)),
            is_gone: AtomicBool::new(false),
            dry_run,
            nice: usual_nice(),
        })
    }

    /// Lowers the calling thread's priority until the result is dropped, above all for the workers of the
    /// running predecessor.
    pub(in crate::runtime) fn step_back(&self) -> Option<LowPriority> {
        let nice = self.nice?;
        setpriority_process(None, LAST).ok()?;
        Some(LowPriority { nice })
    }

    /// The configuration with the predecessor's numbers of ports and tunnels.
    ///
    /// # Errors
    /// When the ports or tunnels differ.
    pub(in crate::runtime) fn configuration(&self, configuration: &Configuration) -> Result<Configuration> {
        let renumbered = configuration.with_numbers(&self.offer.numbers);
        let mut own = renumbered.numbers();
        let mut offered = self.offer.numbers.clone();
        own.sort();
        offered.sort();
        ensure!(
            own == offered,
            "the running gateway has other ports or tunnels than the file: `polder diff` shows them"
        );
        Ok(renumbered)
    }

    /// The predecessor's clock, continued.
    pub(in crate::runtime) fn clock(&self) -> Clock {
        Clock::since(self.offer.origin)
    }

    /// Drops of the last day, as of the offer.
    pub(in crate::runtime) fn history(&self) -> HandedDrops {
        self.offer.history.clone()
    }

    /// Ports that are in no file.
    pub(in crate::runtime) fn added(&self) -> AddedPorts {
        self.offer.added.clone()
    }

    /// Version of the predecessor's tables.
    pub(in crate::runtime) fn tables(&self) -> u64 {
        self.offer.tables
    }

    /// The inherited control socket, with its path `path`.
    ///
    /// # Errors
    /// When it was taken already.
    pub(in crate::runtime) fn claimed(&self, path: &Path) -> Result<Claimed> {
        let listener = lock(&self.listener)
            .take()
            .ok_or_else(|| anyhow!("the inherited control socket is already in use"))?;
        let _: Result<(), OwnedFd> = self.served.set(listener.try_clone()?);
        let place = Place::inherited(path, self.offer.socket, Arc::clone(&self.is_left));
        Ok(Claimed::inherited(UnixListener::from(listener), place))
    }

    /// The inherited metrics socket, if any.
    pub(in crate::runtime) fn metrics(&self) -> Option<Bound> {
        let (address, place) = self.offer.metrics.clone()?;
        Some(Bound::inherited(lock(&self.metrics).take()?, address, place, Arc::clone(&self.is_left)))
    }

    /// Takes the descriptors of a port; `None` at the second call.
    pub(in crate::runtime) fn parts(&self, port: &str) -> Option<Parts> {
        lock(&self.parts).remove(port)
    }

    /// True once the predecessor has closed its devices.
    pub(in crate::runtime) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Reason why a port can only be opened after the predecessor has closed it; `None` if it can be opened.
    pub(in crate::runtime) fn obstacle(&self, port: &Port) -> Option<String> {
        if self.is_gone() || lock(&self.parts).contains_key(&port.name) {
            return None;
        }
        let mut anew = lock(&self.anew);
        let why = anew.entry(port.name.clone()).or_insert_with(|| why_not_passed(&port.device).to_owned());
        Some(format!("the previous program uses it until it ends: {why}"))
    }

    /// Stops the predecessor and imports its state. Once the predecessor grants the take-over, activates the
    /// ports' programs, and workers may begin; returns false for a dry run.
    ///
    /// # Errors
    /// When the predecessor does not hand over; it continues then.
    pub(in crate::runtime) fn take(&self, gateway: &mut Gateway) -> Result<bool> {
        if self.dry_run {
            self.channel.send(&Message::Enough, &[])?;
            return Ok(false);
        }
        self.channel.send(&Message::Ready, &[])?;
        if let Err(error) = self.take_state(gateway) {
            gateway.leave_devices();
            return Err(error);
        }
        gateway.put_programs_to_work();
        self.is_left.store(false, Ordering::Relaxed);
        Ok(true)
    }

    fn take_state(&self, gateway: &mut Gateway) -> Result<()> {
        let (message, descriptors) =
            self.channel.receive(STEP).context("the gateway did not send its state to this program")?;
        let Message::State(mut state) = message else {
            bail!(
                "unexpected hand-over message of the gateway: \
                    {message:?}"
            )
        };
        let locks = std::mem::take(&mut state.locks);
        gateway.resume(*state)?;
        self.channel.send(&Message::Took, &[])?;
        // Without a time limit: only a closed connection tells that the predecessor continues.
        let (message, _) =
            self.channel.receive(None::<Duration>).context("the gateway cancelled the hand-over")?;
        ensure!(matches!(message, Message::Granted), "unexpected confirmation of the gateway: {message:?}");
        // Until the grant, the locks belong to the predecessor.
        gateway.take_locks(locks.into_iter().zip(descriptors));
        Ok(())
    }

    /// Waits until the predecessor has closed its devices.
    pub(in crate::runtime) fn await_end(&self) {
        // A predecessor that ends without a message has closed them as well.
        if let Err(error) = self.channel.receive::<Message>(TAKE) {
            tracing::warn!(%error, "the previous program did not confirm that it has released its devices");
        }
        self.is_gone.store(true, Ordering::Relaxed);
        if let Some(Err(error)) = self.served.get().map(Claimed::listen_anew) {
            tracing::warn!(%error, "clients of the control socket still reach the previous process");
        }
    }

    /// Report for the process that started this one.
    pub(in crate::runtime) fn report(&self, pause_us: u64) -> TakenOver {
        TakenOver {
            before: self.offer.version.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dry_run: self.dry_run,
            pause_us,
            anew: lock(&self.anew).clone(),
        }
    }
}

/// A thread at the lowest priority; its nice value is restored on drop.
pub(in crate::runtime) struct LowPriority {
    nice: i32,
}

impl Drop for LowPriority {
    fn drop(&mut self) {
        if let Err(error) = setpriority_process(None, self.nice) {
            tracing::warn!(%error, "the thread keeps the lowest priority");
        }
    }
}

/// Nice value of the calling thread, if it may lower it again later.
fn usual_nice() -> Option<i32> {
    let may = caps::has_cap(None, caps::CapSet::Effective, caps::Capability::CAP_SYS_NICE);
    may.unwrap_or(false).then(|| getpriority_process(None).ok()).flatten()
}

fn lock<T>(value: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Explains the refusal of a gateway that does not know the request.
fn older(error: ClientError) -> anyhow::Error {
    if matches!(error, ClientError::Refused { kind: Fault::Request, .. }) {
        return anyhow!(
            "the running version of the gateway cannot be upgraded without a restart: restart the gateway"
        );
    }
    error.into()
}
