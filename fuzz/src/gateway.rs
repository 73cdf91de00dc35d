//! Inputs of the gateway itself: configurations, requests, and messages of the kernel.

use crate::oracle::Target;
use polder::config;
use polder::control::{self, Response};
use polder::kernel::conntrack::{Change, Connections, Event, Limits, message};
use polder::kernel::message::messages;
use polder_datapath::units::Nanos;
use std::collections::HashSet;
use std::path::Path;

/// All targets.
pub(crate) const TARGETS: &[Target] =
    &[("configuration", configuration), ("conntrack", conntrack), ("control", control), ("netlink", netlink)];

/// A file with errors has a report that says where they are; one without is written out and read as the same.
fn configuration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let file = Path::new("polder.toml");
    match config::parse(&text, file) {
        Err(report) => {
            assert!(report.errors() > 0, "{text:?} is refused for nothing");
            assert!(!report.to_string().is_empty(), "{text:?}");
        }
        Ok(loaded) => {
            let written = loaded.configuration.to_toml();
            let again = config::parse(&written, file).unwrap_or_else(|report| panic!("{text:?}\n{report}"));
            assert_eq!(again.configuration, loaded.configuration, "{text:?}\n{written}");
        }
    }
}

/// A request that is understood means the same when it is said again; another one has an answer that can be sent.
fn control(bytes: &[u8]) {
    match control::parse(bytes) {
        Ok(request) => {
            let line = serde_json::to_vec(&request).expect("a request is written");
            assert_eq!(control::parse(&line), Ok(request));
        }
        Err(response) => {
            let line = serde_json::to_vec(&*response).expect("an answer is written");
            assert!(!line.contains(&b'\n'), "an answer is one line");
            let again: Response = serde_json::from_slice(&line).expect("an answer is read");
            assert_eq!(again, *response);
        }
    }
}

/// Messages of a datagram: no more than there are headers, and the same each time.
fn netlink(bytes: &[u8]) {
    let said: Vec<_> = messages(bytes).collect();
    assert!(said.len() <= bytes.len() / 16, "{} messages in {} bytes", said.len(), bytes.len());
    assert!(messages(bytes).eq(said), "they have changed");
}

/// Events of a datagram: no more than there are headers, and the same each time. Whatever they are, and if the kernel does
/// all that it is asked for, a connection is entered once before it leaves, and there are no more than the table has room
/// for.
fn conntrack(bytes: &[u8]) {
    let all: Vec<_> = message::events(bytes).collect();
    assert!(all.len() <= bytes.len() / 16, "{} events in {} bytes", all.len(), bytes.len());
    assert!(message::events(bytes).eq(all.iter().copied()), "they have changed");
    let mut connections =
        Connections::new(Limits { share: 3, ..Limits::new(4) }, 7, bytes.len().is_multiple_of(2));
    let mut entered = HashSet::new();
    for (second, event) in (0..).zip(all) {
        let now = Nanos::from_seconds(second);
        connections.take(event, now);
        while let Some(requests) = connections.next_requests(now) {
            for request in
                polder_devices::netlink::messages(&requests).filter(|request| request.flags & 4 != 0)
            {
                connections.take(Event::Error { code: 0, sequence: request.sequence }, now);
            }
        }
        for change in connections.changes() {
            match change {
                Change::Enter(connection) => assert!(entered.insert(connection.id), "{connection:?}"),
                Change::Leave(id) => assert!(entered.remove(&id), "{id:?}"),
            }
        }
        assert!(entered.len() <= connections.len() && connections.len() <= 4, "{}", connections.len());
    }
}
