//! tc filters and BPF programs at an interface's ingress and egress (tc(8), linux/pkt_cls.h).

use polder_devices::netlink::tc::{BPF_DIRECT, BPF_FLAGS, EGRESS, HEADER, INGRESS, KIND, OPTIONS, header};
use polder_devices::netlink::{Client, attributes, find, number, text};
use polder_devices::skb::{foreign_programs, is_own_filter};
use rustix::io::Errno;

/// A filter that may drop or change packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// True for packets that the interface sends.
    pub is_egress: bool,
    /// Preference and kind of the filter, or that it is a BPF program.
    pub name: String,
    /// Effect on packets, as text that follows "would".
    pub effect: String,
}

/// Filters of an interface that may drop or change packets.
pub(super) fn read(client: &mut Client, interface: u32) -> Result<Vec<Filter>, Errno> {
    let mut found = Vec::new();
    for (is_egress, parent) in [(false, INGRESS), (true, EGRESS)] {
        // A kernel without classifiers has no filters.
        let answers = client.dump(libc::RTM_GETTFILTER, &header(interface, 0, parent, 0)).or_else(without)?;
        let foreign = answers.iter().filter(|(_, body)| !is_own_filter(body));
        found.extend(foreign.filter_map(|(_, body)| filter(is_egress, body)));
        // Fails on Linux before 6.6 and on a locked-down kernel.
        if let Ok(count @ 1..) = foreign_programs(interface, is_egress) {
            let programs = if count == 1 { "program" } else { "programs" };
            let name = format!("{count} BPF {programs} (tcx)");
            found.push(Filter { is_egress, name, effect: BPF.to_owned() });
        }
    }
    Ok(found)
}

/// Returns an empty value for errors that mean a missing kernel feature.
pub(super) fn without<T: Default>(error: Errno) -> Result<T, Errno> {
    match error {
        Errno::OPNOTSUPP | Errno::NOENT | Errno::INVAL | Errno::PROTONOSUPPORT | Errno::NODEV => {
            Ok(T::default())
        }
        error => Err(error),
    }
}

/// Parses a filter that may affect packets: `tcmsg`, then attributes.
pub fn filter(is_egress: bool, body: &[u8]) -> Option<Filter> {
    let preference = number(body.get(16..)?)? >> 16;
    let rest = body.get(HEADER..)?;
    let kind = text(find(rest, KIND)?);
    let options = find(rest, OPTIONS).unwrap_or_default();
    // A message without options only describes the filter chain.
    if options.is_empty() {
        return None;
    }
    let effect = match kind.as_str() {
        "bpf" if find(options, BPF_FLAGS).and_then(number).unwrap_or(0) & BPF_DIRECT != 0 => {
            Some(BPF.to_owned())
        }
        "bpf" => acts(find(options, 1)),
        "matchall" => acts(find(options, 2)),
        "flower" | "basic" => acts(find(options, 3)),
        "fw" => acts(find(options, 4)).or_else(|| police(find(options, 2))),
        "u32" => acts(find(options, 7)).or_else(|| police(find(options, 6))),
        _ => Some("classify them".to_owned()),
    };
    Some(Filter { is_egress, name: format!("filter {kind} pref {preference}"), effect: effect? })
}

fn police(police: Option<&[u8]>) -> Option<String> {
    police.map(|_| "police them".to_owned())
}

/// Effect of a filter's actions on packets, if any.
fn acts(actions: Option<&[u8]>) -> Option<String> {
    let actions = attributes(actions?);
    let mut effects = actions.filter_map(|(_, action)| {
        let kind = text(find(action, KIND)?);
        let options = find(action, OPTIONS).unwrap_or_default();
        match kind.as_str() {
            "gact" => verdict(gact(options)?),
            "mirred" => Some("redirect or mirror them".to_owned()),
            // These mark, count or log.
            "skbedit" | "connmark" | "ctinfo" | "sample" | "simple" => None,
            "police" => Some("police them".to_owned()),
            kind => Some(format!("pass them to the action {kind}")),
        }
    });
    effects.next()
}

/// Verdict of a `tc_gact` structure, which follows its index and capabilities.
fn gact(options: &[u8]) -> Option<u32> {
    number(find(options, TCA_GACT_PARMS)?.get(8..)?)
}

fn verdict(verdict: u32) -> Option<String> {
    match verdict {
        TC_ACT_SHOT | TC_ACT_STOLEN | TC_ACT_QUEUED | TC_ACT_TRAP => Some("drop them".to_owned()),
        _ => None,
    }
}

/// Text that follows "would".
const BPF: &str = "pass them to a BPF program";
const TCA_GACT_PARMS: u16 = 2;
const TC_ACT_SHOT: u32 = 2;
const TC_ACT_STOLEN: u32 = 4;
const TC_ACT_QUEUED: u32 = 5;
const TC_ACT_TRAP: u32 = 8;
