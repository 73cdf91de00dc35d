//! rtnetlink messages about links, addresses, next hops, rules, routes and neighbours.

mod body;
mod item;

pub(in crate::kernel) use body::ip;
use body::{address, link, neighbour, object, route, rule};
pub use item::{Address, HopSpec, Item, Link, Neighbour, Object, Preference, RouteKey, Rule, Target};
use polder_devices::netlink::{self, number};

/// Position of a route in the list of routes with its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The only route with the key.
    #[default]
    Alone,
    /// In place of another route, whose removal is not reported.
    Replaces,
    /// After the other routes.
    Last,
    /// Before the other routes (IPv4), or after them (IPv6).
    Added,
}

/// Content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The item is new, or has changed.
    There(Item),
    /// The item was removed.
    Gone(Item),
    /// A setting of `net.ipv4.conf` has changed.
    Settings,
    /// A dump is complete.
    Done,
    /// A request was refused with this `errno`, or acknowledged (0).
    Error(i32),
    /// Irrelevant or invalid content.
    Nothing,
}

/// A message with the fields of its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Sequence number of the request that it answers; any value in a notice.
    pub sequence: u32,
    /// Netlink port of the receiver: 0 for a notice to all.
    pub port: u32,
    /// True if it belongs to a dump during which the tables changed.
    pub interrupted: bool,
    /// True if it belongs to a dump.
    pub multi: bool,
    /// Position of a route in the list of routes with its key.
    pub placement: Placement,
    /// Content of the message.
    pub said: Content,
}

/// Messages of a datagram; truncated messages are left out.
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

/// Position from the message's flags; the kernel sets `NLM_F_EXCL` for a route that is the only one with its
/// key.
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

/// Parses a message of a type.
pub fn said(kind: u16, body: &[u8]) -> Content {
    let there = |item: Option<Item>| item.map_or(Content::Nothing, Content::There);
    let gone = |item: Option<Item>| item.map_or(Content::Nothing, Content::Gone);
    match kind {
        NLMSG_ERROR => Content::Error(number(body).map_or(0, |code| code.cast_signed().wrapping_neg())),
        NLMSG_DONE => Content::Done,
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
        RTM_NEWNETCONF => Content::Settings,
        RTM_NEWNEXTHOP => there(object(body)),
        RTM_DELNEXTHOP => gone(object(body)),
        _ => Content::Nothing,
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
