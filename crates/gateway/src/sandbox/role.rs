//! Roles of threads.

/// Role of a thread, which decides on its privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs the control loop, answers the control socket, opens adapters, closes sockets, or supervises
    /// threads.
    Control,
    /// Forwards packets.
    Worker,
    /// Writes a capture.
    Capture,
    /// Maps and releases packet memory.
    Reload,
    /// Answers metrics requests, from any client.
    Metrics,
    /// Waits for the end of the gateway: the first thread of the process.
    Main,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 6] =
        [Self::Control, Self::Worker, Self::Capture, Self::Reload, Self::Metrics, Self::Main];
}
