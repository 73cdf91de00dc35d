//! Any damage to a valid configuration gives an explanation or another valid configuration, never a panic.

use polder::config;
use proptest::prelude::*;
use std::path::Path;

const VALID: [&str; 3] = [
    include_str!("../../../examples/access-point.toml"),
    include_str!("../../../examples/vlans.toml"),
    include_str!("broken/vlans.toml"),
];

/// Inserted text: characters and words that mean something to TOML or to the format.
const WORDS: [&str; 34] = [
    "\"",
    "'",
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "=",
    ".",
    ",",
    "#",
    "\n",
    "\r",
    "\t",
    "\u{0}",
    "\\",
    "ä",
    "😀",
    "0",
    "-1",
    "1e9",
    "99999999999999999999",
    "0x",
    "true",
    "nan",
    "port",
    "bridge",
    "[gateway]\n",
    "\"lan\"",
    "\"all\"",
    "\"10-19\"",
    "version = 1\n",
    "vlan = { access = 7 }\n",
];

#[derive(Clone, Debug)]
enum Damage {
    Insert(usize, usize),
    Remove(usize, usize),
    RepeatLine(usize, usize),
    SwapLines(usize, usize),
    CopyWord(usize, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let place = || 0..10_000_usize;
    prop_oneof![
        (place(), 0..WORDS.len()).prop_map(|(at, word)| Damage::Insert(at, word)),
        (place(), 1..12_usize).prop_map(|(at, length)| Damage::Remove(at, length)),
        (place(), place()).prop_map(|(from, to)| Damage::RepeatLine(from, to)),
        (place(), place()).prop_map(|(one, other)| Damage::SwapLines(one, other)),
        (place(), place()).prop_map(|(from, to)| Damage::CopyWord(from, to)),
    ]
}

fn apply(text: &str, damage: &Damage) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    let mut lines: Vec<&str> = text.lines().collect();
    if characters.is_empty() || lines.is_empty() {
        return text.to_owned();
    }
    let (length, count) = (characters.len(), lines.len());
    match *damage {
        Damage::Insert(at, word) => {
            let at = at % length;
            characters.splice(at..at, WORDS[word].chars());
        }
        Damage::Remove(at, many) => {
            let at = at % length;
            characters.drain(at..(at + many).min(length));
        }
        Damage::RepeatLine(from, to) => {
            lines.insert(to % count, lines[from % count]);
            return lines.join("\n");
        }
        Damage::SwapLines(one, other) => {
            lines.swap(one % count, other % count);
            return lines.join("\n");
        }
        Damage::CopyWord(from, to) => {
            let words: Vec<&str> = text.split_whitespace().collect();
            let (from, to) = (words[from % words.len()], words[to % words.len()]);
            return text.replacen(to, from, 1);
        }
    }
    characters.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_configurations_are_explained_or_valid(
        base in 0..VALID.len(),
        damages in prop::collection::vec(damage(), 1..6),
    ) {
        let text = damages.iter().fold(VALID[base].to_owned(), |text, damage| apply(&text, damage));
        match config::parse(&text, Path::new("damaged.toml")) {
            Ok(loaded) => {
                let again = config::parse(&loaded.configuration.to_toml(), Path::new("damaged.toml"));
                prop_assert_eq!(&again.expect("what is written is valid").configuration, &loaded.configuration);
            }
            Err(report) => {
                prop_assert!(report.errors() > 0);
                for finding in report.findings() {
                    prop_assert!(finding.remedy.is_some(), "{}", finding.message);
                    prop_assert!(finding.line >= 1 && finding.line <= text.split('\n').count());
                    prop_assert!(finding.column >= 1);
                }
                let shown = report.render(false);
                prop_assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{:?}", shown);
            }
        }
    }

    #[test]
    fn numbers_survive_any_difference(
        base in 0..2_usize,
        damages in prop::collection::vec(damage(), 1..3),
    ) {
        let old = config::parse(VALID[base], Path::new("a.toml")).expect("the example is valid").configuration;
        let text = damages.iter().fold(VALID[base].to_owned(), |text, damage| apply(&text, damage));
        let Ok(new) = config::parse(&text, Path::new("a.toml")) else { return Ok(()) };
        let target = config::difference(&old, &new.configuration).target;
        let mut ids: Vec<u16> = target.names().map(|(id, _)| id.0).collect();
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        prop_assert_eq!(ids.len(), count, "a number was given twice");
        for port in &target.ports {
            let before = old.ports.iter().find(|before| before.name == port.name);
            prop_assert!(before.is_none_or(|before| before.id == port.id));
        }
        // The same file, whatever the numbers are.
        prop_assert_eq!(target.to_toml(), new.configuration.to_toml());
    }
}
