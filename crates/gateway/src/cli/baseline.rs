//! Saved totals of views, by name, for comparisons.

use super::failure::Failure;
use crate::show::{Shown, What};
use anyhow::{Context as _, anyhow, ensure};
use clap::ValueEnum as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Environment variables with a directory for state, and the subdirectory (XDG base directories).
const FOLDERS: [(&str, &str); 2] = [("XDG_STATE_HOME", "polder"), ("HOME", ".local/state/polder")];

/// Saves totals.
pub(super) fn save(name: &str, what: What, shown: &Shown) -> Result<(), Failure> {
    let file = file(name, what)?;
    let folder = file.parent().context("the baseline's path has no directory")?;
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the directory {}", folder.display()))?;
    fs::write(&file, serde_json::to_vec(shown)?)
        .with_context(|| format!("cannot write the baseline {}", file.display()))?;
    Ok(())
}

/// Start of the period of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// The last time that the same view was shown.
    Last,
    /// This long ago.
    Ago(Duration),
}

impl Since {
    /// Parses `last`, or a number of seconds, minutes, hours or days: `90s`, `10m`, `2h`, `1d`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "last" {
            return Ok(Self::Last);
        }
        let units = [('s', 1), ('m', 60), ('h', 3_600), ('d', 86_400)];
        let ago = units.iter().find_map(|(unit, seconds)| {
            let number = text.strip_suffix(*unit)?.parse::<u64>().ok()?;
            number.checked_mul(*seconds).map(Duration::from_secs)
        });
        ago.map(Self::Ago).ok_or_else(|| "use `last`, or a time as 90s, 10m, 2h or 1d".to_owned())
    }
}

/// A view as a difference, the name of the saved totals it is based on (`None` for the gateway's history),
/// and the period in nanoseconds.
pub(super) type Difference = (Shown, Option<String>, u64);

/// Difference to saved totals.
pub(super) fn from(name: &str, what: What, shown: Shown) -> Result<Difference, Failure> {
    let file = file(name, what)?;
    let text = fs::read(&file).map_err(|error| {
        let what = word(what);
        anyhow!(
            "there is no baseline {name:?} of `show {what}` ({error}): save one with `polder show \
                 {what} --save {name}`"
        )
    })?;
    let earlier = serde_json::from_slice::<Shown>(&text).with_context(|| {
        format!("{} was saved by another version of polder: save the baseline again", file.display())
    })?;
    if earlier.gateway != shown.gateway {
        return Err(anyhow!(
            "baseline {name:?} belongs to gateway {}, not to {}",
            earlier.gateway,
            shown.gateway
        )
        .into());
    }
    match age(&earlier, &file, &shown) {
        Some(nanos) => Ok((shown.since(&earlier), Some(name.to_owned()), nanos)),
        None => {
            let gateway = shown.gateway;
            Err(anyhow!(
                "gateway {gateway} was restarted after baseline {name:?} was saved: save the baseline again"
            )
            .into())
        }
    }
}

/// Difference to the totals last saved under `name`, which are replaced; `None` if there are none from this
/// run of the gateway.
pub(super) fn since_last(name: &str, what: What, shown: &Shown) -> Result<Option<Difference>, Failure> {
    let file = file(name, what)?;
    let difference = |(earlier, nanos)| (shown.clone().since(&earlier), Some(name.to_owned()), nanos);
    Ok(known(&file, shown).map(difference))
}

/// Difference to the saved totals of this run of the gateway whose age is nearest to `wanted`.
pub(super) fn since_ago(wanted: Duration, what: What, shown: &Shown) -> Result<Difference, Failure> {
    let wanted = u64::try_from(wanted.as_nanos()).unwrap_or(u64::MAX);
    let all = names(Some(what)).into_iter().filter_map(|name| {
        let (earlier, nanos) = known(&file(&name, what).ok()?, shown)?;
        Some((earlier, name, nanos))
    });
    let nearest = all.min_by_key(|(.., nanos)| nanos.abs_diff(wanted));
    let (earlier, name, nanos) = nearest.ok_or_else(|| {
        let what = word(what);
        anyhow!(
            "a gateway keeps a history of drops only, and no baseline was saved since this one started: \
                 use `polder show {what} --save NAME`, or `--since last` each time"
        )
    })?;
    Ok((shown.clone().since(&earlier), Some(name), nanos))
}

/// Name of the totals of the last time that a view, or some of its rows, was shown.
pub(super) fn last(of: Option<&str>) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    of.map_or_else(|| LAST.to_owned(), |of| format!("{LAST}.{}", of.chars().map(plain).collect::<String>()))
}

const LAST: &str = "last";

/// Names of saved totals of a view, or of all views; totals of selected rows are left out.
pub(super) fn names(what: Option<What>) -> Vec<String> {
    let Some(entries) = folder().ok().and_then(|folder| fs::read_dir(folder).ok()) else { return Vec::new() };
    let name = |entry: fs::DirEntry| {
        let file = entry.file_name().into_string().ok()?;
        let (name, of) = file.strip_suffix(".json")?.rsplit_once('.')?;
        let is_meant = what.is_none_or(|what| word(what) == of) && !name.starts_with(&format!("{LAST}."));
        is_meant.then(|| name.to_owned())
    };
    let mut names = entries.filter_map(|entry| name(entry.ok()?)).collect::<Vec<_>>();
    names.sort_unstable();
    names.dedup();
    names
}

/// Totals in a file if they are from this run of the gateway, and their age in nanoseconds.
fn known(file: &Path, shown: &Shown) -> Option<(Shown, u64)> {
    let earlier = serde_json::from_slice::<Shown>(&fs::read(file).ok()?).ok()?;
    let nanos = age(&earlier, file, shown).filter(|_| earlier.gateway == shown.gateway)?;
    Some((earlier, nanos))
}

/// Nanoseconds between two views of the same run of a gateway; `None` for different runs.
fn age(earlier: &Shown, file: &Path, shown: &Shown) -> Option<u64> {
    let saved = fs::metadata(file).and_then(|facts| facts.modified()).ok();
    let age = saved.and_then(|saved| saved.elapsed().ok()).unwrap_or_default();
    let nanos = shown.uptime_nanos.checked_sub(earlier.uptime_nanos);
    nanos.filter(|_| Duration::from_nanos(shown.uptime_nanos) >= age)
}

fn file(name: &str, what: What) -> Result<PathBuf, anyhow::Error> {
    ensure!(
        what.is_counted(),
        "`show {}` has no counters to compare: use path, ports, tunnels, drops or another view with counters",
        word(what)
    );
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    ensure!(
        name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && name.len() <= 64
            && name.chars().all(is_plain),
        "{name:?} is not a valid name: use at most 64 letters, digits, `-`, `_` or `.`, beginning with a \
         letter or digit"
    );
    Ok(folder()?.join(format!("{name}.{}.json", word(what))))
}

fn folder() -> Result<PathBuf, anyhow::Error> {
    let folder = FOLDERS.iter().find_map(|(variable, below)| {
        let folder = std::env::var_os(variable).filter(|folder| !folder.is_empty())?;
        Some(PathBuf::from(folder).join(below))
    });
    folder.context("baselines have no directory: set XDG_STATE_HOME or HOME")
}

fn word(what: What) -> String {
    what.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let ago = |seconds| Ok(Since::Ago(Duration::from_secs(seconds)));
        for (text, read) in
            [("last", Ok(Since::Last)), ("90s", ago(90)), ("10m", ago(600)), ("2h", ago(7200))]
        {
            assert_eq!(Since::parse(text), read, "{text}");
        }
        for text in ["", "s", "10", "-1s", "1w", "99999999999999999999s", "999999999999999999d", "Last"] {
            assert!(Since::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rows_have_last_times_of_their_own() {
        assert_eq!(
            [last(None), last(Some("lan")), last(Some("../x y"))],
            ["last", "last.lan", "last.___x_y"]
        );
    }
}
