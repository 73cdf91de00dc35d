//! Connections beside programs that people run: generated firewalls, listeners to conntrack, floods, an upgrade.

use crate::connections::{Masquerade, SERVER};
use crate::hooks::{can_run, feed, nft};
use crate::machines::until;
use crate::support::skip;
use polder_testbed::command::{self, Running};
use polder_testbed::upgrade::Process;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::process::Command;

/// Rules in the shape that a program generates, for `iptables-restore`. They admit UDP port 7007 and forbid port 7009.
struct Generated {
    program: &'static str,
    rules: &'static str,
    /// Part of the reason why the kernel keeps each packet; `None` if connections are carried.
    kept: Option<&'static str>,
}

const GENERATED: [Generated; 3] = [
    // ufw: a chain before, for, and after the user's rules; limits are for what is logged.
    Generated {
        program: "ufw",
        rules: "*nat
:POSTROUTING ACCEPT [0:0]
-A POSTROUTING -s 10.83.1.0/24 -o east -j MASQUERADE
COMMIT
*filter
:FORWARD DROP [0:0]
:ufw-before-forward - [0:0]
:ufw-user-forward - [0:0]
:ufw-after-forward - [0:0]
:ufw-after-logging-forward - [0:0]
:ufw-user-limit - [0:0]
-A FORWARD -j ufw-before-forward
-A FORWARD -j ufw-after-forward
-A FORWARD -j ufw-after-logging-forward
-A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ufw-before-forward -p icmp --icmp-type echo-request -j ACCEPT
-A ufw-before-forward -j ufw-user-forward
-A ufw-user-forward -i west -o east -p udp --dport 7009 -j DROP
-A ufw-user-forward -i west -o east -j ACCEPT
-A ufw-user-limit -m limit --limit 3/min -j RETURN
-A ufw-user-limit -j REJECT --reject-with icmp-port-unreachable
-A ufw-after-logging-forward -m limit --limit 3/min --limit-burst 10 -j RETURN
COMMIT
",
        kept: None,
    },
    // Calico: packets of workloads are sorted by interface; marks say what a policy has accepted.
    Generated {
        program: "Calico",
        rules: "*nat
:POSTROUTING ACCEPT [0:0]
:cali-POSTROUTING - [0:0]
-A POSTROUTING -j cali-POSTROUTING
-A cali-POSTROUTING -s 10.83.1.0/24 -o east -j MASQUERADE
COMMIT
*filter
:FORWARD DROP [0:0]
:cali-FORWARD - [0:0]
:cali-from-wl - [0:0]
:cali-fw-west - [0:0]
:cali-pro-default - [0:0]
-A FORWARD -j cali-FORWARD
-A FORWARD -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-FORWARD -j MARK --set-xmark 0x0/0xe0000
-A cali-FORWARD -i west -j cali-from-wl
-A cali-FORWARD -o west -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-from-wl -i west -g cali-fw-west
-A cali-fw-west -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-fw-west -m conntrack --ctstate INVALID -j DROP
-A cali-fw-west -j MARK --set-xmark 0x0/0x10000
-A cali-fw-west -p 4 -j DROP
-A cali-fw-west -j cali-pro-default
-A cali-fw-west -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-fw-west -j DROP
-A cali-pro-default -p udp --dport 7009 -j DROP
-A cali-pro-default -j MARK --set-xmark 0x10000/0x10000
COMMIT
",
        kept: None,
    },
    // A rule that counts bytes sees every packet, so it is named and nothing is carried.
    Generated {
        program: "a quota",
        rules: "*nat
:POSTROUTING ACCEPT [0:0]
-A POSTROUTING -s 10.83.1.0/24 -o east -j MASQUERADE
COMMIT
*filter
:FORWARD DROP [0:0]
-A FORWARD -p udp --dport 7009 -j DROP
-A FORWARD -m quota --quota 1000000000 -j ACCEPT
COMMIT
",
        kept: Some("quota"),
    },
];

#[test]
fn connections_pass_generated_firewalls_as_by_the_kernel_alone() {
    let test = "connections_pass_generated_firewalls_as_by_the_kernel_alone";
    if !can_run(test, "nft") || !can_run(test, "iptables-nft-restore") {
        return;
    }
    let masquerade = Masquerade::new();
    let udp = masquerade.udp();
    let forbidden = masquerade.udp_between(40_009, 7009);
    for Generated { program, rules, kept } in GENERATED {
        nft(&masquerade.net.gateway, "flush ruleset\n");
        feed(&masquerade.net.gateway, "iptables-nft-restore", &[], rules);
        let obstacle = || {
            let shown = masquerade.polder.show("connections");
            shown["connections"]["obstacle"].as_str().map(str::to_owned)
        };
        until(&format!("rules of {program} are read"), || match (obstacle(), kept) {
            (Some(obstacle), Some(kept)) => obstacle.contains(kept),
            (obstacle, kept) => obstacle.is_none() && kept.is_none(),
        });
        assert!(udp.exchange().is_some(), "{program}");
        if kept.is_none() {
            masquerade.until_carried(&udp);
        }
        (0..3).for_each(|_| assert_eq!(forbidden.exchange(), None, "{program}"));
    }
    masquerade.polder.stop();
}

/// Ports of the client and the server of each connection of UDP in `conntrack -L`.
fn listed(masquerade: &Masquerade) -> BTreeSet<(u64, u64)> {
    let mut command = masquerade.net.gateway.command("conntrack");
    let text = command::run(command.args(["-L", "-p", "udp"])).unwrap();
    let port = |line: &str, name: &str| line.split(name).nth(1)?.split(' ').next()?.parse().ok();
    text.lines().filter_map(|line| Some((port(line, "sport=")?, port(line, "dport=")?))).collect()
}

/// Ports of the client and the server of each connection of UDP in `polder show connections`.
fn shown(masquerade: &Masquerade) -> BTreeSet<(u64, u64)> {
    let port = |address: &Value| address.as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap();
    let rows = masquerade.connections();
    let rows = rows.iter().filter(|row| row["protocol"] == "udp");
    rows.map(|row| (port(&row["source"]), port(&row["destination"]))).collect()
}

#[test]
fn conntrack_and_its_daemon_know_the_same_connections() {
    let test = "conntrack_and_its_daemon_know_the_same_connections";
    if !can_run(test, "nft") || !can_run(test, "conntrack") || !can_run(test, "conntrackd") {
        return;
    }
    let masquerade = Masquerade::new();
    let file = masquerade.net.topology.directory().join("conntrackd.conf");
    let place = |name: &str| masquerade.net.topology.directory().join(name).display().to_string();
    let text = format!(
        "General {{\n HashSize 1024\n HashLimit 8192\n Syslog off\n LockFile {}\n UNIX {{\n Path {}\n }}\n}}\n\
         Stats {{\n LogFile off\n}}\n",
        place("conntrackd.lock"),
        place("conntrackd.ctl"),
    );
    std::fs::write(&file, text).unwrap();
    let daemon = || {
        let mut command = masquerade.net.gateway.command("conntrackd");
        command.arg("-C").arg(&file);
        command
    };
    let mut listener = Running::start("conntrackd", &mut daemon()).unwrap();
    let cached = || command::run(daemon().arg("-i")).unwrap_or_default();
    until("conntrackd answers", || daemon().arg("-s").output().unwrap().status.success());
    let flows = [(40_007, 7007), (40_017, 7017), (40_027, 7027)];
    let sockets = flows.map(|(from, to)| masquerade.udp_between(from, to));
    for udp in &sockets {
        masquerade.until_carried(udp);
    }
    let flows = flows.map(|(from, to)| (u64::from(from), u64::from(to)));
    until("all name the same connections", || {
        sockets.iter().for_each(|udp| assert!(udp.exchange().is_some()));
        let (listed, shown, cached) = (listed(&masquerade), shown(&masquerade), cached());
        listed == BTreeSet::from(flows)
            && shown == listed
            && flows.iter().all(|(from, to)| cached.contains(&format!("sport={from} dport={to}")))
    });
    // What `conntrack -D` ends is carried no more, and gone everywhere; the next packets begin anew.
    let mut command = masquerade.net.gateway.command("conntrack");
    command::run(command.args(["-D", "-p", "udp", "--dport", "7017"])).unwrap();
    until("the end is heard of", || {
        !cached().contains("dport=7017") && shown(&masquerade).iter().all(|&(_, to)| to != 7017)
    });
    masquerade.until_carried(&sockets[1]);
    listener.stop().unwrap();
    masquerade.polder.stop();
}

/// Flows of one packet each that a station begins at once: more than conntrack's table holds.
fn flood(masquerade: &Masquerade, flows: u32) {
    let sockets = (0..flows.div_ceil(50_000)).map(|_| {
        let socket = masquerade.net.left.inside(|| UdpSocket::bind("10.83.1.2:0")).unwrap().unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    });
    for socket in sockets {
        for port in 10_000..60_000 {
            // A full queue loses a packet, as a flood does.
            let _ = socket.send_to(b"flood", (SERVER, port));
        }
    }
}

#[test]
fn connections_stay_carried_when_the_connection_table_is_full() {
    let test = "connections_stay_carried_when_the_connection_table_is_full";
    if !can_run(test, "nft") {
        return;
    }
    let number = |name: &str| {
        let path = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
        std::fs::read_to_string(path).ok()?.trim().parse::<u32>().ok()
    };
    let Some(most) = number("max").filter(|&most| most <= 1 << 19) else {
        return skip(test, "conntrack's table holds more than 524288 connections, or there is none");
    };
    let masquerade = Masquerade::new();
    // Nobody answers, and nobody says so: each flow stays for its timeout.
    nft(
        &masquerade.net.right,
        "table ip t {\n chain in {\n type filter hook input priority 0\n udp dport 10000-59999 drop\n }\n}\n",
    );
    let udp = masquerade.udp();
    masquerade.until_carried(&udp);
    let count = || masquerade.net.gateway.inside(|| number("count")).unwrap().unwrap_or(0);
    let (mut exchanged, before) = (0, masquerade.carried("udp"));
    until("conntrack's table is full", || {
        flood(&masquerade, most / 4);
        (0..10).for_each(|_| exchanged += u64::from(udp.exchange().is_some()));
        count() > most - most / 20
    });
    // A connection that the kernel has no room for is not there; the carried one goes on.
    (0..100).for_each(|_| assert!(udp.exchange().is_some()));
    let carried = masquerade.carried("udp") - before;
    assert!(carried * 100 >= 2 * (exchanged + 100) * 95, "{carried} of {} packets", 2 * (exchanged + 100));
    let shown = masquerade.polder.show("connections");
    let totals = &shown["connections"];
    assert!(totals["entered"].as_u64() <= totals["room"].as_u64(), "{totals}");
    masquerade.polder.stop();
}

#[test]
fn connections_are_carried_again_after_an_upgrade() {
    let test = "connections_are_carried_again_after_an_upgrade";
    if !can_run(test, "nft") {
        return;
    }
    let mut masquerade = Masquerade::new();
    let udp = masquerade.udp();
    masquerade.until_carried(&udp);
    let socket = masquerade.polder.socket().to_owned();
    std::thread::scope(|scope| {
        let upgrade = scope.spawn(|| {
            let mut command = Command::new(crate::support::polder());
            command::run(command.args(["upgrade", "--socket"]).arg(&socket))
        });
        while !upgrade.is_finished() {
            assert!(udp.exchange().is_some(), "a packet was lost while the gateway was replaced");
        }
        upgrade.join().unwrap().unwrap();
    });
    let next = Process::behind(&socket).unwrap();
    assert_ne!(next.id(), masquerade.polder.id());
    assert_eq!(masquerade.polder.wait_for_end(), Some(0));
    masquerade.until_carried(&udp);
    // The successor follows the rules.
    nft(&masquerade.net.gateway, "insert rule inet fw forward udp dport 7007 drop\n");
    (0..3).for_each(|_| assert_eq!(udp.exchange(), None));
    drop(next);
}
