//! The gateway that the control thread, the control socket and the metrics share.

use super::gateway::Gateway;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A gateway that the control thread and the socket's thread share.
pub type SharedGateway = Arc<Mutex<Gateway>>;

/// The same where the gateway is not kept.
pub type WeakGateway = std::sync::Weak<Mutex<Gateway>>;

/// The gateway, for one change or one look at it.
pub fn lock(gateway: &Mutex<Gateway>) -> MutexGuard<'_, Gateway> {
    gateway.lock().unwrap_or_else(PoisonError::into_inner)
}
