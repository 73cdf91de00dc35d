//! A wrapper around devices, by which judges inject faults into the driver of a whole gateway.

use crate::pci::Device;
use std::sync::OnceLock;

/// Function that wraps access to a device.
type Detour = Box<dyn Fn(Device) -> Device + Send + Sync>;

static DETOUR: OnceLock<Detour> = OnceLock::new();

/// Wraps all devices that this process opens from here on with `detour`. Only the first call has an effect.
pub fn set(detour: impl Fn(Device) -> Device + Send + Sync + 'static) {
    // A second call fails, since the value is set.
    let _ = DETOUR.set(Box::new(detour));
}

/// Returns the device that a driver gets.
pub(super) fn through(device: Device) -> Device {
    match DETOUR.get() {
        Some(detour) => detour(device),
        None => device,
    }
}
