//! Tasks of threads.

/// Task of a thread, which decides on its privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Looks after the gateway, answers the control socket, opens adapters, closes sockets, or supervises the others.
    Control,
    /// Forwards packets.
    Worker,
    /// Writes a capture.
    Capture,
    /// Brings packet memory in, and gives it back.
    Reload,
    /// Answers monitoring, which may be anybody.
    Metrics,
    /// Waits for the end of the gateway: the first thread of the process.
    Main,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 6] =
        [Self::Control, Self::Worker, Self::Capture, Self::Reload, Self::Metrics, Self::Main];
}
