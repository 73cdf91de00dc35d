//! Task of a port, and its result.

use super::control::ControlError;
use super::function::Function;
use core::future::Future;
use core::pin::Pin;
use polder_datapath::units::Nanos;

/// Time limit for bringing a device up. Each of the about 200 requests of a LAN78xx may take 50 ms behind a
/// distant server, and longer when filters are set.
pub(super) const BRING_UP: Nanos = Nanos::from_seconds(20);

/// Result of a task.
pub(super) enum Outcome<F: Function> {
    DeviceProperties(Box<F::DeviceProperties>),
    Report(F::Report),
    Cleared(u8),
    AtRest,
}

/// Reason why a task has failed.
#[derive(Debug)]
pub(super) enum TaskError<E> {
    Init(E),
    Control(ControlError),
}

pub(super) type Ended<F> = Result<Outcome<F>, TaskError<<F as Function>::Error>>;

pub(super) type Task<F> = Pin<Box<dyn Future<Output = Ended<F>> + Send>>;
