//! Threads of a gateway that are lost: by a panic, or ended from outside without unwinding anything.

use crate::death::{KERNEL, Net, RIGHT};
use crate::hooks::nft;
use crate::support::{
    Gateway, address, assert_reaches, assert_silent, polder, root_or_skip, skip, soon, wire,
};
use crate::usb::Desk;
use polder::device::{self, Spares};
use polder::runtime::gateway::Opener;
use polder::runtime::run;
use polder_buffers::{Batch, Pool};
use polder_datapath::counters::QueueCounters;
use polder_datapath::port::{Armed, Budget, RxQueue, Turn};
use polder_devices::AnyQueue;
use polder_judges::lan78xx::Door;
use polder_lab::hold;
use polder_testbed::clock;
use polder_testbed::command::{self, Running};
use polder_testbed::meters::cpu::threads_named;
use polder_testbed::topology::Topology;
use std::fs::{self, File};
use std::io::Read as _;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time within which a lost thread must be noticed.
const NOTICED: Duration = Duration::from_millis(100);
/// Extra time where other processes have the cores.
const BUSY: Duration = Duration::from_millis(400);

fn can_run(test: &str) -> bool {
    if cfg!(not(target_arch = "x86_64")) {
        skip(test, "threads are ended by ptrace with the registers of x86-64");
        return false;
    }
    root_or_skip(test)
}

/// The thread of that name.
fn thread(gateway: &Gateway, name: &str) -> i32 {
    threads_named(gateway.id(), 1, |other| other == name).unwrap()[0]
}

/// Waits until the gateway has said `text`; how long that took.
fn said(gateway: &mut Gateway, text: &str) -> Duration {
    let begin = clock::now();
    gateway.wait_until_said(text);
    clock::now() - begin
}

/// Nothing of a gateway with `on_exit = "kernel"` is left.
fn assert_nothing_left(net: &Net, socket: &Path) {
    let links = net.gateway.ip(&["-details", "link", "show"]).unwrap();
    assert!(!links.contains("xdp") && !links.contains("Polder's packets"), "{links}");
    assert!(!socket.exists(), "the control socket stays behind");
    let sockets =
        net.gateway.inside(|| fs::read_to_string("/proc/thread-self/net/protocols")).unwrap().unwrap();
    let xdp = sockets.lines().find(|line| line.starts_with("XDP ")).unwrap_or("XDP 0 0");
    assert_eq!(xdp.split_whitespace().nth(2), Some("0"), "{sockets}");
}

/// The gateway ends because `name` was lost, and the kernel has its interfaces.
fn assert_ends(net: &Net, mut gateway: Gateway, name: &str, how: &str) {
    let took = said(&mut gateway, &format!("the thread {name} {how}"));
    assert!(took < NOTICED + BUSY, "{name}: {took:?}");
    assert_eq!(gateway.wait_for_end(), Some(3), "{name}: {}", gateway.said());
    assert_reaches(&net.left, KERNEL);
    assert_nothing_left(net, gateway.socket());
    let words = gateway.refuses("ports");
    assert!(words.contains("the last gateway ended") && words.contains(name), "{words}");
}

#[test]
fn a_thread_that_is_ended_from_outside_ends_the_gateway() {
    if !can_run("a_thread_that_is_ended_from_outside_ends_the_gateway") {
        return;
    }
    let net = Net::new();
    let names =
        ["worker-0", "control", "reload-data", "reload-control", "close-af-xdp", "gateway", "supervisor"];
    for name in names {
        let gateway = net.start("kernel");
        assert_reaches(&net.left, RIGHT);
        assert_silent(&net.left, KERNEL);
        hold::end(thread(&gateway, name)).unwrap();
        assert_ends(&net, gateway, name, "ended unexpectedly");
    }
    // The next one says it in its log and in its views, and forgets it when it ends in order.
    let mut gateway = net.start("kernel");
    gateway.wait_until_said("the last gateway ended");
    for view in ["ports", "workers"] {
        let shown = gateway.show(view);
        let told = shown["lost_threads"][0].as_str().unwrap_or_default();
        assert!(told.contains("supervisor"), "{shown:#}");
    }
    assert!(gateway.show("drops")["lost_threads"].is_null());
    gateway.stop();
    let gateway = net.start("kernel");
    assert!(gateway.show("ports")["lost_threads"].is_null());
    gateway.stop();
}

#[test]
fn a_closed_port_stays_closed_when_a_worker_is_lost() {
    if !can_run("a_closed_port_stays_closed_when_a_worker_is_lost") {
        return;
    }
    let net = Net::new();
    let mut gateway = net.start("drop");
    let program = gateway.program();
    assert_reaches(&net.left, RIGHT);
    hold::end(thread(&gateway, "worker-0")).unwrap();
    assert_eq!(gateway.wait_for_end(), Some(3), "{}", gateway.said());
    assert_silent(&net.left, KERNEL);
    for interface in ["eth0", "eth1"] {
        Gateway::other(&program, &["release", interface]);
    }
    assert_reaches(&net.left, KERNEL);
}

#[test]
fn the_first_thread_of_the_process_carries_nothing() {
    if !can_run("the_first_thread_of_the_process_carries_nothing") {
        return;
    }
    let net = Net::new();
    let gateway = net.start("kernel");
    hold::end(i32::try_from(gateway.id()).unwrap()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_reaches(&net.left, RIGHT);
    assert_silent(&net.left, KERNEL);
    // Another thread that is lost still ends it.
    hold::end(thread(&gateway, "worker-0")).unwrap();
    assert_ends(&net, gateway, "worker-0", "ended unexpectedly");
}

#[test]
fn a_capture_that_loses_its_thread_ends_alone() {
    if !can_run("a_capture_that_loses_its_thread_ends_alone") {
        return;
    }
    let net = Net::new();
    let mut gateway = net.start("kernel");
    let file = net.topology.directory().join("lost.pcapng");
    let mut command = Command::new(polder());
    command.args(["capture", "eth0", "-w"]).arg(&file).arg("--socket").arg(gateway.socket());
    let mut capture = command.stderr(Stdio::null()).spawn().unwrap();
    let lost = thread(&gateway, "capture");
    // What is ended while it begins may hold what others wait for.
    let end = clock::now() + soon();
    while fs::metadata(&file).map_or(0, |file| file.len()) == 0 {
        assert!(clock::now() < end, "nothing is captured");
        assert_reaches(&net.left, RIGHT);
    }
    hold::end(lost).unwrap();
    let took = said(&mut gateway, "the thread capture ended unexpectedly");
    assert!(took < NOTICED + BUSY, "{took:?}");
    let end = clock::now() + soon();
    while capture.try_wait().unwrap().is_none() {
        assert!(clock::now() < end, "the capture goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_reaches(&net.left, RIGHT);
    let shown = gateway.show("workers");
    assert!(shown["lost_threads"][0].as_str().unwrap_or_default().contains("capture"), "{shown:#}");
    gateway.stop();
}

#[test]
fn hooks_are_watched_by_another_thread_when_theirs_is_lost() {
    if !can_run("hooks_are_watched_by_another_thread_when_theirs_is_lost") {
        return;
    }
    if !command::exists("nft") {
        skip("hooks_are_watched_by_another_thread_when_theirs_is_lost", "`nft` is not installed");
        return;
    }
    let net = Net::new();
    let mut gateway = net.start("kernel");
    let lost = thread(&gateway, "kernel-hooks");
    hold::end(lost).unwrap();
    let took = said(&mut gateway, "the thread kernel-hooks ended unexpectedly");
    assert!(took < NOTICED + BUSY, "{took:?}");
    assert_reaches(&net.left, RIGHT);
    let end = clock::now() + soon();
    while thread(&gateway, "kernel-hooks") == lost {
        assert!(clock::now() < end, "nobody watches: {}", gateway.said());
        std::thread::sleep(Duration::from_millis(10));
    }
    // The new one hears of a chain that appears.
    let chain = "add table netdev pd\nadd chain netdev pd c { type filter hook ingress device eth0 priority 0; policy drop; }\n";
    nft(&net.gateway, chain);
    gateway.wait_until_said("a new kernel hook");
    let shown = gateway.show("workers");
    assert!(shown["lost_threads"][0].as_str().unwrap_or_default().contains("kernel-hooks"), "{shown:#}");
    gateway.stop();
}

/// Queue that panics in the worker's hands, once a file has content. The worker itself opens none.
struct Panics {
    queue: Box<dyn RxQueue>,
    when: File,
}

impl RxQueue for Panics {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        assert_eq!(self.when.read(&mut [0]).unwrap_or(0), 0, "injected");
        self.queue.receive(budget, batch, pool)
    }

    fn arm(&mut self) -> Armed {
        self.queue.arm()
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        self.queue.event()
    }

    fn posted(&self) -> u32 {
        self.queue.posted()
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        self.queue.counters()
    }
}

/// The variable that names the configuration of a gateway that this test program itself is to run.
const CONFIGURATION: &str = "POLDER_TEST_PANICKING_GATEWAY";

/// No test: the gateway of the next one.
#[test]
#[ignore = "long: runs as another test's gateway, and does nothing alone"]
fn a_gateway_whose_worker_panics() {
    let Some(file) = std::env::var_os(CONFIGURATION) else { return };
    let when = Path::new(&file).with_extension("panic");
    let open: Opener = Box::new(move |port, configuration, region| {
        let mut opened = device::open(port, configuration, region, &Spares::default())?;
        let panics = |AnyQueue { rx, tx }| AnyQueue {
            rx: Box::new(Panics { queue: rx, when: File::open(&when).unwrap() }),
            tx,
        };
        opened.queues = opened.queues.into_iter().map(panics).collect();
        Ok(opened)
    });
    run::run_with(Path::new(&file), open).unwrap();
}

#[test]
fn a_worker_that_panics_ends_the_gateway() {
    if !root_or_skip("a_worker_that_panics_ends_the_gateway") {
        return;
    }
    let net = Net::new();
    let base = net.topology.directory().join("panics");
    let (file, socket, when) =
        (base.with_extension("toml"), base.with_extension("sock"), base.with_extension("panic"));
    fs::write(&file, Gateway::whole(&socket, &Net::text("kernel"))).unwrap();
    fs::write(&when, "").unwrap();
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", net.gateway.name())).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "supervise::a_gateway_whose_worker_panics", "--ignored", "--nocapture"]);
    let process = Running::start("a gateway", command.env(CONFIGURATION, &file)).unwrap();
    let mut gateway = Gateway::of(process, file, socket, Box::new(|| Command::new("false")));
    assert_reaches(&net.left, RIGHT);
    assert_silent(&net.left, KERNEL);
    fs::write(when, "x").unwrap();
    // The next packet, or the worker's next look, is its last.
    assert_reaches(&net.left, KERNEL);
    assert_eq!(gateway.wait_for_end(), Some(3), "{}", gateway.said());
    assert!(gateway.said().contains("injected"), "{}", gateway.said());
    assert_nothing_left(&net, gateway.socket());
    let words = gateway.refuses("workers");
    assert!(words.contains("the thread worker-0 ended unexpectedly: it panicked"), "{words}");
}

#[test]
fn a_search_for_an_adapter_that_loses_its_thread_begins_anew() {
    if !can_run("a_search_for_an_adapter_that_loses_its_thread_begins_anew") {
        return;
    }
    let desk = Desk::new();
    let listen = |port: u16| desk.gateway.inside(|| TcpListener::bind(("127.0.0.1", port))).unwrap().unwrap();
    // Not of the ephemeral range: a client that finds no listener there may connect to itself and keep the port.
    let number = 3240;
    let shown = desk.plug_in(Door::Tcp(listen(number)));
    let mut gateway = desk.start(&format!("127.0.0.1:{number}"), "");
    drop(shown);
    // A server that says nothing keeps the search waiting.
    let silent = listen(number);
    silent.set_nonblocking(true).unwrap();
    let mut asked = Vec::new();
    for turn in 1..=2 {
        // A search that asks has begun; one that is ended before that is not yet supervised.
        let end = clock::now() + 3 * soon();
        while asked.len() < turn {
            asked.extend(silent.accept());
            assert!(clock::now() < end, "nobody asks: {}", gateway.said());
            std::thread::sleep(Duration::from_millis(1));
        }
        hold::end(thread(&gateway, "seek-adapter")).unwrap();
        let took = said(&mut gateway, "the thread seek-adapter ended unexpectedly");
        assert!(took < NOTICED + BUSY, "{took:?}");
    }
    let lost = || gateway.show("ports")["lost_threads"].as_array().map_or(0, Vec::len);
    let end = clock::now() + soon();
    while lost() < 2 {
        assert!(clock::now() < end, "{:#}", gateway.show("ports"));
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(silent);
    let shown = desk.plug_in(Door::Tcp(listen(number)));
    let open = || gateway.show("ports")["ports"][0]["open"] == true;
    let end = clock::now() + 3 * soon();
    while !open() {
        assert!(clock::now() < end, "{:#}", gateway.show("ports"));
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(shown);
}

/// The kernel's receive thread of an interface, with its policy; none while the interface has none.
fn receive_thread(interface: &str) -> Option<(i32, String)> {
    let prefix = format!("napi/{interface}-");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let named =
        |path: &PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|name| name.starts_with(&prefix));
    let path = processes.map(|process| process.path()).find(named)?;
    let stat = fs::read_to_string(path.join("stat")).ok()?;
    let policy = stat.rsplit_once(')')?.1.split_whitespace().nth(38)?.to_owned();
    Some((path.file_name()?.to_str()?.parse().ok()?, policy))
}

#[test]
fn an_interface_without_receive_thread_has_none_when_its_worker_is_lost() {
    if !can_run("an_interface_without_receive_thread_has_none_when_its_worker_is_lost") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let (station, namespace) = (topology.namespace("sta").unwrap(), topology.namespace("gw").unwrap());
    // Threads of the kernel have the names of interfaces of all namespaces.
    let port = topology.interface("napi");
    wire(&topology, (&namespace, &port), (&station, "eth0"), 1500);
    address(&station, "eth0", "10.71.0.1".parse().unwrap(), 24);
    let target = "10.71.0.2";
    station.ip(&["neighbour", "add", target, "lladdr", "02:00:00:00:71:02", "dev", "eth0"]).unwrap();
    let text = format!(
        "cpu_share = 5\n[port.a]\ninterface = \"{port}\"\nmode = \"native\"\n[port.b]\ntap = \"host0\"\n[bridge.lan]\nmembers = [\"a\", \"b\"]\n"
    );
    let mut gateway = Gateway::start(&topology, &namespace, &text);
    let sender = station.inside(|| UdpSocket::bind(("0.0.0.0", 0))).unwrap().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // More than a twentieth of a core can forward.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = sender.send_to(&[0; 64], (target, 7007));
            }
        });
        let end = clock::now() + soon();
        while gateway.drops("rx-overrun") == 0 {
            assert!(clock::now() < end, "it is never overloaded");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(receive_thread(&port), None, "the program drops what is too much");
        hold::end(thread(&gateway, "worker-0")).unwrap();
        let code = gateway.wait_for_end();
        over.store(true, Ordering::Relaxed);
        assert_eq!(code, Some(3), "{}", gateway.said());
    });
    assert_eq!(receive_thread(&port), None);
    let threaded =
        command::run(namespace.command("cat").arg(format!("/sys/class/net/{port}/threaded"))).unwrap();
    assert_eq!(threaded.trim(), "0");
}
