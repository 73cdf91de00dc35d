//! Frames that leave through NCM, packed and one at a time: fill of blocks, and the driver's time for a frame.

use crate::scenarios::Run;
use crate::scenarios::lan78xx::cost;
use crate::scenarios::lan78xx::frames::Protocol;
use crate::scenarios::lan78xx::harness::{Outcome, Port, Setting, Way, run_on};
use crate::scenarios::testbed::cores;
use crate::scenarios::turns::rounds;
use anyhow::Context as _;
use polder_datapath::units::Nanos;
use polder_devices::cdc::model::{Device, Options as Model};
use polder_devices::cdc::{self, FunctionStatus, NetworkFunction, Options, network_function};
use polder_devices::usb::local::Local;
use polder_devices::usb::{Techniques, Transport, identify};
use polder_judges::usb::Bus;
use polder_testbed::interrupt;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const FILL: &str = "usb.ncm.fill_percent";
const RATIO: &str = "usb.ncm.cpu_per_frame.on_over_off";
const NANOS: [&str; 2] = ["usb.ncm.cpu_per_frame.ns.off", "usb.ncm.cpu_per_frame.ns.on"];

/// Fills the rows.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if !run.wants_any(&[FILL, RATIO, NANOS[0], NANOS[1]]) {
        return Ok(());
    }
    let urb = cost::of_a_urb()?;
    let (count, time) = run.quick_or((2, 200), (10, 1000));
    let time = Duration::from_millis(time);
    run.place("the driver's thread", cores().0, "pinned");
    run.place("the model and its bus", cores().1, "pinned, never sleeps");
    let sheet = rounds(run, count, "frames through NCM, packed and not", |sheet| {
        let mut of_round = [0.0; 2];
        for (index, pending_queue) in [false, true].into_iter().enumerate() {
            interrupt::check()?;
            let techniques = Techniques { pending_queue, ..Techniques::ON };
            let outcome = send(&Options { techniques, ..Options::default() }, urb, time)?;
            of_round[index] = outcome.cpu.as_secs_f64() * 1e9 / outcome.packets.max(1.0);
            sheet.push(NANOS[index], of_round[index]);
            if pending_queue {
                sheet.push(FILL, outcome.fill_percent.context("nothing was sent")?);
            }
        }
        sheet.push(RATIO, of_round[1] / of_round[0]);
        Ok(())
    })?;
    sheet.record(run);
    let text = format!(
        "UDP of full frames to a function in memory behind a bus of 40 MB/s; a URB costs {} ns, as measured at a USB/IP socket",
        urb.0
    );
    run.remark(RATIO, text);
    Ok(())
}

/// Full frames, sent as fast as a function at high speed takes them.
fn send(options: &Options, urb: Nanos, time: Duration) -> anyhow::Result<Outcome> {
    let setting = setting(Way::Send, options.techniques, urb, time);
    run_on(&setting, Bus::new(Device::new(Model::default())), |local| open(local, options))
}

/// A flow of full frames.
pub(super) fn setting(way: Way, techniques: Techniques, urb: Nanos, time: Duration) -> Setting {
    let protocol = Protocol::Udp;
    Setting { protocol, way, techniques, urb, frame: Nanos(0), time, cores: cores().into(), pause: None }
}

/// Opens the function behind `local`, as the gateway does.
pub(super) fn open(local: Local, options: &Options) -> anyhow::Result<Port<FunctionStatus>> {
    let port = with_function(local, |transport, function, identity| {
        Ok(cdc::open(transport, function, identity, options)?)
    })?;
    Ok(Port { status: port.status, queue: port.queue })
}

/// Calls `open` with the network function of `local`, and its vendor and product.
pub(super) fn with_function<T>(
    mut local: Local,
    open: impl FnOnce(Box<dyn Transport>, NetworkFunction, (u16, u16)) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let identified = identify(&mut local, &AtomicBool::new(false))?;
    let configuration = identified.configurations.first().context("no configuration")?;
    let function = network_function(configuration)?.context("no network function")?;
    open(Box::new(local), function, (identified.vendor, identified.product))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packed and one at a time, all frames arrive as they were sent, and packed blocks are full.
    #[test]
    fn frames_leave_in_full_blocks_or_alone() {
        for pending_queue in [false, true] {
            let techniques = Techniques { pending_queue, ..Techniques::ON };
            let options = Options { techniques, ..Options::default() };
            // On a machine with other loads nothing may leave for a while.
            let outcomes =
                (1..=5).map(|turn| send(&options, Nanos(0), Duration::from_millis(60 * turn)).unwrap());
            let outcome = outcomes.into_iter().find(|outcome| outcome.packets > 1.0).unwrap();
            assert!(outcome.mbit > 0.1, "{outcome:?}");
            let fill = outcome.fill_percent.unwrap();
            assert!(if pending_queue { fill > 50.0 } else { fill < 11.0 }, "{fill}");
        }
    }
}
