//! USB devices that are not there yet, and come and go: models behind USB/IP on a local socket.

use super::support::{Folder, Gateway, root_or_skip};
use polder_buffers::{Region, RegionOptions};
use polder_devices::cdc::mbim::model::ModemOptions;
use polder_devices::usb::model::{Bench, Model};
use polder_devices::usb::usbip::{Server, Stopper};
use polder_devices::{cdc, lan78xx};
use serde_json::Value;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

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
    let waiting = gateway.wait_for("usb", "waiting", |port| port["state"] == "waiting");
    assert_eq!(waiting["open"], false);
    assert!(waiting["trouble"].as_str().expect("it says why").contains("usb.sock"), "{waiting:#}");
    for openings in 1..=2 {
        let shown = Shown::new(&socket, device());
        let is_open = |port: &Value| port["state"] == "open" && port["openings"] == openings;
        gateway.wait_for("usb", "open", is_open);
        drop(shown);
        gateway.wait_for("usb", "waiting again", |port| port["state"] == "waiting");
    }
    let (code, log, _folder) = gateway.terminate();
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

/// The modem behind the port `usb`, as `polder modem` has it after an action.
fn modem(gateway: &Gateway, action: &str) -> Value {
    let asked = gateway.ask(&["modem", action, "usb", "--json"]);
    assert_eq!(asked.code, Some(0), "{action}: {}{}", asked.out, asked.err);
    serde_json::from_str(&asked.out).expect("JSON")
}

/// Writes the file of a gateway with a modem behind `socket`, and those of its secrets.
fn write_modem(folder: &Folder, socket: &Path) {
    let (pin, password) = (folder.0.join("pin"), folder.0.join("password"));
    std::fs::write(&pin, "1234\n").expect("the file");
    std::fs::write(&password, "p\n").expect("the file");
    let text = format!(
        "version = 1\n[gateway]\ncontrol = \"{}\"\n[port.usb]\nusbip = \"{}/1-1\"\nrole = \"router\"\n\
         [port.usb.modem]\napn = \"web.example\"\nauthentication = \"pap\"\nuser = \"u\"\npassword_file = \"{}\"\n\
         pin_file = \"{}\"\nsessions = [\"7 ims\"]\n[port.host]\ntap = \"pdhost\"\nrole = \"router\"\n\
         addresses = [\"192.0.2.1/24\"]\n[[router.route]]\nto = \"198.51.100.0/24\"\nport = \"usb\"\n",
        folder.0.join("gw.sock").display(),
        socket.display(),
        password.display(),
        pin.display(),
    );
    std::fs::write(folder.0.join("gw.toml"), text).expect("the file");
}

#[test]
fn a_modem_gives_its_port_the_addresses_of_the_network_and_takes_orders() {
    if !root_or_skip("a_modem_gives_its_port_the_addresses_of_the_network_and_takes_orders") {
        return;
    }
    let folder = Folder::new("modem");
    let socket = folder.0.join("usb.sock");
    write_modem(&folder, &socket);
    let network = ModemOptions { pin: Some("1234".to_owned()), ..ModemOptions::default() };
    let options = cdc::model::Options {
        subclass: cdc::Subclass::Mbim,
        modem: network,
        ..cdc::model::Options::default()
    };
    let shown = Shown::new(&socket, cdc::model::Device::new(options));
    let gateway = Gateway::start_in(folder, &[]);
    let port = gateway.wait_for("usb", "connected", |port| port["modem"]["connected"] == true);
    let session = &port["modem"]["sessions"][0];
    assert_eq!(session["addresses"], serde_json::json!(["100.64.0.2/30", "2001:db8::2/64"]), "{port:#}");
    assert_eq!(session["servers"][0], "192.0.2.53");
    assert_eq!(
        (&port["modem"]["signal_dbm"], &port["modem"]["provider"]),
        (&(-73).into(), &"Polder Mobile".into())
    );
    // The network's MTU is the port's.
    gateway.wait_for("usb", "open with its MTU", |port| port["mtu"] == 1420 && port["state"] == "open");
    let routes = gateway.ask(&["show", "routes"]).out;
    for word in ["100.64.0.2", "100.64.7.2", "198.51.100.0/24"] {
        assert!(routes.contains(word), "{word} is missing: {routes}");
    }
    let ended = modem(&gateway, "disconnect");
    assert_eq!(
        (&ended["connected"], &ended["sessions"][0]["active"]),
        (&false.into(), &false.into()),
        "{ended:#}"
    );
    gateway.wait_for("usb", "without carrier", |port| port["state"] == "no-carrier");
    assert!(!gateway.ask(&["show", "routes"]).out.contains("100.64.0.2"));
    assert_eq!(modem(&gateway, "connect")["connected"], true);
    let told = gateway.ask(&["modem", "status", "usb"]).out;
    assert!(told.contains("modem connected to Polder Mobile (home)") && told.contains("MTU 1420"), "{told}");
    assert_ne!(gateway.ask(&["modem", "status", "host"]).code, Some(0), "a TAP is no modem");
    drop(shown);
    let (code, log, _folder) = gateway.terminate();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("modem connected to Polder Mobile"), "{log}");
}
