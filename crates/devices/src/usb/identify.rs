//! Descriptors of a device before a driver has been chosen.

use super::control::{CONTROL_BYTES, ControlError, Pipe};
use super::descriptor::{
    CONFIGURATION, DEVICE, DEVICE_BYTES, DescriptorError, configuration_bytes, parse_device,
};
use super::transport::{Status, Transport, Urb, UrbBuffer};
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use polder_datapath::units::Nanos;
use std::sync::atomic::{AtomicBool, Ordering};

/// Time limit for a control request.
const DEADLINE: Nanos = Nanos::from_millis(2000);
/// Maximum number of configurations that are read.
const MOST_CONFIGURATIONS: u8 = 8;
/// Offset of the number of configurations in a device descriptor.
const COUNT_AT: usize = 17;
/// Bytes of a configuration's own descriptor.
const CONFIGURATION_BYTES: u16 = 9;

/// A device's descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identified {
    /// Vendor ID.
    pub vendor: u16,
    /// Product ID.
    pub product: u16,
    /// Its configurations, each with all its descriptors.
    pub configurations: Vec<Vec<u8>>,
}

/// Reason why a device could not be identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentifyError {
    /// A control request was refused or failed.
    #[error("{0}; unplug the device and plug it in again")]
    Control(#[from] ControlError),
    /// Its descriptors cannot be used.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// Opening was cancelled.
    #[error("identifying the USB device was cancelled, because the program ends")]
    Cancelled,
}

/// Reads the descriptors of a device; waits for it.
///
/// # Errors
/// [`IdentifyError`], at most some seconds after the device stopped answering.
pub fn identify(transport: &mut dyn Transport, cancelled: &AtomicBool) -> Result<Identified, IdentifyError> {
    let pipe = Pipe::default();
    let mut dialogue = pin!(read(&pipe));
    let mut buffer = Some(UrbBuffer::heap(CONTROL_BYTES));
    let mut since = None;
    loop {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(result) = dialogue.as_mut().poll(&mut context) {
            return result;
        }
        if let Some(request) = pipe.take_request()
            && let Some(mut memory) = buffer.take()
        {
            memory.bytes_mut().copy_from_slice(&request.data);
            let length = usize::from(request.setup.length).min(CONTROL_BYTES);
            transport.submit(Urb::new(0, 0, request.setup, memory, length));
            transport.flush();
            since = Some(transport.now());
        }
        if let Some(done) = transport.complete() {
            let is_done = done.status == Status::Done;
            let answer = if done.urb.is_in() { done.received().to_vec() } else { Vec::new() };
            pipe.set_outcome(if is_done { Ok(answer) } else { Err(ControlError::Failed(done.status)) });
            buffer = Some(done.urb.buffer);
            continue;
        }
        // Relaxed: a cancellation may be seen late.
        if cancelled.load(Ordering::Relaxed) {
            return Err(IdentifyError::Cancelled);
        }
        if since.is_some_and(|since| transport.now() > since + DEADLINE) {
            return Err(ControlError::Timeout.into());
        }
        transport.wait(Duration::from_millis(1));
    }
}

async fn read(pipe: &Pipe) -> Result<Identified, IdentifyError> {
    let length = u16::try_from(DEVICE_BYTES).unwrap_or(u16::MAX);
    let device = pipe.descriptor(DEVICE, 0, length).await?;
    let (vendor, product) = parse_device(&device)?;
    let count = device.get(COUNT_AT).copied().unwrap_or(1).clamp(1, MOST_CONFIGURATIONS);
    let longest = u16::try_from(CONTROL_BYTES).unwrap_or(u16::MAX);
    let mut configurations = Vec::new();
    for index in 0..count {
        let head = pipe.descriptor(CONFIGURATION, index, CONFIGURATION_BYTES).await?;
        let total = configuration_bytes(&head)?.min(longest);
        configurations.push(pipe.descriptor(CONFIGURATION, index, total).await?);
    }
    Ok(Identified { vendor, product, configurations })
}
