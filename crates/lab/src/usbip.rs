//! `polder-lab usbip-device`: a model of a USB adapter, exported over USB/IP.

use clap::{Args, ValueEnum};
use polder_devices::lan78xx::descriptor::Chip;
use polder_devices::lan78xx::model::{self, AddressSource, Timing};
use polder_devices::usb::Speed;
use polder_judges::lan78xx::{Listen, Shown, Wire};
use polder_testbed::interrupt;
use polder_testbed::screen::Screen;
use std::time::Duration;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Device model.
    device: DeviceModel,
    /// Address to listen on: an address and a port, or the absolute path of a socket to make.
    #[arg(long, default_value = "127.0.0.1:3240")]
    listen: Listen,
    /// The device's name.
    #[arg(long, default_value = "1-1")]
    busid: String,
    /// The bus that it is on.
    #[arg(long, value_enum, default_value = "super")]
    speed: BusSpeed,
    /// Memory that holds its MAC address.
    #[arg(long, value_enum, default_value = "eeprom")]
    address: AddressMemory,
    /// Name of a TAP to create as the device's wire. Without it nothing is connected.
    #[arg(long, value_name = "INTERFACE")]
    tap: Option<String>,
    /// The wire's largest network packet.
    #[arg(long, default_value_t = 1500)]
    mtu: u32,
    /// Take the time that a real bus and a real wire take.
    #[arg(long)]
    paced: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DeviceModel {
    Lan7800,
    Lan7801,
    Lan7850,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum BusSpeed {
    High,
    Super,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AddressMemory {
    Eeprom,
    Otp,
    OtpSecond,
    Registers,
    None,
}

impl Arguments {
    /// Exports the model until interrupted.
    ///
    /// # Errors
    /// If the address or the TAP cannot be had.
    pub(super) fn run(&self, screen: Screen) -> anyhow::Result<()> {
        let speed = match self.speed {
            BusSpeed::High => Speed::High,
            BusSpeed::Super => Speed::Super,
        };
        let options = model::Options {
            chip: match self.device {
                DeviceModel::Lan7800 => Chip::Lan7800,
                DeviceModel::Lan7801 => Chip::Lan7801,
                DeviceModel::Lan7850 => Chip::Lan7850,
            },
            speed,
            address: match self.address {
                AddressMemory::Eeprom => AddressSource::Eeprom,
                AddressMemory::Otp => AddressSource::Otp,
                AddressMemory::OtpSecond => AddressSource::OtpSecond,
                AddressMemory::Registers => AddressSource::Registers,
                AddressMemory::None => AddressSource::None,
            },
            timing: if self.paced { Timing::real(speed) } else { Timing::default() },
            ..model::Options::default()
        };
        let wire =
            self.tap.as_ref().map_or(Wire::None, |name| Wire::Tap { name: name.clone(), mtu: self.mtu });
        let (door, _socket) = self.listen.open()?;
        let shown = Shown::start(options, wire, door, &self.busid)?;
        screen.line(format!(
            "  {} is shown as {} on {}; attach it with {}, end with Ctrl-C",
            screen.bold(shown.bench().adapter.options().chip.name()),
            self.busid,
            self.listen,
            self.listen.how_to_attach(&self.busid),
        ));
        loop {
            interrupt::sleep(Duration::from_secs(3600))?;
        }
    }
}
