//! The walk of a dozen packets, as it is printed.

use crate::bench::{Bench, R};
use polder::runtime::shared::lock;
use polder::show::Layout;

/// Ages and times that are left to a station depend on when the test ran.
fn without_ages(text: &str) -> String {
    let words = text.split(' ').collect::<Vec<_>>();
    let is_age = |at: usize| {
        let before = at.checked_sub(1).map(|at| words[at]);
        matches!(before, Some("seen" | "in")) && words[at].parse::<u32>().is_ok()
    };
    let word = |(at, word): (usize, &&str)| if is_age(at) { "N".to_owned() } else { (*word).to_owned() };
    words.iter().enumerate().map(word).collect::<Vec<_>>().join(" ")
}

fn walk(bench: &mut Bench, port: &str, text: &str) -> String {
    let frame = bench.frame(text);
    let mut trace = bench.trace(port, &frame);
    trace.steps.iter_mut().for_each(|step| step.text = without_ages(&step.text));
    trace.draw(Layout::PLAIN)
}

#[test]
fn walks_are_explained() {
    let mut bench = Bench::new();
    // A station that is known: it has sent something.
    let known = bench.frame("eth src 02:00:00:00:00:0b dst 02:00:00:00:00:0c / ip dst 10.9.0.1 / udp");
    bench.put("b", &known);
    bench.take();
    let inside =
        "eth src 02:00:00:00:00:0e dst 02:00:00:00:00:0c / ip src 10.9.0.2 dst 10.9.0.1 / udp / payload 30";
    let to = |rest: &str| format!("eth dst {R} / {rest}");
    let all = [
        ("bridge known", "a", "eth dst 02:00:00:00:00:0b / ip dst 10.9.0.1 / udp / payload 20".to_owned()),
        ("bridge static", "a", "eth dst 02:00:00:00:00:0c / ip dst 10.9.0.1 / udp / payload 20".to_owned()),
        ("flood", "a", "eth dst 02:00:00:00:00:77 / ip dst 10.9.0.1 / udp / payload 20".to_owned()),
        ("back where it came from", "b", "eth dst 02:00:00:00:00:0b / ip dst 10.9.0.1 / udp".to_owned()),
        ("filter drop", "a", "eth dst 02:00:00:00:00:0b / ip dst 10.9.0.1 / tcp dport 23".to_owned()),
        (
            "gretap encap",
            "a",
            "eth dst 02:00:00:00:00:0d / ip dst 10.9.0.1 dscp 46 / udp / payload 20".to_owned(),
        ),
        (
            "gretap decap",
            "u",
            format!(
                "eth dst 02:00:00:00:01:03 / ip src 192.0.2.2 dst 192.0.2.1 / gre key 7 seq 1 / {inside}"
            ),
        ),
        (
            "gretap decap with the wrong key",
            "u",
            format!(
                "eth dst 02:00:00:00:01:03 / ip src 192.0.2.2 dst 192.0.2.1 / gre key 8 seq 1 / {inside}"
            ),
        ),
        ("route with ECMP", "r", to("ip src 10.0.0.9 dst 172.16.3.4 / udp sport 1000 dport 53 / payload 20")),
        (
            "route of IPv6, neighbour unknown",
            "r",
            to("ip src 2001:db8::9 dst 2001:db8:99::5 / udp / payload 20"),
        ),
        ("blackhole", "r", to("ip src 10.0.0.9 dst 203.0.113.9 / udp")),
        ("no route", "r", to("ip src 10.0.0.9 dst 198.18.0.1 / udp")),
        ("TTL 1", "r", to("ip src 10.0.0.9 dst 172.16.3.4 ttl 1 / udp")),
        ("too big with DF", "r", to("ip src 10.0.0.9 dst 10.0.1.2 df / udp / payload 1440")),
        ("too big without", "r", to("ip src 10.0.0.9 dst 10.0.1.2 / udp / payload 1440")),
        ("neighbour incomplete", "r", to("ip src 10.0.0.9 dst 10.0.1.77 / udp")),
        ("for the router", "r", to("ip src 10.0.0.9 dst 10.0.1.1 / icmp id 1 seq 1 / payload 8")),
        ("truncated", "r", format!("eth dst {R} type 0x0800 / hex 4500")),
    ];
    let text = all.map(|(title, port, packet)| format!("## {title}\n{}", walk(&mut bench, port, &packet)));
    insta::assert_snapshot!(text.join("\n"));
    lock(&bench.gateway).stop();
}
