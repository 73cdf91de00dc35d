//! Manual pages against the command line, the tables of keys, and the formatter.

use super::support::{Folder, run, skip};
use clap::CommandFactory as _;
use polder::cli::Arguments;
use polder::config::guide;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn pages(name: &str) -> Folder {
    let folder = Folder::new(name);
    let wrote = run(&["manual-pages", folder.0.to_str().expect("UTF-8")]);
    assert_eq!((wrote.code, wrote.out, wrote.err), (Some(0), String::new(), String::new()));
    folder
}

fn page(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).expect(name)
}

/// A word as roff writes it.
fn roff(word: &str) -> String {
    word.replace('-', "\\-")
}

fn subcommands() -> Vec<clap::Command> {
    let mut whole = Arguments::command();
    whole.build();
    let shown =
        whole.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help");
    shown.cloned().collect()
}

#[test]
fn each_subcommand_has_a_page_with_its_options() {
    let folder = pages("manual-options");
    let top = page(&folder.0, "polder.1");
    let mut expected = BTreeSet::from(["polder.1".to_owned(), "polder.toml.5".to_owned()]);
    for command in subcommands() {
        let name = command.get_name();
        let text = page(&folder.0, &format!("polder-{name}.1"));
        assert!(top.contains(&roff(&format!("polder-{name}(1)"))), "{name}: {top}");
        for long in command.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(
                text.contains(&format!("\\fB{}\\fR", roff(&format!("--{long}")))),
                "{name} --{long}: {text}"
            );
        }
        expected.insert(format!("polder-{name}.1"));
    }
    assert!(expected.len() > 10, "{expected:?}");
    let written = std::fs::read_dir(&folder.0).expect("the folder");
    let written = written.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    assert_eq!(written.collect::<BTreeSet<_>>(), expected);
}

#[test]
fn each_key_is_in_the_page_of_the_configuration() {
    let folder = pages("manual-keys");
    let text = page(&folder.0, "polder.toml.5");
    let mut rest = text.as_str();
    for table in guide::tables() {
        let title = format!("\n.SH {}\n", table.title.to_uppercase());
        let quoted = format!("\n.SH \"{}\"\n", table.title.to_uppercase());
        let begins = rest.find(&title).or_else(|| rest.find(&quoted));
        rest = &rest[begins.unwrap_or_else(|| panic!("{}: {text}", table.title)) + 1..];
        let section = rest.split("\n.SH ").next().unwrap_or_default();
        for row in table.keys {
            let line = format!("\n.TP\n\\fB{}\\fR = ", roff(row.key));
            assert!(section.contains(&line), "{} {}: {section}", table.title, row.key);
        }
    }
    for left in ["](", "`"] {
        assert!(!text.contains(left), "{left} is left of Markdown");
    }
}

#[test]
fn the_formatter_has_no_warnings() {
    let folder = pages("manual-formatter");
    for entry in std::fs::read_dir(&folder.0).expect("the folder") {
        let path = entry.expect("an entry").path();
        let Some(said) = warnings(&path) else {
            return skip("the_formatter_has_no_warnings", "`man` or `groff` is not installed");
        };
        assert_eq!(said, "", "{}", path.display());
    }
    let wrong = folder.0.join("wrong.1");
    std::fs::write(&wrong, ".TH wrong 1\n.SH NAME\nwrong \\- a \\[nonsense] character\n").expect("a page");
    assert_ne!(warnings(&wrong), Some(String::new()), "the formatter says nothing about a wrong page");
}

/// Warnings of the formatter on a terminal of 80 columns; `None` without it.
fn warnings(page: &Path) -> Option<String> {
    let mut command = Command::new("man");
    command.args(["--warnings=w", "-E", "UTF-8", "-Tutf8", "-l"]).arg(page);
    command.env("LC_ALL", "C.UTF-8").env("MANWIDTH", "80").env("MANROFFSEQ", "");
    let told = command.output().ok()?;
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    let lacks_groff = said.contains("groff: not found") || said.contains("can't execute");
    if lacks_groff || (told.stdout.is_empty() && said.is_empty()) {
        return None;
    }
    assert!(!told.stdout.is_empty(), "{}: {said}", page.display());
    Some(said)
}
