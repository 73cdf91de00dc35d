//! Changes that may cut their author off: traffic that is lost, changes that are taken back, the difference to the file.

use super::support::{Folder, Gateway, Outcome, root_or_skip, until};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn text(control: &Path, more: &str) -> String {
    format!(
        "version = 1\n[gateway]\ncontrol = {:?}\n[port.lan]\ninterface = \"pdeth0\"\n{more}\n[port.host]\n\
         tap = \"pdhost\"\n[bridge.br0]\nmembers = [\"lan\", \"host\"]\n",
        control.display().to_string()
    )
}

/// Output of `script` in a namespace, where `$POLDER` is the program and `$FILE` a configuration.
fn inside(name: &str, text: &str, script: &str) -> Output {
    let folder = Folder::new(name);
    let file = folder.0.join("gw.toml");
    std::fs::write(&file, text.replace("FOLDER", &folder.0.display().to_string())).expect("the file");
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-e", "-c", script]).stdin(Stdio::null());
    command.env("POLDER", env!("CARGO_BIN_EXE_polder")).env("FILE", &file);
    command.env_remove("SSH_CONNECTION").output().expect("unshare starts")
}

/// Output without its line breaks.
fn words(said: &[u8]) -> String {
    String::from_utf8_lossy(said).split_whitespace().collect::<Vec<_>>().join(" ")
}

const LINK: &str = "ip link set lo up; ip link add pdeth0 type veth peer name pdpeer; ip link set pdeth0 up; \
                    ip link set pdpeer up; ";
const ADDRESS: &str = "ip address add 192.0.2.1/24 dev pdeth0; ip route add default via 192.0.2.254; ";

#[test]
fn lost_traffic_is_told_and_refused_without_yes() {
    if !root_or_skip("lost_traffic_is_told_and_refused_without_yes") {
        return;
    }
    let file = text(Path::new("FOLDER/gw.sock"), "");
    let login = "export SSH_CONNECTION='192.0.2.7 50122 192.0.2.1 22'; ";
    let told = inside("silent-check", &file, &format!("{LINK}{ADDRESS}{login}$POLDER check $FILE"));
    let said = words(&told.stdout);
    for part in [
        "! unreachable Polder takes all packets of pdeth0",
        "its own 192.0.2.1/24 (pdeth0)",
        "the default route by 192.0.2.254",
        "your login (SSH from 192.0.2.7)",
        "a TAP that is a member of br0",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(told.status.code(), Some(0), "{said}");
    let run = |name: &str, before: &str, arguments: &str| {
        let script =
            format!("{LINK}{before}timeout --foreground --preserve-status 2 $POLDER run {arguments} $FILE");
        inside(name, &file, &script)
    };
    let refused = run("silent-run", ADDRESS, "");
    let said = words(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("[port.lan]") && said.contains("`polder run --yes`"), "{said}");
    let asked = run("silent-yes", ADDRESS, "--yes");
    let said = words(&asked.stderr);
    assert_eq!(asked.status.code(), Some(0), "{said}");
    assert!(
        said.contains("runs gateway gw") && said.contains("unreachable: Polder takes all packets of pdeth0"),
        "{said}"
    );
    let free = run("silent-none", "", "");
    let said = words(&free.stderr);
    assert_eq!(free.status.code(), Some(0), "{said}");
    assert!(said.contains("runs gateway gw") && !said.contains("unreachable: "), "{said}");
    // A router leaves to the kernel what is for it.
    let router = "version = 1\n[gateway]\ncontrol = \"FOLDER/gw.sock\"\n[port.lan]\ninterface = \"pdeth0\"\n\
                  role = \"router\"\n";
    let routed = inside(
        "silent-router",
        router,
        &format!("{LINK}{ADDRESS}timeout --foreground --preserve-status 2 $POLDER run $FILE"),
    );
    assert_eq!(routed.status.code(), Some(0), "{}", words(&routed.stderr));
}

/// A connection to an address on the interface, from a neighbour in another namespace.
#[test]
fn an_open_connection_to_its_address_is_told() {
    if !root_or_skip("an_open_connection_to_its_address_is_told") {
        return;
    }
    let script = format!(
        "{LINK}ip address add 192.0.2.1/24 dev pdeth0
        python3 - <<'END'
import os, socket, subprocess, time
peer = subprocess.Popen(['unshare', '--net', 'sh', '-e', '-c', '''
    read go; ip address add 192.0.2.7/24 dev pdpeer; ip link set pdpeer up
    exec python3 -c \"import socket; s = socket.create_connection((chr(49)+'92.0.2.1', 22), 10); s.recv(1)\"'''],
    stdin=subprocess.PIPE)
here = os.readlink('/proc/self/ns/net')
while os.readlink(f'/proc/{{peer.pid}}/ns/net') == here:
    time.sleep(0.01)
listener = socket.create_server(('192.0.2.1', 22))
subprocess.run(['ip', 'link', 'set', 'pdpeer', 'netns', str(peer.pid)], check=True)
peer.stdin.write(b'go\\n'); peer.stdin.close()
listener.settimeout(10)
connection, _ = listener.accept()
subprocess.run([os.environ['POLDER'], 'check', os.environ['FILE']])
connection.close(); peer.wait(10)
END"
    );
    let told = inside("silent-open", &text(Path::new("FOLDER/gw.sock"), ""), &script);
    let said = words(&[told.stdout, told.stderr].concat());
    assert!(said.contains("open TCP connections: from 192.0.2.7:"), "{said}");
}

fn reload(gateway: &Gateway, arguments: &[&str]) -> Outcome {
    gateway.ask(&[&["reload"], arguments].concat())
}

fn ageing(gateway: &Gateway) -> u64 {
    gateway.json("fdb")["fdb"][0]["ageing_seconds"].as_u64().expect("a number")
}

const MEMBERS: &str = "members = [\"a\", \"b\"]";

#[test]
fn a_reload_is_taken_back_unless_it_is_confirmed() {
    if !root_or_skip("a_reload_is_taken_back_unless_it_is_confirmed") {
        return;
    }
    let gateway = Gateway::start("confirm");
    let nothing = gateway.ask(&["confirm"]);
    assert!(nothing.code == Some(1) && nothing.err.contains("no change waits"), "{}", nothing.err);

    // Taken back: a key, and a port that comes with it.
    let third = format!("ageing_seconds = 77\n{}", MEMBERS.replace("\"b\"", "\"b\", \"c\""));
    gateway.change(MEMBERS, &third);
    gateway.change("[port.a]", "[port.c]\ntap = \"pdtc\"\n\n[port.a]");
    let begin = Instant::now();
    let timed = reload(&gateway, &["--confirm", "2"]);
    assert_eq!(timed.code, Some(0), "{}", timed.err);
    assert!(timed.out.contains("reverted in 2 s unless `polder confirm` is run"), "{}", timed.out);
    assert_eq!(ageing(&gateway), 77);
    let refused = reload(&gateway, &[]);
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    assert!(refused.err.contains("waits another"), "{}", refused.err);
    until("it is taken back", || ageing(&gateway) == 300);
    assert!(begin.elapsed() >= Duration::from_millis(1900), "{:?}", begin.elapsed());
    let ports = gateway.json("ports")["ports"].as_array().expect("a list").len();
    assert_eq!(ports, 2);
    let told = gateway.ask(&["events", "--no-follow", "--json"]).out;
    assert!(told.contains("\"event\":\"reload-taken-back\""), "{told}");
    let late = gateway.ask(&["confirm"]);
    assert_eq!(late.code, Some(1), "{}", late.out);
    assert!(
        late.err.contains("too late: the change was reverted") && late.err.contains(" ago"),
        "{}",
        late.err
    );

    // Confirmed: it stays.
    let timed = reload(&gateway, &["--confirm", "2"]);
    assert_eq!(timed.code, Some(0), "{}", timed.err);
    let confirmed = gateway.ask(&["confirm"]);
    assert_eq!(confirmed.code, Some(0), "{}", confirmed.err);
    assert!(confirmed.out.starts_with("confirmed with "), "{}", confirmed.out);
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(ageing(&gateway), 77);
    let (code, log, _) = gateway.terminate();
    assert_eq!(code, Some(0));
    assert!(
        log.contains("the previous configuration is active again: ")
            && log.contains("ageing_seconds: 77 → 300"),
        "{log}"
    );
}

#[test]
fn a_start_that_is_not_confirmed_ends_and_says_so() {
    if !root_or_skip("a_start_that_is_not_confirmed_ends_and_says_so") {
        return;
    }
    let folder = Folder::new("confirm-run");
    let (file, socket) = (folder.0.join("gw.toml"), folder.0.join("gw.sock").display().to_string());
    // It would be left closed, and was not.
    let keys = "on_exit = \"drop\"\nmode = \"generic\"";
    std::fs::write(&file, text(Path::new(&socket), keys)).expect("the file");
    let script = format!(
        "{LINK}
         code=0; $POLDER run --confirm 2 $FILE || code=$?; echo code $code
         $POLDER release pdeth0
         $POLDER confirm --socket {socket} || echo late $?
         $POLDER run --confirm 60 $FILE & gateway=$!
         for i in $(seq 200); do $POLDER confirm --socket {socket} && break || sleep 0.05; done
         kill $gateway; wait $gateway; echo code $?
         $POLDER release pdeth0"
    );
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-e", "-c", &script]).stdin(Stdio::null());
    let output = command.env("POLDER", env!("CARGO_BIN_EXE_polder")).env("FILE", &file).output();
    let output = output.expect("unshare starts");
    let (out, err) = (words(&output.stdout), words(&output.stderr));
    let first = "code 1 pdeth0: was not closed late 1";
    assert!(out.starts_with(first), "{out}\n{err}");
    assert!(err.contains("the gateway was not confirmed within 2 s, and was stopped"), "{err}");
    assert!(
        err.contains("the last gateway ended") && err.contains("was not confirmed"),
        "a late question: {err}"
    );
    assert!(out.contains("confirmed with 5") && out.ends_with("code 0 pdeth0: released"), "{out}\n{err}");
}

#[test]
fn the_difference_to_the_file_is_shown_and_is_the_exit_code() {
    if !root_or_skip("the_difference_to_the_file_is_shown_and_is_the_exit_code") {
        return;
    }
    let gateway = Gateway::start("diff");
    let same = gateway.ask(&["diff"]);
    assert_eq!((same.code, same.err.as_str()), (Some(0), ""), "{}", same.out);
    assert!(same.out.starts_with("gw: the running configuration equals "), "{}", same.out);
    gateway.change(MEMBERS, &format!("ageing_seconds = 77\n{MEMBERS}"));
    gateway.change("[port.a]", "memory_mib = 32\n[port.a]");
    let other = gateway.ask(&["diff"]);
    assert_eq!((other.code, other.err.as_str()), (Some(1), ""));
    for line in ["~ bridge br0 (2 members)", "    ageing_seconds: 300 → 77", "! gateway memory_mib: 24 → 32"]
    {
        assert!(other.out.contains(line), "{line}: {}", other.out);
    }
    let json = gateway.ask(&["diff", "--json"]);
    assert_eq!(json.code, Some(1));
    let json: serde_json::Value = serde_json::from_str(&json.out).expect(&json.out);
    assert_eq!(
        (&json["format"], &json["gateway"], &json["needs_restart"]),
        (&1.into(), &"gw".into(), &true.into())
    );
    let keys = json["keys"].as_array().expect("a list");
    let ageing = keys.iter().find(|key| key["key"] == "bridge.br0.ageing_seconds").expect("the key");
    assert_eq!((&ageing["running"], &ageing["file"]), (&"300".into(), &"77".into()));
    gateway.change("ageing_seconds", "ageing_secs");
    let wrong = gateway.ask(&["diff"]);
    assert_eq!((wrong.code, wrong.out.as_str()), (Some(2), ""), "{}", wrong.err);
    assert!(wrong.err.contains("did you mean"), "{}", wrong.err);
    assert_eq!(super::support::run(&["diff", "--socket", "/nonexistent/gw.sock"]).code, Some(2));
    assert_eq!(gateway.terminate().0, Some(0));
}
