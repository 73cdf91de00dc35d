//! `polder doctor`: settings of the host that cost a datapath something, measured where they can be.
//!
//! It changes nothing: each finding has the command that changes a setting, and the one that changes it back.

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
    /// All findings about the host, and about these of its interfaces.
    #[must_use]
    pub fn examine(&self, measured: &Measured, interfaces: &[String]) -> Vec<Finding> {
        let mut findings = processor::examine(self, measured);
        findings.extend(kernel::examine(self));
        findings.extend(interfaces.iter().flat_map(|name| interface::examine(self, name)));
        findings
    }
}
