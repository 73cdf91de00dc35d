//! A gateway on a controller whose EEPROM is damaged: the model, because QEMU makes the checksum of its own controllers
//! right when they start, and nothing writes it later.

use super::super::binding;
use super::super::pair::{FILE, POLDER, START, configure, until_shown};
use super::testbed::{Setup, Testbed};
use anyhow::{Context as _, ensure};
use polder_devices::e1000::model::FaultyDevice;
use polder_testbed::guest::agent::Request;
use polder_testbed::guest::{Iommu, Remote};
use polder_testbed::peers::polder;
use std::path::Path;

const MODULES: &[&str] = &["vfio-pci", "vfio_iommu_type1", "tun"];
/// The address that the remedy sets.
const SET: &str = "02:70:6f:00:03:02";

/// Fails unless the gateway reports the damaged EEPROM with a remedy, and opens the port after the remedy was
/// applied.
pub(in super::super) fn eeprom(program: &Path) -> anyhow::Result<()> {
    let polder = polder::program()?;
    let polder = polder.to_str().context("the path of `polder` is not text")?;
    let setup = Setup {
        faulty: FaultyDevice { bad_eeprom: true, ..FaultyDevice::default() },
        iommu: Iommu::Translating,
        modules: MODULES,
        programs: &["ip", polder],
    };
    let mut bed = Testbed::boot(program, &setup)?;
    // The model does not reach memory through the emulated IOMMU, so nothing may come that it would write there.
    bed.far.ip(&["link", "set", super::testbed::INTERFACE, "down"])?;
    binding::take(&mut bed.guest, &[Remote::ADDRESS.to_owned()])?;
    has_port(&mut bed, "")?;
    let said = bed.guest.run(&format!("{POLDER} check {FILE}"))?;
    ensure!(said.contains("vfio-pci"), "`polder check`, which leaves the device alone, says: {said}");
    let run = Request::run(&format!("{POLDER} run --yes {FILE}"));
    let answer = bed.guest.try_ask(&run, START)?;
    let said = answer.text.split_whitespace().collect::<Vec<_>>().join(" ");
    let words =
        ["cannot open port wan", "checksum of the adapter's EEPROM is wrong", "set `mac` for the port"];
    let missing = words.iter().filter(|words| !said.contains(**words)).collect::<Vec<_>>();
    ensure!(!answer.ok && missing.is_empty(), "`polder run` does not say {missing:?}, but: {said}");

    has_port(&mut bed, &format!("mac = \"{SET}\"\n"))?;
    let words = [POLDER, "run", "--yes", FILE].map(str::to_owned).to_vec();
    let process = bed.guest.ask(&Request::Start(words))?.parse().context("no process was started")?;
    let ports = until_shown(&mut bed.guest, START, |ports| ports[0]["nic"]["eeprom_is_good"] == false)?;
    let (port, nic) = (&ports[0], &ports[0]["nic"]);
    let is_right = port["open"] == true && port["mac"] == SET && nic["mac_source"] == "configuration";
    ensure!(is_right, "{port:#}");
    bed.guest.ask(&Request::Stop(process))?;
    bed.check()?;
    bed.power_off()
}

/// Writes the configuration of a bridge with the device, for which it has further lines.
fn has_port(bed: &mut Testbed, lines: &str) -> anyhow::Result<()> {
    let wan = format!("[port.wan]\npci = \"{}\"\n{lines}", Remote::ADDRESS);
    let rest = "[port.host]\ntap = \"ours\"\n[bridge.br0]\nmembers = [\"wan\", \"host\"]\n";
    configure(&mut bed.guest, "an e1000 whose EEPROM is damaged", &format!("{wan}{rest}"))
}
