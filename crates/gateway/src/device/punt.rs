//! The punt path: packets of router ports go back to the kernel, at the interface that received them.

use super::contract::{Driver, Facts, Finding, Handle, Link, OpenPort, receiving};
use super::tap;
use crate::config::model::{Configuration, Port};
use anyhow::{Context as _, Result};
use polder_buffers::{PortId, Region};
use polder_datapath::offload::Takes;
use polder_datapath::wire::MacAddress;
use polder_devices::skb::punt::{self, Punt};
use rustix::io::Errno;
use std::collections::BTreeMap;

/// The punt path of a gateway.
pub(super) struct PuntPath;

impl Driver for PuntPath {
    fn open(&self, port: &Port, configuration: &Configuration, region: &Region) -> Result<OpenPort> {
        let opened = punt::open(receiving(configuration), region);
        let opened = opened.context("packets cannot be returned to the kernel")?;
        let punt = opened.port;
        let facts = Facts {
            interface: punt.interface.name.clone(),
            index: Some(punt.interface.index),
            mac: MacAddress(punt.interface.mac),
            mtu: punt.interface.mtu,
            takes: Takes {
                partial_checksums: true,
                segments: true,
                udp_segments: punt.udp_segments,
                tunnel_segments: punt.tunnel_segments,
                ..Takes::default()
            },
            queues: opened.queues.len(),
            mode: "TAP, redirect to the ingress of each port".to_owned(),
            mode_reason: None,
            link_addresses: None,
        };
        let handle: Box<dyn Handle> = Box::new(punt);
        Ok(OpenPort { handle: Some(handle), ..OpenPort::in_memory(port.id, facts, opened.queues) })
    }

    fn inspect(&self, _: &Port, _: &Configuration) -> Vec<Finding> {
        tap::unavailable().into_iter().collect()
    }

    fn describe(&self) -> String {
        "the kernel, at the interface by which the packet came in".to_owned()
    }
}

impl Handle for Punt {
    fn refresh(&self, _: &mut Facts, _: Option<u32>) -> Result<Option<Link>, Errno> {
        Ok(None)
    }

    fn set_punt_ports(&self, ports: &BTreeMap<PortId, u32>) -> Result<(), Errno> {
        self.set_ports(ports)
    }

    fn returned(&self, port: PortId) -> Option<u64> {
        Self::returned(self, port)
    }
}
