//! Our driver on a model in this process, pumped by each reader.

use crate::usb::{self, Port};
use polder_devices::AnyQueue;
use polder_devices::lan78xx::model::{Adapter, Options as Model};
use polder_devices::lan78xx::statistics::Statistic;
use polder_devices::lan78xx::{self, Lan78xx, Options};
use polder_devices::usb::local::Local;

/// The other side of a port: the model's host, and with it its wire.
pub(crate) type Side = usb::Side<Adapter>;

/// A fresh model and a transport to it that pumps it.
pub(crate) fn plug_in(model: Model) -> (Local, Side) {
    usb::plug_in(Adapter::new(model), |adapter, frame, now| {
        let long = adapter.statistics().get(Statistic::RxOversize);
        // A frame that is too long for the MAC ends there.
        adapter.wire_in(frame, now) && adapter.statistics().get(Statistic::RxOversize) == long
    })
}

impl Port for Lan78xx {
    fn queue(&mut self) -> &mut AnyQueue {
        &mut self.queue
    }
}

/// A port with its memory.
pub(crate) type Stand = usb::Stand<Lan78xx, Adapter>;

impl Stand {
    pub(crate) fn new(model: Model, options: &Options) -> Self {
        let (local, side) = plug_in(model);
        Self::of(lan78xx::open(Box::new(local), options).unwrap(), side)
    }
}
