//! Layout and text of the demonstration's output.

use super::Forwarder;
use super::cables::WINDOW;
use super::gateway::Gateway;
use super::network::{ACCESS_POINT, CLIENT, SERVER, STATION};
use polder::runtime::accounts::Accounts;
use polder_testbed::machine;
use polder_testbed::meters::stream::Outcome;
use polder_testbed::screen::{Screen, grouped, rounded, time};
use polder_testbed::traffic::sockets::UdpOutcome;
use serde_json::Value;
use std::time::Duration;

/// Columns of a row's label.
const LABEL: usize = 20;

/// A rate found by search.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) frame_bytes: usize,
    pub(super) outcome: UdpOutcome,
    pub(super) idle_percent: f64,
    /// Nothing was lost at the highest rate that could be sent.
    pub(super) limited_by_sender: bool,
}

/// One row of the table of rates.
pub(super) struct Rate {
    pub(super) direction: &'static str,
    pub(super) frame_bytes: usize,
    pub(super) packets_per_second: f64,
    pub(super) outcome: Outcome,
}

pub(super) fn title(screen: Screen, forwarder: Forwarder) {
    let (what, tunnel) = match forwarder {
        Forwarder::Polder => ("Polder: two gateways and a gretap tunnel", " gretap "),
        Forwarder::Kernel => ("The kernel in Polder's place: two bridges and a VXLAN tunnel", " VXLAN "),
    };
    let facts = format!("Linux {} · {} · {} cores", machine::kernel(), machine::cpu(), machine::cores());
    screen.line(format!("\n  {}  {}\n", screen.bold(what), screen.dim(&facts)));
    let (wire, radio) = (screen.dim("─────"), screen.accent("═══"));
    let node = |text: &str| screen.bold(&format!("{text:^14}"));
    let path = [
        node("client"),
        wire.clone(),
        node("access point"),
        radio.clone(),
        screen.accent(&format!("{tunnel:^8}")),
        radio,
        node("station"),
        wire,
        node("server"),
    ];
    screen.line(format!("  {}", path.concat()));
    let (local, remote) = (ACCESS_POINT.local.to_string(), STATION.local.to_string());
    let (client, server) = (CLIENT.to_string(), SERVER.to_string());
    let addresses =
        format!("  {client:^14}     {local:^14}{:^14}{remote:^14}     {server:^14}\n", "over a radio");
    screen.line(screen.dim(&addresses));
}

pub(super) fn done(screen: Screen, what: &str, took: Duration) {
    let seconds = screen.dim(&format!("{:.2} s", took.as_secs_f64()));
    screen.line(format!("  {} {what:<60} {seconds}", screen.good("✓")));
}

fn row(screen: Screen, label: &str, text: &str) {
    screen.line(format!("  {}{text}", screen.bold(&format!("{label:<LABEL$}"))));
}

pub(super) fn ping(screen: Screen, times: &[Duration], sent: u16) {
    screen.line("");
    let mut nanos =
        times.iter().map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)).collect::<Vec<_>>();
    nanos.sort_unstable();
    let at = |place: usize| nanos.get(place).map_or_else(|| "–".to_owned(), |&nanos| time(nanos));
    let (first, middle, last) = (at(0), at(nanos.len() / 2), at(nanos.len().wrapping_sub(1)));
    let text =
        format!("median {middle:<9} least {first:<9} most {last:<9} {} of {sent} answered", nanos.len());
    row(screen, "ping", &text);
}

pub(super) fn tcp(screen: Screen, direction: &str, bits: f64, idle: f64) {
    let text =
        format!("{:>9} Mbit/s   {}", rounded(bits / 1e6), screen.dim(&format!("CPU idle {idle:.0} %")));
    row(screen, "TCP", &format!("{direction} {text}"));
}

pub(super) fn udp_heading(screen: Screen) {
    screen.line("");
    row(screen, "UDP", &screen.dim("highest rate with at most 0.1 % loss, client → server"));
}

pub(super) fn udp(screen: Screen, found: &Found) {
    let arrivals = &found.outcome.arrivals;
    let bits = bits_per_second(found.outcome.sent_rate, found.frame_bytes);
    let whose = if found.limited_by_sender { ", as fast as the sender can" } else { "" };
    let fate = format!(
        "lost {} of {}, reordered {}   CPU idle {:.0} %{whose}",
        grouped(arrivals.lost),
        grouped(arrivals.sent),
        grouped(arrivals.reordered),
        found.idle_percent
    );
    let label = format!("  {:>4}-byte frames", found.frame_bytes);
    let rate = format!("{:>9} packets/s {:>8} Mbit/s", rounded(found.outcome.sent_rate), rounded(bits / 1e6));
    screen.line(format!("  {label:<LABEL$}{rate}   {}", screen.dim(&fate)));
}

/// Rate of the frames alone, without preamble and gap.
#[expect(clippy::cast_precision_loss, reason = "frames are short")]
fn bits_per_second(packets_per_second: f64, frame_bytes: usize) -> f64 {
    packets_per_second * frame_bytes as f64 * 8.0
}

pub(super) fn latency_heading(screen: Screen, frame_bytes: usize) {
    screen.line("");
    let text = format!("one-way delay, {frame_bytes}-byte frames, from the scheduled send time to the read");
    row(screen, "latency", &screen.dim(&text));
}

pub(super) fn latency(screen: Screen, rate: f64, outcome: &UdpOutcome) {
    let at = |quantile: f64| time(outcome.latency.value_at_quantile(quantile));
    let label = format!("  {:>7} packets/s", rounded(rate));
    let text = format!(
        "p50 {:<8} p90 {:<8} p99 {:<8} p99.9 {:<8} most {}",
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        time(outcome.latency.max())
    );
    screen.line(format!("  {label:<LABEL$}{text}"));
}

pub(super) fn idle(screen: Screen, percent: f64) {
    screen.line("");
    row(
        screen,
        "CPU idle",
        &format!("{percent:.1} % {}", screen.dim("with both gateways waiting for traffic")),
    );
}

/// Drops and journey of each gateway, in its own words.
pub(super) fn gateways(screen: Screen, gateways: &[&Gateway]) -> anyhow::Result<()> {
    for what in ["drops", "path"] {
        for gateway in gateways {
            screen.heading(&format!("polder show {what}, {}", gateway.site.title));
            for line in gateway.show(what, false)?.trim_end().lines() {
                screen.line(format!("  {line}"));
            }
        }
    }
    Ok(())
}

/// True if each packet has been accounted for; says so.
pub(super) fn conservation(screen: Screen, gateways: &[&Gateway]) -> anyhow::Result<bool> {
    screen.heading("account of all packets");
    let mut balanced = true;
    for gateway in gateways {
        let counters = gateway.counters()?;
        let unaccounted = find(&counters, "unaccounted").and_then(Value::as_i64);
        balanced &= unaccounted == Some(0);
        let verdict = match unaccounted {
            Some(0) => screen.good("✓ unaccounted 0"),
            Some(count) => screen.bad(&format!("✗ unaccounted {count}")),
            None => screen.bad("✗ the counters do not show it"),
        };
        let parts = [
            "received",
            "generated",
            "cloned",
            "split",
            "transmitted",
            "delivered",
            "dropped",
            "merged",
            "held",
        ];
        let parts = parts.iter().filter_map(|&name| {
            let count = find(&counters, name).and_then(Value::as_u64).filter(|&count| count > 0)?;
            Some(format!("{name} {}", grouped(count)))
        });
        let parts = parts.collect::<Vec<_>>().join(" · ");
        row(screen, gateway.site.title, &format!("{verdict}   {}", screen.dim(&parts)));
    }
    Ok(balanced)
}

/// The first value under `key`, however deep; shallow ones first.
fn find<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    let mut level = vec![value];
    while !level.is_empty() {
        if let Some(found) = level.iter().find_map(|value| value.get(key)) {
            return Some(found);
        }
        level = level.into_iter().flat_map(children).collect();
    }
    None
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

pub(super) fn without_root(screen: Screen) {
    screen.line(screen.dim(
        "  Not root, so the wires are cables in memory. Left out: real network stacks, ping, TCP, AF_XDP,\n  \
         and the path through the kernel. To see them: `sudo make demo`\n",
    ));
}

pub(super) fn one_at_a_time(screen: Screen, outcome: &Outcome) {
    let at = |quantile: f64| time(outcome.latency.value_at_quantile(quantile));
    let text = format!(
        "p50 {:<8} p90 {:<8} p99 {:<8} p99.9 {:<8} most {}   {}",
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        time(outcome.latency.max()),
        screen.dim("one-way delay, both workers woken for each packet")
    );
    screen.line("");
    row(screen, "one packet at a time", &format!("  {text}"));
}

pub(super) fn rates_heading(screen: Screen) {
    screen.line("");
    let text = format!("{WINDOW} packets in flight; encapsulated by one gateway, decapsulated by the other");
    row(screen, "rate", &screen.dim(&text));
}

pub(super) fn rate(screen: Screen, rate: &Rate) {
    let Rate { direction, frame_bytes, packets_per_second, outcome } = rate;
    let arrivals = &outcome.arrivals;
    let bits = bits_per_second(*packets_per_second, *frame_bytes);
    let label = format!("  {frame_bytes:>4}-byte frames");
    let fate = format!("lost {}, reordered {}", grouped(arrivals.lost), grouped(arrivals.reordered));
    let rate = format!("{:>9} packets/s {:>8} Mbit/s", rounded(*packets_per_second), rounded(bits / 1e6));
    screen.line(format!("  {label:<LABEL$}{direction} {rate}   {}", screen.dim(&fate)));
}

pub(super) fn idle_process(screen: Screen, percent: f64) {
    screen.line("");
    let text = format!("{percent:.1} % of a core {}", screen.dim("for both gateways, waiting for traffic"));
    row(screen, "CPU", &text);
}

/// Prints a gateway's `show` output below a title.
pub(super) fn shown(screen: Screen, what: &str, title: &str, text: &str) {
    screen.heading(&format!("polder show {what}, {title}"));
    for line in text.trim_end().lines() {
        screen.line(format!("  {line}"));
    }
}

/// True if each packet has been accounted for; says so.
pub(super) fn balance(screen: Screen, title: &str, accounts: &Accounts) -> bool {
    let count = accounts.unaccounted();
    let verdict = match count {
        0 => screen.good("✓ unaccounted 0"),
        count => screen.bad(&format!("✗ unaccounted {count}")),
    };
    let Accounts { received, transmitted, dropped, .. } = accounts;
    let parts = format!(
        "received {} · transmitted {} · dropped {}",
        grouped(*received),
        grouped(*transmitted),
        grouped(*dropped)
    );
    row(screen, title, &format!("{verdict}   {}", screen.dim(&parts)));
    count == 0
}

pub(super) fn end(screen: Screen, took: Duration) {
    screen.line(format!(
        "\n  {} everything is removed; {:.0} s in all\n",
        screen.good("✓"),
        took.as_secs_f64()
    ));
}
