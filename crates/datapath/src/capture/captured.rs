//! Capture points, and metadata of captured packets.

use crate::drops::DropReason;
use crate::units::Nanos;

/// Points at which packets are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapturePoints {
    /// As received by the port; for a tunnel, after decapsulation.
    pub rx: bool,
    /// As sent by the port; for a tunnel, before encapsulation.
    pub tx: bool,
    /// When dropped.
    pub drops: bool,
}

/// Point at which a packet was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturePoint {
    /// Received.
    Rx,
    /// To be sent.
    Tx,
    /// Dropped, for this reason.
    Dropped(DropReason),
}

/// Metadata of a captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedPacket {
    /// Time of the capture.
    pub at: Nanos,
    /// Place of the capture.
    pub place: CapturePoint,
    /// Number of the worker.
    pub worker: u16,
    /// Receive queue; `None` if unknown.
    pub queue: Option<u16>,
    /// Ticket of a packet in a spread bucket; 0 for none.
    pub ticket: u32,
    /// Length of the packet in bytes, which may exceed the captured length.
    pub length: u32,
}
