//! FRR as Debian packs it, unmodified: zebra and OSPF of both families.

use crate::clock;
use crate::command::{Running, remedy};
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
}

impl Frr {
    /// Fails where it cannot be run.
    ///
    /// # Errors
    /// With what to do, when it is not installed.
    pub fn available() -> anyhow::Result<()> {
        let is_there =
            ["zebra", "ospfd", "ospf6d"].iter().all(|name| Path::new(PROGRAMS).join(name).is_file());
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
        // Their directories are given, so that several run on one machine.
        let socket = directory.join("zserv");
        let start = |daemon: &str, text: &str| {
            let file = directory.join(format!("{daemon}.conf"));
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
            let mut command = inside(namespace, &Path::new(PROGRAMS).join(daemon));
            command.arg("-f").arg(&file).arg("-i").arg(directory.join(format!("{daemon}.pid")));
            command.arg("-z").arg(&socket).arg("--vty_socket").arg(directory).args(["-P", "0"]);
            Running::start(daemon, &mut command)
        };
        // That of an earlier one says nothing of this one.
        let _: std::io::Result<()> = fs::remove_file(&socket);
        let mut zebra = start("zebra", "log stdout\n")?;
        let end = clock::now() + PATIENCE;
        while !socket.exists() {
            zebra.check()?;
            ensure!(clock::now() < end, "zebra does not listen");
            interrupt::sleep(Duration::from_millis(20))?;
        }
        let four = ospf("ip ospf", "ip ospf area 0", "ospf");
        let six = ospf("ipv6 ospf6", "ipv6 ospf6 area 0", "ospf6");
        let daemons = vec![start("ospf6d", &six)?, start("ospfd", &four)?, zebra];
        Ok(Self { daemons })
    }

    /// Ends the daemons as a service manager does, zebra last.
    ///
    /// # Errors
    /// When one does not end.
    pub fn stop(mut self) -> anyhow::Result<()> {
        self.daemons.iter_mut().try_for_each(|daemon| daemon.stop().map(drop))
    }
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
