//! The processor of a guest: its emulator, its machine, and where its programs come from.

use anyhow::ensure;
use std::path::PathBuf;

/// Folder of the unpacked programs of another processor's Debian, unless it is named.
const FOLDER: &str = "/var/cache/polder/guest-system";
/// The variable that names it, without the processor.
const VARIABLE: &str = "POLDER_GUEST_SYSTEM";

/// Processor of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// 64-bit x86, as this machine has it: the guest has this machine's programs.
    X86,
    /// 64-bit ARM: a Cortex-A72, or a Cortex-A76 for kernels whose pages have 16 KiB. The guest has programs of Debian's packages.
    Arm64,
}

impl Architecture {
    /// The processor that a flavour of Debian's kernels is for.
    pub(super) fn of_flavour(flavour: &str) -> Self {
        if flavour.starts_with("arm64") { Self::Arm64 } else { Self::X86 }
    }

    /// The emulator's program.
    pub(super) fn emulator(self) -> &'static str {
        match self {
            Self::X86 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
        }
    }

    /// Emulator arguments for the processor, and for a machine that is no PC.
    pub(super) fn machine(self, flavour: &str) -> &'static [&'static str] {
        match self {
            Self::X86 => &["-cpu", "max"],
            // A Cortex-A72 has pages of 4 and 64 KiB.
            Self::Arm64 if flavour.ends_with("-16k") => &["-machine", "virt", "-cpu", "cortex-a76"],
            Self::Arm64 => &["-machine", "virt", "-cpu", "cortex-a72"],
        }
    }

    /// Parameters on the kernel's command line: the console, and what an emulated machine need not wait for.
    pub(super) fn parameters(self) -> &'static str {
        match self {
            Self::X86 => "console=ttyS0 tsc=reliable no_timer_check",
            Self::Arm64 => "console=ttyAMA0",
        }
    }

    /// Archive of the guest's programs and libraries; `None` if they are this machine's.
    pub(super) fn system(self) -> anyhow::Result<Option<PathBuf>> {
        let Self::Arm64 = self else { return Ok(None) };
        let mut folder = std::env::var_os(VARIABLE).unwrap_or_else(|| FOLDER.into());
        folder.push("-arm64");
        let archive = PathBuf::from(folder).join("root.cpio");
        ensure!(
            archive.is_file(),
            "there is no {}: run scripts/guest-system --architecture arm64 as root, or name its folder without the last \
             word in {VARIABLE}",
            archive.display()
        );
        Ok(Some(archive))
    }
}

#[test]
fn a_flavour_names_the_processor() {
    let of = |flavour| Architecture::of_flavour(flavour);
    assert_eq!(
        [of(""), of("arm64"), of("arm64-16k")],
        [Architecture::X86, Architecture::Arm64, Architecture::Arm64]
    );
    assert!(Architecture::Arm64.machine("arm64-16k").contains(&"cortex-a76"));
}
