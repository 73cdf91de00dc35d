//! State of a modem's session, for people and for the rest of the gateway.

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
    /// Asks for abilities.
    Caps,
    /// Asks for the SIM.
    Ready,
    /// Enters the PIN.
    Pin,
    /// Asks for the radio.
    Radio,
    /// Switches the radio on.
    RadioOn,
    /// Asks for the registration.
    Register,
    /// Asks for the packet service.
    Packet,
    /// Attaches to the packet service.
    Attach,
    /// Asks for the signal.
    Signal,
    /// Activates the session of that place.
    Connect(usize),
    /// Asks for the addresses of the session of that place.
    Addresses(usize),
    /// Deactivates the session of that place.
    Disconnect(usize),
    /// Nothing is to be done but to look at the signal.
    Rest,
    /// The PIN is missing or was refused; an order is needed.
    Halted,
    /// Closes the function.
    Close,
    /// The function is closed.
    Closed,
}

impl Step {
    /// The name in tables.
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
    /// Abilities and identity.
    pub caps: Option<DeviceCaps>,
    /// State of the SIM.
    pub ready: Option<Ready>,
    /// Attempts at the PIN that are left.
    pub pin_attempts: Option<u32>,
    /// Switches of the radio.
    pub radio: Option<Radio>,
    /// Registration and its network.
    pub registration: Option<Registration>,
    /// Attachment to the packet service.
    pub packet_service: Option<PacketService>,
    /// Strength of the signal in dBm.
    pub signal: Option<i16>,
    /// Sessions that are wanted.
    pub sessions: Vec<SessionState>,
    /// The last failure, for people; `None` once all that is wanted is done.
    pub error: Option<String>,
    /// Messages that came.
    pub messages: u64,
    /// Messages that were refused.
    pub refused: u64,
    /// Errors that the function has told.
    pub function_errors: u64,
    /// Transactions that were not answered in time.
    pub timeouts: u64,
}

impl ModemState {
    /// True if all sessions that are wanted are active and have their addresses.
    pub fn is_connected(&self) -> bool {
        self.step == Step::Rest
            && !self.sessions.is_empty()
            && self.sessions.iter().all(|session| session.active)
    }

    /// True if packets of session 0, or of the only one, can be sent.
    pub fn carries(&self) -> bool {
        self.sessions.iter().any(|session| session.active && !session.configuration.addresses.is_empty())
    }
}
