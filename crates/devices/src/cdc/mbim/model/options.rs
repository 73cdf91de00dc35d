//! Properties of a modem, and its faults.

/// Properties of a modem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModemOptions {
    /// Maximum length of a control message in bytes.
    pub message_bytes: u16,
    /// True if the function also supports NCM.
    pub is_dual: bool,
    /// PIN of the SIM.
    pub pin: Option<String>,
    /// Access point names of the network; empty to accept any.
    pub apns: Vec<String>,
    /// User and password that the network requires.
    pub login: Option<(String, String)>,
    /// Number of registration queries that are answered with "searching".
    pub searches: u32,
    /// True if the radio is off at the start.
    pub radio_off: bool,
    /// MTU that the network reports.
    pub mtu: u32,
    /// Destination and source address of frames to the wire.
    pub wire: [[u8; 6]; 2],
}

impl Default for ModemOptions {
    fn default() -> Self {
        Self {
            message_bytes: 4096,
            is_dual: false,
            pin: None,
            apns: Vec::new(),
            login: None,
            searches: 1,
            radio_off: true,
            mtu: 1420,
            wire: [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]],
        }
    }
}

/// A fault of the modem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModemFault {
    /// OPEN fails.
    OpenFails,
    /// Each command is answered as if the function were not open.
    Forgets,
    /// Commands are not answered.
    Silent,
    /// Answers are not announced.
    NoNotification,
    /// Answers have another transaction number.
    OtherTransaction,
    /// Answers have another service.
    OtherService,
    /// Answers have the number of another command.
    OtherCommand,
    /// The length of a message is too large.
    LongerThanItIs,
    /// A message ends early.
    Cut,
    /// The information is said to be longer than it is.
    InformationBeyond,
    /// The last fragment is missing.
    FragmentMissing,
    /// Two fragments are swapped.
    FragmentsSwapped,
    /// The fragment count is too large.
    FragmentCount,
    /// Each answer is sent twice.
    Twice,
    /// Strings and lists are outside of the information.
    Outside,
    /// Strings are no UTF-16.
    NotText,
    /// The address count is too large.
    ManyAddresses,
    /// A prefix longer than an address.
    LongPrefix,
    /// CONNECT answers for another session.
    OtherSession,
    /// CONNECT fails.
    NoConnection,
    /// CONNECT succeeds, but the session stays inactive.
    NotActive,
    /// The registration is denied.
    Denied,
    /// The MTU is too small for any packet.
    TinyMtu,
}
