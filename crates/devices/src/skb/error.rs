//! Errors of opening an interface, for people.

use crate::af_xdp;
use crate::tap::TapError;
use rustix::io::Errno;

/// Reason why an interface could not be opened. Each says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Error that every way to take an interface's packets has.
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
    /// The kernel has no TCX.
    #[error(
        "{interface}: the kernel cannot attach a TCX program ({errno}): Linux 6.6 is the oldest that can; set mode = \"native\" \
         or \"generic\""
    )]
    NoTcx {
        /// The interface.
        interface: String,
        /// Answer of the kernel.
        errno: Errno,
    },
}
