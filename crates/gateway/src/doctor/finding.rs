//! Findings about a host, and the files that they are read from.

use serde::Serialize;
use std::path::PathBuf;

/// Rating of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// No cost.
    Good,
    /// Costs performance.
    Costly,
    /// Cannot be determined.
    Unknown,
}

/// A finding about a setting of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Part of the host: `processor`, `kernel`, or the name of an interface.
    pub of: String,
    /// Name of the setting.
    pub topic: &'static str,
    /// Rating of the setting.
    pub state: State,
    /// Value of the setting, and its cost.
    pub text: String,
    /// Command that improves the setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
    /// Command that restores the setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
}

impl Finding {
    pub(super) fn new(of: &str, topic: &'static str, state: State, text: impl Into<String>) -> Self {
        Self { of: of.to_owned(), topic, state, text: text.into(), change: None, undo: None }
    }

    pub(super) fn good(of: &str, topic: &'static str, text: impl Into<String>) -> Self {
        Self::new(of, topic, State::Good, text)
    }

    pub(super) fn unknown(of: &str, topic: &'static str, text: impl Into<String>) -> Self {
        Self::new(of, topic, State::Unknown, text)
    }

    /// A setting that costs performance, with commands that change and restore it.
    pub(super) fn costly(
        of: &str,
        topic: &'static str,
        text: impl Into<String>,
        change: &str,
        undo: &str,
    ) -> Self {
        let mut finding = Self::new(of, topic, State::Costly, text);
        (finding.change, finding.undo) = (Some(change.to_owned()), Some(undo.to_owned()));
        finding
    }
}

/// File system root that the host's settings are read from.
#[derive(Clone, Debug)]
pub struct Host {
    pub(super) root: PathBuf,
}

impl Host {
    /// The host that this process runs on.
    #[must_use]
    pub fn this() -> Self {
        Self { root: PathBuf::from("/") }
    }

    /// Interfaces with a hardware device.
    #[must_use]
    pub fn interfaces(&self) -> Vec<String> {
        let has_device = |name: &String| self.path(&format!("sys/class/net/{name}/device")).exists();
        self.names("sys/class/net").into_iter().filter(has_device).collect()
    }

    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    /// Content of a file without surrounding whitespace.
    pub(super) fn read(&self, file: &str) -> Option<String> {
        Some(std::fs::read_to_string(self.path(file)).ok()?.trim().to_owned())
    }

    /// Names in a directory, sorted.
    pub(super) fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        let mut names =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>();
        names.sort();
        names
    }
}
