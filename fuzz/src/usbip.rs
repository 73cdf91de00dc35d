//! USB/IP: what a server may say to the client.

use crate::oracle::Target;
use polder_devices::usb::usbip::{Client, ServerAddress, list};
use polder_devices::usb::{Setup, Transport as _, Urb, UrbBuffer};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

/// All targets.
pub(crate) const TARGETS: &[Target] = &[("usbip", usbip)];

/// Longest that the client waits for a server that has said all it had to.
const PATIENCE: Duration = Duration::from_secs(1);

/// A server that says the bytes and hears nothing: its list of devices is read, or a device of it is attached, by
/// the first byte.
fn usbip(bytes: &[u8]) {
    let Some((kind, said)) = bytes.split_first() else { return };
    let server = Server::get();
    said.clone_into(&mut server.says.lock().expect("nobody panics"));
    let address = ServerAddress::Unix(server.path.clone());
    if kind & 1 == 0 {
        if let Ok(devices) = list(&address, PATIENCE) {
            assert!(devices.len() * 312 <= said.len(), "{} devices", devices.len());
        }
    } else if let Ok(mut client) = Client::attach(&address, "1-1") {
        transfers(&mut client);
    }
}

/// The client reads up to the supposed ends of its transfers, until the server is gone.
fn transfers(client: &mut Client) {
    for id in 0..2 {
        let setup = Setup { kind: Setup::IN, request: 6, value: 0x100, index: 0, length: 64 };
        let buffer = UrbBuffer::heap(64);
        client.submit(Urb::new(id, 0, setup, buffer, 64));
    }
    client.cancel(0);
    let mut ended = 0;
    for _ in 0..1_000 {
        while let Some(completion) = client.complete() {
            assert!(completion.received().len() <= 64, "what was asked for");
            ended += 1;
        }
        if client.is_gone() {
            assert_eq!(ended, 2, "each transfer ends once");
            return;
        }
        client.wait(PATIENCE);
    }
    panic!("the client has not seen that the server is gone");
}

struct Server {
    path: PathBuf,
    says: Mutex<Vec<u8>>,
}

impl Server {
    fn get() -> &'static Self {
        static SERVER: OnceLock<Server> = OnceLock::new();
        static STARTED: OnceLock<()> = OnceLock::new();
        let server = SERVER.get_or_init(|| {
            let path = std::env::temp_dir().join(format!("pd-fuzz-usbip-{}", std::process::id()));
            Self { path, says: Mutex::new(Vec::new()) }
        });
        STARTED.get_or_init(|| {
            // Either end may find the other gone. A Rust program ignores the signal; the fuzzer's main function does not.
            let seen = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal_hook::consts::SIGPIPE, seen)
                .expect("a signal that can be caught");
            let _ = std::fs::remove_file(&server.path);
            let listener =
                UnixListener::bind(&server.path).expect("a socket in the folder of temporary files");
            thread::spawn(move || server.serve(&listener));
        });
        server
    }

    fn serve(&self, listener: &UnixListener) {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let _ = stream.read(&mut [0; 64]);
            let said = self.says.lock().expect("nobody panics").clone();
            let _ = stream.write_all(&said);
        }
    }
}
