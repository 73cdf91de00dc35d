//! Totals that were put aside, by name: what others are compared with.

use super::Failure;
use crate::show::{Shown, What};
use anyhow::{Context as _, anyhow, ensure};
use clap::ValueEnum as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Environment variables with a folder for such a thing, and what is below it (XDG base directories).
const FOLDERS: [(&str, &str); 2] = [("XDG_STATE_HOME", "polder"), ("HOME", ".local/state/polder")];

/// Puts totals aside.
pub(super) fn save(name: &str, what: What, shown: &Shown) -> Result<(), Failure> {
    let file = file(name, what)?;
    let folder = file.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(&file, serde_json::to_vec(shown)?)
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(())
}

/// Difference to totals that were put aside, and the nanoseconds since then.
pub(super) fn since(name: &str, what: What, shown: Shown) -> Result<(Shown, u64), Failure> {
    let file = file(name, what)?;
    let text = fs::read(&file).map_err(|error| {
        let what = word(what);
        anyhow!("there is no baseline {name:?} of `show {what}` ({error}): make one with `polder show {what} --save {name}`")
    })?;
    let earlier = serde_json::from_slice::<Shown>(&text)
        .with_context(|| format!("{} is of another version: save it anew", file.display()))?;
    if earlier.gateway != shown.gateway {
        return Err(anyhow!(
            "baseline {name:?} is of gateway {}, and this is {}",
            earlier.gateway,
            shown.gateway
        )
        .into());
    }
    let saved = fs::metadata(&file).and_then(|facts| facts.modified()).ok();
    let age = saved.and_then(|saved| saved.elapsed().ok()).unwrap_or_default();
    let nanos = shown.uptime_nanos.checked_sub(earlier.uptime_nanos);
    match nanos.filter(|_| Duration::from_nanos(shown.uptime_nanos) >= age) {
        Some(nanos) => Ok((shown.since(&earlier), nanos)),
        None => {
            let gateway = shown.gateway;
            Err(anyhow!("gateway {gateway} was started after baseline {name:?} was saved: save it anew")
                .into())
        }
    }
}

fn file(name: &str, what: What) -> Result<PathBuf, anyhow::Error> {
    ensure!(
        what.is_counted(),
        "`show {}` has nothing that grows with time: take path, ports, tunnels, drops or another view of counters",
        word(what)
    );
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    ensure!(
        name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && name.len() <= 64
            && name.chars().all(is_plain),
        "{name:?} is no name: letters and digits, then also - _ . and 64 of them at most"
    );
    let folder = FOLDERS.iter().find_map(|(variable, below)| {
        let folder = std::env::var_os(variable).filter(|folder| !folder.is_empty())?;
        Some(PathBuf::from(folder).join(below))
    });
    let folder = folder.context("neither XDG_STATE_HOME nor HOME says where baselines are")?;
    Ok(folder.join(format!("{name}.{}.json", word(what))))
}

fn word(what: What) -> String {
    what.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
