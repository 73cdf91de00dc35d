//! USB/IP servers that fall silent: every wait for them ends, and a port that they served closes.

use crate::usbip::Shown;
use polder_buffers::{Batch, Packet, Region, RegionOptions};
use polder_datapath::port::{Budget, Turn};
use polder_devices::lan78xx::{self, Options, model};
use polder_devices::usb::usbip::{Client, ServerAddress};
use rustix::time::{ClockId, clock_gettime};
use std::io::Write as _;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time that an action takes.
fn time_of(action: impl FnOnce()) -> Duration {
    let now = || Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap();
    let start = now();
    action();
    now() - start
}

/// A server that accepts, says `bytes` one after the other with a pause, and then nothing.
fn hung_server(bytes: Vec<u8>, pause: Duration) -> (ServerAddress, Arc<AtomicBool>, JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = ServerAddress::Tcp(listener.local_addr().unwrap().to_string());
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for byte in bytes {
            if stopped.load(Ordering::Relaxed) || stream.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(pause);
        }
        while !stopped.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    (address, stop, server)
}

/// The answer to an import.
fn imported() -> Vec<u8> {
    let mut reply = vec![1, 0x11, 0, 3, 0, 0, 0, 0];
    let mut record = [0; 312];
    record[296 + 3] = 5;
    reply.extend(record);
    reply
}

#[test]
fn a_server_that_falls_silent_does_not_hold_opening() {
    // After the import; and one that drips its answer, so that no single read takes long.
    for (bytes, pause) in
        [(imported(), Duration::ZERO), (imported(), Duration::from_millis(100)), (Vec::new(), Duration::ZERO)]
    {
        let (address, stop, server) = hung_server(bytes, pause);
        let took = time_of(|| {
            if let Ok(client) = Client::attach(&address, "1-1") {
                let opened = lan78xx::open(Box::new(client), &Options::default());
                assert!(
                    opened.unwrap_err().to_string().contains("did not answer a USB control request in time")
                );
            }
        });
        assert!(took < Duration::from_millis(6500), "{took:?}");
        stop.store(true, Ordering::Relaxed);
        server.join().unwrap();
    }
}

#[test]
fn opening_can_be_given_up_at_once() {
    for bytes in [imported(), Vec::new()] {
        let (address, stop, server) = hung_server(bytes, Duration::ZERO);
        let cancelled = Arc::new(AtomicBool::new(false));
        let wish = Arc::clone(&cancelled);
        let ender = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            wish.store(true, Ordering::Relaxed);
        });
        let options = Options { cancelled: Arc::clone(&cancelled), ..Options::default() };
        let took = time_of(|| {
            if let Ok(client) = Client::attach_unless(&address, "1-1", &cancelled) {
                let error = lan78xx::open(Box::new(client), &options).unwrap_err();
                assert!(matches!(error, lan78xx::OpenError::Cancelled { .. }), "{error}");
            }
        });
        assert!(took < Duration::from_millis(1500), "{took:?}");
        stop.store(true, Ordering::Relaxed);
        ender.join().unwrap();
        server.join().unwrap();
    }
}

/// A server that hangs while the port works is noticed within 5 s; what the port held is dropped.
#[test]
fn a_server_that_dies_closes_the_port() {
    let shown = Shown::new(model::Options::default(), false);
    let region = Region::new(RegionOptions { slots: 512, slot_bytes: 2048 }).unwrap();
    let mut pool = region.pool();
    let client = Client::attach(&shown.address, "1-1").unwrap();
    let mut port = lan78xx::open(Box::new(client), &Options::default()).unwrap();
    let mut batch = Batch::new();
    // The server's thread waits for the model.
    let bench = shown.bench.lock().unwrap();
    for _ in 0..5 {
        batch.push(Packet::copy_from(&crate::hand::frame([2; 6], 100), &mut pool).unwrap()).unwrap();
    }
    port.queue.tx.transmit(&mut batch, &mut pool);
    let took = time_of(|| {
        while port.queue.rx.receive(&mut Budget::new(64), &mut batch, &mut pool) != Turn::Closed {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert!(took < Duration::from_secs(5), "{took:?}");
    let counters = port.queue.tx.counters().clone();
    drop(port);
    drop(bench);
    assert_eq!(counters.transmitted.get() + counters.drops.total(), 5);
    assert_eq!(counters.unsent.get(), 0);
}
