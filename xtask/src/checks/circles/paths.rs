//! Paths in a file's code, as they are written: those of its imports, and those behind them.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, File, Item, ItemMod, ItemUse, Macro, UseTree, VisRestricted, Visibility};

/// A path, and the module in which it stands.
#[derive(Clone, Debug)]
pub(super) struct Written {
    /// Module of the path, modules inside the file included.
    pub(super) module: Vec<String>,
    /// Its parts.
    pub(super) path: Vec<String>,
}

/// An import.
#[derive(Debug)]
pub(super) struct Import {
    /// The path; its last part is `*` for all names of a module.
    pub(super) from: Written,
    /// The name by which the file's code knows it.
    pub(super) name: String,
    /// True if other files may use it from here.
    pub(super) is_exported: bool,
}

/// Paths of one file.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// Module in which the reader is.
    module: Vec<String>,
    /// Its imports.
    pub(super) imports: Vec<Import>,
    /// Paths in its other code.
    pub(super) code: Vec<Written>,
    /// Modules of their own files that are declared as tests'.
    pub(super) tests: Vec<Vec<String>>,
}

impl Written {
    /// The path from the crate's root; none if it begins with a name.
    pub(super) fn rooted(&self) -> Option<Vec<String>> {
        let mut from = match self.path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("super" | "self") => self.module.clone(),
            Some(_) | None => return None,
        };
        for part in &self.path {
            match part.as_str() {
                "crate" | "self" => {}
                "super" => {
                    from.pop();
                }
                name => from.push(name.to_owned()),
            }
        }
        Some(from)
    }
}

impl Paths {
    /// Paths of the file of a module.
    pub(super) fn of(module: Vec<String>, file: &File) -> Self {
        let mut paths = Self { module, ..Self::default() };
        paths.visit_file(file);
        paths
    }

    /// All paths that begin at a known place, from the crate's root.
    pub(super) fn rooted(&self) -> impl Iterator<Item = Vec<String>> {
        let imports = self.imports.iter().map(|import| &import.from);
        imports.chain(&self.code).filter_map(Written::rooted)
    }

    fn note(&mut self, path: &[String]) {
        if !path.is_empty() {
            self.code.push(Written { module: self.module.clone(), path: path.to_owned() });
        }
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
            return visit::visit_item(self, item);
        }
        if let Item::Mod(item) = item
            && item.content.is_none()
        {
            self.tests.push([self.module.as_slice(), &[item.ident.to_string()]].concat());
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
        let is_exported = !matches!(item.vis, Visibility::Inherited);
        let mut leaves = Vec::new();
        leaves_of(&item.tree, &mut Vec::new(), &mut leaves);
        for (mut path, name) in leaves {
            // `self` at the end of a list is the module itself.
            if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            let name = name.or_else(|| path.last().cloned()).unwrap_or_default();
            let from = Written { module: self.module.clone(), path };
            self.imports.push(Import { from, name, is_exported });
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.note(&names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        self.visit_path(&item.path);
        self.note_tokens(item.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_vis_restricted(&mut self, _: &'ast VisRestricted) {}
}

/// Paths of an import, each with the name that it is given.
pub(super) fn leaves_of(
    tree: &UseTree,
    before: &mut Vec<String>,
    leaves: &mut Vec<(Vec<String>, Option<String>)>,
) {
    let mut leaf = |name: &str, renamed: Option<String>| {
        leaves.push(([before.as_slice(), &[name.to_owned()]].concat(), renamed));
    };
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            leaves_of(&path.tree, before, leaves);
            before.pop();
        }
        UseTree::Name(name) => leaf(&name.ident.to_string(), None),
        UseTree::Rename(name) => leaf(&name.ident.to_string(), Some(name.rename.to_string())),
        UseTree::Glob(_) => leaf("*", None),
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
