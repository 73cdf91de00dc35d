//! The control socket: requests to a running gateway, and its answers.
//!
//! A UNIX stream socket that only its owner may connect to. Requests and answers are lines of JSON; a connection carries any
//! number of them, one after the other:
//!
//! ```text
//! ▶ {"polder":1,"ask":"show","what":"ports"}
//! ◀ {"polder":1,"shown":{"format":1,"gateway":"ap","uptime_nanos":…,"ports":[…]}}
//! ▶ {"polder":1,"ask":"reload"}
//! ◀ {"polder":1,"error":{"kind":"input","message":"…"}}
//! ```
//!
//! [`server`] answers on a thread of its own; workers never wait for it. [`socket`] owns the socket's path; [`client`] finds
//! gateways and sends requests, [`port_file`] changes a port together with its file in `conf.d`; [`end_reason`] is the
//! reason that a gateway leaves when it loses a thread.

pub mod client;
pub mod end_reason;
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

/// Version of the protocol.
pub const PROTOCOL: u32 = 1;
/// Maximum length of a request with its newline, in bytes: a capture with the longest filter program fits.
pub const MAX_REQUEST: usize = 72 << 10;

/// Request to a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Version of the protocol: [`PROTOCOL`].
    pub polder: u32,
    /// Command of the request.
    #[serde(flatten)]
    pub ask: Ask,
}

/// Commands of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Ask {
    /// Returns a view.
    Show {
        /// View to show.
        what: What,
        /// Name, address or number of the rows to show; all rows without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<String>,
        /// Length in seconds of the recent period whose drops are shown; without it, all drops since the
        /// start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since_seconds: Option<u64>,
        /// Maximum number of connections to show; 1000 without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        most: Option<usize>,
    },
    /// Reads the configuration file again and applies it.
    Reload(ReloadRequest),
    /// Returns the path of the configuration file.
    File,
    /// Adds, changes or removes a port.
    Port(PortRequest),
    /// Confirms a pending change.
    Confirm,
    /// Returns the difference between the running configuration and the file.
    Diff,
    /// Marks the gateway as not ready, so that routers and load balancers send packets elsewhere.
    Drain {
        /// True to mark it as ready again.
        #[serde(default)]
        undo: bool,
    },
    /// Returns the state of a port's modem, or connects or disconnects it.
    Modem {
        /// Name of the port.
        port: String,
        /// Order to the modem; none to only read its state.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        order: Option<ModemOrder>,
    },
    /// Changes the rate of a queue until the next reload.
    Rate(RateRequest),
    /// Traces a packet through the stages, and returns the trace.
    Trace(TraceRequest),
    /// Returns events.
    Events {
        /// Number of the first event; without it, only new events are returned.
        #[serde(default)]
        from: Option<u64>,
    },
    /// Sets the log filter; returns it if none is given.
    Log {
        /// The filter, or `default` for the one at the start.
        #[serde(default)]
        filter: Option<String>,
    },
    /// Hands the gateway over to the client, with messages that follow the answer.
    HandOver(HandOverRequest),
    /// Captures packets into a pcapng stream that follows the answer, until the client shuts down its side.
    Capture(CaptureRequest),
}

impl Ask {
    /// Request for all rows of a view.
    pub fn show(what: What) -> Self {
        Self::Show { what, of: None, since_seconds: None, most: None }
    }
}

/// Order to a modem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModemOrder {
    /// Connects the sessions.
    Connect,
    /// Disconnects the sessions until `Connect`, or until the port is opened again.
    Disconnect,
}

/// Request to change the rate of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateRequest {
    /// Name of the port.
    pub port: String,
    /// Packets whose rate changes.
    pub way: Way,
    /// The rate, such as `40 Mbit/s`.
    pub rate: String,
}

/// Way of packets through a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Packets that leave by the port.
    Up,
    /// Packets that come in by it.
    Down,
}

/// The rate of a queue that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rated {
    /// Rate before, in kbit/s; `None` for no limit.
    pub before_kbit: Option<u64>,
    /// Rate from here on, in kbit/s.
    pub rate_kbit: u64,
}

/// Request to add, change or remove a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRequest {
    /// Name of the port.
    pub name: String,
    /// Kind of the change.
    pub order: PortOrder,
    /// TOML tables of the port, as in a file: `[port.NAME]` and `[bridge.BRIDGE.port.NAME]`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tables: String,
    /// True if the tables are in a file, or were before a removal: `tables` is complete then, and the gateway
    /// stores nothing.
    #[serde(default)]
    pub in_file: bool,
    /// True for a dry run, which only reports the changes.
    #[serde(default)]
    pub dry_run: bool,
    /// True if the host may lose its own addresses on the port.
    #[serde(default)]
    pub yes: bool,
}

/// Kind of a change of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortOrder {
    /// Adds the port.
    Add,
    /// Sets the given keys.
    Set,
    /// Removes the port.
    Delete,
}

/// Request for a hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOverRequest {
    /// Version of the upgrade messages that the client uses.
    pub format: u32,
}

/// Request for a reload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReloadRequest {
    /// True for a dry run, which only reports the changes.
    pub dry_run: bool,
    /// True if the host may lose its own addresses on ports.
    pub yes: bool,
    /// Seconds after which the change is rolled back unless it is confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<u32>,
}

/// A gateway's answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Response {
    /// Version of the protocol: [`PROTOCOL`].
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

/// Answers of the protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// A view.
    Shown(Box<Shown>),
    /// Changes by a reload or a port request.
    Reloaded(Reloaded),
    /// Path of the configuration file.
    File(ReadFile),
    /// The pending change is confirmed.
    Confirmed(Confirmed),
    /// Difference between the running configuration and the file.
    Compared(Compared),
    /// State of the drain.
    Draining(Draining),
    /// State of a port's modem.
    Modem(Box<ModemRow>),
    /// The rate of a queue was changed.
    Rated(Rated),
    /// Trace of the requested packet.
    Traced(Box<Trace>),
    /// Events.
    Events(events::Read),
    /// The log filter.
    Logging(Logging),
    /// Upgrade messages follow.
    HandingOver(HandingOver),
    /// Packets follow.
    Capturing(Capturing),
    /// The request was refused.
    Error(Refusal),
}

/// Answer to a hand-over request; upgrade messages follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandingOver {
    /// Version of the upgrade messages.
    pub format: u32,
}

/// Answer to a capture request: packets follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capturing {}

/// State of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logging {
    /// The current filter.
    pub filter: String,
}

/// Changes by a reload, applied or planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// True if the changes were applied.
    pub applied: bool,
    /// One line for each change; empty without changes.
    pub changes: Vec<String>,
    /// Warnings about the new configuration.
    pub warnings: String,
    /// Seconds after which the changes are rolled back unless they are confirmed.
    #[serde(default)]
    pub confirm: Option<u32>,
}

/// Configuration file of a gateway; files in `conf.d` beside it are read too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFile {
    /// Path of the file.
    pub file: PathBuf,
}

/// Answer to a confirmation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmed {
    /// Seconds that were left.
    pub seconds_left: u64,
}

/// State of a gateway's drain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draining {
    /// Name of the gateway.
    pub gateway: String,
    /// True if the gateway reports that it is not ready.
    pub draining: bool,
    /// Packets received since the start, by workers and by programs.
    pub received: u64,
}

/// Difference between the running configuration and the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// Version of this structure.
    pub format: u32,
    /// Name of the gateway.
    pub gateway: String,
    /// Path of the configuration file.
    pub file: String,
    /// One line for each difference; empty without differences.
    pub changes: Vec<String>,
    /// Each key whose value differs.
    pub keys: Vec<KeyChange>,
    /// True if a reload cannot apply all differences.
    pub needs_restart: bool,
}

/// Reason for refusing a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Cause of the refusal.
    pub kind: Fault,
    /// Error with its remedy, as text of one or more lines.
    pub message: String,
    /// Short form of `message` for the log and events, where `message` quotes the file.
    #[serde(skip)]
    pub brief: Option<String>,
}

/// Cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The request does not follow this protocol.
    Request,
    /// The configuration file or an argument is wrong.
    Input,
    /// The system or the gateway cannot do it.
    Runtime,
}

impl Request {
    /// Creates a request with this build's protocol version.
    pub fn new(ask: Ask) -> Self {
        Self { polder: PROTOCOL, ask }
    }
}

impl Response {
    /// Creates a response with this build's protocol version.
    pub fn new(answer: Answer) -> Self {
        Self { polder: PROTOCOL, answer }
    }

    /// Creates a refusal.
    pub fn refuse(kind: Fault, message: impl Into<String>) -> Self {
        Self::new(Answer::Error(Refusal { kind, message: message.into(), brief: None }))
    }
}

/// Parses a request.
///
/// # Errors
/// Returns the response to send.
pub fn parse(line: &[u8]) -> Result<Request, Box<Response>> {
    #[derive(Deserialize)]
    struct Versioned {
        polder: u32,
    }
    let refuse = |message| Err(Box::new(Response::refuse(Fault::Request, message)));
    // The version first, because a request of another version may have another form.
    match serde_json::from_slice::<Versioned>(line) {
        Ok(Versioned { polder: PROTOCOL }) => {}
        Ok(Versioned { polder }) => {
            return refuse(format!(
                "this gateway speaks version {PROTOCOL} of the protocol, not {polder}: use the `polder` \
                 program that the gateway was started with, or restart the gateway"
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
