//! The plugin's checks: each on a bench of its own.

mod calls;
mod traffic;
mod trouble;

use super::bench::Bench;
use polder_testbed::topology::Namespace;
use serde_json::Value;

/// A check.
pub(super) struct Check {
    pub(super) name: &'static str,
    /// Passes, with numbers that are worth telling.
    pub(super) run: fn(&mut Bench) -> anyhow::Result<String>,
}

/// All of them.
pub(super) const CHECKS: &[Check] = &[
    Check { name: "add", run: calls::add },
    Check { name: "check", run: calls::check },
    Check { name: "twice", run: calls::twice },
    Check { name: "delete", run: calls::delete },
    Check { name: "out of order", run: calls::out_of_order },
    Check { name: "namespace gone", run: trouble::namespace_gone },
    Check { name: "failed ADD", run: trouble::failed_add },
    Check { name: "gateway down", run: trouble::gateway_down },
    Check { name: "restart", run: trouble::restart },
    Check { name: "reloads", run: trouble::reloads },
    Check { name: "pinned", run: traffic::pinned },
    Check { name: "collect", run: calls::collect },
    Check { name: "status", run: calls::status },
    Check { name: "versions", run: calls::versions },
    Check { name: "rate", run: traffic::rate },
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
