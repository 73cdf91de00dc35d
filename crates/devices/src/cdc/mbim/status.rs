//! Published status of a modem, and orders to it, for any thread.

use super::super::init::Ntb;
use super::super::status::BlockCounters;
use super::session::ModemState;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Published status of a port.
pub type PortStatus = crate::usb::PortStatus<ModemStatus>;

/// Orders: none, connect, disconnect.
const NONE: u8 = 0;
const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;

/// Published status of an MBIM function.
#[derive(Debug, Default)]
pub struct ModemStatus {
    state: Mutex<Modem>,
    order: AtomicU8,
    /// Received blocks and packets.
    pub blocks: Arc<BlockCounters>,
}

/// Properties and state of a modem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modem {
    /// Vendor ID and product ID of the device.
    pub identity: (u16, u16),
    /// Its block parameters; `None` before the port is open.
    pub ntb: Option<Ntb>,
    /// Maximum IP packet length of the port.
    pub mtu: u16,
    /// State of the dialogue.
    pub state: ModemState,
}

impl ModemStatus {
    fn lock(&self) -> MutexGuard<'_, Modem> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns properties and state of the modem.
    pub fn modem(&self) -> Modem {
        self.lock().clone()
    }

    /// Orders the modem to connect or disconnect its sessions; it starts within a second.
    pub fn order(&self, connects: bool) {
        // Relaxed: an order may be seen late.
        self.order.store(if connects { CONNECT } else { DISCONNECT }, Ordering::Relaxed);
    }

    pub(super) fn take_order(&self) -> Option<bool> {
        if self.order.load(Ordering::Relaxed) == NONE {
            return None;
        }
        match self.order.swap(NONE, Ordering::Relaxed) {
            CONNECT => Some(true),
            DISCONNECT => Some(false),
            _ => None,
        }
    }

    pub(super) fn set_found(&self, identity: (u16, u16), ntb: Ntb, mtu: u16) {
        let mut modem = self.lock();
        (modem.identity, modem.ntb, modem.mtu) = (identity, Some(ntb), mtu);
    }

    pub(super) fn set_state(&self, state: &ModemState) {
        self.lock().state.clone_from(state);
    }
}
