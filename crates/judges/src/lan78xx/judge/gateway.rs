//! A gateway in the guest: `polder` itself, with an adapter of that machine for a port.
//!
//! There our driver reaches the adapter as it would anywhere, through the kernel's usbfs, and takes it
//! from the kernel's driver.

use super::{Case, Check, Judge, PROBE};
use crate::examination::{Plan, Verdict, full_name};
use anyhow::{Context as _, ensure};
use polder_devices::lan78xx::model::Options;
use polder_testbed::guest::agent::Request;
use serde_json::Value;
use std::time::Duration;

/// Its configuration, its socket, and its port for the guest's stack.
const FILE: &str = "/tmp/gateway.toml";
const SOCKET: &str = "/tmp/gateway.sock";
const TAP: &str = "ours";
/// Time for which a gateway may take to start, and to see that an adapter is back: the guest is slow.
const START: Duration = Duration::from_secs(60);

/// Subject of the checks.
const SUBJECT: &str = "a gateway on usbfs";
/// Checks around those of a gateway that has the adapter.
const TOLD: &str = "check";
const TAKES: &str = "takes the adapter over";
const GIVES_BACK: &str = "stop gives the adapter back";
const DETACH: &str = "detach";

/// Names of all checks besides.
pub(super) fn plan(plan: Plan) -> Plan {
    let around = [TOLD, TAKES, GIVES_BACK, DETACH].map(|name| (name, ()));
    plan.checks(SUBJECT, &around).checks(SUBJECT, CHECKS)
}

/// Checks of a gateway that has the adapter.
const CHECKS: &[Check] = &[
    ("link", Judge::comes_up),
    ("pings", Judge::some_pings),
    ("floods", Judge::floods),
    ("tcp", Judge::tcp),
    ("show", Judge::is_shown),
    ("unplug and plug in", Judge::comes_back),
];

impl Judge {
    /// A gateway takes the adapter from the kernel's driver, works, bears its absence, and gives it back.
    pub(super) fn gateway(&mut self, verdict: &mut Verdict) -> anyhow::Result<()> {
        let mut case = self.attach(Options::default())?;
        let kernels = case.interface.clone();
        verdict.check(&full_name(SUBJECT, TOLD), || self.is_told_who_has_it(&case))?;
        let process = self.take_over(&mut case);
        let taken = full_name(SUBJECT, TAKES);
        let process = match process {
            Ok(process) => process,
            Err(error) => {
                verdict.note(&taken, Err(error));
                return self.detach(&mut case);
            }
        };
        verdict.note(&taken, Ok(()));
        verdict.hold(SUBJECT, CHECKS, &|_| {}, |check| check(self, &mut case))?;
        verdict.check(&full_name(SUBJECT, GIVES_BACK), || self.gives_back(process, &kernels))?;
        case.interface = kernels;
        verdict.check(&full_name(SUBJECT, DETACH), || self.detach(&mut case))
    }

    /// Writes the configuration and checks that the message names the obstacle.
    fn is_told_who_has_it(&mut self, case: &Case) -> anyhow::Result<()> {
        self.guest.ask(&Request::Load("tun".to_owned()))?;
        let place = self.usb_device(case)?;
        let place = place.split(':').next().unwrap_or_default();
        let text = format!(
            "version = 1\n[gateway]\ncontrol = \"{SOCKET}\"\n[port.usb]\nlan78xx = {{ usb = \"{place}\" }}\n\
             [port.host]\ntap = \"{TAP}\"\n[bridge.br0]\nmembers = [\"usb\", \"host\"]\n"
        );
        self.guest.ask(&Request::Write(FILE.to_owned(), text))?;
        let said = self.guest.run(&format!("polder check {FILE}"))?;
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let wanted = [
            format!("LAN7800 at USB port {place}"),
            "the kernel's driver lan78xx has the adapter".to_owned(),
        ];
        ensure!(wanted.iter().all(|words| said.contains(words)), "`polder check` says: {said}");
        Ok(())
    }

    /// Starts the gateway on the adapter; its TAP takes the place of the kernel's interface.
    fn take_over(&mut self, case: &mut Case) -> anyhow::Result<u32> {
        let before = self.guest.interfaces()?;
        let words = ["polder", "run", "--yes", FILE].map(str::to_owned).to_vec();
        let process = self.guest.ask(&Request::Start(words))?.parse().context("no process was started")?;
        let shown = self.until_shown(|port| port["open"] == true)?;
        let kernels = case.interface.clone();
        case.interface = TAP.to_owned();
        case.up = "unknown";
        let after = self.guest.interfaces()?;
        ensure!(after.iter().any(|name| name == TAP), "there is no {TAP}: {after:?}; before: {before:?}");
        ensure!(!after.contains(&kernels), "the kernel's driver still has the adapter: {shown:#}");
        Ok(process)
    }

    /// The USB port, as the gateway shows it, once it is as wanted.
    fn until_shown(&mut self, is_wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let mut last = String::new();
        let found = self.until(START, |judge| {
            let request = Request::run(&format!("polder show ports --json --socket {SOCKET}"));
            let answer = judge.guest.try_ask(&request, START)?;
            last.clone_from(&answer.text);
            let shown = serde_json::from_str::<Value>(&answer.text).ok().filter(|_| answer.ok);
            Ok(shown.and_then(|shown| shown["ports"].as_array()?.first().cloned()).filter(&is_wanted))
        })?;
        found.with_context(|| format!("the gateway shows: {last}"))
    }

    fn is_shown(&mut self, _: &mut Case) -> anyhow::Result<()> {
        let port = self.until_shown(|port| port["adapter"]["link_up"] == true)?;
        let adapter = &port["adapter"];
        let is_right = adapter["bus"] == "USB 3"
            && adapter["link_mbit"] == 1000
            && adapter["bad_transfers"] == 0
            && adapter["receive_urbs"].as_u64() > Some(0)
            && adapter["sent_transfers"].as_u64() > Some(100);
        ensure!(is_right, "{port:#}");
        Ok(())
    }

    /// The adapter is pulled out and plugged in at the same place.
    fn comes_back(&mut self, case: &mut Case) -> anyhow::Result<()> {
        let openings = self.until_shown(|_| true)?["openings"].as_u64();
        self.guest.detach(case.port)?;
        let port = self.until_shown(|port| port["open"] == false)?;
        ensure!(port["trouble"].as_str().is_some_and(|why| !why.is_empty()), "{port:#}");
        let server = case.shown.port();
        self.guest.ask(&Request::Attach { server, device: "1-1".to_owned(), port: case.port })?;
        self.until_shown(|port| port["open"] == true && port["openings"].as_u64() > openings)?;
        self.reaches(case)
    }

    /// A gateway that ends in good order leaves the adapter to the kernel's driver.
    fn gives_back(&mut self, process: u32, interface: &str) -> anyhow::Result<()> {
        self.guest.ask(&Request::Stop(process))?;
        let back = self.until(PROBE, |judge| {
            Ok(judge.guest.interfaces()?.iter().any(|name| name == interface).then_some(()))
        })?;
        back.with_context(|| format!("the kernel's driver does not have the adapter back as {interface}"))
    }
}
