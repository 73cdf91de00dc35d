//! The package under systemd: a small Debian that boots in an emulator installs, runs, upgrades and purges it.

use super::{build, newer, run};
use crate::support::{Folder, skip};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Modules of the guest's kernel.
const MODULES: [&str; 2] = ["tun", "veth"];
/// Seconds after which a guest hangs. It takes two minutes on an idle machine, without hardware that helps.
const PATIENCE: &str = "900";
/// Progress that the guest reports, in order.
const STEPS: [&str; 8] = [
    "installed 0.1.0",
    "runs: notify main 2 ports up",
    "reloads, and refuses what is wrong",
    "goes on as another process",
    "is restarted when it is killed",
    "upgraded to 9:1-1",
    "purged",
    "ended with 0",
];

/// File of a folder that a script fills.
fn cached(variable: &str, name: &str, file: &str) -> PathBuf {
    let folder = std::env::var_os(variable);
    folder.map_or_else(|| Path::new("/var/cache/polder").join(name), PathBuf::from).join(file)
}

fn obstacle(kernel: &Path, system: &Path) -> Option<String> {
    for (program, package) in [
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("cpio", "cpio"),
        ("dpkg-buildpackage", "dpkg-dev"),
        ("dh", "debhelper"),
    ] {
        if Command::new(program).arg("--version").output().is_err() {
            return Some(format!("`{program}` is not installed (package {package})"));
        }
    }
    if !kernel.is_file() {
        return Some("no guest kernel: run scripts/guest-kernel as root".to_owned());
    }
    (!system.is_file()).then(|| "no guest system: run scripts/guest-system as root".to_owned())
}

#[test]
#[ignore = "long: boots a guest with systemd"]
fn it_installs_runs_upgrades_and_purges_under_systemd() {
    let kernel = cached("POLDER_GUEST_KERNEL", "guest-kernel", "vmlinux");
    let system = cached("POLDER_GUEST_SYSTEM", "guest-system", "root.cpio");
    if let Some(obstacle) = obstacle(&kernel, &system) {
        return skip("it_installs_runs_upgrades_and_purges_under_systemd", &obstacle);
    }
    let folder = Folder::new("package-guest");
    let files = folder.0.join("files");
    let first = build(&folder.0);
    let second = newer(&folder.0, &first);
    place(&first, &files.join("pd/first/polder.deb"));
    place(&second, &files.join("pd/second/polder.deb"));
    let mut rest = boot(&kernel, &initial(&folder.0, &files, &kernel, &system));
    let said = rest.clone();
    for step in STEPS {
        let line = format!("guest: {step}");
        let (_, after) = rest.split_once(&line).unwrap_or_else(|| panic!("{line} is missing:\n{said}"));
        rest = after.to_owned();
    }
}

fn place(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
    fs::copy(from, to).expect("a copy");
}

/// First files of the guest: the system, and behind it the packages and the script of the test.
fn initial(folder: &Path, files: &Path, kernel: &Path, system: &Path) -> PathBuf {
    for module in MODULES {
        let file = format!("{module}.ko");
        place(&kernel.with_file_name("modules").join(&file), &files.join("pd/modules").join(&file));
    }
    let units = files.join("etc/systemd/system");
    fs::create_dir_all(units.join("multi-user.target.wants")).expect("a folder");
    let script = files.join("pd/guest.sh");
    fs::write(&script, include_str!("guest.sh")).expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a mode");
    fs::write(units.join("pd-guest.service"), include_str!("guest.service")).expect("a unit");
    symlink("../pd-guest.service", units.join("multi-user.target.wants/pd-guest.service")).expect("a link");
    let image = folder.join("initial");
    fs::copy(system, &image).expect("a copy");
    let append = "find . | cpio --create --format=newc --quiet >> \"$1\"";
    run(Command::new("sh").args(["-c", append, "sh"]).arg(&image).current_dir(files));
    image
}

/// Output of the guest until it is switched off.
fn boot(kernel: &Path, initial: &Path) -> String {
    // A terminal on the serial line would take it from the script.
    let line = "console=ttyS0 quiet loglevel=3 panic=-1 rdinit=/lib/systemd/systemd random.trust_cpu=on \
                systemd.show_status=no systemd.mask=serial-getty@ttyS0.service";
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", PATIENCE, "qemu-system-x86_64", "-accel", "tcg", "-cpu", "max"]);
    command.args([
        "-smp",
        "2",
        "-m",
        "1536",
        "-nodefaults",
        "-no-reboot",
        "-display",
        "none",
        "-serial",
        "stdio",
    ]);
    command.args(["-append", line, "-kernel"]).arg(kernel).arg("-initrd").arg(initial);
    let output = command.stdin(Stdio::null()).output().expect("timeout starts");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}
