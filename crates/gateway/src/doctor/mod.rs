//! `polder doctor`: host settings that cost performance, measured where possible.
//!
//! It changes nothing: each finding has a command that improves the setting, and one that restores it.

mod finding;
mod interface;
mod kernel;
mod measure;
mod processor;
#[cfg(test)]
mod tests;

pub use finding::{Finding, Host, State};
pub use measure::{Measured, measure};

impl Host {
    /// All findings about the host, and about these interfaces.
    #[must_use]
    pub fn examine(&self, measured: &Measured, interfaces: &[String]) -> Vec<Finding> {
        let mut findings = processor::examine(self, measured);
        findings.extend(kernel::examine(self));
        findings.extend(interfaces.iter().flat_map(|name| interface::examine(self, name)));
        findings
    }
}
