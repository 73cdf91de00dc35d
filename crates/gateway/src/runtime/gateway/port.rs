//! A port as the control thread knows it.

use super::reopen::Reopening;
use super::share::Spares;
use crate::config::model::Port;
use crate::runtime::devices::missing;
use crate::runtime::ports::{self, Attachment};
use polder_datapath::counters::QueueCounters;
use polder_datapath::queue::EgressCounters;
use polder_datapath::units::Nanos;
use polder_datapath::wire::MacAddress;
use polder_devices::af_xdp::LinkState;
use polder_devices::lan78xx::PortStatus;
use polder_devices::{af_xdp, tap};
use rustix::io::Errno;
use std::sync::Arc;

/// A queue in front of a port: which worker has it, and what it has done.
#[derive(Clone, Debug)]
pub struct QueueState {
    /// The worker's number.
    pub worker: usize,
    /// Counters of the queue.
    pub counters: Arc<EgressCounters>,
}

/// The state of a port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The link carries packets.
    Up,
    /// The interface is up, and has no carrier.
    NoCarrier,
    /// The interface is switched off.
    Down,
}

impl Link {
    /// The link of an interface that is switched on or not, with or without carrier.
    pub(super) fn new(up: bool, carrier: bool) -> Self {
        match (up, carrier) {
            (true, true) => Self::Up,
            (true, false) => Self::NoCarrier,
            (false, _) => Self::Down,
        }
    }
}

/// A device port, open or waiting to be opened again.
pub struct PortState {
    /// As configured.
    pub configuration: Port,
    /// True if it is open.
    pub open: bool,
    /// Properties of the port when it was last opened.
    pub facts: Option<ports::Facts>,
    /// Reason why it is closed.
    pub trouble: Option<String>,
    /// True if it is closed because its device is not there.
    pub waiting: bool,
    /// The link, as it was seen last while the port is open; `None` for a device that has none.
    pub link: Option<Link>,
    /// Refusals of the kernel since it was opened.
    pub refusals: Vec<String>,
    /// Counters of all queues that it has ever had.
    pub counters: Vec<Arc<QueueCounters>>,
    /// Queues in front of it that there have ever been.
    pub queues: Vec<QueueState>,
    /// Times that it was opened.
    pub openings: u64,
    /// Attachment that keeps the device.
    pub attachment: Option<Attachment>,
    /// Sending queues that no worker has.
    pub(super) spares: Spares,
    pub(super) retry_at: Nanos,
    pub(super) detaching: usize,
    pub(super) reopening: Option<Reopening>,
}

impl PortState {
    pub(super) fn closed(configuration: &Port) -> Self {
        Self {
            configuration: configuration.clone(),
            open: false,
            facts: None,
            attachment: None,
            trouble: None,
            waiting: false,
            link: None,
            refusals: Vec::new(),
            counters: Vec::new(),
            queues: Vec::new(),
            openings: 0,
            spares: Vec::new(),
            retry_at: Nanos::default(),
            detaching: 0,
            reopening: None,
        }
    }

    /// Its state, in a word.
    pub fn word(&self) -> &'static str {
        match (self.open, self.link) {
            (true, None | Some(Link::Up)) => "open",
            (true, Some(Link::NoCarrier)) => "no-carrier",
            (true, Some(Link::Down)) => "down",
            (false, _) if self.waiting => "waiting",
            (false, _) => "closed",
        }
    }

    /// Notes and logs the refusals of the kernel since the last time.
    pub(super) fn note_refusals(&mut self) {
        let refusals = self.interface().map(af_xdp::Port::refusals).unwrap_or_default();
        for refusal in refusals {
            if !self.refusals.contains(&refusal) {
                tracing::warn!("port {}: {refusal}", self.configuration.name);
                self.refusals.push(refusal);
            }
        }
    }

    /// The interface behind it, while it is attached.
    pub fn interface(&self) -> Option<&af_xdp::Port> {
        self.attachment.as_ref()?.interface()
    }

    /// The USB adapter behind it, while it is open.
    pub fn adapter(&self) -> Option<&Arc<PortStatus>> {
        self.attachment.as_ref()?.adapter()
    }

    /// Looks at the device again, and says in the log when the link is another.
    ///
    /// # Errors
    /// When the interface is gone.
    pub(super) fn look(&mut self) -> Result<(), Errno> {
        let (Some(facts), Some(attachment)) = (&mut self.facts, &self.attachment) else { return Ok(()) };
        let most = self.configuration.mtu.map(u32::from);
        let link = match attachment {
            Attachment::Interface(interface) => {
                let LinkState { mac, mtu, up, carrier } = interface.refresh(most)?;
                facts.mac = MacAddress(mac);
                facts.mtu = mtu.min(most.unwrap_or(u32::MAX));
                Some(Link::new(up, carrier))
            }
            Attachment::Adapter(status) => Some(Link::new(true, status.facts().link.up)),
            Attachment::Tap(most) => {
                // One that is gone says so by its queues.
                facts.mtu = tap::mtu(&facts.interface).map_or(facts.mtu, |mtu| mtu.min(*most));
                None
            }
        };
        if let Some(link) = link {
            self.note(link);
        }
        Ok(())
    }

    fn note(&mut self, link: Link) {
        let before = self.link.replace(link);
        let (port, device) = (&self.configuration.name, self.configuration.device.name());
        match link {
            _ if before == Some(link) => {}
            Link::Up if before.is_none() => {}
            Link::Up => tracing::info!(port, "the link of {device} is up"),
            Link::NoCarrier => tracing::warn!(
                port,
                "{device} has no carrier: nothing is connected, or its other end is off; packets for it are dropped"
            ),
            Link::Down => tracing::warn!(
                port,
                "{device} is switched off: `ip link set dev {device} up`; packets for it are dropped"
            ),
        }
    }

    /// The port could not be opened; it is tried again at `retry_at`. What is new about that is in the log.
    pub(super) fn wait(&mut self, error: &anyhow::Error, retry_at: Nanos) {
        self.retry_at = retry_at;
        let missing = missing(error);
        let went = self.waiting || self.openings > 0;
        self.waiting = missing.is_some();
        if self.waiting && went {
            // Why it went away says more than that it is not there.
            return;
        }
        let trouble = missing.unwrap_or_else(|| format!("{error:#}"));
        if self.trouble.as_ref() != Some(&trouble) {
            tracing::warn!(port = self.configuration.name, "cannot be opened: {trouble}; it is tried again");
        }
        self.trouble = Some(trouble);
    }
}
