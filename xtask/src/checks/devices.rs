//! Files of the gateway that tell the kinds of device apart, outside the devices' own modules: few, so that a new kind
//! is its own module and a line or two elsewhere.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::Item;

use crate::sources;

/// Code that may have to know the kinds.
const GATEWAY: &str = "crates/gateway/src/";
/// File that defines the kinds.
const KINDS: &str = "crates/gateway/src/config/device.rs";
/// Modules of the kinds.
const MODULES: &str = "crates/gateway/src/device/";
/// Name of the type whose variants are the kinds.
const TYPE: &str = "Device";
/// Maximum number of other files that tell the kinds apart.
pub(crate) const MOST: usize = 6;

/// Files that name a kind of device, outside of the kinds' own modules, in the order of their paths.
///
/// # Errors
/// The kinds are not found, or a file cannot be read as Rust.
pub(crate) fn files(tree: &[(String, String)]) -> Result<Vec<&str>, String> {
    let kinds = tree.iter().find(|(path, _)| path == KINDS).map(|(_, text)| text.as_str());
    let kinds = kinds.and_then(kinds_in).ok_or_else(|| format!("{KINDS}: no `enum {TYPE}`"))?;
    let is_other = |path: &str| path.starts_with(GATEWAY) && path != KINDS && !path.starts_with(MODULES);
    let mut found = Vec::new();
    for (path, text) in sources::rust(tree).filter(|(path, _)| is_other(path)) {
        let tokens: TokenStream = text.parse().map_err(|error| format!("{path}: {error}"))?;
        if names_kind(tokens, &kinds) {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The finding that there are too many such files.
///
/// # Errors
/// As [`files`].
pub(crate) fn check(tree: &[(String, String)]) -> Result<Vec<String>, String> {
    let found = files(tree)?;
    if found.len() <= MOST {
        return Ok(Vec::new());
    }
    let remedy =
        format!("{} files, {MOST} at most, tell kinds of device apart outside {MODULES}", found.len());
    let remedy = format!("{remedy}: ask `Device::capabilities`, a method of `Device`, `Driver` or `Handle`");
    Ok(std::iter::once(remedy).chain(found.into_iter().map(str::to_owned)).collect())
}

/// Names of the kinds.
fn kinds_in(text: &str) -> Option<BTreeSet<String>> {
    let file = syn::parse_file(text).ok()?;
    let variants = |item: &Item| {
        let Item::Enum(item) = item else { return None };
        let names = item.variants.iter().map(|variant| variant.ident.to_string());
        (item.ident == TYPE).then(|| names.collect())
    };
    file.items.iter().find_map(variants)
}

/// True if a path leads to a kind: `Device::Tap`, or a list of names or all of them behind `Device::`.
fn names_kind(tokens: TokenStream, kinds: &BTreeSet<String>) -> bool {
    let (mut is_type, mut colons) = (false, 0);
    for token in tokens {
        let is_behind = is_type && colons == 2;
        match token {
            TokenTree::Punct(mark) if mark.as_char() == ':' => {
                colons += 1;
                continue;
            }
            TokenTree::Punct(mark) if is_behind && mark.as_char() == '*' => return true,
            TokenTree::Ident(name) if is_behind && kinds.contains(&name.to_string()) => return true,
            TokenTree::Ident(name) => is_type = name == TYPE,
            TokenTree::Group(group) => {
                let leads = |name: &str| group.stream().into_iter().any(|token| token.to_string() == name);
                if is_behind && kinds.iter().any(|kind| leads(kind)) || names_kind(group.stream(), kinds) {
                    return true;
                }
                is_type = false;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => is_type = false,
        }
        colons = 0;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let kinds = ("config/device.rs", "pub enum Device { Tap(String), Usb }");
        let files = files.iter().chain([&kinds]);
        files.map(|(path, text)| (format!("{GATEWAY}{path}"), (*text).to_owned())).collect()
    }

    #[test]
    fn every_way_to_name_a_kind_is_seen() {
        for code in [
            "fn f(d: Device) { match d { Device::Tap(_) => {} _ => {} } }",
            "fn f() -> bool { matches!(d, model::Device::Usb) }",
            "use crate::config::Device::{Tap};",
            "use Device::*;",
        ] {
            assert_eq!(
                files(&tree(&[("run.rs", code)])).as_deref(),
                Ok(&["crates/gateway/src/run.rs"][..]),
                "{code}"
            );
        }
    }

    #[test]
    fn words_methods_and_the_kinds_own_modules_are_none() {
        for (path, code) in [
            ("run.rs", "//! [`Device::Tap`]\nconst A: &str = \"Device::Tap\"; // Device::Tap"),
            ("run.rs", "fn f(d: &Device) { Device::name(d); Other::Tap; FaultyDevice::Tap }"),
            ("device/tap.rs", "fn f() { Device::Tap }"),
        ] {
            assert_eq!(files(&tree(&[(path, code)])), Ok(Vec::new()), "{code}");
        }
    }

    #[test]
    fn one_file_too_many_is_a_finding_that_names_all() {
        let names = (0..=MOST).map(|number| format!("{number}.rs")).collect::<Vec<_>>();
        let all = names.iter().map(|name| (name.as_str(), "fn f() { Device::Usb }")).collect::<Vec<_>>();
        assert_eq!(check(&tree(&all[1..])), Ok(Vec::new()));
        let found = check(&tree(&all)).expect("the kinds are there");
        assert_eq!(found.len(), MOST + 2);
        assert!(found[0].starts_with("7 files, 6 at most"), "{}", found[0]);
        assert!(found.contains(&"crates/gateway/src/3.rs".to_owned()));
    }

    #[test]
    fn without_the_kinds_nothing_can_be_said() {
        let error = check(&[("crates/gateway/src/run.rs".to_owned(), String::new())]).unwrap_err();
        assert!(error.contains("no `enum Device`"), "{error}");
    }
}
