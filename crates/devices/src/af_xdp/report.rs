//! Report on an interface: findings about its settings, and their severity.

use super::options::Hook;
use core::fmt;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Correct, or good to know.
    Fine,
    /// Packets will be slower, or lost in some cases.
    Warning,
    /// Opening will fail, or most packets will be lost.
    Problem,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Severity.
    pub level: Level,
    /// Topic, in a word or two.
    pub topic: &'static str,
    /// Description, and the remedy.
    pub text: String,
}

/// Findings about an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The name of the interface.
    pub interface: String,
    /// Its driver, if known.
    pub driver: Option<String>,
    /// Hook at which the program is attached; `None` before opening.
    pub hook: Option<Hook>,
    /// True if the device itself reads and writes the frames; `None` before opening.
    pub zero_copy: Option<bool>,
    /// Findings, in the order in which a packet meets their causes.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Returns the method of moving packets, in a few words; `None` before opening.
    pub fn mode(&self) -> Option<&str> {
        let mode = self.findings.iter().find(|finding| finding.topic == "mode")?;
        self.hook.map(|_| mode.text.split(';').next().unwrap_or_default())
    }

    /// Returns the most serious level of all findings.
    pub fn worst(&self) -> Level {
        self.findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Fine)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.interface)?;
        if let Some(driver) = &self.driver {
            write!(formatter, " ({driver})")?;
        }
        for Finding { level, topic, text } in &self.findings {
            let mark = match level {
                Level::Fine => ' ',
                Level::Warning => '!',
                Level::Problem => 'X',
            };
            write!(formatter, "\n{mark} {topic:<12} {text}")?;
        }
        Ok(())
    }
}

/// Returns one line of a report.
pub(crate) fn finding(level: Level, topic: &'static str, text: impl Into<String>) -> Finding {
    Finding { level, topic, text: text.into() }
}

/// The topic of findings about an interface that is down, or is a member of another.
pub const STATE: &str = "state";
/// Topic of findings about a queueing discipline of the kernel's.
pub const QDISC: &str = "qdisc";
