//! Orderings of atomic accesses in the product, and the table that argues for each of them.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};

use crate::sources;

/// The page with the tables.
pub(crate) const PAGE: &str = "docs/memory-order.md";

/// Crates of the product that have atomics, by their folder.
const CRATES: &[&str] = &["buffers", "datapath", "demo", "devices", "gateway", "top"];

/// Orderings, in the order in which a row names them.
const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

/// Arguments that a row may name.
const KINDS: &[&str] =
    &["loom", "pair", "fence", "hand-over", "once", "lock", "kernel", "device", "number", "flag"];

/// Parts of a path that hold no product: tests, and devices and programs that are made for tests.
const OUTSIDE: &[&str] = &["tests", "loom_tests", "mutants", "conformance", "model"];

/// A function: its file, and its name.
type Function = (String, String);

/// Number of times that each of [`ORDERINGS`] stands in a function.
type Counts = [usize; ORDERINGS.len()];

/// One line for each function whose orderings are not those of its row, and for each row that is wrong.
pub(crate) fn check(files: &[(String, String)]) -> Vec<String> {
    let Some((_, page)) = files.iter().find(|(path, _)| path == PAGE) else {
        return vec![format!("{PAGE}: no such file")];
    };
    let (sites, mut found) = sites(files);
    let (rows, wrong) = rows(files, page);
    found.extend(wrong);
    for ((file, function), counts) in &sites {
        match rows.get(&(file.clone(), function.clone())) {
            None => found.push(format!("{file}: `{function}` has no row in {PAGE}: {}", said(counts))),
            Some(row) if row != counts => found.push(format!(
                "{file}: `{function}` has {}; {PAGE} argues for {}",
                said(counts),
                said(row)
            )),
            Some(_) => {}
        }
    }
    let gone = rows.keys().filter(|function| !sites.contains_key(*function));
    found.extend(gone.map(|(file, function)| format!("{PAGE}: {file}: no ordering in `{function}`")));
    found
}

/// Number of orderings that are argued for.
pub(crate) fn count(files: &[(String, String)]) -> usize {
    sites(files).0.values().flatten().sum()
}

fn said(counts: &Counts) -> String {
    let named = ORDERINGS.iter().zip(counts).filter(|(_, count)| **count > 0);
    named.map(|(name, count)| format!("{name}×{count}")).collect::<Vec<_>>().join(" ")
}

/// Orderings by function, and sentences about those that cannot be counted.
fn sites(files: &[(String, String)]) -> (BTreeMap<Function, Counts>, Vec<String>) {
    let product = sources::rust(files).filter(|(path, _)| is_product(path));
    let (mut walks, mut found) = (Vec::new(), Vec::new());
    for (path, text) in product {
        let mut walk = Walk { path, ..Walk::default() };
        match text.parse::<TokenStream>() {
            Ok(tokens) => walk.tokens(tokens),
            Err(error) => found.push(format!("{path}: {error}")),
        }
        walks.push(walk);
    }
    let tests = walks.iter().flat_map(|walk| walk.tests.clone()).collect::<BTreeSet<_>>();
    let mut sites = BTreeMap::new();
    for walk in walks.into_iter().filter(|walk| !tests.contains(walk.path)) {
        found.extend(walk.unnamed);
        let counts = walk.counts.into_iter();
        sites.extend(counts.map(|(function, counts)| ((walk.path.to_owned(), function), counts)));
    }
    (sites, found)
}

fn is_product(path: &str) -> bool {
    let place = path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/"));
    place.is_some_and(|(name, rest)| {
        let mut parts = rest.trim_end_matches(".rs").split('/');
        CRATES.contains(&name) && !parts.any(|part| OUTSIDE.contains(&part))
    })
}

/// A walk through one file.
#[derive(Debug, Default)]
struct Walk<'a> {
    path: &'a str,
    /// The function whose name came last.
    function: String,
    counts: BTreeMap<String, Counts>,
    /// Files of modules that are tests.
    tests: Vec<String>,
    unnamed: Vec<String>,
}

impl Walk<'_> {
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens = tokens.into_iter().collect::<Vec<_>>();
        let mut at = 0;
        while at < tokens.len() {
            if is_test_condition(&tokens[at..]) {
                at += 2 + self.skip_item(&tokens[at + 2..]);
                continue;
            }
            self.look(&tokens[at..]);
            if let TokenTree::Group(group) = &tokens[at] {
                self.tokens(group.stream());
            }
            at += 1;
        }
    }

    /// Looks whether a function or an ordering begins here.
    fn look(&mut self, tokens: &[TokenTree]) {
        if let [TokenTree::Ident(word), TokenTree::Ident(name), ..] = tokens
            && *word == "fn"
        {
            self.function = name.to_string();
        }
        let [TokenTree::Ident(word), TokenTree::Punct(_), TokenTree::Punct(_), what, ..] = tokens else {
            return;
        };
        if *word != "Ordering" {
            return;
        }
        let named = what.to_string();
        if let Some(place) = ORDERINGS.iter().position(|ordering| *ordering == named) {
            self.counts.entry(self.function.clone()).or_default()[place] += 1;
        } else if named == "*" || ORDERINGS.iter().any(|ordering| named.contains(ordering)) {
            self.unnamed.push(format!("{}: write orderings as `Ordering::…`, which are counted", self.path));
        }
    }

    /// Length of the item behind a condition; a module in a file of its own is noted.
    fn skip_item(&mut self, tokens: &[TokenTree]) -> usize {
        let is_end = |token: &TokenTree| match token {
            TokenTree::Group(group) => group.delimiter() == proc_macro2::Delimiter::Brace,
            TokenTree::Punct(mark) => mark.as_char() == ';',
            TokenTree::Ident(_) | TokenTree::Literal(_) => false,
        };
        let length = tokens.iter().position(is_end).map_or(tokens.len(), |at| at + 1);
        if let [.., TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Punct(_)] = &tokens[..length]
            && *word == "mod"
        {
            let folder = folder(self.path);
            self.tests.extend([format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")]);
        }
        length
    }
}

/// Folder of a module's own modules.
fn folder(path: &str) -> &str {
    let stem = path.trim_end_matches(".rs");
    ["/mod", "/lib", "/main"].into_iter().find_map(|end| stem.strip_suffix(end)).unwrap_or(stem)
}

/// True if an attribute stands here by which an item is compiled for tests alone.
fn is_test_condition(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(mark), TokenTree::Group(group), ..] = tokens else { return false };
    let text = group.stream().to_string().split_whitespace().collect::<String>();
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    mark.as_char() == '#'
        && text.starts_with("cfg(")
        && !text.contains("not(test")
        && words.any(|word| word == "test")
}

/// Rows of the page by function, and sentences about rows that are wrong.
fn rows(files: &[(String, String)], page: &str) -> (BTreeMap<Function, Counts>, Vec<String>) {
    let (mut rows, mut found, mut name) = (BTreeMap::new(), Vec::new(), "");
    for (at, line) in page.lines().enumerate() {
        name = line.strip_prefix("## ").unwrap_or(name);
        let cells = line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
        let [file, functions, kind, argument] = cells[..] else { continue };
        let Some(file) = file.strip_prefix('`').and_then(|file| file.strip_suffix('`')) else { continue };
        let path = format!("crates/{name}/src/{file}");
        let mut say = |what: String| found.push(format!("{PAGE}:{}: {what}", at + 1));
        if !KINDS.contains(&kind) || argument.is_empty() {
            say(format!("`{kind}` is no argument: one of {}", KINDS.join(", ")));
        }
        if kind == "loom" && !has_model(files, &path, argument) {
            say(format!("no module `loom_tests` in {path}, beside it or named"));
        }
        for part in functions.split(',') {
            let Some((function, counts)) = function(part) else {
                say(format!("`{part}` is no function with its orderings"));
                continue;
            };
            let before = rows.insert((path.clone(), function.to_owned()), counts);
            before.iter().for_each(|_| say(format!("a second row of `{function}`")));
        }
    }
    (rows, found)
}

/// A function with its orderings: its name in backquotes, and each ordering with `×` and its number if there
/// are several.
fn function(part: &str) -> Option<(&str, Counts)> {
    let (name, orderings) = part.trim().strip_prefix('`')?.split_once('`')?;
    let mut counts = Counts::default();
    for ordering in orderings.split_whitespace() {
        let (ordering, count) = ordering.split_once('×').unwrap_or((ordering, "1"));
        let place = ORDERINGS.iter().position(|known| *known == ordering)?;
        counts[place] = count.parse().ok()?;
    }
    Some((name, counts))
}

/// True if the model checker has a model of a file: in it, in its folder or below, or where the argument says.
fn has_model(files: &[(String, String)], path: &str, argument: &str) -> bool {
    let is_model = |known: &str| known.ends_with("loom_tests.rs");
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let (below, is_root) = (format!("{folder}/"), folder.ends_with("/src"));
    files.iter().any(|(known, text)| {
        known == path && text.contains("mod loom_tests")
            || is_model(known) && (!is_root && known.starts_with(&below))
            || is_model(known)
                && known.strip_prefix(&below).is_some_and(|rest| argument.contains(&format!("`{rest}`")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str =
        "fn push() { x.store(1, Ordering::Release); }\nfn pop() { x.load(Ordering::Acquire); }\n";

    fn found(source: &str, rows: &str) -> Vec<String> {
        let page = format!("## buffers\n\n| file | functions | kind | argument |\n|---|---|---|---|\n{rows}");
        let files = [("crates/buffers/src/ring.rs", source), (PAGE, &page)];
        check(&files.map(|(path, text)| (path.to_owned(), text.to_owned())))
    }

    #[test]
    fn what_the_table_has_is_fine() {
        let row = "| `ring.rs` | `push` Release, `pop` Acquire | pair | cells |\n";
        assert_eq!(found(SOURCE, row), [""; 0]);
    }

    #[test]
    fn a_new_ordering_is_found() {
        let row = "| `ring.rs` | `push` Release, `pop` Acquire | pair | cells |\n";
        let more = found(&format!("{SOURCE}fn more() {{ fence(Ordering::SeqCst); }}\n"), row);
        assert_eq!(more, [format!("crates/buffers/src/ring.rs: `more` has no row in {PAGE}: SeqCst×1")]);
        let twice = found(&SOURCE.replace("1,", "x.load(Ordering::Relaxed),"), row);
        assert_eq!(twice.len(), 1);
        assert!(twice[0].contains("has Relaxed×1 Release×1") && twice[0].ends_with("argues for Release×1"));
    }

    #[test]
    fn a_weaker_ordering_is_found() {
        let row = "| `ring.rs` | `push` Release, `pop` Acquire | pair | cells |\n";
        assert_eq!(found(&SOURCE.replace("Release", "Relaxed"), row).len(), 1);
    }

    #[test]
    fn a_row_without_its_ordering_is_found() {
        let rows = "| `ring.rs` | `push` Release, `pop` Acquire | pair | cells |\n| `a.rs` | `f` Relaxed | flag | a |\n";
        assert_eq!(found(SOURCE, rows), [format!("{PAGE}: crates/buffers/src/a.rs: no ordering in `f`")]);
    }

    #[test]
    fn an_argument_has_a_kind_and_loom_has_a_model() {
        let row = |kind: &str| format!("| `ring.rs` | `push` Release, `pop` Acquire | {kind} | cells |\n");
        assert_eq!(found(SOURCE, &row("luck")).len(), 1);
        assert_eq!(found(SOURCE, &row("loom")).len(), 1);
        let with_model = format!("{SOURCE}#[cfg(all(test, loom))]\nmod loom_tests {{}}\n");
        assert_eq!(found(&with_model, &row("loom")), [""; 0]);
    }

    #[test]
    fn tests_need_no_row() {
        let row = "| `ring.rs` | `push` Release, `pop` Acquire | pair | cells |\n";
        for tests in [
            "#[cfg(test)]\nmod tests { fn f() { x.load(Ordering::SeqCst); } }\n",
            "#[cfg(all(test, not(loom)))]\n#[derive(Debug)]\nimpl A { fn f() { x.load(Ordering::SeqCst); } }\n",
        ] {
            assert_eq!(found(&format!("{SOURCE}{tests}"), row), [""; 0]);
        }
        let imported = found(&format!("use std::sync::atomic::Ordering::{{Relaxed}};\n{SOURCE}"), row);
        assert_eq!(imported.len(), 1);
    }

    #[test]
    fn a_module_of_tests_may_have_a_file() {
        let page = "## devices\n\n| `a/mod.rs` | `f` Relaxed | flag | a |\n";
        let files = [
            ("crates/devices/src/a/mod.rs", "#[cfg(test)]\nmod b;\nfn f() { x.load(Ordering::Relaxed); }"),
            ("crates/devices/src/a/b.rs", "fn g() { x.load(Ordering::Relaxed); }"),
            (PAGE, page),
        ];
        assert_eq!(check(&files.map(|(path, text)| (path.to_owned(), text.to_owned()))), [""; 0]);
    }
}
