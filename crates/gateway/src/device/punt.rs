//! The punt path: packets of router ports go back to the kernel, at the interface that received them.

use super::contract::{Driver, Finding, Handle, Link, OpenPort, PortProperties, receiving};
use super::tap;
use crate::config::model::{Configuration, Port};
use anyhow::{Context as _, Result};
use polder_buffers::{PortId, Region};
use polder_datapath::wire::MacAddress;
use polder_devices::skb::punt::{self, Punt};
use rustix::io::Errno;
use std::collections::BTreeMap;

/// The punt path of a gateway.
pub(super) struct PuntPath;

impl Driver for PuntPath {
    fn open(&self, port: &Port, configuration: &Configuration, region: &Region) -> Result<OpenPort> {
        let opened = punt::open(receiving(configuration), region);
        let opened = opened.context("cannot create the TAP that returns packets to the kernel")?;
        let punt = opened.port;
        let interface = &punt.interface;
        let (mac, mode) = (MacAddress(interface.mac), "TAP, redirect to the ingress of each port");
        let facts = PortProperties {
            index: Some(interface.index),
            takes: tap::takes(punt.udp_segments, punt.tunnel_segments),
            queues: opened.queues.len(),
            ..PortProperties::new(&interface.name, mac, interface.mtu, mode)
        };
        Ok(OpenPort::held(port.id, facts, opened.queues, punt))
    }

    fn inspect(&self, _: &Port, _: &Configuration) -> Vec<Finding> {
        tap::unavailable().into_iter().collect()
    }

    fn describe(&self) -> String {
        "the kernel, at the interface by which the packet came in".to_owned()
    }
}

impl Handle for Punt {
    fn refresh(&self, _: &mut PortProperties, _: Option<u32>) -> Result<Option<Link>, Errno> {
        Ok(None)
    }

    fn set_punt_ports(&self, ports: &BTreeMap<PortId, u32>) -> Result<(), Errno> {
        self.set_ports(ports)
    }

    fn returned(&self, port: PortId) -> Option<u64> {
        Self::returned(self, port)
    }
}
