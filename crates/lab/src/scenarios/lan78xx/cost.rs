//! Cost of a URB to the processor of a host: measured at a socket, as USB/IP submits it.

use anyhow::{Context as _, ensure};
use polder_datapath::units::Nanos;
use polder_devices::lan78xx::descriptor::ENDPOINTS;
use polder_devices::lan78xx::model;
use polder_devices::usb::usbip::{Client, ServerAddress};
use polder_devices::usb::{Setup, Status, Transport, Urb, UrbBuffer};
use polder_judges::lan78xx::{Door, Shown, Wire};
use polder_testbed::clock;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

/// URBs in flight, as the driver has when it sends.
const IN_FLIGHT: usize = 4;
/// URBs that are submitted.
const URBS: u32 = 20_000;
/// Bytes of each: the cost of a URB, not that of copying.
const BYTES: usize = 64;

/// Time of the submitting thread for each URB: submitting, waiting, taking back.
pub(in crate::scenarios) fn of_a_urb() -> anyhow::Result<Nanos> {
    let path = std::env::temp_dir().join(format!("polder-urb-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).context("cannot listen for USB/IP")?;
    let result = measure(listener, &path);
    let _ = std::fs::remove_file(&path);
    let spent = result?;
    Ok(Nanos(u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX) / u64::from(URBS)))
}

fn measure(listener: UnixListener, path: &Path) -> anyhow::Result<Duration> {
    let _shown = Shown::start(model::Options::default(), Wire::None, Door::Unix(listener), "1-1")?;
    let mut client = Client::attach(&ServerAddress::Unix(path.to_owned()), "1-1")?;
    let configure = Setup { kind: 0, request: 9, value: 1, index: 0, length: 0 };
    submit(&mut client, 0, configure, UrbBuffer::heap(0));
    drain(&mut client, 1, |_| None)?;
    let start = clock::thread_cpu();
    for _ in 0..IN_FLIGHT {
        submit(&mut client, ENDPOINTS.bulk_out, Setup::default(), UrbBuffer::heap(BYTES));
    }
    let mut left = URBS;
    drain(&mut client, URBS, |buffer| {
        left -= 1;
        (left as usize >= IN_FLIGHT).then_some(buffer)
    })?;
    Ok(clock::thread_cpu() - start)
}

fn submit(client: &mut Client, endpoint: u8, setup: Setup, buffer: UrbBuffer) {
    let length = buffer.bytes().len();
    client.submit(Urb::new(0, endpoint, setup, buffer, length));
}

/// Completes `count` URBs; `again` returns the URB that is submitted in place of each.
fn drain(
    client: &mut Client,
    count: u32,
    mut again: impl FnMut(UrbBuffer) -> Option<UrbBuffer>,
) -> anyhow::Result<()> {
    let mut ended = 0;
    while ended < count {
        client.flush();
        client.wait(Duration::from_millis(100));
        while let Some(done) = client.complete() {
            ensure!(done.status == Status::Done, "a URB ended with {:?}", done.status);
            ended += 1;
            if let Some(buffer) = again(done.urb.buffer) {
                submit(client, ENDPOINTS.bulk_out, Setup::default(), buffer);
            }
        }
        ensure!(!client.is_gone(), "the connection has ended");
    }
    Ok(())
}
