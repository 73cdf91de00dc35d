//! FRR as Debian packs it, unmodified: zebra, OSPF of both families, BGP, and BFD.

use crate::clock;
use crate::command::{self, Running, remedy};
use crate::interrupt;
use crate::topology::Namespace;
use anyhow::{Context as _, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Directory of the daemons on Debian.
const PROGRAMS: &str = "/usr/lib/frr";
/// Time for which zebra may take to listen.
const PATIENCE: Duration = Duration::from_secs(40);

/// Running daemons; zebra ends last.
#[derive(Debug)]
pub struct Frr {
    daemons: Vec<Running>,
    /// Folder of their sockets.
    directory: PathBuf,
}

impl Frr {
    /// Fails where it cannot be run.
    ///
    /// # Errors
    /// With what to do, when it is not installed.
    pub fn available() -> anyhow::Result<()> {
        let is_there = ["zebra", "ospfd", "ospf6d", "bgpd", "bfdd"]
            .iter()
            .all(|name| Path::new(PROGRAMS).join(name).is_file());
        ensure!(is_there, "{}", remedy("ospfd"));
        Ok(())
    }

    /// Starts OSPF with short timers on some interfaces; the loopback is part of the area.
    /// `directory` is one in which [`writable`] has made a folder.
    ///
    /// # Errors
    /// When a daemon does not start.
    pub fn ospf(
        namespace: &Namespace,
        directory: &Path,
        id: &str,
        interfaces: &[&str],
    ) -> anyhow::Result<Self> {
        let ospf = |of: &str, loopback: &str, router: &str| {
            let interfaces = interfaces.iter().map(|name| {
                format!(
                    "interface {name}\n {of} area 0\n {of} network point-to-point\n {of} hello-interval 1\n \
                     {of} dead-interval 4\n!\n"
                )
            });
            format!(
                "log stdout\n{}interface lo\n {loopback}\n!\nrouter {router}\n {router} router-id {id}\n \
                 timers throttle spf 10 50 200\n!\n",
                interfaces.collect::<String>()
            )
        };
        let zebra = zebra(namespace, directory)?;
        let four = ospf("ip ospf", "ip ospf area 0", "ospf");
        let six = ospf("ipv6 ospf6", "ipv6 ospf6 area 0", "ospf6");
        let six = start(namespace, directory, "ospf6d", &six, &[])?;
        let daemons = vec![six, start(namespace, directory, "ospfd", &four, &[])?, zebra];
        Ok(Self { daemons, directory: directory.to_owned() })
    }

    /// Starts BFD with `peers`, lines of its configuration. `directory` is as for OSPF.
    ///
    /// # Errors
    /// When a daemon does not start.
    pub fn bfd(namespace: &Namespace, directory: &Path, peers: &str) -> anyhow::Result<Self> {
        let zebra = zebra(namespace, directory)?;
        let control = directory.join("bfdd.sock").display().to_string();
        let text = format!("log stdout\nbfd\n{peers}!\n");
        let bfd = start(namespace, directory, "bfdd", &text, &["--bfdctl", &control])?;
        Ok(Self { daemons: vec![bfd, zebra], directory: directory.to_owned() })
    }

    /// Starts BGP with a configuration. `directory` is as for OSPF.
    ///
    /// # Errors
    /// When a daemon does not start.
    pub fn bgp(namespace: &Namespace, directory: &Path, text: &str) -> anyhow::Result<Self> {
        let zebra = zebra(namespace, directory)?;
        let bgp = start(namespace, directory, "bgpd", &format!("log stdout\n{text}!\n"), &[])?;
        Ok(Self { daemons: vec![bgp, zebra], directory: directory.to_owned() })
    }

    /// Process of the daemon that is not zebra.
    pub fn id(&self) -> Option<u32> {
        self.daemons.first().map(Running::id)
    }

    /// Answer of a daemon to a line of its shell, or to several.
    ///
    /// # Errors
    /// When the shell fails.
    pub fn ask(&self, daemon: &str, lines: &[&str]) -> anyhow::Result<String> {
        let mut shell = Command::new("vtysh");
        shell.arg("--vty_socket").arg(&self.directory).args(["-d", daemon]);
        for line in lines {
            shell.args(["-c", line]);
        }
        command::run(&mut shell)
    }

    /// Ends the daemons as a service manager does, zebra last.
    ///
    /// # Errors
    /// When one does not end.
    pub fn stop(mut self) -> anyhow::Result<()> {
        self.daemons.iter_mut().try_for_each(|daemon| daemon.stop().map(drop))
    }
}

/// Starts a daemon. Its directories are given, so that several run on one machine.
fn start(
    namespace: &Namespace,
    directory: &Path,
    daemon: &str,
    text: &str,
    arguments: &[&str],
) -> anyhow::Result<Running> {
    let file = directory.join(format!("{daemon}.conf"));
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    let mut command = inside(namespace, &Path::new(PROGRAMS).join(daemon));
    command.arg("-f").arg(&file).arg("-i").arg(directory.join(format!("{daemon}.pid")));
    command.arg("-z").arg(directory.join("zserv")).arg("--vty_socket").arg(directory).args(["-P", "0"]);
    Running::start(daemon, command.args(arguments))
}

/// Starts zebra; until it listens.
fn zebra(namespace: &Namespace, directory: &Path) -> anyhow::Result<Running> {
    let socket = directory.join("zserv");
    // That of an earlier one says nothing of this one.
    let _: std::io::Result<()> = fs::remove_file(&socket);
    let mut zebra = start(namespace, directory, "zebra", "log stdout\n", &[])?;
    let end = clock::now() + PATIENCE;
    while !socket.exists() {
        zebra.check()?;
        ensure!(clock::now() < end, "zebra does not listen");
        interrupt::sleep(Duration::from_millis(20))?;
    }
    Ok(zebra)
}

/// Folder of a namespace in a directory that daemons may write to under any user.
///
/// # Errors
/// When it cannot be made.
pub fn writable(directory: &Path, namespace: &Namespace) -> anyhow::Result<PathBuf> {
    let folder = directory.join(format!("{}.d", namespace.name()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}

/// The program itself is the process, so that ending one ends the other.
pub fn inside(namespace: &Namespace, program: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", namespace.name())).arg(program);
    command
}
