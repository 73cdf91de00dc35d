//! Effects of users without privileges, silent clients and others' files on a gateway and its capture.

use super::support::{Folder, Gateway, polder, root_or_skip, until};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time within which an immediate result must come.
const AT_ONCE: Duration = Duration::from_secs(4);

/// A command of the user nobody.
fn nobody(command: &str) -> Command {
    let mut nobody = Command::new("setpriv");
    nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", command]);
    nobody
}

/// A process that ends with the test.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _: std::io::Result<()> = self.0.kill();
        let _: std::io::Result<std::process::ExitStatus> = self.0.wait();
    }
}

#[test]
fn a_user_without_privileges_blocks_no_start() {
    if !root_or_skip("a_user_without_privileges_blocks_no_start") {
        return;
    }
    let gateway = Gateway::start("flocked");
    let (_, _, folder) = gateway.terminate();
    let (path, locked) = (folder.0.display().to_string(), folder.0.join("gw.toml"));
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o644)).expect("the file is ours");
    // Everything there that the user may open, locked for as long as the test runs.
    let script = format!("exec flock {path} flock {path}/gw.toml sh -c 'echo locked; exec sleep 60'");
    let mut flock = Guard(nobody(&script).stdout(Stdio::piped()).spawn().expect("setpriv starts"));
    let mut said = [0; 7];
    let out = flock.0.stdout.as_mut().expect("it is piped");
    std::io::Read::read_exact(out, &mut said).expect("the directory is locked");
    let begin = Instant::now();
    let gateway = Gateway::start_in(folder, &[]);
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
    let lock = gateway.socket().with_extension("lock");
    assert!(!lock.exists(), "the lock stays behind");
    assert_eq!(gateway.terminate().0, Some(0));
}

#[test]
fn a_lock_that_others_have_made_is_refused_and_not_waited_for() {
    if !root_or_skip("a_lock_that_others_have_made_is_refused_and_not_waited_for") {
        return;
    }
    let folder = Folder::new("foreign-lock");
    let file = folder.0.join("gw.toml");
    let control = folder.0.join("gw.sock");
    let text = format!(
        "version = 1\n[gateway]\ncontrol = {:?}\n[port.a]\ntap = \"pdtl\"\n[bridge.b]\nmembers = [\"a\"]\n",
        control.display().to_string()
    );
    fs::write(&file, text).expect("the file");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).expect("the folder is ours");
    let lock = folder.0.join("gw.lock");
    let make = |command: String| assert!(nobody(&command).status().expect("setpriv starts").success());
    for (way, command) in [
        ("a file", format!("touch {}", lock.display())),
        ("a link", format!("ln -s /etc/passwd {}", lock.display())),
    ] {
        make(command);
        let begin = Instant::now();
        let output = polder().arg("run").arg(&file).output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{way}: {error}");
        assert!(
            error.contains("gw.lock belongs to another user") && error.contains("`control`"),
            "{way}: {error}"
        );
        assert!(begin.elapsed() < AT_ONCE, "{way}: {:?}", begin.elapsed());
        fs::remove_file(&lock).expect("it is still there");
    }
}

#[test]
fn silent_clients_lock_nobody_out() {
    if !root_or_skip("silent_clients_lock_nobody_out") {
        return;
    }
    let gateway = Gateway::start("silent");
    let silent =
        (0..20).map(|_| UnixStream::connect(gateway.socket()).expect("it listens")).collect::<Vec<_>>();
    let begin = Instant::now();
    let outcome = gateway.ask(&["show", "ports"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
    drop(silent);
    assert_eq!(gateway.terminate().0, Some(0));
}

/// CPU time of a thread of the gateway.
fn cpu_time(process: u32, thread: &str) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("it runs").flatten();
    let named =
        |path: &PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == thread);
    let task = tasks.map(|task| task.path()).find(named).expect("it has such a thread");
    let text = fs::read_to_string(task.join("schedstat")).expect("the kernel keeps such statistics");
    let nanos = text.split_whitespace().next().expect("a number").parse().expect("a number");
    Duration::from_nanos(nanos)
}

#[test]
fn without_descriptors_the_control_thread_waits_and_then_goes_on() {
    if !root_or_skip("without_descriptors_the_control_thread_waits_and_then_goes_on") {
        return;
    }
    let gateway = Gateway::start("descriptors");
    let id = gateway.id();
    let limit = |count: usize| {
        let (pid, limit) = (format!("--pid={id}"), format!("--nofile={count}:"));
        assert!(Command::new("prlimit").args([pid, limit]).status().expect("prlimit starts").success());
    };
    let open = fs::read_dir(format!("/proc/{id}/fd")).expect("it runs").count();
    limit(open.saturating_sub(8));
    let waiting = UnixStream::connect(gateway.socket()).expect("it listens");
    std::thread::sleep(Duration::from_millis(100));
    let before = cpu_time(id, "control");
    std::thread::sleep(Duration::from_secs(1));
    let used = cpu_time(id, "control").saturating_sub(before);
    assert!(used < Duration::from_millis(50), "{used:?} in a second");
    limit(1024);
    let outcome = gateway.ask(&["show", "ports"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.err);
    drop(waiting);
    let (code, log, _) = gateway.terminate();
    assert_eq!(code, Some(0));
    assert!(log.contains("cannot accept a connection"), "{log}");
}

/// A capture of port a into `file`, which ends by itself when it is refused.
fn capture(gateway: &Gateway, file: &Path, more: &[&str], variables: &[(&str, &Path)]) -> Child {
    let mut command = polder();
    command.args(["capture", "a"]).arg("-w").arg(file).args(more).arg("--socket").arg(gateway.socket());
    command.envs(variables.iter().copied()).stderr(Stdio::piped()).stdout(Stdio::null());
    command.spawn().expect("it starts")
}

#[test]
fn a_capture_as_root_follows_no_link_and_writes_to_no_file_of_others() {
    if !root_or_skip("a_capture_as_root_follows_no_link_and_writes_to_no_file_of_others") {
        return;
    }
    let gateway = Gateway::start("links");
    let folder = Folder::new("capture-links");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).expect("the folder is ours");
    let precious = folder.0.join("precious");
    fs::write(&precious, "precious").expect("a file");
    let path = |name: &str| folder.0.join(name);
    symlink(&precious, path("link")).expect("a link");
    fs::hard_link(&precious, path("second-name")).expect("a link");
    let script = format!("echo theirs > {}", path("theirs").display());
    assert!(nobody(&script).status().expect("setpriv starts").success());
    for (name, why) in [
        ("link", "is a symbolic link, which polder does not follow"),
        ("second-name", "has more than one hard link"),
        ("theirs", "belongs to another user"),
    ] {
        let mut child = capture(&gateway, &path(name), &["-c", "1"], &[]);
        until("the capture is refused", || child.try_wait().expect("it can be looked at").is_some());
        let output = child.wait_with_output().expect("it has ended");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{name}: {error}");
        // In a directory that all may write to, the kernel may refuse others' files by itself.
        assert!(error.contains(why) || error.contains("Permission denied"), "{name}: {error}");
    }
    assert_eq!(fs::read_to_string(&precious).expect("it is there"), "precious");
    assert_eq!(fs::read_to_string(path("theirs")).expect("it is there"), "theirs\n");
    // A file of our own is written anew.
    fs::write(path("own"), "old").expect("a file");
    let child = Guard(capture(&gateway, &path("own"), &[], &[]));
    until("the capture has begun", || {
        fs::read(path("own")).is_ok_and(|bytes| bytes.starts_with(b"\x0a\x0d\x0d\x0a"))
    });
    drop(child);
    assert_eq!(gateway.terminate().0, Some(0));
}

/// Library in libpcap's place that writes down the process that loads it.
const LIBRARY: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
__attribute__((constructor)) static void told(void) {
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    umask(0);
    FILE *out = fopen(getenv("PD_TOLD"), "w");
    if (!status || !out) return;
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "Uid:", 4) || !strncmp(line, "Groups:", 7) || !strncmp(line, "Cap", 3) || !strncmp(line, "NoNewPrivs:", 11))
            fputs(line, out);
    fclose(out);
}
"#;

#[test]
fn the_library_that_compiles_expressions_has_no_privileges() {
    let test = "the_library_that_compiles_expressions_has_no_privileges";
    if !root_or_skip(test) {
        return;
    }
    let folder = Folder::new("library-folder");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).expect("the folder is ours");
    let (source, library, told) =
        (folder.0.join("pcap.c"), folder.0.join("libpcap.so.1"), folder.0.join("told"));
    fs::write(&source, LIBRARY).expect("a file");
    let cc = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(cc.expect("cc starts").success());
    let gateway = Gateway::start("library");
    let variables = [("LD_LIBRARY_PATH", folder.0.as_path()), ("PD_TOLD", told.as_path())];
    let mut child = capture(&gateway, Path::new("/dev/null"), &["udp port 67"], &variables);
    until("the library without functions is refused", || {
        child.try_wait().expect("it can be looked at").is_some()
    });
    let output = child.wait_with_output().expect("it has ended");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(&told).expect("it was loaded");
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect(&text);
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(field("Uid:"), ["65534"; 4], "{text}");
    assert_eq!(field("Groups:"), [""; 0], "{text}");
    for kind in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(kind), ["0000000000000000"], "{text}");
    }
    assert_eq!(field("NoNewPrivs:"), ["1"], "{text}");
    assert_eq!(fs::metadata(&told).expect("it is there").uid(), 65_534);
    // And the true one compiles there.
    let file = folder.0.join("capture");
    let child = Guard(capture(&gateway, &file, &["udp port 67 or arp"], &[]));
    until("the capture has begun", || fs::metadata(&file).is_ok_and(|file| file.len() > 0));
    drop(child);
    let mut child = capture(&gateway, &file, &["udp prot 67"], &[]);
    until("it is refused", || child.try_wait().expect("it can be looked at").is_some());
    let output = child.wait_with_output().expect("it has ended");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("udp prot 67") && error.contains("pcap-filter"), "{error}");
    assert_eq!(gateway.terminate().0, Some(0));
}
