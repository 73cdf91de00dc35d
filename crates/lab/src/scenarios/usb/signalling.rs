//! Signalling of a modem beside data: the time from a change of its signal until the driver knows it, in virtual time.

use super::packing;
use crate::scenarios::Run;
use anyhow::ensure;
use polder_buffers::{Batch, Pool, Region, RegionOptions};
use polder_datapath::port::Budget;
use polder_datapath::units::Nanos;
use polder_devices::cdc::mbim::model::ModemOptions;
use polder_devices::cdc::mbim::service::Access;
use polder_devices::cdc::mbim::{self, Mbim, Wanted};
use polder_devices::cdc::model::{Device, Options as Model};
use polder_devices::cdc::{Options, Subclass};
use polder_devices::usb::local::{Clock, Host, connect};
use polder_devices::usb::model::{Bench, Model as _};
use polder_judges::usb::Bus;
use polder_testbed::interrupt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const RATIO: [&str; 2] = ["usb.mbim.signalling_p99_ratio.on", "usb.mbim.signalling_p99_ratio.off"];

/// Addresses of the port's link.
const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 3];
/// Packets that the worker takes in a turn, and the time of a turn: half of what the bus brings.
const TURN_PACKETS: u32 = 16;
const TURN: Nanos = Nanos::from_millis(1);
/// Turns until sessions are up.
const START_TURNS: u32 = 5_000;
/// Turns after which a change of the signal is given up.
const MOST_TURNS: u32 = 1_000;
/// Signal strengths that a modem tells apart.
const STRENGTHS: u32 = 31;
/// Bytes of a packet of data with its Ethernet header.
const DATA_BYTES: usize = 1_400;

/// Fills the rows.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if !run.wants_any(&RATIO) {
        return Ok(());
    }
    let changes = run.quick_or(100, 1_000);
    for (row, own_control) in RATIO.iter().zip([true, false]) {
        run.says(&format!("{changes} changes of a modem's signal, idle and beside data"));
        let [idle, loaded] = [false, true].map(|is_loaded| delay(own_control, is_loaded, changes));
        let (idle, loaded) = (idle?, loaded?);
        run.record_one(row, loaded / idle);
        let text = format!(
            "99th percentile of {changes}: {idle:.1} ms idle, {loaded:.1} ms while a bus of 40 MB/s is full and the worker takes {TURN_PACKETS} packets a millisecond; virtual time; given up after {MOST_TURNS} ms",
        );
        run.remark(row, text);
    }
    Ok(())
}

/// 99th percentile of the time from a change of the signal until the driver knows it, in ms.
fn delay(own_control: bool, is_loaded: bool, changes: u32) -> anyhow::Result<f64> {
    let mut stand = Stand::new(own_control)?;
    let mut delays = Vec::new();
    for change in 0..changes {
        interrupt::check()?;
        let strength = change % STRENGTHS;
        // What each strength is in dBm, by MBIM 1.0, 10.5.28.
        let wanted = i16::try_from(strength).ok().map(|strength| 2 * strength - 113);
        stand.host().bench.adapter.device.modem().set_signal(strength);
        let mut turns = 0;
        while turns < MOST_TURNS && stand.port.status.function.modem().state.signal != wanted {
            stand.turn(is_loaded);
            turns += 1;
        }
        delays.push(turns);
    }
    delays.sort_unstable();
    Ok(f64::from(delays[(delays.len() - 1) * 99 / 100]) * TURN.0 as f64 / 1e6)
}

/// A modem behind a bus, and its port.
struct Stand {
    port: Mbim,
    host: Arc<Mutex<Host<Bus<Device>>>>,
    clock: Clock,
    pool: Pool,
    data: Vec<u8>,
    _region: Region,
}

impl Stand {
    fn new(own_control: bool) -> anyhow::Result<Self> {
        let region = Region::new(RegionOptions { slots: 4096, slot_bytes: 2048 })?;
        let modem = ModemOptions { wire: [NEAR, FAR], ..ModemOptions::default() };
        let model = Model { subclass: Subclass::Mbim, longest: 2000, modem, ..Model::default() };
        let clock = Clock::at_zero();
        let bench = Bench::new(Bus::new(Device::new(model)), None, region.pool());
        let (local, host) = connect(bench, clock.clone(), Nanos(0))?;
        let host = Arc::new(Mutex::new(host));
        let options = Options { own_control, mac: Some(NEAR), ..Options::default() };
        let access = Access { apn: "internet".to_owned(), ..Access::default() };
        let wanted = Wanted { sessions: vec![(0, access)], pin: None };
        let port =
            packing::with_function(local.pumped(Arc::clone(&host)), |transport, function, identity| {
                Ok(mbim::open(transport, function, identity, &options, wanted)?)
            })?;
        let pool = region.pool();
        let mut stand = Self { port, host, clock, pool, data: data(), _region: region };
        for _ in 0..START_TURNS {
            stand.turn(false);
        }
        ensure!(stand.port.status.function.modem().state.is_connected(), "the modem does not connect");
        Ok(stand)
    }

    fn host(&self) -> MutexGuard<'_, Host<Bus<Device>>> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn of the worker, before which more data come than it takes.
    fn turn(&mut self, is_loaded: bool) {
        for _ in 0..if is_loaded { 2 * TURN_PACKETS + 8 } else { 0 } {
            // What finds no room is lost: the function is full.
            let _ = self.host().bench.adapter.device.wire_in(&self.data, Nanos(0));
        }
        let mut batch = Batch::new();
        let _ = self.port.queue.rx.receive(&mut Budget::new(TURN_PACKETS), &mut batch, &mut self.pool);
        self.pool.release(&mut batch);
        self.clock.pass(TURN);
    }
}

/// An IPv4 packet in a frame.
fn data() -> Vec<u8> {
    let mut frame = vec![0; DATA_BYTES];
    frame[..6].copy_from_slice(&NEAR);
    frame[6..12].copy_from_slice(&FAR);
    let [high, low] = u16::try_from(DATA_BYTES - 14).unwrap_or_default().to_be_bytes();
    frame[12..18].copy_from_slice(&[8, 0, 0x45, 0, high, low]);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data delay signalling that has no memory of its own, and no other.
    #[test]
    fn only_signalling_without_memory_of_its_own_waits_for_data() {
        let delay = |own_control, is_loaded| delay(own_control, is_loaded, 40).unwrap();
        let idle = delay(true, false);
        assert!(idle > 0.0 && delay(true, true) <= 2.0 * idle);
        assert!(delay(false, true) > 2.0 * idle);
    }
}
