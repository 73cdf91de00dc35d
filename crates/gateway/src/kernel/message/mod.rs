//! Messages of the kernel about links, addresses, next hops, rules, routes and neighbours.

mod body;
mod item;

pub(in crate::kernel) use body::ip;
use body::{address, link, neighbour, object, route, rule};
pub use item::{Address, HopSpec, Item, Link, Neighbour, Object, Preference, RouteKey, Rule, Target};
use polder_devices::netlink::{self, number};

/// Place that a route was given among the routes with its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// No other route has the key.
    #[default]
    Alone,
    /// In the place of another route, for whose removal there is no message.
    Replaces,
    /// Behind the others.
    Last,
    /// In front of the others (IPv4), or behind them (IPv6).
    Added,
}

/// Content of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The item is there, or has changed to this.
    There(Item),
    /// The item is gone.
    Gone(Item),
    /// A setting of `net.ipv4.conf` is another one.
    Settings,
    /// A dump is complete.
    Done,
    /// A request was refused (an `errno`), or done (0).
    Error(i32),
    /// Nothing that matters here.
    Nothing,
}

/// Message with the fields of its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The number of the request that it answers; anything for a notice.
    pub sequence: u32,
    /// Netlink port of the receiver: 0 for a notice to all.
    pub port: u32,
    /// True if it is part of a dump during which the tables changed.
    pub interrupted: bool,
    /// True if it is one of the answers of a dump.
    pub multi: bool,
    /// Place of a route among those with its key.
    pub placement: Placement,
    /// Content of the message.
    pub said: Said,
}

/// The messages of a datagram. What is cut off or cannot be understood is left out.
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = Message> {
    netlink::messages(datagram).map(|netlink::Message { kind, flags, sequence, port, body }| Message {
        sequence,
        port,
        interrupted: flags & netlink::INTERRUPTED != 0,
        multi: flags & NLM_F_MULTI != 0,
        placement: placement(flags),
        said: said(kind, body),
    })
}

/// The kernel sets `NLM_F_EXCL` in its notice of a route that is the only one with its key.
const fn placement(flags: u16) -> Placement {
    if flags & NLM_F_EXCL != 0 {
        Placement::Alone
    } else if flags & NLM_F_REPLACE != 0 {
        Placement::Replaces
    } else if flags & NLM_F_APPEND != 0 {
        Placement::Last
    } else {
        Placement::Added
    }
}

/// Content of a message of a type.
pub fn said(kind: u16, body: &[u8]) -> Said {
    let there = |item: Option<Item>| item.map_or(Said::Nothing, Said::There);
    let gone = |item: Option<Item>| item.map_or(Said::Nothing, Said::Gone);
    match kind {
        NLMSG_ERROR => Said::Error(number(body).map_or(0, |code| code.cast_signed().wrapping_neg())),
        NLMSG_DONE => Said::Done,
        libc::RTM_NEWLINK => there(link(body)),
        libc::RTM_DELLINK => gone(link(body)),
        libc::RTM_NEWADDR => there(address(body)),
        libc::RTM_DELADDR => gone(address(body)),
        libc::RTM_NEWROUTE => there(route(body)),
        libc::RTM_DELROUTE => gone(route(body)),
        libc::RTM_NEWNEIGH => there(neighbour(body)),
        libc::RTM_DELNEIGH => gone(neighbour(body)),
        libc::RTM_NEWRULE => there(rule(body)),
        libc::RTM_DELRULE => gone(rule(body)),
        RTM_NEWNETCONF => Said::Settings,
        RTM_NEWNEXTHOP => there(object(body)),
        RTM_DELNEXTHOP => gone(object(body)),
        _ => Said::Nothing,
    }
}

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_MULTI: u16 = 0x02;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_APPEND: u16 = 0x800;
/// linux/rtnetlink.h.
const RTM_NEWNETCONF: u16 = 80;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
