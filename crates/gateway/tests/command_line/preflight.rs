//! Findings of `polder check` about interfaces in a namespace of their own.

use super::support::{Folder, root_or_skip};
use std::process::Command;

const BRIDGE: &str = "version = 1\n[port.lan]\ninterface = \"pdeth0\"\n[port.host]\ntap = \"pdhost\"\n\
                      [bridge.br0]\nmembers = [\"lan\", \"host\"]\n";

/// Exit code and output of `script` in a namespace, where `$POLDER` is the program and `$FILE` a
/// configuration.
pub(crate) fn inside(name: &str, configuration: &str, script: &str) -> (Option<i32>, String) {
    let folder = Folder::new(name);
    let file = folder.0.join("gw.toml");
    std::fs::write(&file, configuration).expect("the file");
    let output = Command::new("unshare")
        .args(["--net", "sh", "-e", "-c", script])
        .env("POLDER", env!("CARGO_BIN_EXE_polder"))
        .env("FILE", &file)
        .output()
        .expect("unshare starts");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).expect("UTF-8"))
}

#[test]
fn an_interface_that_is_missing_is_warned_of_with_similar_names() {
    if !root_or_skip("an_interface_that_is_missing_is_warned_of_with_similar_names") {
        return;
    }
    let (code, text) =
        inside("missing", BRIDGE, "ip link add pdeht0 type veth peer name pdfar; $POLDER check $FILE");
    assert_eq!(code, Some(0), "the gateway starts, and waits for it: {text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "! interface there is no interface pdeth0 in this network namespace; similar: pdeht0";
    assert!(words.contains(said) && words.contains("the port waits for the interface"), "{text}");
}

#[test]
fn a_peer_that_leaves_checksums_undone_is_named_with_the_remedy() {
    if !root_or_skip("a_peer_that_leaves_checksums_undone_is_named_with_the_remedy") {
        return;
    }
    let link =
        "ip link add pdeth0 type veth peer name pdpeer; ip link set pdeth0 up; ip link set pdpeer up; ";
    let bridge = BRIDGE.replace("[port.host]", "mode = \"native\"\n[port.host]");
    let (code, text) = inside("peer", &bridge, &format!("{link} $POLDER check $FILE"));
    assert_eq!(code, Some(0), "{text}");
    // The text is broken into lines.
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("! peer") && words.contains("`ethtool -K pdpeer txvlan off"), "{text}");
    let (_, json) = inside("peer-json", &bridge, &format!("{link} $POLDER check --json $FILE"));
    let json: serde_json::Value = serde_json::from_str(&json).expect(&json);
    let seen = json["preflight"].as_array().expect("a list");
    let peer = seen.iter().find(|seen| seen["topic"] == "peer").expect("the peer");
    assert_eq!((&peer["of"], &peer["severity"]), (&"port.lan".into(), &"warning".into()));
}

/// The line of `check` about the mode, and the warnings.
fn told(name: &str, keys: &str, script: &str) -> (String, Vec<String>) {
    let bridge = BRIDGE.replace("[port.host]", &format!("{keys}\n[port.host]"));
    let (code, text) = inside(name, &bridge, &format!("{script} $POLDER check --json $FILE"));
    assert!(code.is_some(), "{text}");
    let json: serde_json::Value = serde_json::from_str(&text).expect(&text);
    let seen = json["preflight"].as_array().expect("a list");
    let of = |seen: &serde_json::Value| format!("{}: {}", seen["topic"], seen["text"]);
    let mode =
        seen.iter().filter(|seen| seen["of"] == "port.lan" && seen["topic"] == "mode").collect::<Vec<_>>();
    assert_eq!(mode.len(), 1, "one line: {text}");
    let warned = seen.iter().filter(|seen| seen["of"] == "port.lan" && seen["severity"] != "fine");
    (mode[0]["text"].as_str().expect("a text").to_owned(), warned.map(of).collect())
}

#[test]
fn the_mode_that_is_chosen_is_told_with_its_reason_and_mends_what_was_warned_of() {
    if !root_or_skip("the_mode_that_is_chosen_is_told_with_its_reason_and_mends_what_was_warned_of") {
        return;
    }
    let veth =
        "ip link add pdeth0 type veth peer name pdpeer; ip link set pdeth0 up; ip link set pdpeer up; ";
    let bridge = "ip link add pdeth0 type bridge; ip link set pdeth0 up; ";
    let above = format!(
        "{bridge} ip link add pdport type veth peer name pdpeer; ip link set pdport master pdeth0 up; "
    );
    for (name, link, why) in [
        ("mode-veth", veth, "its senders may be on this host"),
        ("mode-above", above.as_str(), "its senders may be on this host"),
        ("mode-bridge", bridge, "it is a virtual interface without a device of its own"),
    ] {
        let (mode, warned) = told(name, "", link);
        assert!(mode.starts_with("skb: TCX and a TAP") && mode.ends_with(why), "{mode}");
        assert_eq!(warned, [] as [String; 0], "{name}");
    }
    // Keys that this mode does not obey ask for the other one.
    for (name, key) in [("mode-poll", "busy_poll = true"), ("mode-us", "moderation_us = 50")] {
        let (mode, _) = told(name, key, veth);
        let word = key.split(' ').next().unwrap_or_default();
        assert!(mode.starts_with("native XDP") && mode.contains(word), "{mode}");
    }
    // Without a device for TAPs it is AF_XDP.
    let closed = format!(
        "{veth} unshare --mount sh -e -c 'mount -t tmpfs none /dev/net; exec $POLDER check --json $FILE' || exit; exit; "
    );
    let (mode, _) = told("mode-closed", "", &closed);
    assert!(mode.starts_with("native XDP") && mode.contains("cannot open /dev/net/tun"), "{mode}");
}

#[test]
fn a_tunnel_without_its_address_and_route_is_warned_of() {
    if !root_or_skip("a_tunnel_without_its_address_and_route_is_warned_of") {
        return;
    }
    let tunnel = "version = 1\n[port.radio]\ninterface = \"pdeth0\"\nrole = \"underlay\"\n[port.host]\ntap = \"pdhost\"\n\
                  [tunnel.t]\nkind = \"gretap\"\nlocal = \"192.0.2.1\"\nremote = \"192.0.2.2\"\nport = \"radio\"\n\
                  next_hop = \"198.51.100.2\"\n[bridge.br0]\nmembers = [\"host\", \"t\"]\n";
    let link = "ip link add pdeth0 type veth peer name pdpeer; ip link set lo up; ip link set pdeth0 up; ";
    let (_, text) = inside("address", tunnel, &format!("{link} $POLDER check $FILE"));
    assert!(text.contains("ip address") && text.contains("192.0.2.1/32 dev lo"), "{text}");
    let other = "ip address add 192.0.2.2/32 dev lo; ";
    let (_, text) = inside("swapped", tunnel, &format!("{link}{other} $POLDER check $FILE"));
    assert!(text.contains("the ends are swapped: 192.0.2.2 is an address of this host"), "{text}");
    let address = "ip address add 192.0.2.1/32 dev lo; ";
    let (_, text) = inside("route", tunnel, &format!("{link}{address} $POLDER check $FILE"));
    assert!(text.contains("there is no route to 198.51.100.2") && !text.contains("dev lo"), "{text}");
    let route = "ip address add 198.51.100.1/24 dev pdeth0; ";
    let (_, text) = inside("all", tunnel, &format!("{link}{address}{route} $POLDER check $FILE"));
    assert!(!text.contains("[tunnel.t]"), "{text}");
    let by_route = tunnel.replace("next_hop = \"198.51.100.2\"\n", "bfd = {}\n");
    let router = "ip route add 192.0.2.2 via 198.51.100.9; ";
    let script = format!("{link}{address}{route}{router} $POLDER check $FILE");
    let (_, text) = inside("router", &by_route, &script);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("✓ next hop 198.51.100.9, by the kernel's route to 192.0.2.2"), "{text}");
    assert!(words.contains("✗ bfd 198.51.100.9 lies between the ends"), "{text}");
    let elsewhere = "ip link add pdaway type veth peer name pdoff; ip link set pdaway up; ip route add 192.0.2.2 dev pdaway; ";
    let script = format!("{link}{address}{route}{elsewhere} $POLDER check $FILE");
    let (_, text) = inside("elsewhere", &by_route, &script);
    assert!(text.contains("uses another interface than pdeth0"), "{text}");
}

#[test]
fn a_trunk_whose_sender_puts_tags_beside_frames_is_refused() {
    if !root_or_skip("a_trunk_whose_sender_puts_tags_beside_frames_is_refused") {
        return;
    }
    let socket = std::env::temp_dir().join(format!("pd-tags-{}.sock", std::process::id()));
    let trunk = "version = 1\n[gateway]\ncontrol = \"SOCKET\"\n[port.lan]\ninterface = \"pdeth0\"\nMODE\
                 [port.host]\ntap = \"pdhost\"\n[bridge.br0]\nmembers = [\"lan\", \"host\"]\n\
                 [bridge.br0.port.lan]\nvlan = { trunk = [10, 20], native = 10 }\n\
                 [bridge.br0.port.host]\nvlan = { access = 10 }\n";
    let trunk = trunk.replace("SOCKET", &socket.display().to_string());
    let link =
        "ip link add pdeth0 type veth peer name pdpeer; ip link set pdeth0 up; ip link set pdpeer up; ";
    // A namespace without a name, which its process keeps.
    let away = "unshare --net sleep 20 & other=$!; sleep 0.3; ip link set pdpeer netns $other; ";
    let off = |inside: &str| format!("{inside} ethtool -K pdpeer txvlan off; ");
    let run = "timeout 2 $POLDER run $FILE || code=$?; [ -z $other ] || kill $other; exit $code";
    for (place, inside_of) in [("here", ""), ("away", "nsenter --net=/proc/$other/ns/net")] {
        let link = format!("other=; {link}{}", if place == "away" { away } else { "" });
        for mode in ["native", "generic"] {
            let text = trunk.replace("MODE", &format!("mode = \"{mode}\"\n"));
            let (code, said) = inside(&format!("tags-{place}-{mode}"), &text, &format!("{link}{run}"));
            assert_eq!(code, Some(1), "{said}");
            assert!(said.contains("VLANs mixed") && said.contains("pdpeer (`ethtool -K"), "{said}");
            let script = format!("{link}{}{run}", off(inside_of));
            let (code, said) = inside(&format!("kept-{place}-{mode}"), &text, &script);
            assert_ne!(code, Some(1), "it runs until it is ended: {said}");
        }
        let (code, said) =
            inside(&format!("tags-{place}-skb"), &trunk.replace("MODE", ""), &format!("{link}{run}"));
        assert_ne!(code, Some(1), "the mode skb keeps tags: {said}");
    }
}

#[test]
fn who_may_not_is_told_what_to_do() {
    if !root_or_skip("who_may_not_is_told_what_to_do") {
        return;
    }
    // The program itself may be where only root can read.
    let nobody = "cd $(dirname $FILE); chmod 777 .; cp $POLDER polder; \
                  setpriv --reuid=65534 --regid=65534 --clear-groups ./polder";
    let control = BRIDGE.replace("[port.lan]", "[gateway]\ncontrol = \"/proc/gw.sock\"\n[port.lan]");
    let (code, text) = inside("socket", &control, &format!("{nobody} run $FILE"));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("control socket /proc/gw.sock"), "{text}");
    let folder = std::env::temp_dir().join(format!("pd-{}.sock", std::process::id()));
    let control = control.replace("/proc/gw.sock", &folder.display().to_string());
    let tap_alone = control.replace("interface = \"pdeth0\"", "tap = \"pdlan\"");
    let (code, text) = inside("tap", &tap_alone, &format!("{nobody} run $FILE"));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("run as root or grant CAP_NET_ADMIN"), "{text}");
    // Who only looks is told once, and of nothing that root does not meet.
    let link = "ip link add pdeth0 type veth peer name pdfar; ip link set pdeth0 up; ip link set pdfar up; ";
    for mode in ["skb", "native"] {
        let bridge = BRIDGE.replace("[port.host]", &format!("mode = \"{mode}\"\n[port.host]"));
        let (code, text) = inside(&format!("look-{mode}"), &bridge, &format!("{link}{nobody} check $FILE"));
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(text.matches("rights").count(), 2, "the topic and its text: {text}");
        assert!(text.contains("sudo polder check") && !text.contains("✗"), "{text}");
    }
}

#[test]
fn what_nobody_closed_needs_no_release() {
    if !root_or_skip("what_nobody_closed_needs_no_release") {
        return;
    }
    let (code, text) = inside("release", BRIDGE, "$POLDER release --all");
    assert_eq!((code, text.as_str()), (Some(0), "no interface is kept closed\n"));
}

/// Neither a first process, nor one that took over from a killed one, leaves an offload off that it has switched off.
#[test]
fn an_orderly_end_puts_back_what_was_switched_off() {
    let test = "an_orderly_end_puts_back_what_was_switched_off";
    if !root_or_skip(test) {
        return;
    }
    let folder = Folder::new("offloads-control");
    let control =
        format!("[gateway]\ncontrol = \"{}/gw.sock\"\n[port.lan]\nmode = \"native\"", folder.0.display());
    let script = "ip link add pdeth0 type veth peer name pdpeer; ip link set pdeth0 up; ip link set pdpeer up
        tags() { ethtool -k pdeth0 | sed -n 's/^rx-vlan-offload: //p'; }
        tags
        for signal in TERM KILL TERM TERM; do
            $POLDER run $FILE >/dev/null 2>&1 & gateway=$!
            for i in $(seq 100); do [ $(tags) = on ] && sleep 0.05 || break; done
            [ $signal = KILL ] || for i in $(seq 200); do
                $POLDER show ports --socket $SOCKET >/dev/null 2>&1 && break || sleep 0.05
            done
            kill -$signal $gateway; wait $gateway 2>/dev/null || true
            tags
        done 2>/dev/null";
    let script = script.replace("$SOCKET", &format!("{}/gw.sock", folder.0.display()));
    let (code, text) = inside("offloads", &BRIDGE.replace("[port.lan]", &control), &script);
    assert_eq!((code, text.as_str()), (Some(0), "on\non\noff\non\non\n"));
}
