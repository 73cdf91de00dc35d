//! The control socket: how a running gateway is asked.
//!
//! A UNIX stream socket that its owner alone may open. A request is a line of JSON, and so is its
//! answer; a connection carries any number of them, one after the other:
//!
//! ```text
//! ▶ {"polder":1,"ask":"show","what":"ports"}
//! ◀ {"polder":1,"shown":{"format":1,"gateway":"ap","uptime_nanos":…,"ports":[…]}}
//! ▶ {"polder":1,"ask":"reload"}
//! ◀ {"polder":1,"error":{"kind":"input","message":"…"}}
//! ```
//!
//! [`server`] answers on a thread of its own; the datapath never waits for it. [`socket`] decides who
//! has the socket's path; [`client`] finds gateways and asks them, [`port_file`] together with a file of `conf.d`; [`last_words`] is what is said of one that ended
//! because it lost a thread.

pub mod client;
pub mod last_words;
pub mod port_file;
pub mod server;
pub mod socket;

use crate::capture::CaptureRequest;
use crate::config::detail::KeyChange;
use crate::events;
use crate::show::modem::ModemRow;
use crate::show::{Shown, What, tagged};
use crate::trace::{Trace, TraceRequest};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::path::PathBuf;

/// The version of the protocol.
pub const PROTOCOL: u32 = 1;
/// Longest request, its newline included, in bytes: a capture with the longest program.
pub const MAX_REQUEST: usize = 72 << 10;

/// Request to a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The version of the protocol: [`PROTOCOL`].
    pub polder: u32,
    /// Command of the request.
    #[serde(flatten)]
    pub ask: Ask,
}

/// The questions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Ask {
    /// A view.
    Show {
        /// View to show.
        what: What,
        /// Name, address or number of the rows to show; all of them without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<String>,
        /// Seconds before now from which on drops are counted; their totals since the start without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since_seconds: Option<u64>,
        /// Most connections to show; 1000 without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        most: Option<usize>,
    },
    /// To read its configuration file again and apply it.
    Reload(ReloadRequest),
    /// Asks for the file that it reads.
    File,
    /// To add, change or take away a port.
    Port(PortRequest),
    /// To keep a change that would be taken back.
    Confirm,
    /// Asks for the difference between the running configuration and the file.
    Diff,
    /// To say that it is not ready, so that packets are sent elsewhere.
    Drain {
        /// True to take that back.
        #[serde(default)]
        undo: bool,
    },
    /// Asks for the modem behind a port, or has it connected or disconnected.
    Modem {
        /// Name of the port.
        port: String,
        /// Order to the modem; none to ask alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<ModemOrder>,
    },
    /// Asks for the fate of a described packet.
    Trace(TraceRequest),
    /// Asks for events.
    Events {
        /// Number of the first one; those that come from here on without it.
        #[serde(default)]
        from: Option<u64>,
    },
    /// To log more or less; asks for the level without one.
    Log {
        /// The filter, or `default` for that of the start.
        #[serde(default)]
        filter: Option<String>,
    },
    /// To hand the gateway over to the process that asks, by messages behind the answer.
    HandOver(HandOverRequest),
    /// To send packets, as a pcapng file behind the answer, until this side is shut down.
    Capture(CaptureRequest),
}

impl Ask {
    /// Asks for all rows of a view.
    pub fn show(what: What) -> Self {
        Self::Show { what, of: None, since_seconds: None, most: None }
    }
}

/// Order to a modem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModemOrder {
    /// Connects its sessions.
    Connect,
    /// Disconnects them, until it is told otherwise or the port is opened again.
    Disconnect,
}

/// Request for a port that comes, changes or goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRequest {
    /// Its name.
    pub name: String,
    /// Kind of the change.
    pub order: PortOrder,
    /// Tables that describe it, as a file has them: `[port.NAME]` and `[bridge.BRIDGE.port.NAME]`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tables: String,
    /// True if a file has, or had, its tables: all of them are given, and nothing is kept beside the files.
    #[serde(default)]
    pub in_file: bool,
    /// True to report the changes only.
    #[serde(default)]
    pub dry_run: bool,
    /// True if this machine may lose its own addresses.
    #[serde(default)]
    pub yes: bool,
}

/// Kind of a change of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortOrder {
    /// It comes.
    Add,
    /// It gets the keys that are given.
    Set,
    /// It goes.
    Delete,
}

/// Request for a hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOverRequest {
    /// Version of the messages that the other process knows.
    pub format: u32,
}

/// Request for a reload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReloadRequest {
    /// True to report the changes only.
    pub dry_run: bool,
    /// True if this machine may lose its own addresses.
    pub yes: bool,
    /// Seconds after which the change is taken back unless it is confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<u32>,
}

/// A gateway's answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Response {
    /// The version of the protocol: [`PROTOCOL`].
    pub polder: u32,
    /// The answer.
    #[serde(flatten)]
    pub answer: Answer,
}

impl<'de> Deserialize<'de> for Response {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ResponseVisitor)
    }
}

struct ResponseVisitor;

impl<'de> Visitor<'de> for ResponseVisitor {
    type Value = Response;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an answer with its version")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Response, M::Error> {
        let (mut polder, mut answer) = (None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "polder" => polder = Some(map.next_value()?),
                name => answer = Some(tagged::variant(name, &mut map)?),
            }
        }
        let missing = M::Error::missing_field;
        Ok(Response {
            polder: polder.ok_or_else(|| missing("polder"))?,
            answer: answer.ok_or_else(|| missing("the answer"))?,
        })
    }
}

/// The answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// A view.
    Shown(Box<Shown>),
    /// Changes by a reload, or of a port.
    Reloaded(Reloaded),
    /// File that it reads.
    File(ReadFile),
    /// The change stays.
    Confirmed(Confirmed),
    /// The running configuration and the file.
    Compared(Compared),
    /// State of a drain.
    Draining(Draining),
    /// The modem behind a port.
    Modem(Box<ModemRow>),
    /// Fate of the packet.
    Traced(Box<Trace>),
    /// Events.
    Events(events::Read),
    /// Level of the log.
    Logging(Logging),
    /// Messages of the hand-over follow.
    HandingOver(HandingOver),
    /// Packets follow.
    Capturing(Capturing),
    /// The request was refused.
    Error(Refusal),
}

/// Answer to a request for a hand-over: messages follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandingOver {
    /// Version of the messages.
    pub format: u32,
}

/// Answer to a capture request: packets follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capturing {}

/// Level of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logging {
    /// The filter in force.
    pub filter: String,
}

/// Changes by a reload, made or planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// True if it has been applied.
    pub applied: bool,
    /// One line for each thing that changes; empty when nothing does.
    pub changes: Vec<String>,
    /// Warnings about the new configuration.
    pub warnings: String,
    /// Seconds after which it is taken back unless it is confirmed.
    #[serde(default)]
    pub confirm: Option<u32>,
}

/// File that a gateway reads, with those of `conf.d` beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFile {
    /// Its path.
    pub file: PathBuf,
}

/// Answer to a confirmation: the change stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmed {
    /// Seconds that were left.
    pub seconds_left: u64,
}

/// State of a gateway from which packets are kept away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draining {
    /// Name of the gateway.
    pub gateway: String,
    /// True if it says that it is not ready.
    pub draining: bool,
    /// Packets received since the start, by workers and by programs.
    pub received: u64,
}

/// The difference between the running configuration and the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// Version of this form.
    pub format: u32,
    /// Name of the gateway.
    pub gateway: String,
    /// The file that it was started with.
    pub file: String,
    /// One line for each difference; empty when there is none.
    pub changes: Vec<String>,
    /// Each key with another value.
    pub keys: Vec<KeyChange>,
    /// True if a reload cannot apply all of it.
    pub needs_restart: bool,
}

/// Reason why a request cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Party at fault.
    pub kind: Fault,
    /// Error and its remedy, for people; may have many lines.
    pub message: String,
    /// The same in few lines, for the log and events, where `message` has pictures.
    #[serde(skip)]
    pub brief: Option<String>,
}

/// Party at fault for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The request is not one of this protocol.
    Request,
    /// The configuration file is wrong.
    Input,
    /// The system refuses.
    Runtime,
}

impl Request {
    /// Asks in the version of this build.
    pub fn new(ask: Ask) -> Self {
        Self { polder: PROTOCOL, ask }
    }
}

impl Response {
    /// Answers in the version of this build.
    pub fn new(answer: Answer) -> Self {
        Self { polder: PROTOCOL, answer }
    }

    /// Says why not.
    pub fn refuse(kind: Fault, message: impl Into<String>) -> Self {
        Self::new(Answer::Error(Refusal { kind, message: message.into(), brief: None }))
    }
}

/// Parses a request, or returns the response about its error.
///
/// # Errors
/// The response to send.
pub fn parse(line: &[u8]) -> Result<Request, Box<Response>> {
    #[derive(Deserialize)]
    struct Versioned {
        polder: u32,
    }
    let refuse = |message| Err(Box::new(Response::refuse(Fault::Request, message)));
    // The version first: a request of another one need not be readable.
    match serde_json::from_slice::<Versioned>(line) {
        Ok(Versioned { polder: PROTOCOL }) => {}
        Ok(Versioned { polder }) => {
            return refuse(format!(
                "this gateway speaks version {PROTOCOL} of the protocol, not {polder}: use the `polder` that \
                 it was started with, or restart it"
            ));
        }
        Err(error) => return refuse(format!("not a request: {error}")),
    }
    match serde_json::from_slice(line) {
        Ok(request) => Ok(request),
        Err(error) => refuse(format!("not a request of version {PROTOCOL}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &str) -> String {
        let answer = parse(line.as_bytes()).expect_err(line).answer;
        let Answer::Error(Refusal { kind: Fault::Request, message, .. }) = answer else {
            panic!("{answer:?}")
        };
        message
    }

    #[test]
    fn requests_are_what_the_documentation_shows() {
        let show = Request::new(Ask::show(What::Ports));
        let text = serde_json::to_string(&show).unwrap();
        assert_eq!(text, r#"{"polder":1,"ask":"show","what":"ports"}"#);
        assert_eq!(parse(text.as_bytes()).unwrap(), show);
        let reload = parse(br#"{"polder":1,"ask":"reload"}"#).unwrap();
        assert_eq!(reload.ask, Ask::Reload(ReloadRequest::default()));
        let timed =
            Request::new(Ask::Reload(ReloadRequest { confirm: Some(60), ..ReloadRequest::default() }));
        let text = serde_json::to_string(&timed).unwrap();
        assert_eq!(text, r#"{"polder":1,"ask":"reload","dry_run":false,"yes":false,"confirm":60}"#);
        assert_eq!(parse(br#"{"polder":1,"ask":"confirm"}"#).unwrap().ask, Ask::Confirm);
        assert_eq!(parse(br#"{"polder":1,"ask":"diff"}"#).unwrap().ask, Ask::Diff);
    }

    #[test]
    fn another_version_is_said_before_anything_else() {
        let message = refusal(r#"{"polder":2,"ask":"what is this"}"#);
        assert!(message.contains("version 1") && message.contains("not 2"), "{message}");
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for line in [
            "",
            "x",
            "[]",
            "null",
            "{}",
            r#"{"polder":-1}"#,
            r#"{"polder":1}"#,
            r#"{"polder":1,"ask":"die"}"#,
        ] {
            refusal(line);
        }
        parse(&[0xff, 0xfe, b'\n']).unwrap_err();
        refusal(&"[".repeat(4000));
    }
}
