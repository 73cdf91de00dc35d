//! Pages of published reports: the newest value of every row, beside what people have written.
//!
//! A folder holds `DATE/NAME.json`, the reports; `SCENARIO.md`, of which people write all above [`RESULTS`]; and
//! `publish.toml`, the lines of the front page that stand beside peers and the causes of missed goals.

mod choice;
mod front;
mod rules;
mod scenario;

pub use choice::{Choice, Published};

use crate::report::RESULTS;
use crate::scenarios::ALL;
use anyhow::{Context as _, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// Marks around the generated part of the project's README.
const MARKS: [&str; 2] = ["<!-- begin: polder lab publish -->\n", "<!-- end: polder lab publish -->\n"];

/// One generated file.
#[derive(Debug)]
pub struct Page {
    path: PathBuf,
    text: String,
}

/// Every generated file of the folder, and the lines about reports that no page uses.
///
/// # Errors
/// When a report breaks a rule, or when a report, a page or `publish.toml` cannot be read or is not as expected.
pub fn pages(folder: &Path) -> anyhow::Result<(Vec<Page>, Vec<String>)> {
    let folder = &fs::canonicalize(folder).with_context(|| format!("cannot find {}", folder.display()))?;
    let reports = read_reports(folder)?;
    refuse(&reports)?;
    let choice = Choice::of(&reports);
    let notes = front::Notes::read(&folder.join("publish.toml"))?;
    let mut pages = Vec::new();
    for scenario in ALL {
        let path = folder.join(scenario.name).with_extension("md");
        let text = read(&path)?;
        let written = text.split(RESULTS).next().unwrap_or_default().trim_end();
        ensure!(written.starts_with("# "), "{} has no title: write what is measured", path.display());
        let picture = scenario::picture(scenario, &choice)?;
        let results = scenario::results(scenario, &choice, picture.is_some());
        pages.push(Page { path: path.clone(), text: format!("{written}\n\n{RESULTS}{results}") });
        pages.extend(picture.map(|text| Page { path: path.with_extension("svg"), text }));
    }
    let text = front::page(&choice, &notes);
    pages.push(Page { path: folder.join("README.md"), text });
    let readme = folder.ancestors().nth(2).map(|root| root.join("README.md"));
    if let Some((readme, Ok(text))) = readme.map(|path| (path.clone(), fs::read_to_string(path))) {
        pages.extend(front::in_readme(&text, &choice, &notes).map(|text| Page { path: readme, text }));
    }
    let unused = unused(folder, &reports, &pages)?;
    Ok((pages, unused))
}

/// Writes every page that differs; answers with what there is to say.
///
/// # Errors
/// As [`pages`], or when a file cannot be written.
pub fn write(folder: &Path) -> anyhow::Result<Vec<String>> {
    let (pages, mut said) = pages(folder)?;
    for page in pages.iter().filter(|page| !page.is_current()) {
        fs::write(&page.path, &page.text).with_context(|| format!("cannot write {}", page.path.display()))?;
        said.push(format!("{}: written", page.path.display()));
    }
    Ok(said)
}

/// Returns one line for each outdated page, and for each report that no page uses.
///
/// # Errors
/// As [`pages`].
pub fn differences(folder: &Path) -> anyhow::Result<Vec<String>> {
    let (pages, mut found) = pages(folder)?;
    found.extend(pages.iter().filter_map(Page::difference));
    Ok(found)
}

impl Page {
    fn is_current(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|text| text == self.text)
    }

    /// The first line that differs.
    fn difference(&self) -> Option<String> {
        let path = self.path.display();
        let Ok(now) = fs::read_to_string(&self.path) else { return Some(format!("{path}: missing")) };
        if now == self.text {
            return None;
        }
        let (now, wanted) = (now.lines().collect::<Vec<_>>(), self.text.lines().collect::<Vec<_>>());
        let at = now.iter().zip(&wanted).take_while(|(now, wanted)| now == wanted).count();
        let line = |lines: &[&str]| lines.get(at).map_or("the end".to_owned(), |line| format!("`{line}`"));
        Some(format!("{path}:{}: {} ought to be {}", at + 1, line(&now), line(&wanted)))
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Paths of the files in a folder, in their order.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|known| known == ending)
}

/// All reports in the folders below `folder`.
fn read_reports(folder: &Path) -> anyhow::Result<Vec<Published>> {
    let mut reports = Vec::new();
    for date in files(folder)?.into_iter().filter(|path| path.is_dir()) {
        for path in files(&date)?.into_iter().filter(|path| has_ending(path, "json")) {
            let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
            let report = serde_json::from_str(&read(&path)?);
            let report = report.with_context(|| format!("{} is not a report of the lab", path.display()))?;
            reports.push(Published { name, report });
        }
    }
    Ok(reports)
}

/// Refuses the first report that may not be published.
fn refuse(reports: &[Published]) -> anyhow::Result<()> {
    for Published { name, report } in reports {
        let why = rules::refusal(report).join("; ");
        ensure!(why.is_empty(), "{name} is refused: {why}; measure it whole, from a clean commit");
    }
    Ok(())
}

/// Returns one line for each report that neither a page nor another document refers to.
fn unused(folder: &Path, reports: &[Published], pages: &[Page]) -> anyhow::Result<Vec<String>> {
    let mut texts = pages.iter().map(|page| page.text.clone()).collect::<Vec<_>>();
    let generated = |path: &PathBuf| pages.iter().any(|page| page.path == *path);
    let mut folders = folder.parent().map(Path::to_owned).into_iter().collect::<Vec<_>>();
    while let Some(folder) = folders.pop() {
        for path in files(&folder)? {
            if path.is_dir() {
                folders.push(path);
            } else if has_ending(&path, "md") && !generated(&path) {
                texts.push(read(&path)?);
            }
        }
    }
    let is_used = |report: &Published| texts.iter().any(|text| text.contains(&report.name));
    let unused = reports.iter().filter(|report| !is_used(report));
    Ok(unused.map(|report| format!("{}: no page uses it; delete it", report.name)).collect())
}
