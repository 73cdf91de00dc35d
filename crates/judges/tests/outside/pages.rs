//! Pages by task: their commands pass from top to bottom, and the runner sees one that does not.

use polder_judges::pages::{self, ALL, Action, Page, Verdict};
use polder_testbed::clock;
use polder_testbed::skip::skip;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a page, and commands of all pages.
const LINES: usize = 120;
const COMMANDS: usize = 80;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A page of the tree.
fn page(name: &str) -> Page {
    let text = fs::read_to_string(root().join(format!("docs/tasks/{name}.md"))).unwrap();
    let machines =
        fs::read_to_string(root().join(format!("crates/judges/src/pages/machines/{name}.txt"))).unwrap();
    Page::parse(name, &text, &machines).unwrap()
}

fn run(pages: &[Page]) -> Vec<Verdict> {
    let begun = clock::now();
    pages::run(pages, &|name| println!("{:5.1} s {name}", (clock::now() - begun).as_secs_f64()))
}

/// The pages that `POLDER_PAGES` names, such as `bridge,vpn`; all by default.
fn chosen() -> Vec<Page> {
    let names = std::env::var("POLDER_PAGES").unwrap_or_default();
    let is_chosen = |name: &str| names.is_empty() || names.split(',').any(|chosen| chosen == name);
    ALL.iter().filter(|(name, ..)| is_chosen(name)).map(|(name, ..)| page(name)).collect()
}

#[test]
fn commands_of_all_pages_pass() {
    let name = "commands_of_all_pages_pass";
    if let Err(reason) = pages::available() {
        return skip(name, format!("{reason:#}"));
    }
    let pages = chosen();
    let verdicts = run(&pages);
    for verdict in &verdicts {
        println!("{}: {} commands, {} failed", verdict.page, verdict.commands, verdict.failed);
        for (line, reason) in &verdict.left_out {
            skip(&format!("{name} {}.md:{line}", verdict.page), reason);
        }
    }
    let failures = verdicts.iter().filter_map(|verdict| verdict.failure.as_ref());
    let failures = failures.map(ToString::to_string).collect::<Vec<_>>();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert_eq!(verdicts.iter().map(|verdict| verdict.failed).sum::<usize>(), 0);
}

#[test]
fn pages_are_short_and_have_enough_commands() {
    let mut commands = 0;
    for (name, ..) in ALL {
        let text = fs::read_to_string(root().join(format!("docs/tasks/{name}.md"))).unwrap();
        assert!(text.lines().count() <= LINES, "{name}: {} lines", text.lines().count());
        commands += page(name).commands();
    }
    assert!(commands >= COMMANDS, "{commands}");
    let stored = fs::read_dir(root().join("docs/tasks")).unwrap().map(|entry| entry.unwrap().file_name());
    let stored = stored.filter(|name| name != "README.md").count();
    assert_eq!(stored, ALL.len(), "each page is run");
}

/// The page under another name, with one of its commands changed.
fn mutant(page: &Page, name: &str, from: &str, to: &str) -> Page {
    let mut changed = page.clone();
    name.clone_into(&mut changed.name);
    let mut found = 0;
    for step in &mut changed.steps {
        if let Action::Run { command, .. } = &mut step.action
            && command.contains(from)
        {
            *command = command.replace(from, to);
            found += 1;
        }
    }
    assert!(found > 0, "no command has `{from}`");
    changed
}

#[test]
fn a_command_that_is_broken_on_purpose_fails() {
    if let Err(reason) = pages::available() {
        return skip("a_command_that_is_broken_on_purpose_fails", format!("{reason:#}"));
    }
    let machines = "wire gateway eth0 host eth0\nhost$ ip address add 192.0.2.7/24 dev eth0\n";
    let text = "```toml\n# /etc/polder/gateway.toml\nversion = 1\n[port.lan]\ninterface = \"eth0\"\n[bridge.br0]\n\
        members = [\"lan\"]\n```\n```sh\nsudo polder check\nsudo polder run\npolder show ports\n```\n\
        ```text\nlan … eth0 … open\n```\n```sh\npolder show no-view   # exits with 2\nsudo polder drain --within 1\n```\n";
    let sound = Page::parse("sound", text, machines).unwrap();
    let mutants = [
        ("a misspelled view", "show ports", "show prots", 12),
        ("other output", "show ports", "show drops", 12),
        ("another exit code", "no-view", "ports", 18),
        ("a gateway that does not start", "polder run", "polder run /etc/none.toml", 11),
    ];
    let mut pages = vec![mutant(&sound, "a gateway that stays", "sudo polder drain --within 1", "true")];
    pages.extend(mutants.iter().map(|(name, from, to, _)| mutant(&sound, name, from, to)));
    pages.push(sound);
    let verdicts = run(&pages);
    let place = |name: &str| {
        let verdict = verdicts.iter().find(|verdict| verdict.page == name).unwrap();
        verdict.failure.as_ref().map(|failure| (failure.place.clone(), failure.to_string()))
    };
    assert_eq!(place("sound"), None);
    for (name, _, _, line) in mutants {
        let (place, text) = place(name).expect(name);
        assert_eq!(place, format!("{name}.md:{line}"), "{text}");
    }
    let (place, text) = place("a gateway that stays").unwrap();
    assert_eq!(place, "a gateway that stays");
    assert!(text.contains("polder"), "{text}");
}
