//! Completions of arguments, of what a running gateway has.

use super::support::{Folder, Gateway, polder, root_or_skip, run, until};
use std::path::Path;
use std::process::Command;

/// Candidates for the last of these words, as a shell gets them; without options for an empty word.
fn completed(words: &[&str]) -> Vec<String> {
    candidates(&mut polder(), words)
}

fn candidates(command: &mut Command, words: &[&str]) -> Vec<String> {
    let index = words.len().to_string();
    command.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", index).args(["--", "polder"]).args(words);
    let mut all = lines(command);
    all.retain(|candidate| words.last() != Some(&"") || !candidate.starts_with('-'));
    all
}

/// Lines that a command prints.
fn lines(command: &mut Command) -> Vec<String> {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn words_are_completed() {
    assert_eq!(completed(&["rel"]), ["reload", "release"]);
    assert_eq!(completed(&["show", "po"]), ["ports"]);
    assert_eq!(completed(&["show", "ports", "--sa"]), ["--save"]);
}

/// Names and addresses of a bridge and its stations are completed, also in a shell with colons between words.
#[test]
fn names_and_addresses_of_a_gateway_are_completed() {
    if !root_or_skip("names_and_addresses_of_a_gateway_are_completed") {
        return;
    }
    let gateway = Gateway::start("names");
    let socket = gateway.socket().display().to_string();
    let of = |words: &[&str]| completed(&[&["show", "--socket", &socket], words].concat());
    assert_eq!(of(&["ports", ""]), ["a", "b"]);
    assert_eq!(of(&["neighbors", ""]), [""; 0]);
    assert_eq!(of(&["workers", ""]), ["0"]);
    assert_eq!(completed(&["capture", "--socket", &socket, ""]), ["a", "b"]);
    assert_eq!(completed(&["modem", "status", "--socket", &socket, "a"]), ["a"]);
    assert_eq!(completed(&["show", "ports", "--socket", "/nonexistent", ""]), [""; 0]);

    gateway.inside("ip link set pdta address 02:00:5e:00:00:01; ip link set pdta up");
    until("a station is learnt", || !of(&["fdb", "02:00:5e"]).is_empty());
    assert_eq!(of(&["fdb", "02:00:5e"]), ["02:00:5e:00:00:01"]);
    let all = of(&["fdb", ""]);
    assert!(["a", "b", "br0"].iter().all(|name| all.contains(&(*name).to_owned())), "{all:?}");
    assert_eq!(of(&["ports", "02:00:5e"]), [""; 0], "no station is a port");
    assert_eq!(gateway.ask(&["show", "fdb", "02:00:5e:00:00:01"]).code, Some(0));
    // Words as bash has them.
    let words = ["polder", "show", "--socket", &socket, "fdb", "02", ":", "00", ":"];
    assert_eq!(of_bash(&words, ""), ["5e:00:00:01"]);
    let words = [&words[..], &["5"]].concat();
    assert_eq!(of_bash(&words, "5"), ["5e:00:00:01"]);
    assert_eq!(of_bash(&["polder", "show", "fd"], "fd"), ["fdb"]);
}

/// Candidates of bash for the last of these words, which it has parted at colons; `word` is the part that it replaces.
fn of_bash(words: &[&str], word: &str) -> Vec<String> {
    let folder = Folder::new("names-bash");
    let script = folder.0.join("polder.bash");
    std::fs::write(&script, run(&["completions", "bash"]).out).expect("the script");
    let line = words.join(" ").replace(" : ", ":").replace(" :", ":");
    let text = "source \"$1\"; COMP_LINE=$2 COMP_POINT=${#2} COMP_TYPE=9; word=$3; shift 3
                COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)); _polder polder \"$word\" x
                printf '%s\\n' \"${COMPREPLY[@]}\"";
    let programs = Path::new(env!("CARGO_BIN_EXE_polder")).parent().expect("a folder");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").expect("a path"));
    let mut bash = Command::new("bash");
    lines(bash.args(["-c", text, "bash"]).arg(&script).args([&line, word]).args(words).env("PATH", path))
}

/// Gateways are those of the default directory, here one of a file system that goes with the command.
#[test]
fn gateways_routes_and_baselines_are_completed() {
    if !root_or_skip("gateways_routes_and_baselines_are_completed") {
        return;
    }
    let folder = Folder::new("routes");
    let socket = folder.0.join("gw.sock").display().to_string();
    let text = format!(
        "version = 1\n[gateway]\ncontrol = \"{socket}\"\n[router]\nroutes = \"static\"\n[port.a]\ntap = \"pdta\"\n\
         role = \"router\"\naddresses = [\"10.61.0.1/24\"]\n[[router.route]]\nto = \"10.60.0.0/16\"\nkind = \"unreachable\"\n[[router.route]]\n\
         to = \"fd60::/48\"\nkind = \"unreachable\"\n"
    );
    std::fs::write(folder.0.join("gw.toml"), text).expect("the file");
    let state = Folder::new("routes-state");
    let gateway = Gateway::start_in(folder, &[]);
    let routes = completed(&["show", "routes", "--socket", &socket, ""]);
    for to in ["10.60.0.0/16", "fd60::/48"] {
        assert!(routes.contains(&to.to_owned()), "{to}: {routes:?}");
    }
    assert_eq!(gateway.ask(&["show", "routes", "10.60.0.0/16"]).code, Some(0));
    let words = ["polder", "show", "--socket", &socket, "routes", "fd60", "::"];
    assert_eq!(of_bash(&words, ""), ["/48"]);

    let known = |words: &[&str]| candidates(polder().env("XDG_STATE_HOME", &state.0), words);
    let save = |view: &str, name: &str| {
        let mut command = polder();
        command.args(["show", view, "--save", name, "--socket", &socket]).env("XDG_STATE_HOME", &state.0);
        assert!(command.output().expect("it starts").status.success());
    };
    save("ports", "before");
    save("drops", "bad-day");
    assert_eq!(known(&["show", "ports", "--from", "b"]), ["before"]);
    assert_eq!(known(&["show", "drops", "--from", ""]), ["bad-day"]);

    let script = format!(
        "mount -t tmpfs none /run && mkdir /run/polder && ln -s {socket} /run/polder/attic.sock && exec \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_polder")]);
    assert_eq!(candidates(&mut command, &["show", "ports", "--gateway", "a"]), ["attic"]);
}
