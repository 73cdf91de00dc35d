//! Authenticated sessions, judged by BIRD, which has keyed SHA1 in both forms.

use super::{ENDS, MULTIPLIER, Net, events, forge, is, session};
use crate::machines::{reaches, until};
use crate::support::{Gateway, polder, skip};
use polder_testbed::command::{self, Running, exists};
use polder_testbed::peers::frr::writable;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, str};

/// BIRD at the far end.
struct Bird {
    process: Running,
    file: PathBuf,
    control: PathBuf,
}

impl Bird {
    /// BIRD with that form of authentication, and these keys.
    fn start(net: &Net, form: &str, keys: &[(u8, &str)]) -> Self {
        let directory = writable(net.topology.directory(), &net.far).unwrap();
        let (file, control) = (directory.join("bird.conf"), directory.join("bird.ctl"));
        fs::write(&file, text(form, keys)).unwrap();
        let mut command = net.far.command("bird");
        command.arg("-f").arg("-c").arg(&file).arg("-s").arg(&control);
        Self { process: Running::start("bird", &mut command).unwrap(), file, control }
    }

    /// Goes on with another form and other keys.
    fn takes(&self, form: &str, keys: &[(u8, &str)]) {
        fs::write(&self.file, text(form, keys)).unwrap();
        let said = self.ask("configure");
        assert!(said.contains("econfigur"), "{said}");
    }

    fn ask(&self, words: &str) -> String {
        let mut command = Command::new("birdc");
        command.arg("-s").arg(&self.control).args(words.split(' '));
        command::run(&mut command).unwrap_or_default()
    }

    fn is_up(&self) -> bool {
        let said = self.ask("show bfd sessions");
        said.lines().any(|line| line.contains(ENDS[0][0]) && line.contains(" Up "))
    }
}

fn text(form: &str, keys: &[(u8, &str)]) -> String {
    let [near, far] = ENDS[0];
    let key = |(id, secret): &(u8, &str)| format!("password \"{secret}\" {{ id {id}; }};\n");
    let keys = keys.iter().map(key).collect::<String>();
    format!(
        "log stderr all;\nrouter id {far};\nprotocol device {{ }}\nprotocol bfd {{\n\
         interface \"radio0\" {{ interval 50 ms; multiplier {MULTIPLIER};\nauthentication {form};\n{keys} }};\n\
         neighbor {near} dev \"radio0\" local {far};\n}}\n"
    )
}

/// File with keys, beside that of the gateway.
fn key_file(net: &Net) -> PathBuf {
    net.topology.directory().join("bfd.keys")
}

fn bfd(keys: &Path, further: &str) -> String {
    format!("bfd = {{ interval_ms = 50, multiplier = {MULTIPLIER}, key_file = {keys:?}{further} }}")
}

/// `None` where it cannot be; that has been said.
fn net(test: &str) -> Option<Net> {
    if !exists("bird") {
        skip(test, "BIRD is not installed: `apt-get install bird2`");
        return None;
    }
    let net = Net::without_frr(test)?;
    net.far_tunnel(false);
    Some(net)
}

#[test]
fn bird_takes_our_packets_and_we_take_its() {
    let Some(net) = net("bird_takes_our_packets_and_we_take_its") else { return };
    let keys = key_file(&net);
    fs::write(&keys, "7 a longer secret\n").unwrap();
    let plain = bfd(&keys, ", authentication = \"keyed-sha1\"");
    let gateway = Gateway::start(&net.topology, &net.near, &Net::text(false, &plain));
    let mut bird = Bird::start(&net, "keyed sha1", &[(7, "a longer secret")]);
    until("BIRD is up", || bird.is_up() && is(&gateway, "state", "up"));
    reaches(&net.left, super::STATION);
    // The other form, in which each packet has a number of its own.
    gateway.reload(&Net::text(false, &bfd(&keys, ""))).unwrap();
    bird.takes("meticulous keyed sha1", &[(7, "a longer secret")]);
    until("BIRD is up again", || bird.is_up() && is(&gateway, "state", "up"));
    // Nobody without a key brings it down: neither by the right link nor with the right TTL.
    let (before, downs) = (counted(&gateway), downs(&gateway));
    (0..5).for_each(|_| forge(&net.far, 255));
    until("they are counted", || counted(&gateway) == before + 5);
    assert!(is(&gateway, "state", "up") && bird.is_up());
    let shown =
        command::run(Command::new(polder()).args(["show", "tunnels", "--socket"]).arg(gateway.socket()));
    assert!(shown.unwrap().contains(" with failed authentication"));
    turn_keys(&gateway, &bird, &keys);
    assert_eq!(self::downs(&gateway), downs, "{}", events(&gateway));
    goes_on_in_another_process(&gateway, &bird);
    // Another secret under the same number is no key.
    bird.takes("meticulous keyed sha1", &[(8, "a wrong secret")]);
    let next = polder_testbed::upgrade::Process::behind(gateway.socket()).unwrap();
    until("both notice", || is(&gateway, "state", "down") && !bird.is_up());
    drop(next);
    bird.process.stop().unwrap();
}

/// Keys are exchanged without a moment in which the session is down.
fn turn_keys(gateway: &Gateway, bird: &Bird, keys: &Path) {
    let form = "meticulous keyed sha1";
    let text = Net::text(false, &bfd(keys, ""));
    bird.takes(form, &[(7, "a longer secret"), (8, "new")]);
    fs::write(keys, "8 new\n7 a longer secret\n").unwrap();
    // The file of the gateway is the same.
    gateway.reload(&text).unwrap();
    let received = session(gateway)["received"].as_u64();
    until("packets pass", || session(gateway)["received"].as_u64() > received);
    bird.takes(form, &[(8, "new")]);
    fs::write(keys, "8 new\n").unwrap();
    gateway.reload(&text).unwrap();
    let received = session(gateway)["received"].as_u64().map(|received| received + 2 * MULTIPLIER);
    until("packets still pass", || session(gateway)["received"].as_u64() > received);
    // What has no keys is no change.
    fs::write(keys, "none\n").unwrap();
    let why = gateway.reload(&text).expect_err("no keys").to_string();
    assert!(why.contains("line 1 is not a number from 0 to 255") && why.contains("tunnel far"), "{why}");
    fs::write(keys, "8 new\n").unwrap();
}

/// Sequence numbers go on behind an upgrade, so that no packet is refused for its number.
fn goes_on_in_another_process(gateway: &Gateway, bird: &Bird) {
    let (before, refused) = (downs(gateway), counted(gateway));
    let upgrade = Command::new(polder()).arg("upgrade").arg("--socket").arg(gateway.socket()).output();
    let upgrade = upgrade.unwrap();
    assert!(upgrade.status.success(), "{}", str::from_utf8(&upgrade.stderr).unwrap());
    let received = session(gateway)["received"].as_u64().map(|received| received + 2 * MULTIPLIER);
    until("packets pass to the next process", || session(gateway)["received"].as_u64() > received);
    assert!(is(gateway, "state", "up") && bird.is_up());
    assert_eq!((downs(gateway), counted(gateway)), (before, refused));
}

fn counted(gateway: &Gateway) -> u64 {
    session(gateway)["not_authentic"].as_u64().unwrap()
}

fn downs(gateway: &Gateway) -> usize {
    events(gateway).matches("BFD down").count()
}
