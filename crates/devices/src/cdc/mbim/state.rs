//! State of a modem's sessions, for operators and for the rest of the gateway.

use super::service::{Access, DeviceCaps, IpConfiguration, PacketService, Radio, Ready, Registration};

/// Settings of a modem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Sessions with their numbers; none leaves the modem disconnected.
    pub sessions: Vec<(u8, Access)>,
    /// PIN of the SIM.
    pub pin: Option<String>,
}

/// Step of the dialogue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// Opens the function.
    #[default]
    Open,
    /// Requests the capabilities.
    Caps,
    /// Requests the state of the SIM.
    Ready,
    /// Enters the PIN.
    Pin,
    /// Requests the state of the radio.
    Radio,
    /// Switches the radio on.
    RadioOn,
    /// Requests the registration.
    Register,
    /// Requests the state of the packet service.
    Packet,
    /// Attaches to the packet service.
    Attach,
    /// Requests the signal strength.
    Signal,
    /// Activates the session at that index.
    Connect(usize),
    /// Requests the addresses of the session at that index.
    Addresses(usize),
    /// Deactivates the session at that index.
    Disconnect(usize),
    /// All done; only the signal is checked.
    Rest,
    /// The PIN is missing or was refused; an operator's order is needed.
    Halted,
    /// Closes the function.
    Close,
    /// The function is closed.
    Closed,
}

impl Step {
    /// Returns the name for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "opening",
            Self::Caps => "identifying",
            Self::Ready | Self::Pin => "waiting for the SIM",
            Self::Radio | Self::RadioOn => "switching the radio on",
            Self::Register => "registering",
            Self::Packet | Self::Attach => "attaching",
            Self::Signal | Self::Connect(_) => "connecting",
            Self::Addresses(_) => "configuring",
            Self::Disconnect(_) => "disconnecting",
            Self::Rest => "at rest",
            Self::Halted => "halted",
            Self::Close | Self::Closed => "closed",
        }
    }
}

/// A session of a modem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionState {
    /// Its number.
    pub number: u8,
    /// True if packets can be sent.
    pub active: bool,
    /// Its addresses.
    pub configuration: IpConfiguration,
}

/// State of a modem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModemState {
    /// Step of the dialogue.
    pub step: Step,
    /// Capabilities and identity.
    pub caps: Option<DeviceCaps>,
    /// State of the SIM.
    pub ready: Option<Ready>,
    /// Number of PIN attempts left.
    pub pin_attempts: Option<u32>,
    /// Switches of the radio.
    pub radio: Option<Radio>,
    /// Registration and its network.
    pub registration: Option<Registration>,
    /// Attachment to the packet service.
    pub packet_service: Option<PacketService>,
    /// Strength of the signal in dBm.
    pub signal: Option<i16>,
    /// Wanted sessions.
    pub sessions: Vec<SessionState>,
    /// The last failure, as text; `None` once all wanted sessions are connected.
    pub error: Option<String>,
    /// Number of received messages.
    pub messages: u64,
    /// Number of refused messages.
    pub refused: u64,
    /// Number of errors that the function has reported.
    pub function_errors: u64,
    /// Transactions that were not answered in time.
    pub timeouts: u64,
}

impl ModemState {
    /// True if all wanted sessions are active.
    pub fn is_connected(&self) -> bool {
        self.step == Step::Rest
            && !self.sessions.is_empty()
            && self.sessions.iter().all(|session| session.active)
    }

    /// True if a session is active and has an address, so that packets can be sent.
    pub fn carries(&self) -> bool {
        self.sessions.iter().any(|session| session.active && !session.configuration.addresses.is_empty())
    }
}
