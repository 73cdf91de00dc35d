//! A port as the control thread knows it.

use super::seek::Seeking;
use super::share::Spares;
use crate::config::model::Port;
use crate::runtime::ports::{self, Attachment};
use polder_datapath::counters::QueueCounters;
use polder_datapath::queue::EgressCounters;
use polder_datapath::units::Nanos;
use polder_devices::af_xdp;
use polder_devices::lan78xx::PortStatus;
use std::sync::Arc;

/// A queue in front of a port: which worker has it, and what it has done.
#[derive(Clone, Debug)]
pub struct QueueState {
    /// The worker's number.
    pub worker: usize,
    /// What it has done.
    pub counters: Arc<EgressCounters>,
}

/// A device port, open or waiting to be opened again.
pub struct PortState {
    /// As configured.
    pub configuration: Port,
    /// Whether it is open.
    pub open: bool,
    /// What was found when it was last opened.
    pub facts: Option<ports::Facts>,
    /// Why it is closed.
    pub trouble: Option<String>,
    /// Counters of all queues that it has ever had.
    pub counters: Vec<Arc<QueueCounters>>,
    /// Queues in front of it that there have ever been.
    pub queues: Vec<QueueState>,
    /// Times that it was opened.
    pub openings: u64,
    /// What keeps the device.
    pub attachment: Option<Attachment>,
    /// Sending queues that no worker has.
    pub(super) spares: Spares,
    pub(super) retry_at: Nanos,
    pub(super) detaching: usize,
    pub(super) seeking: Option<Seeking>,
}

impl PortState {
    pub(super) fn closed(configuration: &Port) -> Self {
        Self {
            configuration: configuration.clone(),
            open: false,
            facts: None,
            attachment: None,
            trouble: None,
            counters: Vec::new(),
            queues: Vec::new(),
            openings: 0,
            spares: Vec::new(),
            retry_at: Nanos::default(),
            detaching: 0,
            seeking: None,
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
}
