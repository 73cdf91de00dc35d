//! A TCX program at the input that redirects everything to the output, and nothing else.

use super::{Device, Site, Task};
use crate::command;
use anyhow::ensure;
use polder_devices::skb::redirect;
use std::os::fd::OwnedFd;

/// A redirect between two interfaces.
#[derive(Debug)]
pub struct Bare {
    threads: Vec<i32>,
    _link: OwnedFd,
}

impl Bare {
    /// Attaches the program at `site`; its receive work is threaded.
    ///
    /// # Errors
    /// When the kernel refuses, or the task is another than handing frames on.
    pub fn start(site: &Site<'_>) -> anyhow::Result<Self> {
        ensure!(site.task == Task::Bridge, "a redirect hands frames on and does nothing else");
        let link = site.namespace.inside(|| redirect(site.input, site.output))??;
        // As for the kernel: without GRO a veth does not receive by NAPI.
        command::run(site.namespace.command("ethtool").args(["-K", site.input, "gro", "on"]))?;
        let threads = site.namespace.pin_napi(site.input, site.core)?;
        Ok(Self { threads, _link: link })
    }
}

impl Device for Bare {
    fn threads(&self) -> &[i32] {
        &self.threads
    }
}
