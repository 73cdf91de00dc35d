//! A port as the control thread sees it.

use super::reopen::Reopening;
use super::share::Spares;
use crate::config::model::Port;
use crate::device::{Handle, InterfaceLock, Link, PortProperties, missing};
use crate::events::{EventKind, Events, LinkState};
use crate::show::modem::ModemRow;
use polder_buffers::PortId;
use polder_datapath::counters::QueueCounters;
use polder_datapath::queue::{EgressCounters, QueueOptions};
use polder_datapath::scheduler::Backlog;
use polder_datapath::units::Nanos;
use polder_devices::skb::Carried;
use rustix::io::Errno;
use std::sync::Arc;

/// A queue of a port: its worker and its counters.
#[derive(Clone, Debug)]
pub struct QueueState {
    /// Number of the worker.
    pub worker: usize,
    /// Counters of the queue.
    pub counters: Arc<EgressCounters>,
    /// Options with which the queue was last created or adjusted; `None` while there is none.
    pub options: Option<QueueOptions>,
}

/// A device port, open or closed.
pub struct PortState {
    /// Configuration of the port.
    pub configuration: Port,
    /// True if the port is open.
    pub open: bool,
    /// Properties of the port when it was last opened.
    pub facts: Option<PortProperties>,
    /// Reason why the port is closed.
    pub trouble: Option<String>,
    /// True if the port is closed because its device is missing.
    pub waiting: bool,
    /// State of the link while the port is open; `None` for a device without one.
    pub link: Option<Link>,
    /// Refusals of the kernel since the port was opened.
    pub refusals: Vec<String>,
    /// Another application's program that receives the port's packets first.
    pub program_in_front: Option<String>,
    /// Counters of all device queues since the start.
    pub counters: Vec<Arc<QueueCounters>>,
    /// Egress queues since the start.
    pub queues: Vec<QueueState>,
    /// Queues of received packets since the start.
    pub inlets: Vec<QueueState>,
    /// Number of times that the port was opened.
    pub openings: u64,
    /// Counters of packets that programs carry from and to the port.
    pub carried: Arc<QueueCounters>,
    /// Packets that the port's program had carried at the last count, by ingress and egress port.
    pub(super) carried_before: Vec<((PortId, PortId), Carried)>,
    /// Handle that keeps the device open.
    pub(super) handle: Option<Box<dyn Handle>>,
    /// Lock of the interface; declared after the handle, so that the handle is dropped first.
    pub(super) lock: Option<InterfaceLock>,
    /// Backlog of a consumer behind the port.
    pub(super) backlog: Option<Arc<Backlog>>,
    /// Sending queues that no worker uses.
    pub(super) spares: Spares,
    pub(super) retry_at: Nanos,
    pub(super) detaching: usize,
    pub(super) reopening: Option<Reopening>,
    /// Last reported state of the modem: true if connected, and the error.
    pub(super) modem: Option<(bool, Option<String>)>,
}

impl PortState {
    pub(super) fn closed(configuration: &Port) -> Self {
        Self {
            configuration: configuration.clone(),
            open: false,
            facts: None,
            handle: None,
            lock: None,
            backlog: None,
            trouble: None,
            waiting: false,
            link: None,
            refusals: Vec::new(),
            program_in_front: None,
            counters: Vec::new(),
            queues: Vec::new(),
            inlets: Vec::new(),
            carried: Arc::default(),
            carried_before: Vec::new(),
            openings: 0,
            spares: Vec::new(),
            retry_at: Nanos::default(),
            detaching: 0,
            reopening: None,
            modem: None,
        }
    }

    /// State of the port, as a word.
    pub fn word(&self) -> &'static str {
        match (self.open, self.link) {
            (true, None | Some(Link::Up)) => "open",
            (true, Some(Link::NoCarrier)) => "no-carrier",
            (true, Some(Link::Down)) => "down",
            (false, _) if self.waiting => "waiting",
            (false, _) => "closed",
        }
    }

    /// True if the port carries packets. A TAP that is down still counts: it only withholds packets from the
    /// host.
    pub fn carries(&self) -> bool {
        let has_kernel_peer = self.configuration.device.capabilities().has_kernel_peer;
        self.word() == "open" || self.open && has_kernel_peer
    }

    /// Records and logs new refusals of the kernel.
    pub(super) fn note_refusals(&mut self) {
        let refusals = self.handle().map(|handle| handle.refusals()).unwrap_or_default();
        for refusal in refusals {
            if !self.refusals.contains(&refusal) {
                tracing::warn!("port {}: {refusal}", self.configuration.name);
                self.refusals.push(refusal);
            }
        }
    }

    /// Records another application's program in front of the port's own, when it appears or goes.
    pub(super) fn note_program_in_front(&mut self, events: &Events) {
        let program = self.handle().and_then(|handle| handle.program_in_front());
        if program == self.program_in_front {
            return;
        }
        let port = self.configuration.name.clone();
        events.note(EventKind::ProgramInFront { port, program: program.clone() });
        self.program_in_front = program;
    }

    /// Handle of the device while the port is open.
    pub fn handle(&self) -> Option<&dyn Handle> {
        self.handle.as_deref()
    }

    /// Refreshes the device's properties and records link changes; returns true if the interface was renamed.
    ///
    /// # Errors
    /// When the interface is gone.
    pub(super) fn look(&mut self, events: &Events) -> Result<bool, Errno> {
        let (Some(facts), Some(handle)) = (&mut self.facts, &self.handle) else { return Ok(false) };
        let before = facts.interface.clone();
        let link = handle.refresh(facts, self.configuration.mtu.map(u32::from))?;
        let is_renamed = facts.interface != before;
        if is_renamed {
            let (port, to) = (self.configuration.name.clone(), facts.interface.clone());
            events.note(EventKind::Renamed { port, from: before, to });
        }
        let modem = handle.modem_row();
        match link {
            Some(link) => self.note(link, events),
            None => self.link = None,
        }
        if let Some(modem) = modem {
            self.note_modem(&modem, events);
        }
        Ok(is_renamed)
    }

    /// Reports a modem that has connected, disconnected or failed.
    fn note_modem(&mut self, modem: &ModemRow, events: &Events) {
        let is_at_rest =
            modem.connected || modem.error.is_some() || modem.sessions.iter().all(|one| !one.active);
        let state = match &modem.error {
            Some(error) => error.clone(),
            None if modem.connected => modem.lines().join("; "),
            None => "the modem is not connected".to_owned(),
        };
        // Changes of the signal alone are not reported.
        let told = (modem.connected, modem.error.clone());
        if !is_at_rest || self.modem.as_ref() == Some(&told) {
            return;
        }
        self.modem = Some(told);
        let port = self.configuration.name.clone();
        events.note(EventKind::Modem { port, state, connected: modem.connected });
    }

    fn note(&mut self, link: Link, events: &Events) {
        let before = self.link.replace(link);
        let state = match link {
            _ if before == Some(link) => return,
            Link::Up if before.is_none() => return,
            Link::Up => LinkState::Up,
            Link::NoCarrier => LinkState::NoCarrier,
            Link::Down => LinkState::Down,
        };
        let (port, device) = (self.configuration.name.clone(), self.device_name());
        events.note(EventKind::Carrier { port, device, state });
    }

    /// Name of the device; for an interface, its current name.
    fn device_name(&self) -> String {
        let device = &self.configuration.device;
        let now = device.kernel_name().and(self.facts.as_ref()).map(|facts| facts.interface.clone());
        now.unwrap_or_else(|| device.name())
    }

    /// Records that opening the port failed; the next attempt is at `retry_at`. Logs new reasons.
    pub(super) fn wait(&mut self, error: &anyhow::Error, retry_at: Nanos) {
        self.retry_at = retry_at;
        let missing = missing(error);
        let went = self.waiting || self.openings > 0;
        self.waiting = missing.is_some();
        if self.waiting && went {
            // The reason for the closing is logged already, and says more than a missing device.
            return;
        }
        let trouble = missing.unwrap_or_else(|| format!("{error:#}"));
        if self.trouble.as_ref() != Some(&trouble) {
            tracing::warn!(
                port = self.configuration.name,
                "cannot be opened: {trouble}; the gateway tries \
                    again"
            );
        }
        self.trouble = Some(trouble);
    }
}
