//! Places of losses between injector and sink, from the counters of the interfaces in between.
//!
//! Each lost packet is counted in exactly one of these numbers, for every device:
//!
//! | hop | whose book |
//! |---|---|
//! | the wire to the device had no room | `xdp_xmit_errors` at the injector's end |
//! | the device did not take it from its input | `drops` of the input: a socket's ring was full, or its fill ring empty |
//! | the device lost it | what the others leave |
//! | the wire to the sink had no room | `tx_dropped` of the output |

use anyhow::Context as _;
use polder_testbed::command;
use polder_testbed::topology::Namespace;
use std::fmt;

/// Interfaces on the way.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// The injector's end of the first wire.
    pub(super) source: (Namespace, String),
    /// The device's ends.
    pub(super) input: (Namespace, String),
    pub(super) output: (Namespace, String),
}

/// A reading of all books, or the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hops {
    /// The first wire had no room.
    pub(super) to_device: u64,
    /// The device did not take them from its input.
    pub(super) at_input: u64,
    /// The second wire had no room.
    pub(super) to_sink: u64,
}

/// Lost packets by hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) hops: Hops,
    /// Lost packets that no interface has counted.
    pub(super) in_device: i64,
}

impl Path {
    /// Reads the books.
    ///
    /// # Errors
    /// When `ethtool` fails or an interface has no such book.
    pub(super) fn read(&self) -> anyhow::Result<Hops> {
        Ok(Hops {
            to_device: sum(&statistics(&self.source)?, "xdp_xmit_errors"),
            at_input: sum(&statistics(&self.input)?, "drops"),
            to_sink: not_sent(&self.output)?,
        })
    }

    /// Like [`read`](Self::read), if the generator is a socket, whose packets the wire refuses one by one.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(super) fn read_of_socket(&self) -> anyhow::Result<Hops> {
        Ok(Hops { to_device: not_sent(&self.source)?, ..self.read()? })
    }
}

fn statistics((space, interface): &(Namespace, String)) -> anyhow::Result<String> {
    command::run(space.command("ethtool").args(["-S", interface]))
}

/// Number of packets that did not fit into the wire's ring behind an interface.
fn not_sent((space, interface): &(Namespace, String)) -> anyhow::Result<u64> {
    let dropped = format!("/sys/class/net/{interface}/statistics/tx_dropped");
    let dropped = command::run(space.command("cat").arg(dropped))?;
    dropped.trim().parse().context("tx_dropped is no number")
}

/// Sum over all queues of a counter in the output of `ethtool -S`.
fn sum(text: &str, counter: &str) -> u64 {
    let value = |line: &str| {
        let (name, value) = line.trim().split_once(": ")?;
        let (_, name) = name.strip_prefix("rx_queue_").or(name.strip_prefix("tx_queue_"))?.split_once('_')?;
        let own = name == counter || counter == "drops" && name == "xdp_drops";
        own.then(|| value.parse::<u64>().ok()).flatten()
    };
    text.lines().filter_map(value).sum()
}

impl Hops {
    /// Losses since `earlier`, of `sent` packets of which `received` arrived.
    pub(super) fn since(self, earlier: Self, sent: u64, received: u64) -> Lost {
        let hops = Self {
            to_device: self.to_device - earlier.to_device,
            at_input: self.at_input - earlier.at_input,
            to_sink: self.to_sink - earlier.to_sink,
        };
        let known = received + hops.to_device + hops.at_input + hops.to_sink;
        Lost { hops, in_device: sent.wrapping_sub(known).cast_signed() }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hops: Hops { to_device, at_input, to_sink }, in_device } = self;
        write!(
            formatter,
            "lost on the wire to the device {to_device}, at its input {at_input}, in it {in_device}, on the \
             wire to the sink {to_sink}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "NIC statistics:\n     peer_ifindex: 7\n     rx_queue_0_drops: 11\n     \
        rx_queue_0_xdp_drops: 4\n     rx_queue_1_drops: 2\n     rx_queue_0_xdp_redirect: 1000\n     \
        tx_queue_0_xdp_xmit: 900\n     tx_queue_0_xdp_xmit_errors: 9\n     tx_queue_1_xdp_xmit_errors: 8\n";

    #[test]
    fn seventeen_drops_over_all_queues_are_seventeen() {
        assert_eq!((sum(TEXT, "drops"), sum(TEXT, "xdp_xmit_errors")), (17, 17));
    }

    #[test]
    fn what_no_interface_has_lost_is_the_devices() {
        let (before, after) = (Hops::default(), Hops { to_device: 3, at_input: 2, to_sink: 5 });
        assert_eq!(after.since(before, 100, 73).in_device, 17);
        assert_eq!(after.since(after, 100, 100), Lost::default());
        // A device that makes packets is found out, too.
        assert_eq!(after.since(after, 100, 117).in_device, -17);
    }
}
