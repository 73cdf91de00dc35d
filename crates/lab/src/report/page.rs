//! A report as one HTML page that needs nothing else.

use super::sentences::{self, Line};
use super::{Report, Row, Table, number, plot};
use polder_testbed::peers::polder::Configured;
use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");

/// The whole page: the outcome first, in a few sentences, then the pictures, and every row by its subject.
///
/// # Errors
/// When a picture cannot be drawn.
pub fn render(report: &Report) -> anyhow::Result<String> {
    let title = format!("Polder lab: {}", escape(&report.scenario));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    outcome(&mut page, report);
    conclusion(&mut page, report);
    page.push_str("<section class=\"pictures\">\n");
    for picture in plot::curves(report)? {
        page.push_str(&format!("<figure>{}</figure>\n", picture.trim_end()));
    }
    page.push_str("</section>\n");
    rows(&mut page, report);
    left_out(&mut page, report);
    report.tables.iter().for_each(|table| draw(&mut page, table));
    configurations(&mut page, report);
    facts(&mut page, report);
    page.push_str("</main>\n</body>\n</html>\n");
    Ok(page)
}

/// Outcome in one line, and the technique that it belongs to.
fn outcome(page: &mut String, report: &Report) {
    let count = |wanted: fn(&Row) -> bool| report.rows.iter().filter(|row| wanted(row)).count();
    let judged = count(|row| row.met.is_some());
    let verdict = match (judged, count(|row| row.met == Some(false))) {
        (0, _) => "no row has a goal".to_owned(),
        (_, 0) => format!("<span class=\"all\">all {judged} goals met</span>"),
        (_, missed) => format!("<span class=\"some\">{missed} of {judged} goals missed</span>"),
    };
    let machine = &report.machine;
    let mut facts = vec![date(report.at), machine.commit.clone(), format!("Linux {}", machine.kernel)];
    facts.push(machine.cpu.clone());
    if report.quick {
        facts.push("quick, so nothing to publish".to_owned());
    }
    let _ = write!(
        page,
        "<h1>{}: {verdict}</h1>\n<p class=\"quiet\">{}<br>\n<code class=\"command\">{}</code></p>\n",
        escape(&report.scenario),
        escape(&facts.join(" · ")),
        escape(&report.command)
    );
}

/// The outcome in at most five sentences.
fn conclusion(page: &mut String, report: &Report) {
    let rows = report.rows.iter().collect::<Vec<_>>();
    page.push_str("<ul class=\"conclusion\">\n");
    for sentence in sentences::conclusion(&report.scenario, &rows) {
        let _ = writeln!(page, "<li>{}", code(&escape(&sentence)));
    }
    page.push_str("</ul>\n");
}

/// Text between backticks as code.
fn code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let part = |(place, part): (usize, &str)| match place % 2 {
        0 => part.to_owned(),
        _ => format!("<code>{}</code>", part.replace('.', ".<wbr>")),
    };
    parts.map(part).collect()
}

/// All rows with a value, by their subjects.
fn rows(page: &mut String, report: &Report) {
    page.push_str("<h2>Rows</h2>\n");
    let rows = report.rows.iter().collect::<Vec<_>>();
    for group in sentences::groups(&report.scenario, &rows) {
        let is_alike = group.lines.windows(2).all(|pair| pair[0].row.unit == pair[1].row.unit);
        let largest = group.lines.iter().filter_map(|line| line.row.value).fold(0.0, f64::max);
        let largest = Some(largest).filter(|&largest| is_alike && group.lines.len() > 1 && largest > 0.0);
        let _ = writeln!(page, "<h3>{}</h3>\n<table class=\"rows\">", code(&escape(&group.about)));
        for one in &group.lines {
            line(page, one, largest);
        }
        page.push_str("</table>\n");
    }
}

/// A row of the page; with a bar, if the largest of its group is known.
fn line(page: &mut String, line: &Line<'_>, largest: Option<f64>) {
    let row = line.row;
    let spread = match row.spread.filter(|_| row.samples > 1) {
        Some((low, high)) => format!("{} … {}", number(low), number(high)),
        None => String::new(),
    };
    let bar = largest.map_or_else(String::new, |largest| {
        let percent = 100.0 * row.value.unwrap_or(0.0).max(0.0) / largest;
        format!("<td class=\"bar\"><i style=\"width:{percent:.1}%\"></i></td>")
    });
    let own = if line.label.starts_with("polder") { " class=\"own\"" } else { "" };
    let label = match line.label.as_str() {
        "" => String::new(),
        label => format!("{}<br>", escape(label)),
    };
    let _ = writeln!(
        page,
        "<tr{own}><th scope=\"row\">{label}<code class=\"quiet\">{}</code><td class=\"number\">{} <span class=\"unit\">{}</span>\
         {bar}<td class=\"quiet spread\">{spread}</td><td class=\"verdict\">{}</td></tr>",
        escape(&row.name).replace('.', ".<wbr>"),
        row.shown(),
        escape(&row.unit),
        verdict(row)
    );
}

fn verdict(row: &Row) -> String {
    let mark = match (row.met, sentences::verdict(row)) {
        (Some(true), Some(verdict)) => format!(" <span class=\"met\">{verdict}</span>"),
        (Some(false), Some(verdict)) => format!(" <span class=\"missed\">{verdict}</span>"),
        (_, _) => String::new(),
    };
    let goal = sentences::goal(row).map(|goal| format!("{}{mark}", escape(&goal)));
    let reason =
        row.reason.as_deref().map(|reason| format!("<span class=\"quiet\">{}</span>", escape(reason)));
    [goal, reason].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn left_out(page: &mut String, report: &Report) {
    if report.left_out.is_empty() {
        return;
    }
    page.push_str("<h2>Left out</h2>\n<ul>\n");
    for what in &report.left_out {
        let _ = writeln!(page, "<li>{}", escape(what));
    }
    page.push_str("</ul>\n");
}

fn draw(page: &mut String, table: &Table) {
    let _ = writeln!(page, "<h2>{}</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>", escape(&table.title));
    for column in &table.columns {
        let _ = write!(page, "<th class=\"number\">{}", escape(column));
    }
    page.push_str("<th></tr></thead>\n");
    for line in &table.lines {
        let _ = write!(page, "<tr><td>{}", escape(&line.name));
        for value in &line.values {
            let value = value.map_or_else(|| "–".to_owned(), number);
            let _ = write!(page, "<td class=\"number\">{value}");
        }
        let reason = line.reason.as_deref().unwrap_or("");
        let _ = writeln!(page, "<td class=\"quiet\">{}</tr>", escape(reason));
    }
    page.push_str("</table></div>\n");
}

/// Writes Polder's configurations, folded.
fn configurations(page: &mut String, report: &Report) {
    if report.configuration.is_empty() {
        return;
    }
    page.push_str("<h2>Configuration of Polder</h2>\n");
    for Configured { what, toml } in &report.configuration {
        let what = escape(&what.join("; "));
        let _ = writeln!(page, "<details><summary>{what}</summary>\n<pre>{}</pre></details>", escape(toml));
    }
}

fn facts(page: &mut String, report: &Report) {
    let machine = &report.machine;
    let idle = machine.cores_idle.iter().map(|percent| format!("{percent:.0} %"));
    page.push_str("<h2>The machine</h2>\n<table class=\"facts\">\n");
    let mut fact = |name: &str, value: &str| {
        let _ = writeln!(page, "<tr><th>{}<td>{}</tr>", escape(name), escape(value));
    };
    fact("when", &format!("{}{}", date(report.at), if report.quick { ", quick" } else { "" }));
    fact("commit", &machine.commit);
    fact("kernel", &machine.kernel);
    fact("cpu", &machine.cpu);
    fact("memory bandwidth", &format!("{} GB/s", number(machine.memory.bandwidth / 1e9)));
    fact("memory latency", &format!("{} ns", number(machine.memory.latency)));
    if let Some(nanos) = machine.round_trip {
        fact("first core to last and back", &format!("{} ns", number(nanos)));
    }
    if let Some(part) = machine.speed_together {
        fact("speed of the first core while the last computes", &format!("{:.0} % of its own", part * 100.0));
    }
    fact("cores idle before", &idle.collect::<Vec<_>>().join(", "));
    for place in &report.placement {
        fact(&format!("core {}", place.core), &format!("{} ({})", place.what, place.how));
    }
    for (name, state) in &machine.mitigations {
        fact(name, state);
    }
    page.push_str("</table>\n");
}

/// Seconds since 1970 as a date and a time (UTC). The calendar is that of Hinnant, "chrono-compatible
/// low-level date algorithms", `civil_from_days`.
pub fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hours:02}:{minutes:02} UTC")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_795_250_412), "2026-11-21 08:40 UTC");
    }

    #[test]
    fn the_page_stands_alone_and_escapes() {
        let page = render(&sample()).unwrap();
        assert!(page.contains("&lt;ovs&gt; is not installed") && !page.contains("<ovs>"));
        assert!(page.contains(">held<") && page.contains(">missed by 62 %<") && page.contains("64 k flows"));
        // The outcome comes first, then the conclusion; peers are below one subject.
        let places =
            ["1 of 2 goals missed", "1 of 2 goals are held, 1 missed.", "Missed by 62 %", "<h2>Rows</h2>"];
        let places = places.map(|words| page.replace("<wbr>", "").find(words).unwrap());
        assert!(places.is_sorted(), "{places:?}");
        assert_eq!(page.matches("<h3>").count(), 1, "{page}");
        assert!(
            page.contains("<i style=\"width:46.5%\"></i>") && page.contains("<i style=\"width:100.0%\"></i>")
        );
        assert!(
            page.contains("polder, 10 times") && page.contains(">1 234<") && page.contains("&lt;nothing&gt;")
        );
        assert!(page.contains("<summary>bridge</summary>") && page.contains("[port.&lt;in&gt;]"));
        // Nothing is fetched: the only addresses are XML name spaces.
        let addresses = page.matches("http").count();
        assert_eq!(addresses, page.matches("http://www.w3.org/2000/svg").count());
    }
}
