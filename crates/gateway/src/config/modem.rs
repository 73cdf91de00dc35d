//! `[port.NAME.modem]`: access to a mobile network by a modem at a `usb` or `usbip` port.

use super::diagnostics::Diagnostic;
use super::keys::Draft;
use super::keys::Reload::Reopen;
use super::notation::{Choice, Given, Inner, List, Text, list, text as shown};
use super::port::ATTACHED;
use super::section::{Refusal, Section};
use super::values::{PATH, text};
use polder_devices::cdc::mbim::service::Authentication;
use serde::Serialize;
use std::fmt;
use toml::de::DeValue;

/// Longest access point name (MBIM 1.0, 10.5.12.1), user and password, in UTF-16 units.
const LONGEST_NAME: usize = 100;
const EXAMPLE: &str =
    "write `[port.NAME.modem]` with `apn = \"internet\"`, or an empty table for the subscription's own";
const NAME: Text<String> = shown("", "up to 100 characters", name);
const SESSIONS: List<Text<FurtherSession>> = list(
    shown("", "number 1 to 255 and access point name, as `\"7 ims.example\"`", session),
    "sessions",
    None,
);

/// Notation of a modem.
pub(super) const NOTATION: Inner<Modem> = Inner(EXAMPLE, check);

section! {
    /// Access of a modem to its network.
    pub struct Modem("`modem`", "[port.NAME.modem]") {
        keys:
        /// Access point name of the network; empty for the subscription's own.
        apn: String = String::new(), NAME => Reopen(ATTACHED);
        /// Authentication of the session.
        authentication: AuthenticationKind = AuthenticationKind::None, Choice(AuthenticationKind::WORDS) => Reopen(ATTACHED);
        /// User of the session.
        user: Option<String> = None, Given(NAME) => Reopen(ATTACHED), usual("none");
        /// File with the password, in or below the directory of the configuration; only its first line is read.
        password_file: Option<String> = None, Given(PATH) => Reopen(ATTACHED), usual("none");
        /// File with the PIN of the SIM, in or below the directory of the configuration; a PIN that the SIM refuses is not entered again.
        pin_file: Option<String> = None, Given(PATH) => Reopen(ATTACHED), usual("none");
        /// Further sessions; session 7 is VLAN 7 of the port.
        sessions: Vec<FurtherSession> = Vec::new(), SESSIONS => Reopen(ATTACHED), usual("none"), range("number 1 to 255 and access point name, as `[\"7 ims.example\"]`");
    }
}

/// Authentication of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuthenticationKind {
    /// None.
    #[default]
    None,
    /// PAP.
    Pap,
    /// CHAP.
    Chap,
    /// MS-CHAPv2.
    Mschapv2,
}

impl AuthenticationKind {
    const WORDS: &[(&str, Self)] =
        &[("none", Self::None), ("pap", Self::Pap), ("chap", Self::Chap), ("mschapv2", Self::Mschapv2)];

    /// The same in the driver's words.
    pub const fn driver(self) -> Authentication {
        match self {
            Self::None => Authentication::None,
            Self::Pap => Authentication::Pap,
            Self::Chap => Authentication::Chap,
            Self::Mschapv2 => Authentication::MsChapV2,
        }
    }
}

/// A session beside the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FurtherSession {
    /// Its number, and its VLAN.
    pub number: u8,
    /// Its access point name.
    pub apn: String,
}

impl fmt::Display for FurtherSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.number, self.apn)
    }
}

fn name(value: &DeValue<'_>) -> Result<String, Refusal> {
    let name = text(value)?;
    if name.encode_utf16().count() > LONGEST_NAME || name.chars().any(char::is_control) {
        let refusal = Refusal::new("is too long, or has control characters");
        return Err(refusal.remedy("write up to 100 printable characters"));
    }
    Ok(name)
}

fn session(value: &DeValue<'_>) -> Result<FurtherSession, Refusal> {
    let text = name(value)?;
    let parts = text.split_once(' ').and_then(|(number, apn)| Some((number.parse::<u8>().ok()?, apn.trim())));
    match parts {
        Some((number, apn)) if number > 0 => Ok(FurtherSession { number, apn: apn.to_owned() }),
        _ => {
            let refusal = Refusal::new("is not a number and an access point name");
            Err(refusal.remedy("write the number and the name, as in \"7 ims.example\""))
        }
    }
}

/// Authentication has a user and a password, and no session is there twice.
fn check(draft: &Draft<Modem>, section: &Section<'_>) -> bool {
    let has_login = draft.value.authentication != AuthenticationKind::None;
    for key in ["user", "password_file"] {
        if draft.has(key) && !has_login && !draft.is_unreadable("authentication") {
            let why = "the key has no effect without authentication";
            let remedy = format!("remove `{key}`, or add `authentication = \"chap\"`");
            draft.refuse(key, why, &remedy).into_iter().for_each(|finding| section.findings.note(finding));
        }
    }
    let sessions = &draft.value.sessions;
    for (index, session) in sessions.iter().enumerate() {
        if sessions[..index].iter().any(|other| other.number == session.number) {
            let span = draft.element("sessions", index);
            let finding = Diagnostic::error(span, format!("session {} is configured twice", session.number));
            section.findings.note(finding.remedy("give each session a number of its own"));
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use std::path::Path;

    fn modem(device: &str, keys: &str) -> Result<Option<Modem>, String> {
        let file = format!(
            "version = 1\n[port.wan]\n{device}\nrole = \"router\"\n[port.wan.modem]\n{keys}\n\
             [port.host]\ntap = \"host0\"\nrole = \"router\"\naddresses = [\"192.0.2.1/24\"]\n\
             [[router.route]]\nto = \"0.0.0.0/0\"\nport = \"wan\"\n"
        );
        let loaded = parse(&file, Path::new("gw.toml")).map_err(|report| report.to_string())?;
        // What is written out says the same.
        let again = parse(&loaded.configuration.to_toml(), Path::new("again.toml"));
        let again = again.map_err(|report| report.to_string())?;
        assert_eq!(again.configuration.ports, loaded.configuration.ports);
        Ok(loaded.configuration.ports[0].modem.clone())
    }

    #[test]
    fn a_modem_has_access_login_and_sessions() {
        let keys = "apn = \"web.example\"\nauthentication = \"chap\"\nuser = \"u\"\npassword_file = \"/etc/polder/p\"\n\
                    pin_file = \"/etc/polder/pin\"\nsessions = [\"7 ims.example\", \"9 mms\"]";
        let found = modem("usb = \"1-1\"", keys).expect("all keys").expect("a modem");
        assert_eq!((found.apn.as_str(), found.user.as_deref()), ("web.example", Some("u")));
        assert_eq!(found.authentication.driver(), Authentication::Chap);
        assert_eq!(found.sessions[1], FurtherSession { number: 9, apn: "mms".to_owned() });
        assert_eq!(modem("usbip = \"192.0.2.9/1-1\"", "").expect("an empty table"), Some(Modem::default()));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_remedy() {
        for (device, keys, word) in [
            ("usb = \"1-1\"", "user = \"u\"", "authentication"),
            ("usb = \"1-1\"", "sessions = [\"0 x\"]", "7 ims.example"),
            ("usb = \"1-1\"", "sessions = [\"1 x\", \"1 y\"]", "twice"),
            ("usb = \"1-1\"", "pin_file = \"pin\"", "absolute path"),
            ("interface = \"eth0\"", "", "modem"),
        ] {
            let report = modem(device, keys).expect_err(keys);
            assert!(report.contains(word), "{keys}: {report}");
        }
    }
}
