//! Manual pages for the command line and for the configuration's keys.

use super::Arguments;
use crate::config::guide::{self, KeyRow};
use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use std::path::Path;

/// A manual page.
struct Page {
    /// File name, as in `polder-run.1`.
    name: String,
    text: String,
}

/// Writes every page into a directory.
pub(super) fn write(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    for page in pages()? {
        let path = folder.join(page.name);
        std::fs::write(&path, page.text)
            .with_context(|| format!("cannot write the manual page {}", path.display()))?;
    }
    Ok(())
}

/// `polder(1)`, a page for each subcommand, `polder.toml(5)`.
fn pages() -> std::io::Result<Vec<Page>> {
    let mut whole = Arguments::command().disable_help_subcommand(true);
    whole.build();
    let mut pages = vec![Page { name: "polder.toml.5".to_owned(), text: configuration() }];
    let subcommands = whole.get_subcommands().filter(|command| !command.is_hide_set());
    for command in std::iter::once(&whole).chain(subcommands) {
        pages.push(command_page(command)?);
    }
    Ok(pages)
}

fn command_page(command: &clap::Command) -> std::io::Result<Page> {
    let man = Man::new(command.clone()).date(DATE).source(SOURCE).manual(MANUAL);
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    let mut end = Roff::default();
    if let Some(notes) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        end.control("SH", ["NOTES"]);
        paragraphs(&mut end, &notes.to_string());
    }
    files(&mut end);
    see_also(
        &mut end,
        if command.has_subcommands() { &["polder.toml(5)"] } else { &["polder(1)", "polder.toml(5)"] },
    );
    end.to_writer(&mut text)?;
    Ok(Page { name: man.get_filename(), text: String::from_utf8_lossy(&text).into_owned() })
}

/// Converts help text: an indented line is a term, with its meaning after two spaces.
fn paragraphs(page: &mut Roff, text: &str) {
    let mut is_list = false;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let term =
            line.strip_prefix("  ").and_then(|line| line.split_once("  ").or_else(|| line.split_once(' ')));
        if let Some((term, meaning)) = term {
            page.control("TP", []).text([bold(term)]).text([roman(meaning.trim())]);
        } else if is_list {
            page.control("PP", []).text([roman(line)]);
        } else {
            page.text([roman(line)]);
        }
        is_list = term.is_some();
    }
}

/// The manual page of the configuration file.
fn configuration() -> String {
    let mut page = Roff::default();
    page.control("TH", ["polder.toml", "5", DATE, SOURCE, MANUAL]);
    page.control("SH", ["NAME"]).text([roman("polder.toml - configuration of a gateway")]);
    page.control("SH", ["SYNOPSIS"]).text([bold(FILE)]);
    page.control("SH", ["DESCRIPTION"]);
    for (number, paragraph) in DESCRIPTION.iter().enumerate() {
        if number > 0 {
            page.control("PP", []);
        }
        page.text(phrase(paragraph));
    }
    for table in guide::tables() {
        page.control("SH", [table.title.to_uppercase().as_str()]);
        table.keys.iter().for_each(|row| key(&mut page, row));
    }
    page.control("SH", ["EXAMPLE"]).control("nf", []);
    for line in include_str!("../../../../examples/bridge.toml").lines() {
        page.text([roman(line)]);
    }
    page.control("fi", []);
    files(&mut page);
    see_also(&mut page, &["polder(1)", "polder-check(1)", "polder-run(1)", "polder-reload(1)"]);
    page.render()
}

fn key(page: &mut Roff, row: &KeyRow) {
    let KeyRow { key, kind, range, default, reload, meaning } = row;
    page.control("TP", []).text([vec![bold(*key), roman(" = ")], phrase(kind)].concat());
    let facts = [("Values", range.as_str()), ("Default", default), ("Reload", reload)];
    let facts = facts.iter().filter(|(_, fact)| !fact.is_empty());
    let facts = facts.map(|(name, fact)| format!(" {name}: {fact}.")).collect::<String>();
    page.text(phrase(&format!("{meaning}.{facts}")));
}

/// Converts a phrase of Markdown: code becomes bold, emphasis italic, and a link its text.
fn phrase(text: &str) -> Vec<Inline> {
    let text = without_links(text);
    let mut parts = Vec::new();
    for (number, part) in text.split('`').enumerate() {
        if number % 2 == 1 {
            parts.push(bold(part));
        } else {
            let stressed = part.split('*').enumerate();
            parts.extend(
                stressed.map(|(number, part)| if number % 2 == 1 { italic(part) } else { roman(part) }),
            );
        }
    }
    parts
}

fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, name, after)) = next_link(rest) {
        plain.push_str(before);
        plain.push_str(name);
        rest = after;
    }
    plain + rest
}

/// The first link of a text: text before it, its name, text after it.
fn next_link(text: &str) -> Option<(&str, &str, &str)> {
    let (before, link) = text.split_once("](")?;
    let (before, name) = before.rsplit_once('[')?;
    let (_, after) = link.split_once(')')?;
    Some((before, name, after))
}

fn files(page: &mut Roff) {
    page.control("SH", ["FILES"]);
    for (path, meaning) in FILES {
        page.control("TP", []).text([italic(*path)]).text([roman(*meaning)]);
    }
}

fn see_also(page: &mut Roff, names: &[&str]) {
    page.control("SH", ["SEE ALSO"]).text([roman(names.join(", "))]);
}

const SOURCE: &str = concat!("polder ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "Polder";
/// Empty date in roff quotes: a page belongs to a version.
const DATE: &str = "\"\"";
const FILE: &str = "/etc/polder/gateway.toml";
const FILES: &[(&str, &str)] = &[
    (FILE, "The configuration that the service reads."),
    ("/run/polder/NAME.sock", "Control socket of the gateway NAME."),
];
const DESCRIPTION: &[&str] = &[
    "One TOML file describes a gateway. `polder check` prints all errors in the file and all requirements \
     that this host does not meet; `polder run` starts the gateway; `polder reload` applies all changes of \
     the file, or none of them. `polder show config` prints the running configuration with every default \
     written out.",
    "Names have at most 31 letters, digits, `-`, `_` or `.`, and begin with a letter or digit. A key that is not listed \
     here is an error.",
    "Each key has its type, its allowed values, its default, and how a change takes effect: *yes*, by a \
     reload; *reopen*, when one reload removes the port and another adds it again; *restart*, only by a \
     restart.",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_has_no_markdown_left() {
        let mut page = Roff::default();
        page.text(phrase("as [there](x.md#y), with `a-b` and *c*; 2 < 3"));
        let text = page.render();
        assert!(text.ends_with("as there, with \\fBa\\-b\\fR and \\fIc\\fR; 2 < 3\n"), "{text}");
    }

    #[test]
    fn indented_lines_are_terms_with_meanings() {
        let mut page = Roff::default();
        paragraphs(&mut page, "Layers:\n  eth      src MAC\n  ip       df\n\nThe rest.");
        let text = page.render();
        let expected = "Layers:\n.TP\n\\fBeth\\fR\nsrc MAC\n.TP\n\\fBip\\fR\ndf\n.PP\nThe rest.\n";
        assert!(text.ends_with(expected), "{text}");
    }
}
