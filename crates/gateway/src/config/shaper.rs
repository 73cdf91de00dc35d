//! `shaper` of a port: rates of what leaves by it and of what comes in by it.

use super::diagnostics::Diagnostic;
use super::keys::Draft;
use super::keys::Reload::Live;
use super::model::{HostIsolation, PortQueue, QueueKind};
use super::notation::{Given, Inner, Text, text};
use super::section::{Refusal, Section, printable, wrong_type};
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use toml::de::DeValue;

section! {
    /// Rates of a port.
    #[derive(Copy)]
    pub struct Shaper("`shaper`", "shaper") {
        keys:
        /// Rate of packets that leave by the port; it is the rate of its `queue`.
        up: Option<Rate> = None, Given(RATE) => Live, usual("none");
        /// Rate of packets that come in by the port, whatever port they leave by.
        down: Option<Rate> = None, Given(RATE) => Live, usual("none");
    }
}

const EXAMPLE: &str = "write `[port.NAME.shaper]` with `up = \"40 Mbit/s\"`, `down = \"250 Mbit/s\"` or both";

/// Notation of the shaper of a port.
pub(super) const NOTATION: Inner<Shaper> = Inner(EXAMPLE, check);

fn check(draft: &Draft<Shaper>, section: &Section<'_>) -> bool {
    let has_rate = draft.has("up") || draft.has("down");
    if !has_rate {
        let finding = Diagnostic::error(draft.span.clone(), "`shaper` has neither `up` nor `down`");
        section.findings.note(finding.remedy(EXAMPLE));
    }
    has_rate
}

/// A rate in kbit/s, 100 to 400,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u32);

/// Units with their kbit/s; `Display` uses the first that leaves no remainder.
const UNITS: [(&str, u64); 3] = [("Gbit/s", 1_000_000), ("Mbit/s", 1000), ("kbit/s", 1)];

impl Rate {
    /// A rate of so many kbit/s.
    pub(crate) const fn from_kbit(kbit: u32) -> Self {
        Self(kbit)
    }

    /// Rate in kbit/s.
    pub const fn kbit(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kbit = u64::from(self.0);
        let fits = UNITS.into_iter().find(|(_, unit)| kbit.is_multiple_of(*unit));
        let (name, unit) = fits.unwrap_or(("kbit/s", 1));
        write!(formatter, "{} {name}", kbit / unit)
    }
}

impl FromStr for Rate {
    type Err = String;

    /// Reads `40 Mbit/s`, `1.5 Gbit/s` or `800 kbit/s`.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = (&text[..at], text[at..].trim());
        let known = UNITS.into_iter().find(|(name, _)| *name == unit || name.trim_end_matches("/s") == unit);
        let kbit = known.and_then(|(_, unit)| thousandths(number)?.checked_mul(unit));
        // The product has thousandths of a kbit/s, which have to be none.
        let Some(kbit) = kbit.filter(|kbit| kbit.is_multiple_of(1000)).map(|kbit| kbit / 1000) else {
            return Err("is not a rate".to_owned());
        };
        let fits = u32::try_from(kbit).ok().filter(|kbit| (100..=400_000_000).contains(kbit));
        fits.map(Self).ok_or_else(|| "is out of range".to_owned())
    }
}

/// A decimal number in thousandths.
fn thousandths(number: &str) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if part.len() > 3 || whole.is_empty() {
        return None;
    }
    let part = format!("{part:0<3}").parse::<u64>().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(part)
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

const RATE: Text<Rate> = text("a rate", "`\"100 kbit/s\"` to `\"400 Gbit/s\"`", read_rate);

fn read_rate(value: &DeValue<'_>) -> Result<Rate, Refusal> {
    let remedy = "write a rate from \"100 kbit/s\" to \"400 Gbit/s\", such as \"40 Mbit/s\"";
    let Some(text) = value.as_str() else { return Err(wrong_type("a rate in quotes", value).remedy(remedy)) };
    text.parse().map_err(|why| Refusal::new(format!("{why}: \"{}\"", printable(text))).remedy(remedy))
}

impl Shaper {
    /// Queue of packets that leave, where the port has this one.
    pub(super) fn way_out(&self, queue: Option<PortQueue>) -> Option<PortQueue> {
        let Some(up) = self.up else { return queue };
        Some(PortQueue { rate_kbit: Some(up.kbit()), ..queue.unwrap_or(usual(HostIsolation::Source)) })
    }

    /// Queue of packets that come in: as that of packets that leave, with hosts seen from the other side.
    pub(super) fn way_in(&self, queue: Option<PortQueue>) -> Option<PortQueue> {
        let rate_kbit = Some(self.down?.kbit());
        let queue = queue.unwrap_or(usual(HostIsolation::Source));
        let isolation = match queue.isolation {
            HostIsolation::Source => HostIsolation::Destination,
            HostIsolation::Destination => HostIsolation::Source,
            HostIsolation::Both => HostIsolation::Both,
        };
        Some(PortQueue { rate_kbit, isolation, ..queue })
    }
}

/// Queue of a port with a shaper and without `queue`.
fn usual(isolation: HostIsolation) -> PortQueue {
    PortQueue { kind: QueueKind::Cake, isolation, ..PortQueue::default() }
}

#[cfg(test)]
mod tests {
    use super::super::keys::written;
    use super::super::parse;
    use super::*;
    use std::path::Path;

    #[test]
    fn rates_are_read_and_written_with_their_unit() {
        let kbit = |text: &str| text.parse::<Rate>().map(Rate::kbit);
        assert_eq!(kbit("40 Mbit/s"), Ok(40_000));
        assert_eq!(kbit("1.5Gbit"), Ok(1_500_000));
        assert_eq!(kbit(" 800 kbit/s "), Ok(800));
        assert_eq!(kbit("0.1 Mbit/s"), Ok(100));
        for text in ["0 Mbit/s", "99 kbit/s", "401 Gbit/s", "99999999999999999999 Gbit/s"] {
            assert!(kbit(text).is_err(), "{text}");
        }
        for text in
            ["", "40", "Mbit/s", "1.5 MB/s", "-4 Mbit/s", ".5 Mbit/s", "100.0005 kbit/s", "1.2.3 Mbit/s"]
        {
            assert_eq!(kbit(text), Err("is not a rate".to_owned()), "{text}");
        }
        for text in ["40 Mbit/s", "1500 Mbit/s", "2 Gbit/s", "123 kbit/s"] {
            assert_eq!(text.parse::<Rate>().map(|rate| rate.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn a_shaper_is_written_as_it_is_read() {
        let text = "version = 1\n[port.a]\ninterface = \"eth0\"\n[port.a.shaper]\nup = \"1.5Mbit/s\"\n\
                    [port.b]\ninterface = \"eth1\"\n[bridge.br0]\nmembers = [\"a\", \"b\"]\n";
        let parsed = parse(text, Path::new("a.toml")).unwrap_or_else(|report| panic!("{report}"));
        let mut port = parsed.configuration.ports[0].clone();
        let shaper = port.shaper.expect("a shaper");
        let written = written(&shaper, &parsed.configuration);
        assert_eq!(written, toml::Table::from_iter([("up".to_owned(), "1500 kbit/s".into())]));
        // Only a queue that is there gets another rate.
        let rate = "2 Mbit/s".parse().expect("a rate");
        assert_eq!((port.set_rate(true, rate), port.set_rate(false, rate)), (Some(Some(1500)), None));
        assert_eq!(port.way_out().and_then(|queue| queue.rate_kbit), Some(2000));
    }

    #[test]
    fn the_way_in_sees_hosts_from_the_other_side() {
        let shaper = Shaper { up: "4 Mbit/s".parse().ok(), down: "20 Mbit/s".parse().ok() };
        let (up, down) = (shaper.way_out(None).expect("a rate"), shaper.way_in(None).expect("a rate"));
        assert_eq!(
            (up.kind, up.isolation, up.rate_kbit),
            (QueueKind::Cake, HostIsolation::Source, Some(4000))
        );
        assert_eq!((down.isolation, down.rate_kbit), (HostIsolation::Destination, Some(20_000)));
        let queue = PortQueue { kind: QueueKind::FqCodel, flows: 64, ..PortQueue::default() };
        let only_down = Shaper { up: None, ..shaper };
        assert_eq!(only_down.way_out(Some(queue)), Some(queue));
        let down = only_down.way_in(Some(queue)).expect("a rate");
        assert_eq!((down.kind, down.flows, down.rate_kbit), (QueueKind::FqCodel, 64, Some(20_000)));
        assert_eq!(Shaper { down: None, ..shaper }.way_in(None), None);
    }
}
