//! Our driver on the modem in software: the conformance suite, the dialogue step by step, its deadlines, sessions.

use crate::stand::{Side, frame, function_of, plug_in};
use crate::usb;
use polder_buffers::{Batch, Region};
use polder_datapath::drops::DropReason;
use polder_datapath::port::Budget;
use polder_datapath::units::Nanos;
use polder_devices::AnyQueue;
use polder_devices::cdc::mbim::model::{ModemFault, ModemOptions};
use polder_devices::cdc::mbim::service::{Access, Authentication, Ready, RegisterState};
use polder_devices::cdc::mbim::{self, Mbim, Modem, Step, Wanted};
use polder_devices::cdc::model::{Device, Options as Model, Style};
use polder_devices::cdc::request::NtbParameters;
use polder_devices::cdc::{Options, Subclass};
use polder_devices::conformance::{self, Fixture, Limits, Wire};
use polder_devices::usb::local::Local;
use polder_devices::usb::{Speed, Techniques, identify};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Addresses of the port's link.
const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 3];

fn model(modem: ModemOptions) -> Model {
    Model {
        subclass: Subclass::Mbim,
        longest: 2000,
        modem: ModemOptions { wire: [NEAR, FAR], ..modem },
        ..Model::default()
    }
}

fn internet() -> Wanted {
    let access = Access { apn: "internet".to_owned(), ..Access::default() };
    Wanted { sessions: vec![(0, access)], pin: None }
}

fn open(mut transport: Local, options: &Options, wanted: Wanted) -> Mbim {
    let identified = identify(&mut transport, &AtomicBool::new(false)).unwrap();
    let function = function_of(&identified);
    assert_eq!(function.subclass, Subclass::Mbim);
    let options = Options { mac: Some(NEAR), ..options.clone() };
    mbim::open(Box::new(transport), function, (identified.vendor, identified.product), &options, wanted)
        .unwrap()
}

/// A port of a modem with its memory.
type Stand = usb::Stand<Mbim, Device>;

impl Stand {
    fn new(modem: ModemOptions, wanted: Wanted) -> Self {
        Self::with(model(modem), &Options::default(), wanted)
    }

    fn with(model: Model, options: &Options, wanted: Wanted) -> Self {
        let (local, side) = plug_in(model);
        Self::of(open(local, options, wanted), side)
    }

    fn modem(&self) -> Modem {
        self.port.status.function.modem()
    }

    /// Turns while time passes, a tenth of a second each.
    fn pass(&mut self, tenths: u32) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for _ in 0..tenths {
            for _ in 0..20 {
                frames.extend(self.receive(64).1);
            }
            self.side.pass(Nanos::from_millis(100));
        }
        frames
    }

    fn lie(&self, lies: &[ModemFault]) {
        self.side.lock().bench.adapter.modem().lie(lies);
    }

    fn assert_obeyed(&self) {
        let mut host = self.side.lock();
        assert_eq!(host.bench.adapter.violations(), []);
        assert_eq!(host.bench.adapter.modem().violations(), [""; 0]);
    }
}

/// An IPv4 packet in a frame of session `session`.
fn packet(number: u8, length: usize, session: u8) -> Vec<u8> {
    let mut plain = frame(number, length);
    dress(&mut plain);
    if session != 0 {
        plain.splice(12..12, [0x81, 0, 0, session]);
    }
    plain
}

/// Makes an IPv4 packet of the frame's payload.
fn dress(frame: &mut [u8]) {
    frame[..6].copy_from_slice(&NEAR);
    frame[6..12].copy_from_slice(&FAR);
    let total = u16::try_from(frame.len() - 14).unwrap().to_be_bytes();
    let number: [u8; 4] = frame[14..18].try_into().unwrap();
    frame[12..18].copy_from_slice(&[8, 0, 0x45, 0, total[0], total[1]]);
    frame[18..22].copy_from_slice(&number);
}

/// The wire of a modem, which carries IP packets alone.
struct Packets(Side);

impl Wire for Packets {
    fn inject(&mut self, frame: &[u8]) -> bool {
        self.0.inject(frame)
    }

    fn extract(&mut self) -> Option<Vec<u8>> {
        self.0.extract()
    }

    fn dress(&self, frame: &mut [u8]) {
        dress(frame);
    }

    fn unplug(&mut self) -> bool {
        self.0.unplug()
    }
}

struct Modems {
    model: Model,
    options: Options,
    side: Option<Side>,
}

impl Fixture for Modems {
    fn limits(&self) -> Limits {
        let longest = 1500 + 14;
        Limits {
            longest,
            longest_received: longest,
            chains: true,
            backlog: 20,
            patience: Duration::from_secs(5),
        }
    }

    fn open(&mut self, region: &Region) -> Result<(AnyQueue, Box<dyn Wire>), String> {
        let (local, side) = plug_in(self.model.clone());
        let port = open(local, &self.options, internet());
        self.side = Some(side.clone());
        let mut stand = Stand { port, side: side.clone(), pool: region.pool(), region: region.clone() };
        stand.pass(30);
        if !stand.modem().state.is_connected() {
            return Err(format!("{:?}", stand.modem().state));
        }
        Ok((stand.port.queue, Box::new(Packets(side))))
    }
}

fn conforms(model: Model, options: Options) {
    let mut modems = Modems { model, options, side: None };
    let report = conformance::run(&mut modems);
    assert!(report.is_clean(), "{report}");
    let side = modems.side.expect("it was opened");
    assert_eq!(side.lock().bench.adapter.violations(), []);
}

#[test]
fn a_modem_conforms() {
    let options = Options { receive_urbs: Some(40), ..Options::default() };
    conforms(model(ModemOptions::default()), options.clone());
    let parameters = NtbParameters {
        out_divisor: 64,
        out_remainder: 10,
        out_alignment: 8,
        out_datagrams: 5,
        formats: 2,
        ..Model::default().parameters
    };
    let style = Style { per_table: 2, table_at_end: false, ..Style::default() };
    let wide = Model {
        speed: Speed::Super,
        parameters,
        style,
        ..model(ModemOptions { is_dual: true, ..ModemOptions::default() })
    };
    conforms(wide, options.clone());
    let techniques = Techniques { pending_queue: false, ..Techniques::ON };
    conforms(model(ModemOptions::default()), Options { techniques, ..options });
}

#[test]
fn every_step_of_the_dialogue_is_made_and_its_answer_kept() {
    for message_bytes in [64, 100, 512, 4096] {
        let mut stand = Stand::new(ModemOptions { message_bytes, ..ModemOptions::default() }, internet());
        assert!(!stand.port.status.connection().link.up, "a link before a session");
        stand.pass(30);
        let state = stand.modem().state;
        assert!(state.is_connected() && state.carries(), "{message_bytes}: {state:?}");
        assert_eq!((state.error.as_deref(), state.refused, state.timeouts), (None, 0, 0));
        let caps = state.caps.expect("they were asked");
        assert_eq!(
            (caps.device.as_str(), caps.firmware.as_str(), caps.sessions),
            ("490154203237518", "polder-1.0", 8)
        );
        assert_eq!(state.ready, Some(Ready::Initialized));
        let registration = state.registration.expect("it was asked");
        assert_eq!(
            (registration.state, registration.provider.as_str()),
            (RegisterState::Home, "Polder Mobile")
        );
        assert_eq!(state.signal, Some(-73));
        let configuration = &state.sessions[0].configuration;
        let addresses: Vec<_> =
            configuration.addresses.iter().map(|(address, bits)| format!("{address}/{bits}")).collect();
        assert_eq!(addresses, ["100.64.0.2/30", "2001:db8::2/64"]);
        let names = |all: &[core::net::IpAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(&configuration.gateways), ["100.64.0.1", "fe80::1"]);
        assert_eq!(names(&configuration.servers), ["192.0.2.53", "198.51.100.53", "2001:db8::53"]);
        assert_eq!(configuration.mtu, Some(1420));
        let link = stand.port.status.connection().link;
        assert_eq!((link.up, link.speed), (true, 150));
        let mut host = stand.side.lock();
        let modem = host.bench.adapter.modem();
        // Searching once, and the radio was off.
        let steps = [1, 2, 3, 3, 9, 9, 10, 10, 11, 12, 15];
        assert_eq!(modem.commands().iter().map(|&(id, _)| id).collect::<Vec<_>>(), steps);
        assert_eq!(modem.violations(), [""; 0]);
    }
}

#[test]
fn access_and_authentication_reach_the_network() {
    let options = ModemOptions {
        apns: vec!["web.example".to_owned()],
        login: Some(("ü".to_owned(), "pass".to_owned())),
        ..ModemOptions::default()
    };
    let access = |password: &str| Access {
        apn: "web.example".to_owned(),
        authentication: Authentication::Chap,
        user: "ü".to_owned(),
        password: password.to_owned(),
    };
    let mut stand = Stand::new(options.clone(), Wanted { sessions: vec![(0, access("pass"))], pin: None });
    stand.pass(30);
    let expected = ("web.example".to_owned(), "ü".to_owned(), "pass".to_owned(), 2);
    assert_eq!(stand.side.lock().bench.adapter.modem().access(0), Some(&expected));
    let mut wrong = Stand::new(options, Wanted { sessions: vec![(0, access("no"))], pin: None });
    wrong.pass(30);
    let state = wrong.modem().state;
    assert!(state.error.as_deref().is_some_and(|error| error.contains("user or password")), "{state:?}");
    assert!(!wrong.port.status.connection().link.up);
}

#[test]
fn a_pin_is_entered_once() {
    let locked = ModemOptions { pin: Some("1234".to_owned()), ..ModemOptions::default() };
    let mut stand = Stand::new(locked.clone(), Wanted { pin: Some("1234".to_owned()), ..internet() });
    stand.pass(30);
    assert!(stand.modem().state.is_connected(), "{:?}", stand.modem().state);
    for (pin, step, attempts) in [(Some("9999"), Step::Halted, Some(2)), (None, Step::Halted, None)] {
        let wanted = Wanted { pin: pin.map(str::to_owned), ..internet() };
        let mut stand = Stand::new(locked.clone(), wanted);
        stand.pass(200);
        let state = stand.modem().state;
        assert_eq!((state.step, state.pin_attempts), (step, attempts), "{state:?}");
        let mut host = stand.side.lock();
        let entered =
            host.bench.adapter.modem().commands().iter().filter(|&&command| command == (4, true)).count();
        assert_eq!(entered, usize::from(pin.is_some()), "a wrong PIN is entered once");
    }
}

#[test]
fn sessions_are_vlans_of_the_port() {
    let access = |apn: &str| Access { apn: apn.to_owned(), ..Access::default() };
    let wanted = Wanted { sessions: vec![(0, access("a")), (7, access("b"))], pin: None };
    let mut stand = Stand::new(ModemOptions::default(), wanted);
    stand.pass(40);
    let state = stand.modem().state;
    assert!(state.is_connected(), "{state:?}");
    assert_eq!(state.sessions[1].configuration.addresses[0].0.to_string(), "100.64.7.2");
    let frames: Vec<_> =
        (0..30).map(|number| packet(number, 100, if number % 3 == 0 { 7 } else { 0 })).collect();
    stand.send(&frames);
    stand.pass(1);
    assert_eq!(stand.sent(), frames);
    for frame in &frames {
        assert!(stand.side.inject(frame));
    }
    assert_eq!(stand.pass(2), frames);
    // A VLAN above 255 is no session, nor is a frame without IP one.
    let mut other = packet(1, 100, 7);
    other[14] = 1;
    stand.send(&[other, frame(1, 60)]);
    assert_eq!(stand.port.queue.tx.counters().drops.get(DropReason::TxError), 2);
    stand.assert_obeyed();
}

#[test]
fn padding_of_frames_stays_behind() {
    let mut stand = Stand::new(ModemOptions::default(), internet());
    stand.pass(30);
    let mut short = packet(1, 44, 0);
    let whole = short.clone();
    short.resize(60, 0);
    stand.send(&[short]);
    stand.pass(1);
    assert_eq!(stand.sent(), [whole]);
}

#[test]
fn a_session_that_the_network_ends_is_connected_again() {
    let mut stand = Stand::new(ModemOptions::default(), internet());
    stand.pass(30);
    stand.side.lock().bench.adapter.modem().end_session(0);
    stand.pass(1);
    assert!(!stand.port.status.connection().link.up, "{:?}", stand.modem().state);
    let error = stand.modem().state.error;
    assert!(error.as_deref().is_some_and(|error| error.contains("cause 36")), "{error:?}");
    stand.pass(40);
    assert!(stand.port.status.connection().link.up, "{:?}", stand.modem().state);
    stand.assert_obeyed();
}

#[test]
fn orders_disconnect_and_connect() {
    let mut stand = Stand::new(ModemOptions::default(), internet());
    stand.pass(30);
    stand.port.status.function.order(false);
    stand.pass(10);
    let is_active = |stand: &Stand| stand.side.lock().bench.adapter.modem().is_active(0);
    assert!(!is_active(&stand) && !stand.port.status.connection().link.up);
    stand.pass(300);
    assert!(!is_active(&stand), "it connects by itself");
    stand.port.status.function.order(true);
    stand.pass(10);
    assert!(is_active(&stand) && stand.port.status.connection().link.up);
    stand.assert_obeyed();
}

#[test]
fn the_signal_is_followed() {
    let mut stand = Stand::new(ModemOptions::default(), internet());
    stand.pass(30);
    stand.side.lock().bench.adapter.modem().set_signal(31);
    stand.pass(1);
    assert_eq!(stand.modem().state.signal, Some(-51));
    stand.side.lock().bench.adapter.modem().set_signal(99);
    stand.pass(1);
    assert_eq!(stand.modem().state.signal, None);
}

#[test]
fn a_function_that_was_reset_is_opened_again() {
    let mut stand = Stand::new(ModemOptions::default(), internet());
    stand.pass(30);
    stand.side.lock().bench.adapter.modem().reset();
    stand.pass(200);
    let state = stand.modem().state;
    assert!(state.is_connected(), "{state:?}");
    assert_eq!(state.function_errors, 1);
}

/// Turns after which a change of the signal is given up.
const MOST_TURNS: u32 = 40;

/// Turns that a change of the signal takes until it is known, each of several, sorted.
fn turns_of_signalling(own_control: bool, is_loaded: bool) -> Vec<u32> {
    let options = Options { own_control, ..Options::default() };
    let mut stand = Stand::with(model(ModemOptions::default()), &options, internet());
    stand.pass(30);
    let mut batch = Batch::new();
    let mut turns = Vec::new();
    for strength in (0..31).chain(0..31).chain(0..31) {
        let wanted = i16::try_from(strength).ok().map(|strength| 2 * strength - 113);
        let mut count = 0;
        while count < MOST_TURNS {
            for number in 0..if is_loaded { 40 } else { 0 } {
                // What finds no room is lost: the function is full.
                let _ = stand.side.inject(&packet(number, 1400, 0));
            }
            if count == 0 {
                stand.side.lock().bench.adapter.modem().set_signal(strength);
            }
            let _ = stand.port.queue.rx.receive(&mut Budget::new(16), &mut batch, &mut stand.pool);
            stand.pool.release(&mut batch);
            count += 1;
            if stand.modem().state.signal == wanted {
                break;
            }
        }
        turns.push(count);
    }
    turns.sort_unstable();
    turns
}

#[test]
fn bulk_data_does_not_delay_signalling_that_has_memory_of_its_own() {
    let p99 = |turns: &[u32]| turns[turns.len() * 99 / 100];
    let idle = p99(&turns_of_signalling(true, false));
    let (on, off) = (p99(&turns_of_signalling(true, true)), p99(&turns_of_signalling(false, true)));
    println!("turns, p99: {idle} idle, {on} with C3 under load, {off} without");
    assert!(on <= 2 * idle, "{on} turns under load, {idle} idle");
    assert!(off > 2 * on, "{off} turns without C3, {on} with it");
    // Without load the techniques are alike.
    assert_eq!(p99(&turns_of_signalling(false, false)), idle);
}

/// Lies that change nothing that is needed.
const HARMLESS: [ModemFault; 2] = [ModemFault::Twice, ModemFault::TinyMtu];

#[test]
fn every_lie_is_found_out_survived_and_forgiven() {
    for lie in ModemFault::ALL {
        // Small messages, so that there are fragments.
        let mut stand = Stand::new(ModemOptions { message_bytes: 64, ..ModemOptions::default() }, internet());
        stand.lie(&[lie]);
        if lie == ModemFault::OpenFails {
            // It was opened when it was plugged in.
            stand.side.lock().bench.adapter.modem().reset();
        }
        stand.pass(150);
        let state = stand.modem().state;
        assert_eq!(state.is_connected(), HARMLESS.contains(&lie), "{lie:?}: {state:?}");
        assert_eq!(stand.port.status.connection().link.up, HARMLESS.contains(&lie), "{lie:?}");
        if !HARMLESS.contains(&lie) {
            let is_waiting = lie == ModemFault::Denied;
            assert!(state.error.is_some() || is_waiting, "{lie:?}: {state:?}");
        }
        stand.lie(&[]);
        stand.pass(900);
        let state = stand.modem().state;
        assert!(state.is_connected(), "{lie:?} is never forgiven: {state:?}");
        assert!(!stand.port.status.connection().closed, "{lie:?}");
    }
}

#[test]
fn a_closed_port_closes_the_function() {
    let mut stand = Stand::new(ModemOptions::default(), internet());
    stand.pass(30);
    let Stand { port, side, region, pool } = stand;
    assert!(side.lock().bench.adapter.modem().is_open());
    drop(port);
    assert!(!side.lock().bench.adapter.modem().is_open());
    assert_eq!(side.lock().bench.adapter.setting(), 0);
    drop(pool);
    assert_eq!(region.free_slots(), region.slots());
}
