//! Commands of the service Basic Connect (MBIM 1.0, section 10.5): requests, and parsers of their answers.
//!
//! Strings are UTF-16 at an offset from the start of the information; offsets and lengths are checked before
//! use, and the lengths of a function's data are limited.

pub use super::ip::IpConfiguration;

/// Identity of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceId(pub [u8; 16]);

/// The service of connections (MBIM 1.0, 10.1).
pub const BASIC_CONNECT: ServiceId = ServiceId([
    0xa2, 0x89, 0xcc, 0x33, 0xbc, 0xbb, 0x8b, 0x4f, 0xb6, 0xb0, 0x13, 0x3e, 0xc2, 0xaa, 0xe6, 0xdf,
]);
/// The context type of the Internet (MBIM 1.0, 10.5.12).
pub const INTERNET: [u8; 16] =
    [0x7e, 0x5e, 0x2a, 0x7e, 0x4e, 0x6f, 0x72, 0x72, 0x73, 0x6b, 0x65, 0x6e, 0x7e, 0x5e, 0x2a, 0x7e];

/// Commands of the service.
pub mod command {
    /// Capabilities and identity of the modem.
    pub const DEVICE_CAPS: u32 = 1;
    /// State of the SIM.
    pub const SUBSCRIBER_READY: u32 = 2;
    /// Switches of the radio.
    pub const RADIO_STATE: u32 = 3;
    /// PIN of the SIM.
    pub const PIN: u32 = 4;
    /// Registration with the network.
    pub const REGISTER_STATE: u32 = 9;
    /// Attachment to the packet service.
    pub const PACKET_SERVICE: u32 = 10;
    /// Strength of the signal.
    pub const SIGNAL_STATE: u32 = 11;
    /// A session.
    pub const CONNECT: u32 = 12;
    /// Addresses of a session.
    pub const IP_CONFIGURATION: u32 = 15;
}

/// Maximum length of a string that is read, in UTF-16 units.
const LONGEST_STRING: usize = 256;
/// Signal strength that means "unknown".
const UNKNOWN_STRENGTH: u32 = 99;

/// Writer of information: words, followed by strings.
#[derive(Clone, Debug, Default)]
pub(super) struct Writer {
    fixed: Vec<u8>,
    strings: Vec<(usize, Vec<u8>)>,
}

impl Writer {
    pub(super) fn word(mut self, value: u32) -> Self {
        self.fixed.extend(value.to_le_bytes());
        self
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.fixed.extend(bytes);
        self
    }

    /// Writes offset and length of a string, which follows the words.
    pub(super) fn string(mut self, text: &str) -> Self {
        let bytes = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        self.strings.push((self.fixed.len(), bytes));
        self.fixed.extend([0; 8]);
        self
    }

    pub(super) fn end(self) -> Vec<u8> {
        let Self { fixed: mut information, strings } = self;
        let narrow = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        for (at, bytes) in strings.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
            let offset = narrow(information.len());
            information[at..at + 4].copy_from_slice(&offset);
            information[at + 4..at + 8].copy_from_slice(&narrow(bytes.len()));
            information.extend(bytes);
            // Each string starts at a multiple of four (MBIM 1.0, 10.3).
            information.resize(information.len().next_multiple_of(4), 0);
        }
        information
    }
}

/// Returns the string whose offset and length are at `at`; `None` if it is outside the information.
fn string(information: &[u8], at: usize) -> Option<String> {
    let (offset, bytes) = (word(information, at)? as usize, word(information, at + 4)? as usize);
    if bytes == 0 {
        return Some(String::new());
    }
    if !bytes.is_multiple_of(2) || bytes / 2 > LONGEST_STRING {
        return None;
    }
    let units = information.get(offset..)?.get(..bytes)?.as_chunks::<2>().0;
    let units: Vec<u16> = units.iter().map(|&unit| u16::from_le_bytes(unit)).collect();
    let text = String::from_utf16(&units).ok()?;
    // Control characters are removed, to protect terminals and logs.
    Some(text.chars().filter(|letter| !letter.is_control()).collect())
}

/// Capabilities and identity of a modem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceCaps {
    /// Maximum number of sessions.
    pub sessions: u32,
    /// Identity of the device (IMEI).
    pub device: String,
    /// Its firmware.
    pub firmware: String,
    /// Its hardware.
    pub hardware: String,
}

impl DeviceCaps {
    /// Parses the answer; `None` if it is malformed.
    pub fn read(information: &[u8]) -> Option<Self> {
        Some(Self {
            sessions: word(information, 28)?,
            device: string(information, 40)?,
            firmware: string(information, 48)?,
            hardware: string(information, 56)?,
        })
    }
}

/// State of the SIM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The SIM is being read.
    NotInitialized,
    /// The SIM is usable.
    Initialized,
    /// There is no SIM.
    NoSim,
    /// The SIM is unusable.
    BadSim,
    /// The SIM has failed.
    Failure,
    /// The subscription is not active.
    NotActivated,
    /// The SIM needs a PIN.
    Locked,
}

impl Ready {
    /// Parses the answer; `None` if it is malformed.
    pub fn read(information: &[u8]) -> Option<Self> {
        Some(match word(information, 0)? {
            0 => Self::NotInitialized,
            1 => Self::Initialized,
            2 => Self::NoSim,
            3 => Self::BadSim,
            4 => Self::Failure,
            5 => Self::NotActivated,
            6 => Self::Locked,
            _ => return None,
        })
    }

    /// Returns the name for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotInitialized => "not initialized",
            Self::Initialized => "initialized",
            Self::NoSim => "no SIM",
            Self::BadSim => "bad SIM",
            Self::Failure => "failure",
            Self::NotActivated => "not activated",
            Self::Locked => "locked",
        }
    }
}

/// Switches of the radio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Radio {
    /// The switch on the device.
    pub hardware: bool,
    /// The switch that the host sets.
    pub software: bool,
}

impl Radio {
    /// Parses the answer; `None` if it is malformed.
    pub fn read(information: &[u8]) -> Option<Self> {
        let switch = |at| match word(information, at)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        Some(Self { hardware: switch(0)?, software: switch(4)? })
    }
}

/// Result of entering a PIN, or the required PIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinState {
    /// Kind of the PIN.
    pub kind: u32,
    /// True if the PIN is required.
    pub locked: bool,
    /// Number of attempts left; `u32::MAX` if unknown.
    pub attempts: u32,
}

/// Kind of the PIN that is entered.
pub const PIN_1: u32 = 2;

impl PinState {
    /// Parses the answer; `None` if it is malformed.
    pub fn read(information: &[u8]) -> Option<Self> {
        Some(Self {
            kind: word(information, 0)?,
            locked: word(information, 4)? != 0,
            attempts: word(information, 8)?,
        })
    }
}

/// Registration with a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegisterState {
    /// The state is unknown.
    #[default]
    Unknown,
    /// Not registered.
    Deregistered,
    /// The modem searches for a network.
    Searching,
    /// Registered in the home network.
    Home,
    /// Registered in another network.
    Roaming,
    /// Registered in a partner's network.
    Partner,
    /// The network refuses the registration.
    Denied,
}

impl RegisterState {
    /// Returns the name for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Deregistered => "deregistered",
            Self::Searching => "searching",
            Self::Home => "home",
            Self::Roaming => "roaming",
            Self::Partner => "partner",
            Self::Denied => "denied",
        }
    }
}

/// Registration state, and its network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    /// State of the registration.
    pub state: RegisterState,
    /// Name of the network.
    pub provider: String,
}

impl Registration {
    /// Parses the answer; `None` if it is malformed.
    pub fn read(information: &[u8]) -> Option<Self> {
        let state = match word(information, 4)? {
            0 => RegisterState::Unknown,
            1 => RegisterState::Deregistered,
            2 => RegisterState::Searching,
            3 => RegisterState::Home,
            4 => RegisterState::Roaming,
            5 => RegisterState::Partner,
            6 => RegisterState::Denied,
            _ => return None,
        };
        Some(Self { state, provider: string(information, 28)? })
    }

    /// True if packets can be sent in the network.
    pub const fn is_registered(&self) -> bool {
        matches!(self.state, RegisterState::Home | RegisterState::Roaming | RegisterState::Partner)
    }
}

/// Attachment to the packet service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketService {
    /// True if the modem is attached.
    pub attached: bool,
    /// Speed to the network and from the network, in bit/s.
    pub speeds: (u64, u64),
}

impl PacketService {
    /// Parses the answer; `None` if it is malformed.
    pub fn read(information: &[u8]) -> Option<Self> {
        let speed =
            |at| Some(u64::from(word(information, at)?) | u64::from(word(information, at + 4)?) << 32);
        let attached = match word(information, 4)? {
            2 => true,
            0..=4 => false,
            _ => return None,
        };
        Some(Self { attached, speeds: (speed(12)?, speed(20)?) })
    }
}

/// Returns the signal strength in dBm; `None` if it is unknown or the answer is malformed.
pub fn signal(information: &[u8]) -> Option<i16> {
    let strength = word(information, 0).filter(|&strength| strength != UNKNOWN_STRENGTH && strength <= 31)?;
    // 3GPP TS 27.007, 8.5.
    i16::try_from(strength).ok().map(|strength| 2 * strength - 113)
}

/// Authentication of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authentication {
    /// None.
    #[default]
    None,
    /// Password Authentication Protocol.
    Pap,
    /// Challenge-Handshake Authentication Protocol.
    Chap,
    /// Microsoft's second version of CHAP.
    MsChapV2,
}

/// Access parameters of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Access point name; empty for the subscription's default.
    pub apn: String,
    /// Authentication.
    pub authentication: Authentication,
    /// Name of the user.
    pub user: String,
    /// Password of the user.
    pub password: String,
}

/// Returns the information of a CONNECT that activates or deactivates a session.
pub(super) fn connect(session: u32, activates: bool, access: &Access) -> Vec<u8> {
    let authentication = match access.authentication {
        Authentication::None => 0,
        Authentication::Pap => 1,
        Authentication::Chap => 2,
        Authentication::MsChapV2 => 3,
    };
    let writer = Writer::default().word(session).word(u32::from(activates));
    let writer = writer.string(&access.apn).string(&access.user).string(&access.password);
    // No compression; the network chooses between IPv4 and IPv6.
    writer.word(0).word(authentication).word(0).bytes(&INTERNET).end()
}

/// State of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The session.
    pub session: u32,
    /// True if packets can be sent.
    pub active: bool,
    /// Error of the network, 0 for none (3GPP TS 24.008, 10.5.6.6).
    pub error: u32,
}

impl Connection {
    /// Parses the answer; `None` if it is malformed.
    pub fn read(information: &[u8]) -> Option<Self> {
        let active = match word(information, 4)? {
            1 => true,
            0..=4 => false,
            _ => return None,
        };
        Some(Self { session: word(information, 0)?, active, error: word(information, 32)? })
    }
}

/// Returns the name of a status other than 0 (MBIM 1.0, table 9-11).
pub fn status_name(status: u32) -> &'static str {
    match status {
        1 => "busy",
        3 => "no SIM",
        4 => "bad SIM",
        5 => "the PIN is required",
        7 => "not registered",
        8 => "no provider",
        9 => "the device has no such command",
        11 => "the data class is not available",
        12 => "the packet service is detached",
        13 => "too many sessions",
        14 => "not initialized",
        16 => "the session is not active",
        17 => "the service is not activated",
        18 => "the access point name is wrong",
        19 => "user or password is wrong",
        20 => "the radio is off",
        21 => "a parameter is wrong",
        _ => "a failure",
    }
}

/// Returns the word at `at`.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}
