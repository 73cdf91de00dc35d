//! USB devices that are not there yet, and come and go: models behind USB/IP on a local socket.

use super::support::{Folder, Gateway, SOON, root_or_skip};
use polder_buffers::{Region, RegionOptions};
use polder_devices::usb::model::{Bench, Model};
use polder_devices::usb::usbip::{Server, Stopper};
use polder_devices::{cdc, lan78xx};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A device that a gateway can attach, until it is dropped.
struct Shown {
    socket: PathBuf,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Shown {
    fn new<M: Model + Send + 'static>(socket: &Path, device: M) -> Self {
        let memory = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 }).expect("memory");
        let bench = Arc::new(Mutex::new(Bench::new(device, None, memory.pool())));
        let listener = UnixListener::bind(socket).expect("a socket");
        let server = Server::unix(listener, "1-1", bench).expect("a server");
        let stopper = server.stopper();
        let thread = Some(std::thread::spawn(move || server.run().expect("it serves")));
        Self { socket: socket.to_owned(), stopper, thread }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.stopper.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()), "the server has panicked");
        let _: std::io::Result<()> = std::fs::remove_file(&self.socket);
    }
}

/// Waits until the port is like that.
fn wait_for(gateway: &Gateway, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + 2 * SOON;
    loop {
        let ports = gateway.json("ports");
        let port = ports["ports"].as_array().expect("a list").iter().find(|port| port["name"] == "usb");
        let port = port.expect("it is configured").clone();
        if is_so(&port) {
            return port;
        }
        assert!(Instant::now() < end, "not {what}: {port:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A gateway that starts without its device takes it when it comes, and again after it was gone.
fn comes_and_goes<M: Model + Send + 'static>(name: &str, device: impl Fn() -> M) {
    let folder = Folder::new(name);
    let socket = folder.0.join("usb.sock");
    let text = format!(
        "version = 1\n[gateway]\ncontrol = \"{}\"\n[port.usb]\nusbip = \"{}/1-1\"\n[port.host]\n\
         tap = \"pdhost\"\n[bridge.br0]\nmembers = [\"usb\", \"host\"]\n",
        folder.0.join("gw.sock").display(),
        socket.display()
    );
    std::fs::write(folder.0.join("gw.toml"), text).expect("the file");
    let gateway = Gateway::start_in(folder, &[]);
    let waiting = wait_for(&gateway, "waiting", |port| port["state"] == "waiting");
    assert_eq!(waiting["open"], false);
    assert!(waiting["trouble"].as_str().expect("it says why").contains("usb.sock"), "{waiting:#}");
    for openings in 1..=2 {
        let shown = Shown::new(&socket, device());
        let is_open = |port: &Value| port["state"] == "open" && port["openings"] == openings;
        wait_for(&gateway, "open", is_open);
        drop(shown);
        wait_for(&gateway, "waiting again", |port| port["state"] == "waiting");
    }
    gateway.signal(Signal::TERM);
    let (code, log, _folder) = gateway.wait();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("waits for its device"), "{log}");
}

#[test]
fn a_gateway_starts_without_an_ncm_device_and_takes_it_when_it_comes() {
    if root_or_skip("a_gateway_starts_without_an_ncm_device_and_takes_it_when_it_comes") {
        comes_and_goes("ncm", || cdc::model::Device::new(cdc::model::Options::default()));
    }
}

#[test]
fn a_gateway_starts_without_a_lan78xx_and_takes_it_when_it_comes() {
    if root_or_skip("a_gateway_starts_without_a_lan78xx_and_takes_it_when_it_comes") {
        comes_and_goes("lan78xx", || lan78xx::model::Adapter::new(lan78xx::model::Options::default()));
    }
}
