//! The end of a gateway that has lost a vital thread.
//!
//! 1. The first thread of the process is told: it sends SIGKILL if the other steps take too long.
//! 2. The reason is written to a file beside the control socket and sent to the service manager.
//! 3. Interfaces go back to the kernel, as `on_exit` says; remaining workers stop.
//! 4. The process exits with code 3.
//!
//! The lost thread may hold any lock, so every wait for a lock has a time limit.

use super::gateway::Gateway;
use super::manager::{Manager, NotifyState};
use super::shared::{SharedGateway, WeakGateway};
use crate::control::end_reason::EndReason;
use crate::control::socket::Place;
use crate::supervise::LostThread;
use std::sync::{MutexGuard, OnceLock, TryLockError};
use std::time::Duration;

/// Exit code of a gateway that has lost a thread.
pub const LOST: u8 = 3;
/// Time limit of the whole end.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// Time limit for taking the gateway's lock, tried every [`STEP`].
const LOCK: Duration = Duration::from_millis(200);
const STEP: Duration = Duration::from_millis(1);
/// Time limit for workers to send their queued packets.
const WORKERS: Duration = Duration::from_millis(300);

/// Gateway and control socket to end; each is set once it exists.
#[derive(Default)]
pub(super) struct Ending {
    /// A weak reference: an orderly end drops the gateway, which restores the settings that its ports have
    /// changed.
    pub(super) gateway: OnceLock<WeakGateway>,
    pub(super) socket: OnceLock<Place>,
}

impl Ending {
    /// Ends the gateway and the process.
    pub(super) fn end(&self, lost: &LostThread) -> ! {
        let socket = self.socket.get();
        if let Some(socket) = socket
            && let Err(error) = EndReason::of(socket.path()).say(&lost.to_string())
        {
            tracing::warn!(%error, "cannot write the end reason beside the control socket");
        }
        let status = format!("ended: {lost}");
        Manager::tell_any(&[NotifyState::Stopping, NotifyState::Status(&status)]);
        // Kept until the process ends, so that no other thread changes the gateway.
        let gateway = self.gateway.get().and_then(WeakGateway::upgrade);
        let mut locked = gateway.as_ref().map(lock_soon);
        match &mut locked {
            Some(Some(gateway)) => gateway.abandon(WORKERS),
            // The process exit detaches the programs from the interfaces.
            Some(None) => {
                tracing::error!(
                    "the failed thread holds the gateway's lock; the process ends without \
                                 cleaning up"
                )
            }
            None => {}
        }
        if let Some(socket) = socket {
            socket.remove();
        }
        std::process::exit(LOST.into())
    }
}

/// The gateway's lock; `None` if another thread holds it too long.
fn lock_soon(gateway: &SharedGateway) -> Option<MutexGuard<'_, Gateway>> {
    for _ in 0..LOCK.as_millis() {
        match gateway.try_lock() {
            Ok(gateway) => return Some(gateway),
            Err(TryLockError::Poisoned(gateway)) => return Some(gateway.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(STEP),
        }
    }
    None
}
