//! Recipes whose kernel modules this machine lacks, in a guest with Debian's kernel.
//!
//! The guest has this machine's files ([`files`]), and `polder-lab` judges there as it does here.

use super::recipe::Recipe;
use super::verdict::Comparison;
use super::{Selection, has_modules, is_wanted, missing_program, recipes};
use anyhow::{Context as _, anyhow};
use polder_testbed::guest::{Guest, Kernel, Options, files};
use polder_testbed::peers::polder;
use std::path::Path;
use std::time::Duration;

/// Modules that every recipe may need: the testbed's, the gateway's, and those of packet filters.
const MODULES: &[&str] = &[
    // Found by its name when nf_tables starts, so no dependency says it.
    "crc32c_generic",
    "veth",
    "bridge",
    "dummy",
    "tun",
    "macvlan",
    "sch_ingress",
    "cls_bpf",
    "af_packet_diag",
    "nf_tables",
    "nft_ct",
    "nft_fib_inet",
    "xfrm_user",
];
/// The verdict, among the machine's files.
const VERDICT: &str = "/tmp/verdict";
/// Memory of a guest, files that are written there included.
const MEMORY_MIB: u32 = 1536;
/// Longest time for one recipe in one mode.
const PATIENCE: Duration = Duration::from_secs(600);

/// Result of the guest, or the reason why there is none.
type Told = Result<Comparison, String>;

/// Recipes that only a guest can run, by selection; none where this kernel has all modules.
pub fn needed(selection: &Selection) -> Vec<&'static str> {
    let wanted = recipes::ALL.iter().filter(|recipe| is_wanted(recipe, selection));
    wanted.filter(|recipe| !has_modules(recipe)).map(|recipe| recipe.name).collect()
}

/// Fails where no guest can run recipes.
///
/// # Errors
/// The missing program or kernel, and how to get it.
pub fn available() -> anyhow::Result<Kernel> {
    super::available()?;
    let kernel = Guest::available()?;
    let modules = files::MODULES.iter().chain(MODULES).copied().collect::<Vec<_>>();
    kernel.with_dependencies(&modules)?;
    Ok(kernel)
}

/// Runs the recipes of a selection whose modules this machine's kernel lacks; `program` is `polder-lab`.
///
/// # Errors
/// When the guest does not start, or a testbed cannot be made there.
pub fn examine(
    program: &Path,
    selection: &Selection,
    says: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<Comparison> {
    let kernel = available()?;
    let program = program.canonicalize().with_context(|| format!("cannot find {}", program.display()))?;
    let mut total = Comparison::default();
    let mut names = Vec::new();
    let mut modules = files::MODULES.iter().chain(MODULES).copied().collect::<Vec<_>>();
    for name in needed(selection) {
        let recipe = named(name).context("a recipe has a name")?;
        let reason = missing_program(recipe)
            .or_else(|| kernel.with_dependencies(recipe.modules).err().map(|error| format!("{error:#}")));
        match reason {
            Some(reason) => total.skip(recipe, reason),
            None => {
                names.push(name.to_owned());
                modules.extend(recipe.modules);
            }
        }
    }
    if names.is_empty() {
        return Ok(total);
    }
    let options = Options {
        memory_mib: MEMORY_MIB,
        processors: 2,
        ..Options::of(&program, &modules, &files::PROGRAMS)
    };
    says("a guest starts");
    let mut guest = Guest::boot_with_files(&kernel, &options)?;
    let inside = Selection { only: names, ..selection.clone() };
    total.add(run(&mut guest, &program, &inside, says)?);
    guest.power_off()?;
    Ok(total)
}

/// Runs recipes in the guest, and waits for the verdict.
fn run(
    guest: &mut Guest,
    program: &Path,
    selection: &Selection,
    says: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<Comparison> {
    let text = serde_json::to_string(selection).context("a selection is text")?;
    let program = program.to_str().context("the program's path is text")?;
    let gateway = polder::program()?;
    let gateway = gateway.to_str().context("the gateway's path is text")?;
    let rounds = u32::try_from(selection.only.len() * selection.modes.len()).unwrap_or(u32::MAX);
    let words = [program, "hosts-inside", &text, VERDICT, gateway];
    let verdict = guest.run_until_written(&words, VERDICT, PATIENCE.saturating_mul(rounds), says)?;
    let told: Told = serde_json::from_str(&verdict).context("the verdict is no JSON")?;
    told.map_err(|error| anyhow!("in the guest: {error}"))
}

/// Judges in the guest: the program's own part of it.
///
/// # Errors
/// When the verdict cannot be written; other errors are in it.
pub fn main(
    selection: &str,
    verdict: &Path,
    gateway: &Path,
    says: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<()> {
    if gateway.is_absolute() {
        polder::use_program(gateway);
    }
    let selection: Selection = serde_json::from_str(selection).context("the selection is no JSON")?;
    let told: Told = super::examine(&selection, says).map_err(|error| format!("{error:#}"));
    files::write_whole(verdict, &serde_json::to_string(&told).context("a verdict is text")?)
}

fn named(name: &str) -> Option<&'static Recipe> {
    recipes::ALL.iter().copied().find(|recipe| recipe.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::Mode;

    #[test]
    fn a_verdict_survives_its_way_out_of_the_guest() {
        let recipe = recipes::ALL[0];
        let mut seen = Comparison::begin(recipe, true);
        seen.judge(recipe.name, Mode::Skb, &[], |_| None);
        seen.broken.insert("a/b".to_owned(), vec!["skb running: no".to_owned()]);
        seen.took.insert(recipe.name.to_owned(), Duration::from_millis(1500));
        seen.conclude();
        let text = serde_json::to_string(&Told::Ok(seen.clone())).unwrap();
        let told: Told = serde_json::from_str(&text).unwrap();
        assert_eq!(format!("{:?}", told.unwrap()), format!("{seen:?}"));
    }
}
