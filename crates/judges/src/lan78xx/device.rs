//! A model of the adapter behind a USB/IP server, and its wire.

use super::joined::Joined;
use super::{station, trunk};
use crate::usb::{Door, Served};
use anyhow::Context as _;
use polder_buffers::{Region, RegionOptions};
use polder_devices::lan78xx::model::{Adapter, Bench, Options};
use polder_devices::{AnyQueue, tap};
use std::sync::MutexGuard;

/// Packet memory of a model's wire: enough for a ring, two batches and a cache.
const SLOTS: u32 = 2048;

/// Medium at the model's network side.
pub enum Wire {
    /// No device: all sent frames are lost.
    None,
    /// A TAP of that name in the namespace of the calling thread, with this MTU.
    Tap {
        /// The interface.
        name: String,
        /// Its MTU.
        mtu: u32,
    },
    /// A TAP whose machine has CoDel in front of it, and an MTU of 1500.
    Station {
        /// The interface.
        name: String,
    },
    /// Two TAPs in the namespace of the calling thread, with frames of a VLAN going to the second one.
    Trunk {
        /// The interface for frames without a tag.
        name: String,
        /// The interface for those of the VLAN, without their tag.
        tagged: String,
        /// The VLAN.
        vlan: u16,
    },
    /// A cable to a second model that our own driver drives, and behind it two TAPs as in `Trunk`.
    Joined {
        /// The interface for frames without a tag.
        name: String,
        /// The interface for those of the VLAN, without their tag.
        tagged: String,
        /// The VLAN.
        vlan: u16,
        /// The MTU of both.
        mtu: u32,
    },
    /// A port that is open already, and the memory that its frames come from.
    Port(Box<AnyQueue>, Region),
}

impl core::fmt::Debug for Wire {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            Self::None => "None",
            Self::Tap { .. } => "Tap",
            Self::Station { .. } => "Station",
            Self::Trunk { .. } => "Trunk",
            Self::Joined { .. } => "Joined",
            Self::Port(..) => "Port",
        })
    }
}

/// An adapter that clients can attach. It goes with this guard.
#[derive(Debug)]
pub struct Shown {
    served: Served<Adapter>,
    /// Goes after the model.
    _joined: Option<Joined>,
}

impl Shown {
    /// Shows a model behind `door` as the device `name`.
    ///
    /// # Errors
    /// When the wire cannot be made, or there is no memory for it.
    pub fn start(options: Options, wire: Wire, door: Door, name: &str) -> anyhow::Result<Self> {
        let (bench, joined) = bench(options, wire)?;
        Ok(Self { served: Served::start(bench, door, name)?, _joined: joined })
    }

    /// The server's TCP port; 0 behind a local socket.
    pub fn port(&self) -> u16 {
        self.served.port()
    }

    /// The model, held still while it is looked at or changed.
    pub fn bench(&self) -> MutexGuard<'_, Bench> {
        self.served.bench()
    }
}

/// A model and its wire.
///
/// # Errors
/// When the wire cannot be made, or there is no memory for it.
fn bench(options: Options, wire: Wire) -> anyhow::Result<(Bench, Option<Joined>)> {
    let memory = || Region::new(RegionOptions { slots: SLOTS, slot_bytes: 2048 });
    let mut joined = None;
    let (queue, region) = match wire {
        Wire::None => (None, memory()?),
        Wire::Port(queue, region) => (Some(*queue), region),
        Wire::Tap { name, mtu } => {
            let region = memory()?;
            (Some(open_tap(name, mtu, &region)?), region)
        }
        Wire::Station { name } => {
            let region = memory()?;
            (Some(station::with_codel(open_tap(name, 1500, &region)?)), region)
        }
        Wire::Trunk { name, tagged, vlan } => {
            let region = memory()?;
            let plain = open_tap(name, 1500, &region)?;
            let tagged = open_tap(tagged, 1500, &region)?;
            (Some(trunk::join(plain, tagged, vlan)?), region)
        }
        Wire::Joined { name, tagged, vlan, mtu } => {
            let (near, region, guard) = Joined::lay(
                |region| open_tap(name, mtu, region),
                |region| open_tap(tagged, mtu, region),
                vlan,
            )?;
            joined = Some(guard);
            (Some(near), region)
        }
    };
    Ok((Bench::new(Adapter::new(options), queue, region.pool()), joined))
}

fn open_tap(name: String, mtu: u32, region: &Region) -> anyhow::Result<AnyQueue> {
    let options = tap::Options { mtu: Some(mtu), offloads: tap::Offloads::None, ..tap::Options::new(name) };
    let tap = tap::open(&options, region)?;
    tap.queues.into_iter().next().map(polder_devices::Queue::boxed).context("a TAP has a queue")
}
