//! Ways between two e1000: a bridge, and a router between two networks; with Polder, and with the guest's kernel.

use anyhow::{Context as _, anyhow};
use polder_datapath::wire::{ArpHeader, ArpOperation, MacAddress};
use polder_judges::e1000::{MACS, Pair};
use polder_testbed::guest::agent::Request;
use polder_testbed::traffic::packet::{Mac, Talk, Template};
use polder_testbed::traffic::probe::Probe;
use std::fmt;
use std::net::Ipv4Addr;

/// Bytes of a frame, FCS included, and number of flows, each with a source address of its own.
const FRAME: usize = 64;
const FLOWS: u32 = 64;
/// Sending host, and receiving hosts behind a bridge and behind a router.
const FROM: (Mac, Ipv4Addr) = ([2, 0x6e, 0, 0, 0, 1], Ipv4Addr::new(10, 88, 0, 1));
const BRIDGED: (Mac, Ipv4Addr) = ([2, 0x6e, 0, 0, 0, 2], Ipv4Addr::new(10, 88, 0, 2));
const ROUTED: (Mac, Ipv4Addr) = ([2, 0x6e, 0, 0, 0, 3], Ipv4Addr::new(10, 89, 0, 2));
/// The router's address in each network.
const ROUTER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 88, 0, 254), Ipv4Addr::new(10, 89, 0, 254)];
/// The kernel's bridge in the guest.
const BRIDGE: &str = "br9";

/// Kind of forwarder between both devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// A bridge.
    Bridge,
    /// A router.
    Route,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bridge => "bridge",
            Self::Route => "router",
        })
    }
}

impl Way {
    /// A frame of each flow.
    pub(super) fn frames(self) -> Vec<Vec<u8>> {
        let to = match self {
            Self::Bridge => BRIDGED,
            Self::Route => (MACS[0], ROUTED.1),
        };
        let template = Template::new(Talk { flows: FLOWS, ..Talk::simple(FROM, to) }, FRAME);
        (0..FLOWS).map(|flow| template.frame(flow, NONE)).collect()
    }

    /// A frame of the receiver: any for a bridge, the answer to a router's question for its link-layer address.
    pub(super) fn answer(self) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::Bridge => Ok(Template::new(Talk::simple(BRIDGED, FROM), FRAME).frame(0, NONE)),
            Self::Route => {
                let header = ArpHeader {
                    operation: ArpOperation::REPLY,
                    sender_mac: MacAddress(ROUTED.0),
                    sender_ip: ROUTED.1,
                    target_mac: MacAddress(MACS[1]),
                    target_ip: ROUTER[1],
                };
                let mut frame = [&MACS[1][..], &ROUTED.0, &[8, 6], &[0; 46]].concat();
                header.emit(&mut frame[14..]).map_err(|_| anyhow!("a frame is too short for ARP"))?;
                Ok(frame)
            }
        }
    }

    /// Writes Polder's configuration.
    pub(super) fn configure(self, pair: &mut Pair) -> anyhow::Result<()> {
        if self == Self::Bridge {
            return pair.configure_bridge(None);
        }
        let ports = ["wan", "lan"].iter().zip(pair.slots.clone()).zip(ROUTER);
        let ports = ports.map(|((name, slot), address)| {
            format!("[port.{name}]\npci = \"{slot}\"\nrole = \"router\"\naddresses = [\"{address}/24\"]\n")
        });
        pair.configure(&format!("[router]\nroutes = \"static\"\n{}", ports.collect::<String>()))
    }

    /// Enables forwarding between the interfaces in the guest's kernel.
    pub(super) fn set_up(self, pair: &mut Pair, names: &[String; 2]) -> anyhow::Result<()> {
        let lines = match self {
            Self::Bridge => {
                let members = names.iter().map(|name| format!("ip link set {name} master {BRIDGE}"));
                let added = [format!("ip link add {BRIDGE} type bridge"), format!("ip link set {BRIDGE} up")];
                added.into_iter().chain(members).collect::<Vec<_>>()
            }
            Self::Route => {
                let on = Request::Write("/proc/sys/net/ipv4/ip_forward".to_owned(), "1".to_owned());
                pair.guest.ask(&on).context("the guest does not route")?;
                let addresses = names.iter().zip(ROUTER);
                addresses.map(|(name, address)| format!("ip address add {address}/24 dev {name}")).collect()
            }
        };
        let up = names.iter().map(|name| format!("ip link set {name} up"));
        lines.into_iter().chain(up).try_for_each(|line| pair.guest.run(&line).map(drop))
    }

    /// Leaves the interfaces as they were.
    pub(super) fn take_down(self, pair: &mut Pair, names: &[String; 2]) -> anyhow::Result<()> {
        if self == Self::Bridge {
            pair.guest.run(&format!("ip link del {BRIDGE}"))?;
        }
        for name in names {
            pair.guest.run(&format!("ip address flush dev {name}"))?;
            pair.guest.run(&format!("ip link set {name} down"))?;
        }
        Ok(())
    }
}

const NONE: Probe = Probe { stream: 0, number: 0, due: 0 };
