//! Information of the modem's answers, and the state from which it is made.

use super::message::{BASIC_CONNECT, bytes_of, narrow, word};
use super::options::ModemOptions;
use std::collections::BTreeMap;

/// Context type of the Internet.
const INTERNET: [u8; 16] = *b"~^*~Norrsken~^*~";
/// Status of answers.
const PIN_REQUIRED: u32 = 5;
const NOT_REGISTERED: u32 = 7;
const NO_SUCH_COMMAND: u32 = 9;
const DETACHED: u32 = 12;
const TOO_MANY: u32 = 13;
const NOT_ACTIVE: u32 = 16;
const WRONG_APN: u32 = 18;
const WRONG_LOGIN: u32 = 19;
const RADIO_OFF: u32 = 20;
const WRONG_PARAMETER: u32 = 21;
const FAILURE: u32 = 2;
/// Maximum number of sessions.
const MOST_SESSIONS: usize = 8;
/// Numbers of the supported commands.
const KNOWN: [u32; 12] = [1, 2, 3, 4, 6, 9, 10, 11, 12, 15, 16, 20];

/// An answer.
pub(super) struct Answer {
    pub(super) status: u32,
    pub(super) information: Vec<u8>,
}

/// State of the modem.
#[derive(Debug)]
pub(super) struct Sessions {
    locked: bool,
    attempts: u32,
    radio: bool,
    searches: u32,
    attached: bool,
    strength: u32,
    /// Access point name, user, password and authentication of each active session.
    active: BTreeMap<u32, (String, String, String, u32)>,
}

/// Builder of information: words, followed by strings.
struct Strings {
    fixed: Vec<u8>,
    behind: Vec<(usize, Vec<u8>)>,
}

impl Strings {
    fn new(words: &[u32]) -> Self {
        Self { fixed: bytes_of(words), behind: Vec::new() }
    }

    fn text(mut self, text: &str) -> Self {
        self.behind.push((self.fixed.len(), text.encode_utf16().flat_map(u16::to_le_bytes).collect()));
        self.fixed.extend([0; 8]);
        self
    }

    fn words(mut self, words: &[u32]) -> Self {
        self.fixed.extend(bytes_of(words));
        self
    }

    fn end(mut self) -> Vec<u8> {
        for (at, text) in self.behind {
            let place = bytes_of(&[narrow(self.fixed.len()), narrow(text.len())]);
            self.fixed[at..at + 8].copy_from_slice(&place);
            self.fixed.extend(text);
            while !self.fixed.len().is_multiple_of(4) {
                self.fixed.push(0);
            }
        }
        self.fixed
    }
}

/// Returns the string whose offset is at `at` of a command.
fn text(information: &[u8], at: usize) -> Option<String> {
    let (offset, length) = (word(information, at) as usize, word(information, at + 4) as usize);
    let bytes = if length == 0 { &[][..] } else { information.get(offset..offset.checked_add(length)?)? };
    let units = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    String::from_utf16(&units.collect::<Vec<_>>()).ok()
}

impl Sessions {
    pub(super) fn new(options: &ModemOptions) -> Self {
        Self {
            locked: options.pin.is_some(),
            attempts: 3,
            radio: !options.radio_off,
            searches: options.searches,
            attached: false,
            strength: 20,
            active: BTreeMap::new(),
        }
    }

    pub(super) fn is_active(&self, session: u32) -> bool {
        self.active.contains_key(&session)
    }

    pub(super) fn access(&self, session: u32) -> Option<&(String, String, String, u32)> {
        self.active.get(&session)
    }

    pub(super) fn end(&mut self, session: u32) -> Vec<u8> {
        self.active.remove(&session);
        self.connection(session, 36)
    }

    pub(super) fn set_signal(&mut self, strength: u32) -> Vec<u8> {
        self.strength = strength;
        self.signal()
    }

    fn signal(&self) -> Vec<u8> {
        bytes_of(&[self.strength, 99, 5, 0, 0])
    }

    fn connection(&self, session: u32, error: u32) -> Vec<u8> {
        let state = if self.is_active(session) { 1 } else { 3 };
        let mut information = bytes_of(&[session, state, 0, 1]);
        information.extend(INTERNET);
        information.extend(bytes_of(&[error]));
        information
    }

    pub(super) fn answer(
        &mut self,
        options: &ModemOptions,
        (id, sets): (u32, bool),
        information: &[u8],
    ) -> Answer {
        let answer = match (id, sets) {
            (1, false) => Ok(caps()),
            (2, false) => Ok(self.subscriber()),
            (3, false) => Ok(bytes_of(&[1, u32::from(self.radio)])),
            (3, true) => self.set_radio(information),
            (4, false) => Ok(bytes_of(&[2, u32::from(self.locked), self.attempts])),
            (4, true) => self.enter_pin(options, information),
            (6, false) => Ok(Strings::new(&[])
                .text("26202")
                .words(&[1])
                .text("Polder Mobile")
                .words(&[1, 99, 99])
                .end()),
            (9, false) => Ok(self.registration()),
            (10, false) => Ok(self.service()),
            (10, true) => self.attach(information),
            (11, _) => Ok(self.signal()),
            (12, false) => Ok(self.connection(word(information, 0), 0)),
            (12, true) => self.connect(options, information),
            (15, false) => self.addresses(options, information),
            (16, false) => Ok(services()),
            (20, false) => Ok(bytes_of(&[0; 12])),
            _ => Err(NO_SUCH_COMMAND),
        };
        match answer {
            Ok(information) => Answer { status: 0, information },
            Err(status) => Answer { status, information: Vec::new() },
        }
    }

    fn subscriber(&self) -> Vec<u8> {
        let ready = if self.locked { 6 } else { 1 };
        Strings::new(&[ready]).text("262021234567890").text("8949000000000000001").words(&[0, 0]).end()
    }

    fn set_radio(&mut self, information: &[u8]) -> Result<Vec<u8>, u32> {
        if information.len() != 4 {
            return Err(WRONG_PARAMETER);
        }
        self.radio = word(information, 0) == 1;
        if !self.radio {
            self.active.clear();
            self.attached = false;
        }
        Ok(bytes_of(&[1, u32::from(self.radio)]))
    }

    fn enter_pin(&mut self, options: &ModemOptions, information: &[u8]) -> Result<Vec<u8>, u32> {
        let entered = text(information, 8).ok_or(WRONG_PARAMETER)?;
        if word(information, 0) != 2 || word(information, 4) != 0 || self.attempts == 0 {
            return Err(WRONG_PARAMETER);
        }
        if options.pin.as_ref() == Some(&entered) {
            (self.locked, self.attempts) = (false, 3);
        } else {
            self.attempts -= 1;
        }
        Ok(bytes_of(&[2, u32::from(self.locked), self.attempts]))
    }

    fn is_registered(&self) -> bool {
        self.radio && !self.locked && self.searches == 0
    }

    fn registration(&mut self) -> Vec<u8> {
        let is_registered = self.is_registered();
        if self.radio && !self.locked {
            self.searches = self.searches.saturating_sub(1);
        }
        let state = match (self.radio, is_registered) {
            (false, _) => 1,
            (true, false) => 2,
            (true, true) => 3,
        };
        let words = Strings::new(&[0, state, 1, 0x20, 1]);
        words.text("26202").text("Polder Mobile").text("").words(&[0]).end()
    }

    fn service(&self) -> Vec<u8> {
        let state = if self.attached { 2 } else { 4 };
        bytes_of(&[0, state, 0x20, 50_000_000, 0, 150_000_000, 0])
    }

    fn attach(&mut self, information: &[u8]) -> Result<Vec<u8>, u32> {
        let action = word(information, 0);
        match (action, self.radio) {
            (0, false) => return Err(RADIO_OFF),
            (0, true) if !self.is_registered() => return Err(NOT_REGISTERED),
            (0, true) => self.attached = true,
            _ => {
                self.attached = false;
                self.active.clear();
            }
        }
        Ok(self.service())
    }

    fn connect(&mut self, options: &ModemOptions, information: &[u8]) -> Result<Vec<u8>, u32> {
        let (session, activates) = (word(information, 0), word(information, 4) == 1);
        let string = |at| text(information, at).ok_or(WRONG_PARAMETER);
        let (apn, user, password) = (string(8)?, string(16)?, string(24)?);
        let authentication = word(information, 36);
        if information.len() < 60 || information[44..60] != INTERNET || word(information, 32) > 1 {
            return Err(WRONG_PARAMETER);
        }
        if !activates {
            return match self.active.remove(&session) {
                Some(_) => Ok(self.connection(session, 0)),
                None => Err(NOT_ACTIVE),
            };
        }
        let is_known = options.apns.is_empty() || options.apns.contains(&apn);
        let is_allowed = options.login.as_ref().is_none_or(|login| {
            (&login.0, &login.1) == (&user, &password) && (1..=3).contains(&authentication)
        });
        let status = match () {
            () if self.locked => PIN_REQUIRED,
            () if !self.radio => RADIO_OFF,
            () if !self.attached => DETACHED,
            () if !is_known => WRONG_APN,
            () if !is_allowed => WRONG_LOGIN,
            () if self.active.len() >= MOST_SESSIONS => TOO_MANY,
            () => {
                self.active.insert(session, (apn, user, password, authentication));
                return Ok(self.connection(session, 0));
            }
        };
        Err(status)
    }

    fn addresses(&self, options: &ModemOptions, information: &[u8]) -> Result<Vec<u8>, u32> {
        let session = word(information, 0);
        if !self.is_active(session) {
            return Err(NOT_ACTIVE);
        }
        let number = u8::try_from(session).map_err(|_| FAILURE)?;
        // Addresses, gateways, servers and MTU of both families; the lists follow the words.
        let v4 = 60;
        let v6 = v4 + 8;
        let gateways = (v6 + 20, v6 + 24);
        let servers = (gateways.1 + 16, gateways.1 + 24);
        let mut answer = bytes_of(&[session, 15, 15, 1, v4, 1, v6, gateways.0, gateways.1]);
        answer.extend(bytes_of(&[2, servers.0, 1, servers.1, options.mtu, options.mtu]));
        answer.extend(bytes_of(&[30]));
        answer.extend([100, 64, number, 2]);
        answer.extend(bytes_of(&[64]));
        answer.extend([0x20, 1, 0xd, 0xb8, 0, number, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        answer.extend([100, 64, number, 1]);
        answer.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        answer.extend([192, 0, 2, 53, 198, 51, 100, 53]);
        answer.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x53]);
        Ok(answer)
    }
}

fn caps() -> Vec<u8> {
    let words = Strings::new(&[1, 1, 1, 2, 0x20, 0, 1, narrow(MOST_SESSIONS)]);
    words.text("").text("490154203237518").text("polder-1.0").text("Polder model").end()
}

/// Lists the only service, with the supported commands.
fn services() -> Vec<u8> {
    let mut service = BASIC_CONNECT.to_vec();
    service.extend(bytes_of(&[0, 0, narrow(KNOWN.len())]));
    service.extend(bytes_of(&KNOWN));
    let mut answer = bytes_of(&[1, 0, 16, narrow(service.len())]);
    answer.extend(service);
    answer
}
