//! Our driver on a model behind a USB/IP server, in two threads and with a socket in between.

use polder_buffers::{Batch, Packet, Pool, Region, RegionOptions};
use polder_datapath::port::{Budget, RxQueue as _, Turn, TxQueue as _};
use polder_devices::conformance::{self, Fixture, Limits, Wire};
use polder_devices::lan78xx::model::{self, Adapter, Bench};
use polder_devices::lan78xx::{self, Options};
use polder_devices::usb::usbip::{Client, ClientError, Server, ServerAddress, Stopper};
use polder_devices::{AnyQueue, Queue, pair};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A server on a thread, with a cable as the model's wire.
pub(crate) struct Shown {
    pub(crate) bench: Arc<Mutex<Bench>>,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
    pub(crate) address: ServerAddress,
    far: Option<Queue<pair::PairRx, pair::PairTx>>,
    pool: Pool,
    batch: Batch,
    injected: u64,
}

static SOCKETS: AtomicU32 = AtomicU32::new(0);

impl Shown {
    pub(crate) fn new(options: model::Options, local: bool) -> Self {
        let region = Region::new(RegionOptions { slots: 4096, slot_bytes: 2048 }).unwrap();
        let (mut near, mut far) =
            pair::cable(pair::Options { ring: 1024, ..pair::Options::default() }).unwrap();
        let wire = near.pop().map(Queue::boxed);
        let bench = Arc::new(Mutex::new(Bench::new(Adapter::new(options), wire, region.pool())));
        let (server, address) = if local {
            let number = SOCKETS.fetch_add(1, Ordering::Relaxed);
            let name = format!("polder-usbip-{}-{number}", std::process::id());
            let path: PathBuf = std::env::temp_dir().join(name);
            let listener = UnixListener::bind(&path).unwrap();
            (Server::unix(listener, "1-1", Arc::clone(&bench)).unwrap(), ServerAddress::Unix(path))
        } else {
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let address = listener.local_addr().unwrap().to_string();
            (Server::tcp(listener, "1-1", Arc::clone(&bench)).unwrap(), ServerAddress::Tcp(address))
        };
        let stopper = server.stopper();
        let thread = Some(std::thread::spawn(move || server.run().unwrap()));
        let (far, pool, batch) = (far.pop(), region.pool(), Batch::new());
        Self { bench, stopper, thread, address, far, pool, batch, injected: 0 }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.stopper.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|result| result.is_ok()), "the server has panicked");
        if let ServerAddress::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Wire for Shown {
    fn inject(&mut self, frame: &[u8]) -> bool {
        let Some(far) = &mut self.far else { return false };
        if frame.len() > 1518 {
            // The adapter's MAC takes no such frame, and counts it there.
            return false;
        }
        let Some(packet) = Packet::copy_from(frame, &mut self.pool) else { return false };
        self.batch.push(packet).unwrap();
        far.tx.transmit(&mut self.batch, &mut self.pool);
        let taken = self.batch.is_empty();
        self.pool.release(&mut self.batch);
        self.injected += u64::from(taken);
        taken
    }

    fn extract(&mut self) -> Option<Vec<u8>> {
        let far = self.far.as_mut()?;
        let _ = far.rx.receive(&mut Budget::new(1), &mut self.batch, &mut self.pool);
        let frame = self.batch.first().map(|packet| packet.segments().flatten().copied().collect());
        self.pool.release(&mut self.batch);
        frame
    }

    fn settle(&mut self) {
        for _ in 0..500 {
            std::thread::sleep(Duration::from_millis(10));
            if self.bench.lock().unwrap().counters().to_adapter >= self.injected {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }

    fn unplug(&mut self) -> bool {
        self.bench.lock().unwrap().adapter.unplug();
        true
    }
}

struct Sockets {
    local: bool,
}

impl Fixture for Sockets {
    fn limits(&self) -> Limits {
        Limits {
            longest: 1518,
            longest_received: 1518,
            chains: true,
            backlog: 20,
            patience: Duration::from_secs(10),
        }
    }

    fn open(&mut self, _region: &Region) -> Result<(AnyQueue, Box<dyn Wire>), String> {
        let shown = Shown::new(model::Options::default(), self.local);
        let client = Client::attach(&shown.address, "1-1").map_err(|error| error.to_string())?;
        let options = Options { receive_urbs: Some(60), ..Options::default() };
        let port = lan78xx::open(Box::new(client), &options).map_err(|error| error.to_string())?;
        Ok((port.queue, Box::new(shown)))
    }
}

#[test]
fn conforms_over_tcp() {
    let report = conformance::run(&mut Sockets { local: false });
    assert!(report.is_clean(), "{report}");
}

#[test]
fn conforms_over_a_local_socket() {
    let report = conformance::run(&mut Sockets { local: true });
    assert!(report.is_clean(), "{report}");
}

#[test]
fn errors_say_what_to_do() {
    let shown = Shown::new(model::Options::default(), true);
    let missing = Client::attach(&shown.address, "2-1").unwrap_err();
    assert!(matches!(&missing, ClientError::NoDevice(_, name) if name == "2-1"), "{missing}");
    assert!(missing.to_string().contains("usbip bind"), "{missing}");
    let nobody = ServerAddress::Unix("/nowhere/at/all".into());
    assert!(matches!(Client::attach(&nobody, "1-1"), Err(ClientError::Reach(..))));
    assert!(matches!(Client::attach(&nobody, ""), Err(ClientError::Name(_))));
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let other = ServerAddress::Tcp(listener.local_addr().unwrap().to_string());
    let speaker = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let _ = stream.read(&mut [0; 64]);
    });
    assert!(matches!(Client::attach(&other, "1-1"), Err(ClientError::Protocol(_))));
    speaker.join().unwrap();
}

/// A device that went and came back is a port again.
#[test]
fn a_device_can_be_attached_again() {
    let mut shown = Shown::new(model::Options::default(), true);
    let region = Region::new(RegionOptions { slots: 512, slot_bytes: 2048 }).unwrap();
    let mut pool = region.pool();
    for _ in 0..3 {
        let client = (0..200).find_map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            Client::attach(&shown.address, "1-1").ok()
        });
        let mut port = lan78xx::open(Box::new(client.unwrap()), &Options::default()).unwrap();
        assert!(port.status.facts().link.up);
        assert!(shown.inject(&crate::hand::frame([2; 6], 100)));
        shown.settle();
        let mut batch = Batch::new();
        let _ = port.queue.rx.receive(&mut Budget::new(64), &mut batch, &mut pool);
        assert_eq!(batch.len(), 1);
        pool.release(&mut batch);
        shown.unplug();
        let closed = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(2));
            port.queue.rx.receive(&mut Budget::new(64), &mut batch, &mut pool) == Turn::Closed
        });
        assert!(closed);
    }
}

/// Linux's `usbip-host` takes no URB of an interrupt endpoint without an interval, and none for another device.
#[test]
fn the_server_refuses_what_usbip_host_refuses() {
    let shown = Shown::new(model::Options::default(), true);
    let ServerAddress::Unix(path) = &shown.address else { panic!("a local socket") };
    let request = |device: u32, interval: u32| {
        let mut bytes = vec![1, 0x11, 0x80, 3, 0, 0, 0, 0];
        bytes.extend(b"1-1");
        bytes.resize(40, 0);
        // SET_CONFIGURATION, then a URB of the interrupt endpoint.
        for (sequence, direction, endpoint, length, setup) in
            [(1, 0, 0, 0, [0, 9, 1, 0, 0, 0, 0, 0]), (2, 1_u32, 3_u32, 16_u32, [0; 8])]
        {
            let words = [1, sequence, device, direction, endpoint, 0, length, 0, u32::MAX, interval];
            bytes.extend(words.iter().flat_map(|word: &u32| word.to_be_bytes()));
            bytes.extend(setup);
        }
        bytes
    };
    for (device, interval, closes) in [(0x1_0002, 8, false), (0x1_0002, 0, true), (0x1_0003, 8, true)] {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        stream.write_all(&request(device, interval)).unwrap();
        let ended = stream.read_to_end(&mut Vec::new());
        assert_eq!(ended.is_ok(), closes, "device {device:#x}, interval {interval}: {ended:?}");
    }
}

/// A server that sends an unrequested or too long answer loses the client, which closes.
#[test]
fn a_lying_server_closes_the_port() {
    let faulty: [fn(&mut [u8; 48]); 4] = [
        // Another sequence number.
        |answer| answer[7] ^= 1,
        // Another command.
        |answer| answer[3] = 9,
        // More than was asked for.
        |answer| answer[24..28].copy_from_slice(&0x0010_0000_u32.to_be_bytes()),
        // An answer to a cancellation that never was.
        |answer| answer[3] = 4,
    ];
    for lie in faulty {
        let (near, far) = UnixStream::pair().unwrap();
        let path = std::env::temp_dir().join(format!("polder-lie-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        drop((near, far));
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 40]).unwrap();
            let mut reply = vec![1, 0x11, 0, 3, 0, 0, 0, 0];
            let mut record = [0; 312];
            record[296 + 3] = 5;
            reply.extend(record);
            stream.write_all(&reply).unwrap();
            let mut request = [0; 48];
            stream.read_exact(&mut request).unwrap();
            let mut answer = [0; 48];
            answer[3] = 3;
            answer[4..8].copy_from_slice(&request[4..8]);
            lie(&mut answer);
            let _ = stream.write_all(&answer);
            let _ = stream.read(&mut [0; 64]);
        });
        let client = Client::attach(&ServerAddress::Unix(path.clone()), "1-1").unwrap();
        assert!(lan78xx::open(Box::new(client), &Options::default()).is_err());
        server.join().unwrap();
        let _ = std::fs::remove_file(&path);
    }
}

/// A client that sends nonsense loses its connection, and the next one is served.
#[test]
fn the_server_survives_its_clients() {
    let shown = Shown::new(model::Options::default(), true);
    let ServerAddress::Unix(path) = &shown.address else { panic!("a local socket") };
    let import = {
        let mut bytes = vec![1, 0x11, 0x80, 3, 0, 0, 0, 0];
        bytes.extend(b"1-1");
        bytes.resize(40, 0);
        bytes
    };
    let huge = {
        let mut header = vec![0; 48];
        header[3] = 1;
        header[24..28].copy_from_slice(&u32::MAX.to_be_bytes());
        header
    };
    for message in [vec![0xff; 100], [import.clone(), vec![0xff; 200]].concat(), [import, huge].concat()] {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        stream.write_all(&message).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        drop(stream);
    }
    let client = (0..200).find_map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        Client::attach(&shown.address, "1-1").ok()
    });
    assert!(lan78xx::open(Box::new(client.unwrap()), &Options::default()).is_ok());
}
