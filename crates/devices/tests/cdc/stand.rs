//! Our driver on a model in this process, pumped by each reader.

use crate::usb::{self, Port};
use polder_devices::AnyQueue;
use polder_devices::cdc::mbim::Mbim;
use polder_devices::cdc::model::{Device, Options as Model};
use polder_devices::cdc::{self, Cdc, NetworkFunction, Options, network_function};
use polder_devices::usb::local::Local;
use polder_devices::usb::model::Model as _;
use polder_devices::usb::{Identified, identify};
use std::sync::atomic::AtomicBool;

/// The other side of a port: the model's host, and with it its wire.
pub(crate) type Side = usb::Side<Device>;

/// A fresh model and a transport to it that pumps it.
pub(crate) fn plug_in(model: Model) -> (Local, Side) {
    usb::plug_in(Device::new(model), Device::wire_in)
}

/// Network function of a device, as its descriptors have it.
pub(crate) fn function_of(identified: &Identified) -> NetworkFunction {
    network_function(&identified.configurations[0]).unwrap().expect("the model has one")
}

/// Opens the device behind `transport`, as the gateway does.
pub(crate) fn open(mut transport: Local, options: &Options) -> Result<Cdc, cdc::OpenError> {
    let identified = identify(&mut transport, &AtomicBool::new(false)).unwrap();
    let identity = (identified.vendor, identified.product);
    cdc::open(Box::new(transport), function_of(&identified), identity, options)
}

impl Port for Cdc {
    fn queue(&mut self) -> &mut AnyQueue {
        &mut self.queue
    }
}

impl Port for Mbim {
    fn queue(&mut self) -> &mut AnyQueue {
        &mut self.queue
    }
}

/// A port with its memory.
pub(crate) type Stand = usb::Stand<Cdc, Device>;

impl Stand {
    pub(crate) fn new(model: Model, options: &Options) -> Self {
        let (local, side) = plug_in(model);
        Self::of(open(local, options).unwrap(), side)
    }

    pub(crate) fn assert_obeyed(&self) {
        let host = self.side.lock();
        assert_eq!(host.bench.adapter.violations(), [], "the model complains about the driver");
    }
}

/// A frame of `length` bytes that differs from others by `number`.
pub(crate) fn frame(number: u8, length: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, number, 2, 0, 0, 0, 1, number, 0x88, 0xb5];
    frame.extend((14..length).map(|at| u8::try_from(at * 7 % 251).unwrap() ^ number));
    frame.truncate(length.max(14));
    frame
}
