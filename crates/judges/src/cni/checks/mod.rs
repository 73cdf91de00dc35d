//! The plugin's checks: each on a bench of its own.

mod calls;
mod traffic;
mod trouble;

use super::bench::Bench;
use polder_testbed::topology::Namespace;
use serde_json::Value;

/// A check: its name, and a question whose answer is numbers that are worth telling.
pub(super) type Check = (&'static str, fn(&mut Bench) -> anyhow::Result<String>);

/// All checks of the plugin.
pub(super) const CHECKS: &[Check] = &[
    ("add", calls::add),
    ("check", calls::check),
    ("twice", calls::twice),
    ("delete", calls::delete),
    ("out of order", calls::out_of_order),
    ("namespace gone", trouble::namespace_gone),
    ("failed ADD", trouble::failed_add),
    ("gateway down", trouble::gateway_down),
    ("restart", trouble::restart),
    ("reloads", trouble::reloads),
    ("pinned", traffic::pinned),
    ("collect", calls::collect),
    ("status", calls::status),
    ("versions", calls::versions),
    ("rate", traffic::rate),
];

/// Remark of a check without numbers.
const NOTHING: String = String::new();

/// Variables of a call about a container.
struct Variables(String, String);

fn of(container: &Namespace) -> Variables {
    Variables(container.name().to_owned(), format!("/run/netns/{}", container.name()))
}

impl Variables {
    fn each(&self) -> [(&str, &str); 3] {
        [("CNI_CONTAINERID", &self.0), ("CNI_NETNS", &self.1), ("CNI_IFNAME", "eth0")]
    }
}

/// Number of the error that the plugin has printed.
fn code_of(output: &std::process::Output) -> Option<u64> {
    serde_json::from_slice::<Value>(&output.stdout).ok()?["code"].as_u64()
}
