//! Properties of a modem, and its lies.

/// Properties of a modem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModemOptions {
    /// Longest control message, in bytes.
    pub message_bytes: u16,
    /// True if the function is NCM, too.
    pub is_dual: bool,
    /// PIN that the SIM wants.
    pub pin: Option<String>,
    /// Access point names that the network has; any if there are none.
    pub apns: Vec<String>,
    /// User and password that the network wants.
    pub login: Option<(String, String)>,
    /// Number of questions for the registration that are answered with "searching".
    pub searches: u32,
    /// True if the radio is switched off at the start.
    pub radio_off: bool,
    /// MTU that the network tells.
    pub mtu: u32,
    /// Destination and source of frames to the wire.
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

/// A way in which the modem lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
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
    /// Fragments are said to be more than they are.
    FragmentCount,
    /// Each answer comes twice.
    Twice,
    /// Strings and lists stand outside of the information.
    Outside,
    /// Strings are no UTF-16.
    NotText,
    /// More addresses than there are.
    ManyAddresses,
    /// A network of more bits than an address has.
    LongPrefix,
    /// CONNECT answers for another session.
    OtherSession,
    /// CONNECT fails.
    NoConnection,
    /// CONNECT succeeds, and the session is not active.
    NotActive,
    /// The registration is denied.
    Denied,
    /// An MTU with which nothing can be sent.
    TinyMtu,
}
