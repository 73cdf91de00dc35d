//! Helpers of all devices' tests.

use polder_buffers::{Pool, Region, RegionOptions};
use polder_devices::conformance::{Limits, Wire};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use std::fmt::Display;
use std::io::Write as _;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Says loudly that a test cannot run, and leaves a line for the end of the whole run.
pub(crate) fn skip(name: &str, reason: impl Display) {
    let line = format!("skipped: {name}: {reason}");
    println!("{line}");
    let Some(path) = std::env::var_os("POLDER_SKIP_LOG") else { return };
    let mut log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .unwrap_or_else(|error| panic!("cannot open the log of skipped tests: {error}"));
    writeln!(log, "{line}").unwrap_or_else(|error| panic!("cannot write the log of skipped tests: {error}"));
}

/// True if the process may make namespaces and interfaces, and can; says so when not.
pub(crate) fn is_root(name: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(name, "needs root for namespaces and interfaces; run the tests as root");
    }
    root && has(name, "ip")
}

/// As [`is_root`]; the calling thread is in a namespace of its own then.
pub(crate) fn has_namespace(name: &str) -> bool {
    let root = is_root(name);
    if root {
        enter_namespace();
    }
    root
}

/// True if there is such a program; says so when not.
pub(crate) fn has(name: &str, program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        skip(name, format_args!("needs the program {program}; `make test` as root installs it"));
    }
    found
}

/// Gives the calling thread, and the processes that it starts, a network namespace of their own. It
/// has no name, so nothing is left behind when the thread ends.
#[expect(unsafe_code, reason = "UNSAFETY: a thread that leaves what it shares")]
pub(crate) fn enter_namespace() {
    // SAFETY: no memory or descriptor is affected by a new network namespace (unshare(2)); only
    // sockets that this thread opens later are.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }
        .unwrap_or_else(|error| panic!("cannot enter a new network namespace: {error}"));
    // The kernel's own packets (router solicitations, multicast listener reports) would be counted.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
}

/// Runs `ip` with the words of `arguments`.
pub(crate) fn ip(arguments: &str) {
    run("ip", arguments);
}

/// A veth pair whose ends are up, with these options.
pub(crate) fn veth(left: &str, right: &str, options: &str) {
    ip(&format!("link add {left} {options} type veth peer name {right} {options}"));
    ip(&format!("link set {left} up"));
    ip(&format!("link set {right} up"));
    wait_for_links(&[left, right]);
}

/// Memory of so many slots, and a pool of it.
pub(crate) fn memory(slots: u32) -> (Region, Pool) {
    let region = Region::new(RegionOptions { slots, slot_bytes: 2048 }).expect("memory for a test");
    let pool = region.pool();
    (region, pool)
}

/// Limits of an interface of the kernel's under the conformance suite.
pub(crate) fn limits(longest: usize, longest_received: usize) -> Limits {
    Limits { longest, longest_received, chains: true, backlog: 400, patience: Duration::from_secs(5) }
}

/// The kernel's end of an interface under the conformance suite.
pub(crate) struct OtherEnd<P> {
    pub(crate) peer: RawPeer,
    /// Interface that goes when the port is unplugged.
    pub(crate) link: String,
    /// Stays open as long as the end is there.
    #[expect(dead_code, reason = "its end closes the port")]
    pub(crate) port: P,
}

impl<P: Send> Wire for OtherEnd<P> {
    fn inject(&mut self, frame: &[u8]) -> bool {
        self.peer.send(frame)
    }

    fn extract(&mut self) -> Option<Vec<u8>> {
        self.peer.receive()
    }

    /// The kernel moves frames from one end to the other in its own time.
    fn settle(&mut self) {
        std::thread::sleep(Duration::from_millis(2));
    }

    fn unplug(&mut self) -> bool {
        ip(&format!("link delete {}", self.link));
        true
    }
}

/// Waits until links carry packets: the kernel sees to that some time after both ends are up, and drops
/// what is sent before.
pub(crate) fn wait_for_links(names: &[&str]) {
    let carries = |name: &str| {
        let output = std::process::Command::new("ip").args(["-o", "link", "show", "dev", name]).output();
        String::from_utf8_lossy(&output.expect("ip is there").stdout).contains("state UP")
    };
    for name in names {
        let came = (0..2000).any(|_| {
            let carries = carries(name);
            if !carries {
                std::thread::sleep(Duration::from_millis(10));
            }
            carries
        });
        assert!(came, "{name} does not come up");
    }
}

/// Runs `program` with the words of `arguments`.
pub(crate) fn run(program: &str, arguments: &str) {
    let output = std::process::Command::new(program)
        .args(arguments.split_whitespace())
        .output()
        .unwrap_or_else(|error| panic!("cannot run {program}: {error}; install iproute2 and ethtool"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {error}");
}

/// A raw socket on one interface: what it sends leaves by the interface, what it receives came in.
#[derive(Debug)]
pub(crate) struct RawPeer {
    socket: OwnedFd,
}

impl RawPeer {
    /// Opens the socket on `interface`, which must be up.
    #[expect(unsafe_code, reason = "UNSAFETY: no safe crate knows the addresses of packet sockets")]
    pub(crate) fn open(interface: &str) -> Self {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
            .unwrap_or_else(|error| panic!("cannot open a raw socket: {error}"));
        let index = rustix::net::netdevice::name_to_index(&socket, interface)
            .unwrap_or_else(|error| panic!("no interface {interface}: {error}"));
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20);
        let address = libc::sockaddr_ll {
            sll_family: u16::try_from(libc::AF_PACKET).expect("a small number"),
            sll_protocol: u16::try_from(libc::ETH_P_ALL).expect("a small number").to_be(),
            sll_ifindex: i32::try_from(index).expect("a small number"),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let length = libc::socklen_t::try_from(size_of_val(&address)).expect("a small number");
        // SAFETY: (1) the address is a whole `sockaddr_ll` of the length given; (2) the kernel does
        // not keep the pointer (packet(7), bind(2)).
        let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
        assert_eq!(bound, 0, "cannot bind to {interface}: {}", std::io::Error::last_os_error());
        Self { socket }
    }

    /// Sends a frame by the interface; says whether it was taken.
    pub(crate) fn send(&self, frame: &[u8]) -> bool {
        rustix::net::send(&self.socket, frame, SendFlags::empty()).is_ok()
    }

    /// A frame that came in by the interface, if there is one. Frames that went out are passed over.
    #[expect(unsafe_code, reason = "UNSAFETY: no safe crate knows the addresses of packet sockets")]
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; 1 << 17];
        loop {
            let mut length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).expect("small");
            // SAFETY: (1) all bytes of the structure are integers, for which zero is valid.
            let mut from: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
            // SAFETY: (1) buffer and address are as long as is said; (2) the kernel writes to them
            // during the call alone (recvfrom(2)).
            let count = unsafe {
                libc::recvfrom(
                    self.socket.as_raw_fd(),
                    frame.as_mut_ptr().cast(),
                    frame.len(),
                    0,
                    (&raw mut from).cast(),
                    &raw mut length,
                )
            };
            let count = usize::try_from(count).ok()?;
            if from.sll_pkttype != libc::PACKET_OUTGOING {
                frame.truncate(count);
                return Some(frame);
            }
        }
    }
}

/// A broadcast frame for a local experiment (EtherType 0x88b5).
pub(crate) fn frame(length: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend([0x88, 0xb5]);
    frame.extend((0..length - 14).map(|index| index.to_le_bytes()[0]));
    frame
}

/// UDP socket of the kernel on an interface, with the address of an absent neighbour.
pub(crate) fn udp_socket(interface: &str) -> UdpSocket {
    ip(&format!("address add 10.9.0.1/24 dev {interface}"));
    ip(&format!("neighbour add 10.9.0.2 lladdr 02:00:00:00:00:02 dev {interface}"));
    let socket = UdpSocket::bind("10.9.0.1:5000").expect("the address is there");
    socket.connect("10.9.0.2:5000").expect("there is a route");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a time is a time");
    socket
}

/// Datagrams of `each` bytes, one behind the other.
pub(crate) fn datagrams(socket: &UdpSocket, bytes: usize, each: usize) -> Vec<u8> {
    let mut answer = vec![0; bytes];
    for part in answer.chunks_mut(each) {
        assert_eq!(socket.recv(part).expect("every datagram comes back"), each);
    }
    answer
}

/// Lets the kernel cut sent data into datagrams of `bytes`, as late as it can.
#[expect(unsafe_code, reason = "UNSAFETY: no safe crate has UDP_SEGMENT")]
pub(crate) fn send_segmented(socket: &UdpSocket, bytes: libc::c_int) {
    let (value, length) = ((&raw const bytes).cast(), libc::socklen_t::try_from(size_of_val(&bytes)));
    let length = length.expect("a small number");
    // SAFETY: (1) UDP_SEGMENT takes an `int` of the length given (udp(7)).
    let set =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value, length) };
    assert_eq!(set, 0, "UDP_SEGMENT: {}", std::io::Error::last_os_error());
}
