//! Errors of opening an interface, with text for operators.

use crate::af_xdp;
use crate::tap::TapError;
use rustix::io::Errno;

/// Reason why an interface could not be opened. Each text names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// An error that can occur in every mode.
    #[error(transparent)]
    Interface(#[from] af_xdp::OpenError),
    /// The TAP could not be opened.
    #[error("{interface}: {source}")]
    Tap {
        /// The interface.
        interface: String,
        /// Error of the TAP.
        source: TapError,
    },
    /// The kernel has no hook for the programs.
    #[error("{interface}: the kernel cannot attach a program by {hook} ({errno}): {remedy}; or set mode = \"native\" or \"generic\"", remedy = hook.remedy())]
    NoHook {
        /// The interface.
        interface: String,
        /// The hook.
        hook: Hook,
        /// Error of the kernel.
        errno: Errno,
    },
}

/// Hook of a port's programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hook {
    /// TCX, from Linux 6.6 on.
    #[default]
    Tcx,
    /// A BPF filter at a clsact queueing discipline, on older kernels.
    Clsact,
}

impl Hook {
    fn remedy(self) -> &'static str {
        match self {
            Self::Tcx => "it needs Linux 6.6 with CONFIG_NET_XGRESS",
            Self::Clsact => "it needs the modules sch_ingress and cls_bpf",
        }
    }
}

impl core::fmt::Display for Hook {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Tcx => "TCX",
            Self::Clsact => "clsact",
        })
    }
}
