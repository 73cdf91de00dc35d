//! Finding about the kernel's half of receiving: does the worker control it, and what happens under overload.

use super::attach::{OUR_PREFIX, program_name};
use super::link::{self, LinkInfo};
use super::napi::{Napi, named_queues, napis};
use super::options::{Hook, Options};
use super::report::{Finding, Level};
use super::thread::count_left;
use rustix::io::Errno;

const TOPIC: &str = "receiving";

/// Returns the finding about control of the interface's receiving; after opening, `hook` is the program's
/// hook.
pub(super) fn inspect(link: &LinkInfo, options: &Options, hook: Option<Hook>) -> Finding {
    let opened = hook.is_some();
    // A kernel that does not answer cannot suspend interrupts either.
    let named = named_queues(link.index).unwrap_or(0);
    // A veth gets NAPI contexts with the program; other interfaces get them when they are up.
    let may_come = !opened && (link.kind == "veth" || !link.up);
    // An upper interface (bond, VLAN) receives in the NAPI contexts of its lower interfaces.
    let lowest = lowest(link.clone());
    let has_threads = lowest
        .iter()
        .all(|link| std::fs::read_to_string(threaded(&link.name)).is_ok_and(|text| text.trim() == "1"));
    let names = lowest.into_iter().map(|link| link.name).collect::<Vec<_>>();
    let found = napis(link.index);
    if options.adapts
        && options.counts
        && named == 0
        && found.as_ref().is_ok_and(|napis| is_by_senders(link, napis))
    {
        let hook = hook.or(options.mode.hooks().first().copied());
        return by_senders(link.kind == "veth" && hook == Some(Hook::Native));
    }
    judge(&names, found, named, options, (may_come, has_threads))
}

/// True if a virtual interface receives in softirq, or has senders that deliver packets without a NAPI
/// context.
fn is_by_senders(link: &LinkInfo, found: &[Napi]) -> bool {
    let is_own = if found.is_empty() {
        matches!(link.kind.as_str(), "veth" | "tun" | "netkit")
    } else {
        !link.kind.is_empty()
    };
    is_own && found.iter().all(|napi| napi.thread.is_none())
}

/// Returns the finding for an interface that receives on its senders' cores; `has_ring`: a ring precedes the
/// program.
fn by_senders(has_ring: bool) -> Finding {
    let mut text = "in softirq, on the senders' cores; under overload the eBPF program drops excess \
                    packets, control packets last"
        .to_owned();
    if has_ring {
        text += ". Senders on several cores can fill the veth's ring of 256 packets in front of the eBPF \
                 program, where control packets are lost, too; the modes `skb` and `generic` have no such \
                 ring";
    }
    Finding { level: Level::Fine, topic: TOPIC, text }
}

/// Returns the lowest interfaces below `link`; `link` itself if there are none.
fn lowest(link: LinkInfo) -> Vec<LinkInfo> {
    let (mut found, mut uppers) = (Vec::new(), vec![link]);
    while let Some(upper) = uppers.pop() {
        let below = link::below(&upper);
        if below.is_empty() { found.push(upper) } else { uppers.extend(below) }
    }
    found
}

fn threaded(name: &str) -> String {
    format!("/sys/class/net/{name}/threaded")
}

/// Returns a finding about NAPI threads that a killed gateway left changed; `opened` if they have been
/// restored.
pub(super) fn left_over(link: &LinkInfo, opened: bool) -> Option<Finding> {
    let held = if opened { 0 } else { count_left(&napis(link.index).ok()?) };
    // Without a Polder program on the interface, no gateway runs that could hold them.
    let runs = link.xdp.program().is_some_and(|id| program_name(id).starts_with(OUR_PREFIX));
    judge_held(held, runs)
}

fn judge_held(held: usize, runs: bool) -> Option<Finding> {
    let (level, who) = if runs {
        (Level::Fine, "set by a gateway that runs or was killed")
    } else {
        (Level::Warning, "left by a killed gateway")
    };
    let text = format!("{held} NAPI threads have a priority {who}; the next start resets it");
    (held > 0).then_some(Finding { level, topic: "left over", text })
}

fn judge(
    names: &[String],
    found: Result<Vec<Napi>, Errno>,
    named: usize,
    options: &Options,
    (may_come, has_threads): (bool, bool),
) -> Finding {
    let fine = |text: String| Finding { level: Level::Fine, topic: TOPIC, text };
    let warning = |text: String| Finding { level: Level::Warning, topic: TOPIC, text };
    if options.busy_poll.is_some() {
        return fine("the worker polls the driver (busy_poll) and uses its whole core".to_owned());
    }
    let commands = names.iter().map(|name| format!("`echo 1 > {}`", threaded(name))).collect::<Vec<_>>();
    let commands = commands.join(", ");
    let threads = format!(
        "{commands} gives it NAPI threads, which can be pinned and get a lower priority than a \
                 worker"
    );
    match found {
        Ok(napis) if napis.is_empty() && may_come => {
            fine("determined when the port is opened: the interface has no NAPI context yet".to_owned())
        }
        Ok(napis) if napis.is_empty() => warning(
            "the interface has no NAPI context: its sender or the lower interface receives for it, and \
             under overload can take CPU time from the worker without limit"
                .to_owned(),
        ),
        Ok(napis) => {
            let (count, place) = (napis.len(), place(&napis));
            if options.adapts {
                let how = driven(named, &napis);
                fine(format!(
                    "{count} NAPI contexts, {place}; under overload {how}, and excess packets are \
                              dropped in the device"
                ))
            } else {
                fine(format!(
                    "{count} NAPI contexts, {place}, scheduled by the kernel: under overload they can take \
                     CPU time from the worker without limit; `moderation_us = \"auto\"` lets the worker \
                     control them"
                ))
            }
        }
        Err(errno) if options.adapts && has_threads => fine(format!(
            "NAPI threads with their present priority: the worker cannot control when the kernel receives{}",
            unknown(errno)
        )),
        Err(errno) if options.adapts => warning(format!(
            "the worker cannot control when the kernel receives{}; under overload it can take CPU time from \
             the worker without limit; {threads}",
            unknown(errno)
        )),
        Err(errno) => fine(format!("scheduled by the kernel in an unknown way{}; {threads}", unknown(errno))),
    }
}

/// Reason why the kernel does not answer.
fn unknown(errno: Errno) -> String {
    match errno {
        Errno::NOENT | Errno::OPNOTSUPP => " (Linux before 6.13)".to_owned(),
        errno => format!(" ({errno})"),
    }
}

/// Describes how the worker drives the NAPI contexts, by the driver's queue information and the kernel's
/// features.
fn driven(named: usize, napis: &[Napi]) -> &'static str {
    let suspends = napis.iter().all(|napi| napi.irq_suspend_timeout.is_some());
    match (named > 0, suspends) {
        (true, true) => {
            "the worker polls them itself, their interrupts suspended while it finds packets (irq-suspend-timeout)"
        }
        (true, false) => {
            "the worker polls them itself, their interrupts delayed by a timer (preferred busy polling)"
        }
        (false, _) => {
            "the worker controls their threads, because the driver does not report the NAPI context of a \
             queue, so a socket can neither poll it nor suspend its interrupts"
        }
    }
}

fn place(napis: &[Napi]) -> &'static str {
    match napis.iter().filter(|napi| napi.thread.is_some()).count() {
        0 => "in softirq",
        threads if threads == napis.len() => "in NAPI threads",
        _ => "some of them in NAPI threads",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(adapts: bool) -> Options {
        Options { adapts, ..Options::whole("v0") }
    }

    fn napi(thread: Option<u32>) -> Napi {
        Napi { id: 1, thread, defer_hard_irqs: 0, gro_flush_timeout: 0, irq_suspend_timeout: Some(0) }
    }

    #[test]
    fn what_is_obtained_is_said_and_what_is_not_has_a_remedy() {
        let adapts = judge(&["v0".to_owned()], Ok(vec![napi(None)]), 1, &options(true), (false, false));
        assert_eq!(adapts.level, Level::Fine);
        assert!(
            adapts.text.contains("suspended while it finds packets") && adapts.text.contains("softirq"),
            "{}",
            adapts.text
        );
        let unnamed = judge(&["v0".to_owned()], Ok(vec![napi(None)]), 0, &options(true), (false, false));
        assert!(unnamed.text.contains("controls their threads"), "{}", unnamed.text);
        let before = Napi { irq_suspend_timeout: None, ..napi(None) };
        let before = judge(&["v0".to_owned()], Ok(vec![before]), 1, &options(true), (false, false));
        assert!(before.text.contains("delayed by a timer"), "{}", before.text);
        let threaded = judge(&["v0".to_owned()], Ok(vec![napi(Some(7))]), 1, &options(false), (false, false));
        assert!(
            threaded.text.contains("threads") && threaded.text.contains("moderation_us"),
            "{}",
            threaded.text
        );
        let old = judge(&["v0".to_owned()], Err(Errno::OPNOTSUPP), 1, &options(true), (false, false));
        assert_eq!(old.level, Level::Warning);
        assert!(old.text.contains("/sys/class/net/v0/threaded"), "{}", old.text);
        let cured = judge(&["v0".to_owned()], Err(Errno::OPNOTSUPP), 1, &options(true), (false, true));
        assert_eq!(cured.level, Level::Fine);
        let older = judge(&["v0".to_owned()], Err(Errno::NOENT), 1, &options(false), (false, false));
        assert!(older.text.contains("before 6.13") && !older.text.contains("No such file"), "{}", older.text);
        assert_eq!(
            judge(&["v0".to_owned()], Ok(Vec::new()), 1, &options(true), (false, false)).level,
            Level::Warning
        );
        assert_eq!(
            judge(&["v0".to_owned()], Ok(Vec::new()), 1, &options(true), (true, false)).level,
            Level::Fine
        );
    }

    #[test]
    fn senders_bring_packets_where_the_kernel_makes_the_interface() {
        let link = |kind: &str| LinkInfo { kind: kind.to_owned(), ..LinkInfo::default() };
        for kind in ["veth", "tun", "netkit"] {
            assert!(is_by_senders(&link(kind), &[]) && is_by_senders(&link(kind), &[napi(None)]), "{kind}");
            assert!(!is_by_senders(&link(kind), &[napi(None), napi(Some(7))]), "{kind}");
        }
        assert!(!is_by_senders(&link("macvlan"), &[]) && !is_by_senders(&link(""), &[napi(None)]));
        let [native, generic] = [true, false].map(by_senders);
        assert!(native.text.contains("256 packets") && !generic.text.contains("ring"), "{}", generic.text);
    }

    #[test]
    fn threads_that_were_left_behind_are_a_warning_unless_a_gateway_may_run() {
        assert_eq!(judge_held(0, false), None);
        assert_eq!(judge_held(1, true).map(|finding| finding.level), Some(Level::Fine));
        let left = judge_held(2, false).unwrap();
        assert_eq!(left.level, Level::Warning);
        assert!(left.text.contains("2 NAPI threads") && left.text.contains("next start"), "{}", left.text);
    }
}
