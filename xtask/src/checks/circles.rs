//! Circles among the top-level modules of a crate: none, so that each can be read before those that use it.
//!
//! Uses are paths from `crate`, `super` and `self`, in code that is not a test's. A name that the root exports again
//! counts for the module that it is from.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, File, Item, ItemMod, ItemUse, Macro, UseTree, VisRestricted};

use crate::sources;

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
        let mut paths = Paths { module: own, found: BTreeSet::new() };
        paths.visit_file(file);
        for path in paths.found {
            let Some(to) = path.first().and_then(|name| exports.get(name).or_else(|| modules.get(name)))
            else {
                continue;
            };
            if *to != from {
                uses.entry((from.clone(), to.clone())).or_insert_with(|| (*inside).to_owned());
            }
        }
    }
    unread.extend(circles(&uses).into_iter().map(|circle| sentence(name, &circle, &uses)));
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
        for leaf in leaves {
            let path: Vec<&String> =
                leaf.iter().filter(|part| !matches!(part.as_str(), "crate" | "self")).collect();
            if let [module, .., name] = path.as_slice() {
                exports.insert((*name).clone(), (*module).clone());
            }
        }
    }
    exports
}

/// Paths that a file's code uses, from the crate's root.
struct Paths {
    module: Vec<String>,
    found: BTreeSet<Vec<String>>,
}

impl Paths {
    /// Notes a path that begins at a known place.
    fn note(&mut self, path: &[String]) {
        let mut from = match path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("super" | "self") => self.module.clone(),
            Some(_) | None => return,
        };
        for part in path {
            match part.as_str() {
                "crate" | "self" => {}
                "super" => {
                    from.pop();
                }
                name => from.push(name.to_owned()),
            }
        }
        self.found.insert(from);
    }

    /// Paths in a macro's words, which are not parsed.
    fn note_tokens(&mut self, tokens: TokenStream) {
        let mut path = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) if colons == 2 => path.push(name.to_string()),
                TokenTree::Ident(name) => self.note(&std::mem::replace(&mut path, vec![name.to_string()])),
                TokenTree::Punct(mark) if mark.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => self.note_tokens(group.stream()),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            colons = 0;
        }
        self.note(&path);
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        if !attributes(item).iter().any(is_of_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if item.content.is_some() {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let mut leaves = Vec::new();
        leaves_of(&item.tree, &mut Vec::new(), &mut leaves);
        for leaf in leaves {
            self.note(&leaf);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.note(&names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        self.note_tokens(item.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_vis_restricted(&mut self, _: &'ast VisRestricted) {}
}

fn leaves_of(tree: &UseTree, before: &mut Vec<String>, leaves: &mut Vec<Vec<String>>) {
    let mut leaf = |name: &str| leaves.push([before.as_slice(), &[name.to_owned()]].concat());
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            leaves_of(&path.tree, before, leaves);
            before.pop();
        }
        UseTree::Name(name) => leaf(&name.ident.to_string()),
        UseTree::Rename(name) => leaf(&name.ident.to_string()),
        UseTree::Glob(_) => leaf("*"),
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaves_of(tree, before, leaves)),
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Enum(_) | Item::ExternCrate(_) | Item::ForeignMod(_) | Item::Trait(_) | Item::TraitAlias(_) => {
            &[]
        }
        Item::Type(_) | Item::Union(_) | Item::Verbatim(_) | _ => &[],
    }
}

fn is_of_tests(attribute: &Attribute) -> bool {
    if !attribute.path().is_ident("cfg") {
        return false;
    }
    let condition = attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
    !condition.contains("not (test")
        && condition.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
}

/// Groups of modules that reach each other.
fn circles(uses: &Uses) -> Vec<BTreeSet<String>> {
    let mut circles = BTreeSet::new();
    for (from, _) in uses.keys() {
        let circle: BTreeSet<String> =
            reached(from, uses).into_iter().filter(|to| reached(to, uses).contains(from)).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reached(from: &str, uses: &Uses) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from.to_owned()];
    while let Some(module) = next.pop() {
        let targets = uses.keys().filter(|(user, _)| *user == module).map(|(_, target)| target);
        next.extend(targets.filter(|target| reached.insert((*target).clone())).cloned());
    }
    reached
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
