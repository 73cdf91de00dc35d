//! The gateway that the control thread, the control socket and the metrics share.

use super::gateway::Gateway;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The gateway, shared by the control thread and the threads of the sockets.
pub type SharedGateway = Arc<Mutex<Gateway>>;

/// A weak reference to the shared gateway.
pub type WeakGateway = std::sync::Weak<Mutex<Gateway>>;

/// Locks the gateway; ignores poisoning.
pub fn lock(gateway: &Mutex<Gateway>) -> MutexGuard<'_, Gateway> {
    gateway.lock().unwrap_or_else(PoisonError::into_inner)
}
