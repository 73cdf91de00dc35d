//! Inputs of the gateway itself: configurations, requests, and messages of the kernel.

use crate::oracle::Target;
use polder::config;
use polder::control::{self, Response};
use polder::kernel::message::messages;
use std::path::Path;

/// All targets.
pub(crate) const TARGETS: &[Target] =
    &[("configuration", configuration), ("control", control), ("netlink", netlink)];

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
