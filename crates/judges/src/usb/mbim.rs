//! `mbimcli` of libmbim as judge of the modem in software, by Linux's `cdc_mbim` and `cdc-wdm` over USB/IP.
//!
//! ```text
//!  this process                        the guest
//!  model ── USB/IP server ── vhci_hcd ── cdc_mbim ── /dev/cdc-wdm0 ── mbimcli
//! ```
//!
//! A check is a command and words of its answer. A model with one lie at a time shows that a check finds what it is
//! for.

use super::inside;
use super::{Door, Served};
use crate::examination::{Fault, Plan, Verdict, full_name, require};
use anyhow::{Context as _, anyhow, bail, ensure};
use polder_buffers::{Region, RegionOptions};
use polder_devices::cdc::Subclass;
use polder_devices::cdc::mbim::model::{ModemFault, ModemOptions};
use polder_devices::cdc::model::{Device, Options};
use polder_devices::usb::model::Bench;
use polder_testbed::guest::agent::{Answer, Request};
use polder_testbed::guest::{Guest, Kernel};
use polder_testbed::{clock, command, interrupt};
use std::path::Path;
use std::time::Duration;

/// Modules of the guest.
const MODULES: &[&str] = &["cdc_mbim", "vhci-hcd"];
/// The modem's control channel in the guest.
const CHANNEL: &str = "/dev/cdc-wdm0";
/// Time for which the channel may take to appear, and a command to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Name of the device at its server.
const BUSID: &str = "1-1";

/// A check: its name, the arguments of `mbimcli`, and words of its answer, each as often as it is there.
type Check = (&'static str, &'static str, &'static [&'static str]);

/// The dialogue with a modem whose radio is off at the start.
const DIALOGUE: &[Check] = &[
    ("device capabilities", "--query-device-caps", &["490154203237518", "polder-1.0", "Polder model", "'8'"]),
    ("device services", "--query-device-services", &["basic-connect"]),
    (
        "subscriber",
        "--query-subscriber-ready-status",
        &["'initialized'", "262021234567890", "8949000000000000001"],
    ),
    ("PIN is not wanted", "--query-pin-state", &["'unlocked'"]),
    ("radio is off", "--query-radio-state", &["'off'"]),
    ("radio is switched on", "--set-radio-state=on", &["'on'"]),
    ("home provider", "--query-home-provider", &["26202", "Polder Mobile"]),
    ("searching", "--query-registration-state", &["'searching'"]),
    ("registered", "--query-registration-state", &["'home'", "Polder Mobile"]),
    ("signal", "--query-signal-state", &["'20'"]),
    ("not attached", "--query-packet-service-state", &["'detached'"]),
    ("attached", "--attach-packet-service", &["'attached'", "50000000", "150000000"]),
    ("connected", "--connect=session-id=0,apn=internet,auth=chap,username=u,password=p", &["'activated'"]),
    ("connection state", "--query-connection-state=0", &["'activated'"]),
    (
        "IPv4 configuration",
        "--query-ip-configuration=0",
        &["100.64.0.2/30", "100.64.0.1", "192.0.2.53", "1420"],
    ),
    ("IPv6 configuration", "--query-ip-configuration=0", &["2001:db8::2/64", "fe80::1", "2001:db8::53"]),
    ("MTU of both families", "--query-ip-configuration=0", &["MTU: '1420'", "MTU: '1420'"]),
    ("second session", "--connect=session-id=7,apn=ims", &["'activated'"]),
    ("its addresses", "--query-ip-configuration=7", &["100.64.7.2/30", "2001:db8:7::2/64"]),
    ("statistics", "--query-packet-statistics", &["'0'"]),
    ("disconnected", "--disconnect=0", &["'deactivated'"]),
    ("no connection", "--query-connection-state=0", &["'deactivated'"]),
    ("detached", "--detach-packet-service", &["'detached'"]),
    ("radio is switched off", "--set-radio-state=off", &["'off'"]),
];

/// The dialogue with a modem that wants a PIN.
const LOCKED: &[Check] = &[
    ("locked", "--query-subscriber-ready-status", &["'device-locked'"]),
    ("wrong PIN", "--enter-pin=9999", &["'locked'", "'2'"]),
    ("right PIN", "--enter-pin=1234", &["'unlocked'"]),
    ("unlocked", "--query-subscriber-ready-status", &["'initialized'"]),
];

/// Lies, with the check that finds each, which needs those in front of it.
const LIES: &[(ModemFault, &str)] = &[
    (ModemFault::OpenFails, "device capabilities"),
    (ModemFault::InformationBeyond, "device capabilities"),
    (ModemFault::Outside, "device capabilities"),
    (ModemFault::NotText, "device capabilities"),
    (ModemFault::Denied, "registered"),
    (ModemFault::NoConnection, "connected"),
    (ModemFault::NotActive, "connected"),
    (ModemFault::ManyAddresses, "IPv4 configuration"),
    (ModemFault::LongPrefix, "IPv4 configuration"),
    (ModemFault::TinyMtu, "MTU of both families"),
];

/// Check behind all others of a modem.
const UNDERSTOOD: &str = "the model understands the kernel and libmbim";

/// Fails where the examination cannot run.
///
/// # Errors
/// The missing program or kernel, and how to get it.
pub fn available() -> anyhow::Result<Kernel> {
    require(&[], &["mbimcli", "ip", "ldd"])?;
    let kernel = Guest::available()?;
    kernel.with_dependencies(MODULES)?;
    Ok(kernel)
}

/// Examines honest modems and ones that lie. `program` is `polder-lab`.
///
/// # Errors
/// When the examination itself cannot be held; what a model does wrong is in the verdict.
pub fn examine(program: &Path, says: &dyn Fn(&str)) -> anyhow::Result<Verdict> {
    let kernel = available()?;
    let plan = honest().iter().fold(Plan::default(), |plan, (name, _, dialogue)| {
        let checks = dialogue.iter().map(|(check, ..)| *check).chain([UNDERSTOOD]);
        plan.named(checks.map(|check| full_name(name, check)))
    });
    let mut verdict = Verdict::begin(kernel.version(), plan.faults::<Judge, _>(LIES));
    says("starting the guest");
    let guest = inside::boot(&kernel, program, MODULES, &["ip", "mbimcli"])?;
    let mut judge = Judge { guest, shown: None, port: 0 };
    for (name, options, dialogue) in honest() {
        says(name);
        judge.honest(&mut verdict, name, options, dialogue)?;
    }
    verdict.look_for(LIES, &mut judge, says)?;
    judge.guest.power_off()?;
    Ok(verdict)
}

fn honest() -> [(&'static str, ModemOptions, &'static [Check]); 3] {
    let plain = ModemOptions::default();
    let locked = ModemOptions { pin: Some("1234".to_owned()), ..plain.clone() };
    let small = ModemOptions { message_bytes: 256, ..plain.clone() };
    [
        ("modem", plain, DIALOGUE),
        ("locked modem", locked, LOCKED),
        ("modem of short messages", small, &DIALOGUE[..3]),
    ]
}

struct Judge {
    guest: Guest,
    /// The modem that the guest has.
    shown: Option<Shown>,
    /// Port of the virtual host for the next device.
    port: u8,
}

/// A modem that the guest has attached.
struct Shown {
    served: Served<Device>,
    /// Number of the next transaction.
    transaction: u32,
}

impl Shown {
    fn start(modem: ModemOptions) -> anyhow::Result<Self> {
        let memory = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 })?;
        let options = Options {
            subclass: Subclass::Mbim,
            identity: (0x1199, 0x9091),
            longest: 1500,
            modem,
            ..Options::default()
        };
        let bench = Bench::new(Device::new(options), None, memory.pool());
        Ok(Self { served: Served::start(bench, Door::loopback()?, BUSID)?, transaction: 1 })
    }
}

/// A lie, and the check that finds it.
impl Fault<Judge> for (ModemFault, &'static str) {
    fn name(&self) -> String {
        format!("{:?}", self.0)
    }

    /// Runs only those earlier checks that change the modem's state.
    fn apply(&self, judge: &mut Judge) -> anyhow::Result<()> {
        judge.attach(ModemOptions { searches: 0, ..ModemOptions::default() })?;
        let before = DIALOGUE.iter().take_while(|(name, ..)| *name != self.1);
        for (_, arguments, _) in before.filter(|(_, arguments, _)| !arguments.starts_with("--query")) {
            judge.ask(arguments, &[])?;
        }
        judge.shown()?.served.bench().adapter.modem().lie(&[self.0]);
        Ok(())
    }

    fn find(&self, judge: &mut Judge) -> anyhow::Result<Option<String>> {
        let check = DIALOGUE.iter().find(|(name, ..)| *name == self.1);
        let (name, arguments, words) = check.context("a check of that name")?;
        Ok(judge.ask(arguments, words)?.map(|why| format!("{name}: {why}")))
    }

    fn remove(&self, judge: &mut Judge) -> anyhow::Result<()> {
        judge.detach()
    }
}

impl Judge {
    fn honest(
        &mut self,
        verdict: &mut Verdict,
        name: &str,
        options: ModemOptions,
        dialogue: &[Check],
    ) -> anyhow::Result<()> {
        self.attach(options)?;
        let held = |why: Option<String>| why.map_or(Ok(()), |why| Err(anyhow!(why)));
        for (check, arguments, words) in dialogue {
            let why = self.ask(arguments, words)?;
            verdict.note(&full_name(name, check), held(why));
        }
        let violations = {
            let mut bench = self.shown()?.served.bench();
            let wrong = bench.adapter.violations().iter().map(|violation| format!("{violation:?}"));
            let mut wrong = wrong.collect::<Vec<_>>();
            wrong.extend(bench.adapter.modem().violations().iter().map(ToString::to_string));
            wrong
        };
        let why = (!violations.is_empty()).then(|| format!("it refuses {violations:?}"));
        verdict.note(&full_name(name, UNDERSTOOD), held(why));
        self.detach()
    }

    fn shown(&mut self) -> anyhow::Result<&mut Shown> {
        self.shown.as_mut().context("no modem is attached")
    }

    /// Sends a command; returns the error in the answer, if any.
    fn ask(&mut self, arguments: &str, words: &[&str]) -> anyhow::Result<Option<String>> {
        interrupt::check()?;
        let shown = self.shown()?;
        // The function stays open from one command to the next.
        let opened = match shown.transaction {
            1 => String::new(),
            number => format!("--no-open={number}"),
        };
        shown.transaction += 100;
        let line = format!("mbimcli -d {CHANNEL} {opened} --no-close {arguments}");
        let Answer { ok, text } = self.guest.try_ask(&Request::run(&line), PATIENCE)?;
        if !ok {
            return Ok(Some(text.lines().last().unwrap_or("it failed").to_owned()));
        }
        Ok(missing(&text, words).map(|word| {
            format!("{word} is missing in: {}", text.split_whitespace().collect::<Vec<_>>().join(" "))
        }))
    }

    /// Shows a modem, attaches it in the guest, and waits for its channel.
    fn attach(&mut self, options: ModemOptions) -> anyhow::Result<()> {
        let shown = Shown::start(options)?;
        let (server, port) = (shown.served.port(), self.port);
        self.guest.ask(&Request::Attach { server, device: BUSID.to_owned(), port })?;
        self.wait_for_channel(true)?;
        self.shown = Some(shown);
        Ok(())
    }

    fn detach(&mut self) -> anyhow::Result<()> {
        self.shown = None;
        self.wait_for_channel(false)?;
        self.port = (self.port + 1) % 8;
        let log = self.guest.log()?;
        ensure!(
            !log.contains("Call Trace"),
            "the guest's kernel complains: {}",
            command::last_lines(&log, 20)
        );
        Ok(())
    }

    fn wait_for_channel(&mut self, is_there: bool) -> anyhow::Result<()> {
        let end = clock::now() + PATIENCE;
        loop {
            let names = self.guest.ask(&Request::List("/dev".to_owned()))?;
            if names.lines().any(|name| CHANNEL.ends_with(name) && name.starts_with("cdc-wdm")) == is_there {
                return Ok(());
            }
            if clock::now() > end {
                bail!("the modem's channel does not follow: {}", command::last_lines(&self.guest.log()?, 20));
            }
            interrupt::sleep(Duration::from_millis(50))?;
        }
    }
}

/// A word that does not stand in the text as often as in the list.
fn missing<'a>(text: &str, words: &[&'a str]) -> Option<&'a str> {
    let wanted = |word: &str| words.iter().filter(|other| **other == word).count();
    words.iter().copied().find(|word| text.matches(word).count() < wanted(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_wanted_twice_is_there_twice() {
        let words = ["MTU: '1420'", "MTU: '1420'", "10.0.0.1"];
        assert_eq!(missing("10.0.0.1 MTU: '1420' :: MTU: '1420'", &words), None);
        assert_eq!(missing("10.0.0.1 MTU: '1' :: MTU: '1420'", &words), Some("MTU: '1420'"));
        assert_eq!(missing("MTU: '1420' MTU: '1420'", &words), Some("10.0.0.1"));
    }

    #[test]
    fn each_lie_has_its_check() {
        for (lie, check) in LIES {
            assert!(DIALOGUE.iter().any(|(name, ..)| name == check), "{lie:?}");
        }
    }
}
