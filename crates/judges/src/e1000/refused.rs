//! Machines that give no device to a process, each with a message that says so.

use super::pair::{FILE, Pair, START};
use anyhow::{Context as _, ensure};
use polder_testbed::guest::Iommu;
use polder_testbed::guest::agent::Request;
use polder_testbed::interrupt;
use std::path::Path;
use std::time::Duration;

/// A machine that gives no device to a process, and words of the message that says so and what to do.
pub(super) struct Machine {
    pub(super) name: &'static str,
    iommu: Iommu,
    words: &'static [&'static str],
}

pub(super) const MACHINES: &[Machine] = &[
    Machine { name: "a machine without IOMMU", iommu: Iommu::None, words: &["no IOMMU group"] },
    Machine {
        name: "interrupt remapping is off",
        iommu: Iommu::WithoutRemapping,
        words: &["does not remap interrupts", "switch interrupt"],
    },
    Machine {
        name: "another device of the group is the kernel's",
        iommu: Iommu::Shared,
        words: &["contains devices that are bound to kernel drivers", "vfio-pci"],
    },
];

impl Machine {
    /// Boots it, and wants its message.
    pub(super) fn refuses(&self, program: &Path) -> anyhow::Result<()> {
        let mut pair = Pair::boot(program, self.iommu)?;
        self.is_told(&mut pair, START)?;
        pair.power_off()
    }

    /// Fails unless `polder check`, or a gateway that cannot open its ports, prints the expected message.
    pub(super) fn is_told(&self, pair: &mut Pair, patience: Duration) -> anyhow::Result<()> {
        pair.configure_bridge(None)?;
        let program = match self.iommu {
            Iommu::None => "check",
            Iommu::Shared => {
                let said = pair.guest.try_ask(&Request::run(&format!("polder check {FILE}")), START)?.text;
                let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
                let other = format!("{} (e1000)", pair.slots[1]);
                ensure!(said.contains("82545EM at") && said.contains(&other), "{other} is not named: {said}");
                pair.take_first()?;
                "run"
            }
            Iommu::Translating | Iommu::WithoutRemapping | Iommu::PassThrough => {
                pair.take()?;
                "run"
            }
        };
        let words = ["polder", program, FILE].map(str::to_owned).to_vec();
        pair.process = pair.guest.ask(&Request::Start(words))?.parse().context("no process was started")?;
        interrupt::retry(patience, Duration::from_millis(50), || {
            let said = pair.guest.ask(&Request::Read(format!("/tmp/said-{}", pair.process)))?;
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            let missing = self.words.iter().filter(|words| !said.contains(**words)).collect::<Vec<_>>();
            ensure!(missing.is_empty(), "nothing says {missing:?}, but: {said}");
            Ok(())
        })
    }
}
