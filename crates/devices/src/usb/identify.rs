//! Descriptors of a device for which no driver has been chosen.

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

/// Time for which a control request may take.
const DEADLINE: Nanos = Nanos::from_millis(2000);
/// Most configurations that are looked at.
const MOST_CONFIGURATIONS: u8 = 8;
/// Offset of the number of configurations in a device's descriptor.
const COUNT_AT: usize = 17;
/// Bytes of a configuration's own descriptor.
const CONFIGURATION_BYTES: u16 = 9;

/// A device as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identified {
    /// Its vendor.
    pub vendor: u16,
    /// Its product.
    pub product: u16,
    /// Its configurations, each with all that belongs to it.
    pub configurations: Vec<Vec<u8>>,
}

/// Reason why a device does not say what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentifyError {
    /// It refused or failed a control request.
    #[error("{0}; unplug the device and plug it in again")]
    Control(#[from] ControlError),
    /// Its descriptors cannot be read.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// Opening was given up.
    #[error("given up, because the program ends")]
    Cancelled,
}

/// Reads the descriptors of a device. Waits for it.
///
/// # Errors
/// [`IdentifyError`], at the latest some seconds after the device fell silent.
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
        // Relaxed: a wish that is seen later is fulfilled later.
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
