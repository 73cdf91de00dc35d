//! Circles among the files of a crate, as their paths tell.
//!
//! A file uses the file that defines the name at the end of a path, however often the name is exported on the way there.
//! So a module that only exports names of the files below it uses none of them, and one that calls them does.
//! A method is no path: a file that adds methods to a type uses the type's file, and is not used by it.

use std::collections::{BTreeMap, BTreeSet};

use syn::{File, Item};

use super::graph;
use super::paths::{Import, Paths, Written};
use super::{is_test, module_path};
use crate::sources;

/// Crates that make up the product.
const PRODUCT: &[&str] = &["buffers", "datapath", "devices", "gateway", "top"];

/// A circle that may be there.
#[derive(Debug)]
pub(crate) struct Accepted {
    crate_name: &'static str,
    /// A file of the circle that names it.
    member: &'static str,
    /// Maximum number of its files: it only falls.
    files: usize,
    /// Reason why it is there.
    pub(crate) reason: &'static str,
}

/// Circles that may be there: the list only shrinks.
const ACCEPTED: &[Accepted] = &[
    Accepted {
        crate_name: "datapath",
        member: "tunnel/table.rs",
        files: 27,
        reason: "an encapsulation names its options, and options name their encapsulation",
    },
    Accepted {
        crate_name: "devices",
        member: "lan78xx/model/mod.rs",
        files: 7,
        reason: "a model of one chip, whose blocks act on each other as those of the chip do",
    },
    Accepted {
        crate_name: "devices",
        member: "skb/program.rs",
        files: 12,
        reason: "programs of one port know the maps and filters of each other",
    },
    Accepted {
        crate_name: "gateway",
        member: "config/model.rs",
        files: 35,
        reason: "a key's notation refers to the configuration, which consists of keys",
    },
    Accepted {
        crate_name: "gateway",
        member: "runtime/gateway/mod.rs",
        files: 20,
        reason: "the control thread's state has parts that act on all of it",
    },
    Accepted {
        crate_name: "gateway",
        member: "runtime/routing/mod.rs",
        files: 9,
        reason: "routes, next hops and neighbours of the kernel refer to each other",
    },
];

const _: () = assert!(ACCEPTED.len() <= 8, "circles are split, not accepted");

/// Length of the longest chain of exports that is followed.
const CHAIN: usize = 12;

/// Uses between files: from a file to a file, each with the names that are used.
type Uses = BTreeMap<(String, String), BTreeSet<String>>;

/// Files that use each other, directly or by others among them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Circle {
    /// Name of the crate.
    pub(crate) crate_name: String,
    /// Paths of the files in its `src`.
    pub(crate) files: Vec<String>,
    /// Uses among them, as `FROM → TO (NAMES)`.
    pub(crate) uses: Vec<String>,
}

/// Circles among the files of the product's crates.
///
/// # Errors
/// A file cannot be read as Rust.
pub(crate) fn among_files(tree: &[(String, String)]) -> Result<Vec<Circle>, String> {
    let mut circles = Vec::new();
    for name in PRODUCT {
        let folder = format!("crates/{name}/src/");
        let files = sources::rust(tree).filter_map(|(path, text)| Some((path.strip_prefix(&folder)?, text)));
        circles.extend(circles_of(name, &Modules::read(files)?));
    }
    Ok(circles)
}

impl Circle {
    /// Entry of the list for this circle, if there is one.
    pub(crate) fn accepted(&self) -> Option<&'static Accepted> {
        self.find_in(ACCEPTED)
    }

    fn find_in<'a>(&self, list: &'a [Accepted]) -> Option<&'a Accepted> {
        let is_it = |accepted: &&Accepted| {
            accepted.crate_name == self.crate_name && self.files.iter().any(|file| file == accepted.member)
        };
        list.iter().find(is_it)
    }
}

/// One sentence for each circle that is not accepted or has grown, and for each accepted one that is not there.
pub(crate) fn unaccepted(circles: &[Circle]) -> Vec<String> {
    compare(circles, ACCEPTED)
}

fn compare(circles: &[Circle], list: &[Accepted]) -> Vec<String> {
    let mut found = Vec::new();
    for circle in circles {
        let Circle { crate_name, files, uses } = circle;
        let count = files.len();
        match circle.find_in(list) {
            None => {
                found.push(format!("crates/{crate_name}: {count} files in a circle: {}", uses.join("; ")))
            }
            Some(Accepted { member, files, .. }) if count > *files => found.push(format!(
                "crates/{crate_name}: {count} files in the circle of {member}, {files} at most"
            )),
            Some(_) => {}
        }
    }
    let is_gone = |accepted: &&Accepted| {
        !circles
            .iter()
            .any(|circle| circle.find_in(list).is_some_and(|entry| entry.member == accepted.member))
    };
    let gone = list.iter().filter(is_gone);
    found.extend(gone.map(|Accepted { crate_name, member, .. }| {
        format!(
            "crates/{crate_name}: {member} is in no circle of its own: take it off the list of accepted ones"
        )
    }));
    found
}

fn circles_of(name: &str, modules: &Modules) -> Vec<Circle> {
    let uses = modules.uses();
    let circle = |files: BTreeSet<String>| {
        let within = uses.iter().filter(|((from, to), _)| files.contains(from) && files.contains(to));
        let arrow = |((from, to), names): (&(String, String), &BTreeSet<String>)| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            format!("{from} → {to} ({})", names.join(", "))
        };
        let uses = within.map(arrow).collect();
        Circle { crate_name: name.to_owned(), files: files.into_iter().collect(), uses }
    };
    graph::circles(uses.keys()).into_iter().map(circle).collect()
}

/// Module with a file of its own.
struct Module {
    /// Path of the file in `src`.
    file: String,
    /// Names that the file defines itself.
    defined: BTreeSet<String>,
    /// Paths in it.
    paths: Paths,
}

/// Modules of a crate, by their paths.
struct Modules(BTreeMap<Vec<String>, Module>);

impl Modules {
    fn read<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Self, String> {
        let mut modules = BTreeMap::new();
        for (inside, text) in files.filter(|(inside, _)| !is_test(inside) && *inside != "main.rs") {
            let file = syn::parse_file(text).map_err(|error| format!("{inside}: {error}"))?;
            let path = module_path(inside);
            let paths = Paths::of(path.clone(), &file);
            modules.insert(path, Module { file: inside.to_owned(), defined: defined(&file), paths });
        }
        let tests: Vec<Vec<String>> =
            modules.values().flat_map(|module: &Module| module.paths.tests.clone()).collect();
        modules.retain(|path, _| !tests.iter().any(|test| path.starts_with(test)));
        Ok(Self(modules))
    }

    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (own, module) in &self.0 {
            let imports = module.paths.imports.iter().filter(|import| !import.is_exported);
            let all = imports.map(|import| &import.from).chain(&module.paths.code);
            let others = all.filter_map(|written| {
                let owner = self.owner_of(written, CHAIN).filter(|owner| owner != own)?;
                Some((self.0.get(&owner)?, written.path.last()?.clone()))
            });
            for (target, name) in others {
                uses.entry((module.file.clone(), target.file.clone())).or_default().insert(name);
            }
        }
        uses
    }

    /// Module whose file defines the name to which a path leads; none for a module itself, and outside of the crate.
    fn owner_of(&self, written: &Written, chain: usize) -> Option<Vec<String>> {
        let path = self.rooted(written, chain)?;
        let own = self.file_of(&path);
        let name = path.get(own.len())?;
        let module = self.0.get(own)?;
        if module.defined.contains(name) || chain == 0 {
            return Some(own.to_owned());
        }
        if let Some(import) = module.paths.imports.iter().find(|import| import.name == *name) {
            return self.owner_behind(import, &path[own.len() + 1..], chain);
        }
        let globs = module.paths.imports.iter().filter(|import| import.is_exported && import.name == "*");
        let mut behind = globs.filter_map(|import| {
            let target = Written { path: renamed(&import.from.path, name), ..import.from.clone() };
            self.owner_of(&target, chain - 1).filter(|owner| self.defines(owner, name))
        });
        Some(behind.next().unwrap_or_else(|| own.to_owned()))
    }

    /// Module to which the rest of a path leads from an import.
    fn owner_behind(&self, import: &Import, rest: &[String], chain: usize) -> Option<Vec<String>> {
        let path = [import.from.path.as_slice(), rest].concat();
        self.owner_of(&Written { path, ..import.from.clone() }, chain.checked_sub(1)?)
    }

    fn defines(&self, module: &[String], name: &str) -> bool {
        self.0.get(module).is_some_and(|module| module.defined.contains(name))
    }

    /// The path from the crate's root, by imports and by modules below where it begins with a name.
    fn rooted(&self, written: &Written, chain: usize) -> Option<Vec<String>> {
        if let Some(path) = written.rooted() {
            return Some(path);
        }
        let (name, rest) = written.path.split_first()?;
        let own = self.file_of(&written.module);
        let imports = &self.0.get(own)?.paths.imports;
        let is_it = |import: &&Import| import.name == *name && import.from.path != written.path;
        if let Some(import) = imports.iter().find(is_it) {
            let path = [import.from.path.as_slice(), rest].concat();
            return self.rooted(&Written { path, ..import.from.clone() }, chain.checked_sub(1)?);
        }
        let below = [own, std::slice::from_ref(name)].concat();
        self.0.contains_key(&below).then(|| [below.as_slice(), rest].concat())
    }

    /// The longest part of a path that is a module with a file of its own.
    fn file_of<'a>(&self, path: &'a [String]) -> &'a [String] {
        let lengths = (0..=path.len()).rev();
        lengths.map(|length| &path[..length]).find(|part| self.0.contains_key(*part)).unwrap_or_default()
    }
}

/// A path with another name at its end.
fn renamed(path: &[String], name: &str) -> Vec<String> {
    let before = path.split_last().map(|(_, before)| before).unwrap_or_default();
    [before, &[name.to_owned()]].concat()
}

/// Names of a file's items.
fn defined(file: &File) -> BTreeSet<String> {
    let name = |item: &Item| {
        Some(match item {
            Item::Const(item) => item.ident.to_string(),
            Item::Enum(item) => item.ident.to_string(),
            Item::Fn(item) => item.sig.ident.to_string(),
            Item::Macro(item) => item.ident.as_ref()?.to_string(),
            Item::Mod(item) if item.content.is_some() => item.ident.to_string(),
            Item::Static(item) => item.ident.to_string(),
            Item::Struct(item) => item.ident.to_string(),
            Item::Trait(item) => item.ident.to_string(),
            Item::Type(item) => item.ident.to_string(),
            Item::Union(item) => item.ident.to_string(),
            Item::ExternCrate(_) | Item::ForeignMod(_) | Item::Impl(_) | Item::Mod(_) | Item::Use(_) => {
                return None;
            }
            Item::TraitAlias(_) | Item::Verbatim(_) | _ => return None,
        })
    };
    file.items.iter().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<Circle> {
        let files: Vec<_> =
            files.iter().map(|(path, text)| (format!("crates/top/src/{path}"), (*text).to_owned())).collect();
        among_files(&files).expect("Rust")
    }

    fn count(files: &[(&str, &str)]) -> usize {
        circles(files).len()
    }

    #[test]
    fn a_file_uses_the_one_that_defines_a_name() {
        let parent = "mod a; mod b; pub use a::A; pub(crate) use b::{B as C, *};";
        let other = ("m/b.rs", "use super::A; pub struct B; pub struct D;");
        assert_eq!(count(&[("m/mod.rs", parent), ("m/a.rs", "pub struct A;"), other]), 0);
        for back in
            ["use super::C;", "use crate::m::D;", "fn f() { super::b::B }", "use super::b; fn f(_: b::B) {}"]
        {
            let text = format!("{back} pub struct A;");
            let found = circles(&[("m/mod.rs", parent), ("m/a.rs", &text), other]);
            assert_eq!(found.len(), 1, "{back}");
            assert_eq!(found[0].files, ["m/a.rs", "m/b.rs"], "{back}");
        }
    }

    #[test]
    fn a_parent_that_calls_and_defines_is_in_a_circle_with_its_child() {
        let child = ("m/a.rs", "use super::Own; pub fn f(_: Own) {}");
        assert_eq!(count(&[("m.rs", "mod a; pub use a::f; pub struct Own;"), child]), 0);
        for uses in ["fn g() { a::f(Own) }", "use a::f; fn g() { f(Own) }", "pub use a::f; fn g() { f(Own) }"]
        {
            let text = format!("mod a; pub struct Own; {uses}");
            assert_eq!(count(&[("m.rs", &text), child]), 1, "{uses}");
        }
        assert_eq!(count(&[("m.rs", "#[cfg(test)] mod a; pub struct Own; fn g() { a::f(Own) }"), child]), 0);
    }

    #[test]
    fn circles_are_accepted_by_name_and_do_not_grow() {
        let of = |files: &[&str]| Circle {
            crate_name: "c".to_owned(),
            files: files.iter().map(|&file| file.to_owned()).collect(),
            uses: vec!["a → b".to_owned()],
        };
        let list = [Accepted { crate_name: "c", member: "a.rs", files: 2, reason: "" }];
        assert_eq!(compare(&[of(&["a.rs", "b.rs"])], &list), Vec::<String>::new());
        assert!(compare(&[of(&["a.rs", "b.rs", "d.rs"])], &list)[0].contains("2 at most"));
        assert!(compare(&[], &list)[0].contains("take it off"));
        assert!(compare(&[of(&["x.rs", "y.rs"])], &[])[0].contains("2 files in a circle"));
    }
}
