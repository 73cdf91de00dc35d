//! The emulator: the installed QEMU, or a newer one that was fetched for cards that the installed one lacks.

use super::architecture::Architecture;
use super::card::Card;
use crate::command;
use anyhow::ensure;
use std::path::PathBuf;
use std::process::Command;

/// The folder of the newer one, unless it is named.
const FOLDER: &str = "/var/cache/polder/guest-emulator";
/// The variable that names it.
const VARIABLE: &str = "POLDER_GUEST_EMULATOR";

/// A QEMU that can be started.
#[derive(Clone, Debug)]
pub(super) struct Emulator {
    /// The processor that it emulates.
    architecture: Architecture,
    /// Directory of the newer emulator; `None` for the installed one.
    folder: Option<PathBuf>,
}

impl Emulator {
    /// The emulator of a processor that has all of `cards`.
    pub(super) fn with(architecture: Architecture, cards: &[Card<'_>]) -> anyhow::Result<Self> {
        // The newer one uses the installed one's libraries.
        let program = architecture.emulator();
        ensure!(command::exists(program), "{}", command::remedy(program));
        if !cards.iter().any(|card| card.model.needs_newer_emulator()) {
            return Ok(Self { architecture, folder: None });
        }
        Self::newer(architecture)
    }

    pub(super) fn newer(architecture: Architecture) -> anyhow::Result<Self> {
        let folder = std::env::var_os(VARIABLE).map_or_else(|| PathBuf::from(FOLDER), PathBuf::from);
        ensure!(
            folder.join("usr/bin").join(architecture.emulator()).is_file(),
            "there is no newer QEMU in {}: run scripts/guest-emulator as root, or name its folder in {VARIABLE}",
            folder.display()
        );
        Ok(Self { architecture, folder: Some(folder) })
    }

    pub(super) fn command(&self) -> Command {
        let program = self.architecture.emulator();
        let Some(folder) = &self.folder else { return Command::new(program) };
        let mut command = Command::new(folder.join("usr/bin").join(program));
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(folder.join(data));
        }
        // Modules of the installed one are of another build, which the newer one does not survive.
        command.env("QEMU_MODULE_DIR", folder.join("usr/lib/x86_64-linux-gnu/qemu"));
        command
    }
}
