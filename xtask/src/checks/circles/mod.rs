//! Circles among the top-level modules of a crate: none, so that each can be read before those that use it. Among the
//! files of the product: few, see [`files`].
//!
//! Uses are paths from `crate`, `super` and `self`, in code that is not a test's. A name that the root exports again
//! counts for the module that it is from.

mod files;
mod graph;
mod paths;

use std::collections::{BTreeMap, BTreeSet};

use syn::{File, Item};

use self::graph::circles;
use self::paths::{Paths, leaves_of};
use crate::sources;

pub(crate) use self::files::{Circle, among_files, unaccepted};

/// Uses of one crate: from a module to a module, each with a file that has it.
type Uses = BTreeMap<(String, String), String>;

/// Reads the code of every crate; one sentence for each circle.
pub(crate) fn check(files: &[(String, String)]) -> Vec<String> {
    let mut crates = BTreeMap::<&str, Vec<(&str, &str)>>::new();
    for (path, text) in sources::rust(files) {
        let place = path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/"));
        if let Some((name, inside)) = place.filter(|(_, inside)| !is_test(inside)) {
            crates.entry(name).or_default().push((inside, text));
        }
    }
    crates.into_iter().flat_map(|(name, files)| circles_of(name, &files)).collect()
}

fn is_test(inside: &str) -> bool {
    let parts = inside.trim_end_matches(".rs").split('/');
    parts.into_iter().any(|part| part == "tests" || part.ends_with("_tests"))
}

fn circles_of(name: &str, files: &[(&str, &str)]) -> Vec<String> {
    let modules: BTreeSet<String> =
        files.iter().map(|(inside, _)| module_path(inside)).filter_map(first).collect();
    let mut uses = Uses::new();
    let mut unread = Vec::new();
    let parsed: Vec<(&str, File)> = files
        .iter()
        .filter_map(|&(inside, text)| match syn::parse_file(text) {
            Ok(file) => Some((inside, file)),
            Err(error) => {
                unread.push(format!("crates/{name}/src/{inside}: {error}"));
                None
            }
        })
        .collect();
    let root = parsed.iter().find(|(inside, _)| *inside == "lib.rs");
    let exports = root.map(|(_, file)| exports(file)).unwrap_or_default();
    for (inside, file) in &parsed {
        let own = module_path(inside);
        let Some(from) = own.first().cloned() else { continue };
        for path in Paths::of(own, file).rooted() {
            let Some(to) = path.first().and_then(|name| exports.get(name).or_else(|| modules.get(name)))
            else {
                continue;
            };
            if *to != from {
                uses.entry((from.clone(), to.clone())).or_insert_with(|| (*inside).to_owned());
            }
        }
    }
    unread.extend(circles(uses.keys()).into_iter().map(|circle| sentence(name, &circle, &uses)));
    unread
}

/// The path of a file's module: empty for the root of the crate.
fn module_path(inside: &str) -> Vec<String> {
    let path = inside.trim_end_matches(".rs").trim_end_matches("/mod");
    if matches!(path, "lib" | "main" | "mod") || path.starts_with("bin/") {
        return Vec::new();
    }
    path.split('/').map(str::to_owned).collect()
}

fn first(path: Vec<String>) -> Option<String> {
    path.into_iter().next()
}

/// Names that the root exports of its modules: name, and module.
fn exports(root: &File) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for item in &root.items {
        let Item::Use(item) = item else { continue };
        let mut leaves = Vec::new();
        leaves_of(&item.tree, &mut Vec::new(), &mut leaves);
        for (leaf, _) in leaves {
            let path: Vec<&String> =
                leaf.iter().filter(|part| !matches!(part.as_str(), "crate" | "self")).collect();
            if let [module, .., name] = path.as_slice() {
                exports.insert((*name).clone(), (*module).clone());
            }
        }
    }
    exports
}

fn sentence(name: &str, circle: &BTreeSet<String>, uses: &Uses) -> String {
    let within = uses.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
    let arrows: Vec<String> = within.map(|((from, to), file)| format!("{from} → {to} ({file})")).collect();
    format!("crates/{name}: {} modules in a circle: {}", circle.len(), arrows.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> =
            files.iter().map(|(path, text)| (format!("crates/c/src/{path}"), (*text).to_owned())).collect();
        check(&files)
    }

    #[test]
    fn a_line_of_modules_is_no_circle() {
        let files =
            [("lib.rs", "pub mod a; pub mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "pub struct B;")];
        assert_eq!(found(&files), Vec::<String>::new());
    }

    #[test]
    fn circles_are_found_however_they_are_written() {
        for back in [
            "use crate::{a::A, x};",
            "use super::a;",
            "fn f() { crate::a::g() }",
            "fn f() { println!(\"{}\", crate::a::g()); }",
            "mod inner { use super::super::a; }",
            "use crate::A;",
        ] {
            let files =
                [("lib.rs", "mod a; mod b; pub use a::A;"), ("a/mod.rs", "use crate::b::B;"), ("b.rs", back)];
            let found = found(&files);
            assert_eq!(found.len(), 1, "{back}");
            assert!(found[0].contains("a → b (a/mod.rs), b → a (b.rs)"), "{found:?}");
        }
    }

    #[test]
    fn what_is_a_tests_or_says_who_may_see_is_no_use() {
        for back in [
            "#[cfg(test)] mod tests { use crate::a::A; }",
            "#[cfg(all(test, not(loom)))] mod tests { use crate::a::A; }",
            "pub(in crate::a) struct B;",
            "/// [`crate::a`]\nstruct B;",
            "use self::a::A; mod a {}",
        ] {
            let files = [("lib.rs", "mod a; mod b;"), ("a/deep.rs", "use crate::b::B;"), ("b.rs", back)];
            assert_eq!(found(&files), Vec::<String>::new(), "{back}");
        }
        let files = [("a.rs", "use crate::b::B;"), ("b.rs", ""), ("b/tests.rs", "use crate::a::A;")];
        assert_eq!(found(&files), Vec::<String>::new());
    }
}
