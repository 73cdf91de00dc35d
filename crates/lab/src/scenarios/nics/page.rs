//! The page about network drivers, made of a report of the scenario.

use super::{CARDS, FAILED, KERNELS, PASSED, RATIO, SUMS};
use crate::report::{Report, Row, number};

/// `docs/hardware/drivers.md` without the text that people have written about it.
pub fn render(report: &Report) -> String {
    let mut text = String::from(HEAD);
    if report.quick {
        text.push_str("The run was a quick one: every 29th length of frames, one turn of TCP.\n");
    }
    text.push_str(TABLE);
    for (kernel, card) in cells() {
        text.push_str(&line(report, kernel, card));
    }
    text.push_str("\n## Over all cells\n\n| row | value | goal | remark |\n|---|---|---|---|\n");
    for row in SUMS.iter().filter_map(|name| report.row(name)) {
        let value = row.value.map_or("not measured".to_owned(), number);
        let goal = row.goal.map_or(String::new(), number);
        let remark = row.reason.as_deref().unwrap_or_default();
        text.push_str(&format!("| `{}` | {value} | {goal} | {remark} |\n", row.name));
    }
    let failed = remarks(report, FAILED, |row| row.value != Some(0.0));
    text.push_str(&list("## Not passed, and cells that could not be run", &failed));
    let skipped =
        remarks(report, PASSED, |row| row.reason.as_ref().is_some_and(|text| text.contains(NOT_RUN)));
    let skipped = skipped
        .into_iter()
        .map(|(name, text)| (name, text.split(NOT_RUN).nth(1).unwrap_or_default().to_owned()));
    text.push_str(&list("## Checks that a cell cannot be asked", &skipped.collect::<Vec<_>>()));
    text
}

fn cells() -> impl Iterator<Item = (&'static str, &'static str)> {
    KERNELS.into_iter().flat_map(|kernel| CARDS.into_iter().map(move |card| (kernel.name, card.name)))
}

fn line(report: &Report, kernel: &str, card: &str) -> String {
    let row = |what: &str| report.row(&format!("nics.{kernel}.{card}.{what}"));
    let Some((passed, said)) = row(PASSED).and_then(|row| Some((row.value?, row.reason.clone()?))) else {
        return String::new();
    };
    let failed = row(FAILED).and_then(|row| row.value).unwrap_or_default();
    let mut said = said.split("; ");
    let (version, mode) = (said.next().unwrap_or_default(), said.next().unwrap_or_default());
    let killed = said.find_map(|part| part.strip_prefix("kernel back ")).unwrap_or("not seen");
    let ratio = row(RATIO).and_then(|row| row.value).map_or("not measured".to_owned(), number);
    let version = version.trim_start_matches("linux-image-").split(['+', '-']).next().unwrap_or_default();
    let mode = mode.trim_start_matches("AF_XDP, ");
    let killed = killed.trim_end_matches(" after kill -9");
    format!("| {version} | {card} | {mode} | {passed:.0} of {:.0} | {killed} | {ratio} |\n", passed + failed)
}

fn remarks(report: &Report, what: &str, wanted: impl Fn(&Row) -> bool) -> Vec<(String, String)> {
    let rows = cells().filter_map(|(kernel, card)| report.row(&format!("nics.{kernel}.{card}.{what}")));
    let rows = rows.filter(|row| wanted(row));
    let name = |row: &Row| {
        row.name.trim_start_matches("nics.").trim_end_matches(what).trim_end_matches('.').to_owned()
    };
    rows.map(|row| (name(row), row.reason.clone().unwrap_or_default())).collect()
}

fn list(title: &str, lines: &[(String, String)]) -> String {
    let mut text = format!("\n{title}\n\n");
    if lines.is_empty() {
        text.push_str("None.\n");
    }
    for (name, said) in lines {
        text.push_str(&format!("* `{name}`: {said}\n"));
    }
    text
}

const NOT_RUN: &str = "not run: ";
const HEAD: &str = "# Network drivers

`polder lab run nics` asks Polder, with its defaults, on emulated network cards in guests with Debian's kernels.
[The lab](../lab.md) says what a cell is asked; this page is the report of a run.
";
const TABLE: &str = "
| Linux | card | mode that `auto` took | checks passed | kernel back after kill -9 | TCP beside the kernel's bridge |
|---|---|---|---|---|---|
";
