//! FRR and BIRD as Debian packs them, unmodified: they route by the kernel's tables and Polder forwards.

use crate::machines::{addresses, machine, reaches, until};
use crate::support::{Gateway, root_or_skip, skip, wire};
use polder_lab::command::{Running, exists};
use polder_lab::topology::{Namespace, Topology};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian puts FRR's daemons.
const FRR: &str = "/usr/lib/frr";

/// A machine with a gateway and a routing daemon.
struct Router {
    namespace: Namespace,
    polder: Gateway,
    _daemons: Vec<Running>,
}

/// Interfaces of a router, with their addresses.
type Ports<'a> = &'a [(&'a str, &'a str)];

/// Starts Polder where interfaces have their addresses already.
fn gateway(topology: &Topology, namespace: &Namespace, ports: Ports<'_>) -> Gateway {
    let port =
        |(name, _): &(&str, &str)| format!("[port.{name}]\ninterface = \"{name}\"\nrole = \"router\"\n");
    Gateway::start(topology, namespace, &ports.iter().map(port).collect::<String>())
}

/// A directory that a daemon may write to, whoever it becomes.
fn directory(topology: &Topology, namespace: &Namespace) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = topology.directory().join(format!("{}.d", namespace.name()));
    fs::create_dir_all(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(topology.directory(), fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// BIRD with OSPF on all interfaces but the loopback, which is a stub.
fn bird(topology: &Topology, namespace: &Namespace, id: &str, ports: Ports<'_>) -> Running {
    let directory = directory(topology, namespace);
    let interfaces = ports.iter().map(|(name, _)| {
        format!("interface \"{name}\" {{ hello 1; dead 4; wait 2; type ptp; check link yes; }};\n")
    });
    let text = format!(
        "log stderr all;\nrouter id {id};\nprotocol device {{ scan time 1; }}\nprotocol direct {{ ipv4; }}\n\
         protocol kernel {{ merge paths on; scan time 2; ipv4 {{ export all; }}; }}\n\
         protocol ospf v2 {{ ecmp on; tick 1; ipv4 {{ import all; }};\n\
         area 0 {{ {} interface \"lo\" {{ stub; }}; }}; }}\n",
        interfaces.collect::<String>()
    );
    let file = directory.join("bird.conf");
    fs::write(&file, text).unwrap();
    let mut command = inside(namespace, Path::new("bird"));
    command.arg("-f").arg("-c").arg(&file).arg("-s").arg(directory.join("bird.ctl"));
    Running::start("bird", &mut command).unwrap()
}

/// zebra and ospfd. Their directories are given, so that several run on one machine.
fn frr(topology: &Topology, namespace: &Namespace, id: &str, ports: Ports<'_>) -> Vec<Running> {
    let directory = directory(topology, namespace);
    let interfaces = ports.iter().map(|(name, _)| {
        format!(
            "interface {name}\n ip ospf area 0\n ip ospf network point-to-point\n ip ospf hello-interval 1\n \
             ip ospf dead-interval 4\n!\n"
        )
    });
    let zebra = "hostname zebra\nlog stdout\n".to_owned();
    let ospf = format!(
        "hostname ospfd\nlog stdout\n{}interface lo\n ip ospf area 0\n!\nrouter ospf\n ospf router-id {id}\n \
         timers throttle spf 10 50 200\n!\n",
        interfaces.collect::<String>()
    );
    let socket = directory.join("zserv");
    let start = |daemon: &str, text: &str| {
        let file = directory.join(format!("{daemon}.conf"));
        fs::write(&file, text).unwrap();
        let mut command = inside(namespace, &Path::new(FRR).join(daemon));
        command.arg("-f").arg(&file).arg("-i").arg(directory.join(format!("{daemon}.pid")));
        command.arg("-z").arg(&socket).arg("--vty_socket").arg(&directory).args(["-P", "0"]);
        Running::start(daemon, &mut command).unwrap()
    };
    let zebra = start("zebra", &zebra);
    until("zebra listens", || socket.exists());
    vec![zebra, start("ospfd", &ospf)]
}

/// The program itself is the process, so that ending one ends the other.
fn inside(namespace: &Namespace, program: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", namespace.name())).arg(program);
    command
}

/// Three machines in a ring; each has an address on its loopback that only OSPF makes known.
///
/// ```text
///  one ──ab── two
///    └─ac─ three ─bc─┘
/// ```
fn ring(
    topology: &mut Topology,
    daemon: impl Fn(&Topology, &Namespace, &str, Ports<'_>) -> Vec<Running>,
) -> Vec<Router> {
    let [one, two, three] = ["one", "two", "three"].map(|role| machine(topology, role));
    wire(topology, (&one, "ab"), (&two, "ab"), 1500);
    wire(topology, (&one, "ac"), (&three, "ac"), 1500);
    wire(topology, (&two, "bc"), (&three, "bc"), 1500);
    let all: [(Namespace, &str, Ports<'_>); 3] = [
        (one, "10.85.0.1", &[("ab", "10.85.12.1/24"), ("ac", "10.85.13.1/24")]),
        (two, "10.85.0.2", &[("ab", "10.85.12.2/24"), ("bc", "10.85.23.2/24")]),
        (three, "10.85.0.3", &[("ac", "10.85.13.3/24"), ("bc", "10.85.23.3/24")]),
    ];
    let router = |(namespace, id, ports): (Namespace, &str, Ports<'_>)| {
        addresses(&namespace, "lo", &[&format!("{id}/32")]);
        ports.iter().for_each(|(name, address)| addresses(&namespace, name, &[*address]));
        let polder = gateway(topology, &namespace, ports);
        let daemons = daemon(topology, &namespace, id, ports);
        Router { namespace, polder, _daemons: daemons }
    };
    all.map(router).into()
}

/// OSPF brings all in touch; a link fails, and the traffic goes the other way round, through Polder.
fn a_ring_heals(routers: Vec<Router>) {
    let one = &routers[0].namespace;
    reaches(one, "10.85.0.2");
    reaches(one, "10.85.0.3");
    let forwarded = || routers[2].polder.all("ports", "transmitted").into_iter().sum::<u64>();
    let before = forwarded();
    one.ip(&["link", "set", "ab", "down"]).unwrap();
    reaches(one, "10.85.0.2");
    until("the third forwards", || {
        reaches(one, "10.85.0.2");
        forwarded() > before
    });
    routers.into_iter().for_each(|router| router.polder.stop());
}

#[test]
fn frr_keeps_three_gateways_in_touch() {
    if !root_or_skip("frr_keeps_three_gateways_in_touch") {
        return;
    }
    if !Path::new(FRR).join("ospfd").is_file() {
        return skip("frr_keeps_three_gateways_in_touch", "FRR is not installed: `apt-get install frr`");
    }
    let mut topology = Topology::new().unwrap();
    a_ring_heals(ring(&mut topology, frr));
}

#[test]
fn bird_keeps_three_gateways_in_touch() {
    if !root_or_skip("bird_keeps_three_gateways_in_touch") {
        return;
    }
    if !exists("bird") {
        return skip("bird_keeps_three_gateways_in_touch", "BIRD is not installed: `apt-get install bird2`");
    }
    let mut topology = Topology::new().unwrap();
    a_ring_heals(ring(&mut topology, |topology, namespace, id, ports| {
        vec![bird(topology, namespace, id, ports)]
    }));
}
