//! Places of a capture, and what is noted of a captured packet.

use crate::drops::DropReason;
use crate::units::Nanos;

/// Points on a packet's way at which it is captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Where {
    /// As the port has received it; of a tunnel, as it comes out.
    pub rx: bool,
    /// As it leaves by the port; of a tunnel, as it goes in.
    pub tx: bool,
    /// True if it is captured where its journey has ended early.
    pub drops: bool,
}

/// One of those places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturePoint {
    /// Received.
    Rx,
    /// To be sent.
    Tx,
    /// Ended, and why.
    Dropped(DropReason),
}

/// Metadata of a captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedPacket {
    /// Time of the capture.
    pub at: Nanos,
    /// Place of the capture.
    pub place: CapturePoint,
    /// The worker that saw it.
    pub worker: u16,
    /// The queue that it was received by, where that is known.
    pub queue: Option<u16>,
    /// Its ticket, of a flow that is spread over workers; 0 for none.
    pub ticket: u32,
    /// Its length, perhaps more than was captured.
    pub length: u32,
}
