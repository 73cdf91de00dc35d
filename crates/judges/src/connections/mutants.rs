//! Gateways that lack a check, and the histories that find them.
//!
//! These have no history that finds a gateway without them:
//!
//! | check | reason |
//! |---|---|
//! | `connection-clear` | changed rules are read within milliseconds, so a history finds its absence in some runs only |
//! | `connection-refresh` | a connection is closed before its timer ends, and its next packet sets the timer |
//! | mark of carried packets | the egress program takes no packet without a stamp as evidence, and a carried packet has none |
//! | new entries are closed | a new entry has no interface, so its first packet is the kernel's and evidence; what is open then is as without `connection-ways` |
//! | ICMP errors are the kernel's | no program reads an ICMP error: the key of an entry has its protocol, which is TCP or UDP |

use super::Bed;
use super::packet::{Odd, Transport};
use super::run::{Outcome, run_with};
use super::steps::{Forged, History, Rules, Sender, Step, Way, change_of};
use super::twin::Tell;
use anyhow::{Context as _, anyhow, ensure};
use polder_devices::checks::Check;
use std::thread;
use std::time::Duration;

/// Number of gateways that lack a check.
pub const MUTANTS: usize = ALL.len();

/// A gateway that lacks a check, and the history that finds it.
pub(super) struct Mutant {
    check: Check,
    steps: &'static [Step],
    /// Steps before the gateway starts.
    earlier: usize,
}

/// A gateway that runs from the first step on.
const fn mutant(check: Check, steps: &'static [Step]) -> Mutant {
    Mutant { check, steps, earlier: 0 }
}

impl Mutant {
    pub(super) fn name(&self) -> &'static str {
        self.check.name()
    }

    /// Runs the history until a router differs, [`RUNS`] times at most, and answers the difference.
    ///
    /// # Errors
    /// Also if nothing was carried, which shows nothing.
    fn find(&self) -> anyhow::Result<Option<String>> {
        let mut bed = Bed::lay(Some(self.check), TIMERS)?;
        let mut carried = 0;
        for run in 1..=RUNS {
            let outcome = self.run(&mut bed)?;
            if let Some(difference) = outcome.difference {
                return Ok(Some(format!("run {run}, {difference}")));
            }
            carried += outcome.carried;
        }
        ensure!(carried > 0 || self.earlier > 0, "nothing was carried");
        Ok(None)
    }

    fn run(&self, bed: &mut Bed) -> anyhow::Result<Outcome> {
        let history = History { rules: Rules::Masquerade, steps: self.steps.to_vec() };
        if self.earlier == 0 && bed.pair.gateway.is_none() {
            bed.start()?;
        } else if self.earlier > 0 {
            bed.stop()?;
        }
        let Bed { pair, lacking, topology } = bed;
        run_with(pair, &history, &mut |pair, number| match pair.gateway {
            None if number == self.earlier => super::start(*lacking, pair, topology),
            _ => Ok(()),
        })
    }
}

/// Runs all histories with gateways that lack nothing.
pub(super) fn honest() -> anyhow::Result<()> {
    at_once(ALL.chunks(ALL.len().div_ceil(AT_ONCE)), all_are_same).into_iter().collect()
}

/// Runs the histories of these; the finding of each.
pub(super) fn find(mutants: &[Mutant]) -> Vec<anyhow::Result<Option<String>>> {
    at_once(mutants.iter(), Mutant::find)
}

/// Asks each in a thread of its own.
fn at_once<T: Send, A: Send>(
    things: impl Iterator<Item = T>,
    ask: fn(T) -> anyhow::Result<A>,
) -> Vec<anyhow::Result<A>> {
    thread::scope(|scope| {
        let threads = things.map(|thing| scope.spawn(move || ask(thing))).collect::<Vec<_>>();
        let ends = threads.into_iter().map(|thread| thread.join());
        ends.map(|end| end.unwrap_or_else(|_| Err(anyhow!("a thread has panicked")))).collect()
    })
}

fn all_are_same(mutants: &[Mutant]) -> anyhow::Result<()> {
    let mut bed = Bed::lay(None, TIMERS)?;
    for mutant in mutants {
        let outcome = mutant.run(&mut bed).with_context(|| mutant.name())?;
        ensure!(outcome.difference.is_none(), "{}: {:?}", mutant.name(), outcome.difference);
        ensure!(mutant.earlier > 0 || outcome.carried > 0, "{}: nothing was carried", mutant.name());
    }
    bed.stop()
}

/// Maximum number of runs of a history to find a fault. Where a heartbeat is late, the kernel gets the packets and a run shows
/// no fault.
const RUNS: usize = 4;

/// Number of gateways that run at once.
pub(super) const AT_ONCE: usize = 4;

/// Short timers of connections, the same in both routers.
const TIMERS: &[Tell] = &[
    Tell::Set("netfilter/nf_conntrack_tcp_timeout_unacknowledged", "3"),
    Tell::Set("netfilter/nf_conntrack_tcp_timeout_close", "2"),
    Tell::Set("netfilter/nf_conntrack_tcp_timeout_close_wait", "1"),
    Tell::Set("netfilter/nf_conntrack_tcp_timeout_fin_wait", "1"),
    Tell::Set("netfilter/nf_conntrack_tcp_timeout_last_ack", "1"),
    Tell::Set("netfilter/nf_conntrack_udp_timeout", "3"),
    Tell::Set("netfilter/nf_conntrack_udp_timeout_stream", "3"),
];

/// All mutants.
pub(super) const ALL: &[Mutant] = &[
    mutant(Check::ConnectionHeartbeat, STANDS),
    mutant(Check::ConnectionGeneration, RULE),
    mutant(Check::ConnectionHop, ROAMING),
    mutant(Check::ConnectionStamp, STALE),
    mutant(
        Check::ConnectionWays,
        &[
            UDP,
            CARRIED,
            TOGGLE_ROUTE,
            ONE_OF_SERVER,
            MANY_OF_CLIENT,
            CARRIED,
            TOGGLE_ROUTE,
            ONE_OF_SERVER,
            MANY_OF_CLIENT,
        ],
    ),
    mutant(
        Check::ConnectionHost,
        &[UDP, CARRIED, odd(Odd::Foreign), PAUSE, odd(Odd::Foreign), PAUSE, odd(Odd::Foreign)],
    ),
    mutant(
        Check::ConnectionFragment,
        &[UDP, CARRIED, odd(Odd::Fragment), PAUSE, odd(Odd::Fragment), PAUSE, odd(Odd::Fragment)],
    ),
    mutant(Check::ConnectionHops, &[UDP, CARRIED, odd(Odd::Hop), PAUSE, odd(Odd::Hop), PAUSE, odd(Odd::Hop)]),
    mutant(
        Check::ConnectionLength,
        &[UDP, Step::Toggle(change_of("MTU")), CARRIED, LONG, PAUSE, LONG, PAUSE, LONG],
    ),
    mutant(
        Check::ConnectionNoSum,
        &[UDP, CARRIED, odd(Odd::Checksum), PAUSE, odd(Odd::Checksum), PAUSE, odd(Odd::Checksum)],
    ),
    mutant(
        Check::ConnectionReset,
        &[
            TCP,
            CARRIED,
            REFRESHED,
            Step::Forge { of: 0, from: Sender::Server, forged: Forged::ResetBeyond },
            Step::Idle(Duration::from_millis(3200)),
            ONE_OF_SERVER,
        ],
    ),
    mutant(
        Check::ConnectionFin,
        &[
            TCP,
            CARRIED,
            Step::Forge { of: 0, from: Sender::Server, forged: Forged::FinBeyond },
            Step::Idle(Duration::from_millis(1800)),
            ONE_OF_SERVER,
        ],
    ),
    mutant(Check::ConnectionNotice, RULE),
    mutant(Check::ConnectionNeighbour, ROAMING),
    mutant(
        Check::ConnectionRoute,
        &[
            UDP,
            CARRIED,
            TOGGLE_ROUTE,
            MANY_OF_CLIENT,
            CARRIED,
            TOGGLE_ROUTE,
            MANY_OF_CLIENT,
            CARRIED,
            TOGGLE_ROUTE,
            MANY_OF_CLIENT,
        ],
    ),
    mutant(Check::ConnectionRule, LIMIT),
    Mutant {
        check: Check::ConnectionOlder,
        steps: &[
            // Its timer is longer than a gateway takes to start.
            TCP,
            Step::Idle(Duration::from_millis(700)),
            // A gateway that has just begun carries late on busy cores.
            CARRIED,
            CARRIED,
            CARRIED,
            Step::Flush,
            chat(Sender::Server, 400),
        ],
        earlier: 1,
    },
    mutant(
        Check::ConnectionLiberal,
        &[
            TCP,
            CARRIED,
            Step::Data { of: 0, from: Sender::Server, count: 40, bytes: 1000 },
            TOGGLE_ADDRESS,
            ONE_OF_SERVER,
        ],
    ),
    mutant(
        Check::ConnectionShortened,
        &[
            TCP,
            CARRIED,
            REFRESHED,
            SHORTENS,
            chat(Sender::Server, 3600),
            TOGGLE_ADDRESS,
            ONE_OF_SERVER,
            CARRIED,
            SHORTENS,
            chat(Sender::Server, 3600),
            TOGGLE_ADDRESS,
            ONE_OF_SERVER,
        ],
    ),
    // The RST is more than 2 GiB after the acknowledgement by which the connection opened.
    mutant(
        Check::ConnectionAcknowledged,
        &[TCP, CARRIED, LEAP, LEAP, LEAP, chat(Sender::Server, 2600), RESET],
    ),
    // The kernel has not seen the last acknowledgement, so the RST does not change its state, and no event tells of it.
    mutant(
        Check::ConnectionEnded,
        &[
            TCP,
            CARRIED,
            Step::Data { of: 0, from: Sender::Server, count: 4, bytes: 10 },
            RESET,
            Step::Idle(Duration::from_millis(3000)),
            Step::Late { of: 0, from: Sender::Server },
        ],
    ),
    mutant(Check::ConnectionMark, &[UDP, CARRIED, Step::Mark { of: 0, mark: 7 }, PAUSE, MANY_OF_CLIENT]),
];

const UDP: Step = Step::Open { way: Way::Out(2), transport: Transport::Udp, collides: false };
const TCP: Step = Step::Open { way: Way::Out(2), transport: Transport::Tcp, collides: false };
/// Data until the timer was set again behind the packets that have opened the connection. The server's alone open no connection
/// that has ended.
const REFRESHED: Step = chat(Sender::Server, 2000);
const ONE_OF_CLIENT: Step = Step::Data { of: 0, from: Sender::Client, count: 1, bytes: 10 };
const ONE_OF_SERVER: Step = Step::Data { of: 0, from: Sender::Server, count: 1, bytes: 10 };
/// Data in both directions until it is carried, or what left differs.
const CARRIED: Step = Step::Exchange { of: 0, time: Duration::from_millis(1500) };
/// Data of the client alone: an answer would be evidence. Where a heartbeat is late, as on busy cores, the kernel has it, and what
/// it forwards is evidence of the new state; so a history changes the same thing several times.
const MANY_OF_CLIENT: Step = chat(Sender::Client, 400);
/// A segment that the kernel has, with data that no segment acknowledges.
const SHORTENS: Step = Step::Odd { of: 0, from: Sender::Server, odd: Odd::Options };
const LEAP: Step = Step::Leap { of: 0, from: Sender::Server };
const RESET: Step = Step::Reset { of: 0, from: Sender::Server };
/// A packet longer than all packets that the kernel has forwarded.
const LONG: Step = Step::Data { of: 0, from: Sender::Client, count: 1, bytes: 1400 };
/// Time after which a late heartbeat is heard.
const PAUSE: Step = Step::Idle(Duration::from_millis(60));

const TOGGLE_RULE: Step = Step::Toggle(change_of("drop by port"));
const TOGGLE_GATEWAY: Step = Step::Toggle(change_of("unknown gateway"));
const TOGGLE_HOST: Step = Step::Toggle(change_of("roaming host"));
const TOGGLE_ROUTE: Step = Step::Toggle(change_of("route"));
const TOGGLE_ADDRESS: Step = Step::Toggle(change_of("second address"));

/// Data of one end alone.
const fn chat(from: Sender, millis: u64) -> Step {
    Step::Chat { of: 0, from, time: Duration::from_millis(millis) }
}

const fn odd(odd: Odd) -> Step {
    Step::Odd { of: 0, from: Sender::Client, odd }
}

/// A rule that forbids a carried flow.
const RULE: &[Step] =
    &[UDP, CARRIED, TOGGLE_RULE, MANY_OF_CLIENT, TOGGLE_RULE, CARRIED, TOGGLE_RULE, MANY_OF_CLIENT];
/// The same steps while the gateway's process is stopped.
const STANDS: &[Step] = &[
    UDP,
    CARRIED,
    Step::Stand(true),
    TOGGLE_RULE,
    Step::Data { of: 0, from: Sender::Client, count: 8, bytes: 10 },
    Step::Stand(false),
];
/// A host that is at another link-layer address.
const ROAMING: &[Step] =
    &[UDP, CARRIED, TOGGLE_HOST, chat(Sender::Server, 400), CARRIED, TOGGLE_HOST, chat(Sender::Server, 400)];
/// A packet that waits for a neighbour while a rule is inserted.
const STALE: &[Step] = &[
    UDP,
    CARRIED,
    TOGGLE_GATEWAY,
    ONE_OF_CLIENT,
    TOGGLE_RULE,
    TOGGLE_GATEWAY,
    Step::Idle(Duration::from_millis(600)),
    ONE_OF_SERVER,
    MANY_OF_CLIENT,
    // Once more, should it not have waited.
    TOGGLE_RULE,
    CARRIED,
    TOGGLE_GATEWAY,
    ONE_OF_CLIENT,
    TOGGLE_RULE,
    TOGGLE_GATEWAY,
    Step::Idle(Duration::from_millis(600)),
    ONE_OF_SERVER,
    MANY_OF_CLIENT,
];
/// A rule that admits few packets.
const LIMIT: &[Step] = &[UDP, CARRIED, Step::Toggle(change_of("limit")), CARRIED, MANY_OF_CLIENT];
