//! Links of the built site lead somewhere.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};

/// Page that a server shows in place of a missing one: its links count from the server's root.
const MISSING: &str = "404.html";

/// One line for each link of a page that leads to no file below the folder, or to no element of a page.
pub(super) fn dead_links(site: &Path) -> Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    collect(site, &mut pages)?;
    let mut dead = Vec::new();
    for (path, text) in pages.iter().filter(|(path, _)| !path.ends_with(MISSING)) {
        let mut targets =
            ["href=\"", "src=\""].iter().flat_map(|name| values(text, name)).collect::<Vec<_>>();
        targets.sort_unstable();
        targets.dedup();
        let leads_nowhere = |target: &&str| !is_there(path, target, &pages);
        let shown = path.strip_prefix(site).unwrap_or(path).display();
        dead.extend(targets.into_iter().filter(leads_nowhere).map(|target| format!("{shown}: `{target}`")));
    }
    Ok(dead)
}

/// Every page below the folder, with its text.
fn collect(folder: &Path, pages: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    for file in fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))? {
        let path = file.context("a file of the site cannot be listed")?.path();
        if path.is_dir() {
            collect(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "html") {
            let text =
                fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
            pages.insert(path, text);
        }
    }
    Ok(())
}

/// Values of an attribute.
fn values<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    text.split(name).skip(1).filter_map(|rest| rest.split_once('"')).map(|(value, _)| value).collect()
}

fn is_there(page: &Path, target: &str, pages: &BTreeMap<PathBuf, String>) -> bool {
    let is_elsewhere = ["://", "mailto:", "data:", "javascript:"].iter().any(|part| target.contains(part));
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() {
        page.to_owned()
    } else {
        normal(&page.parent().unwrap_or(page).join(decoded(file)))
    };
    let has_anchor =
        || pages.get(&path).is_some_and(|text| text.contains(&format!("id=\"{}\"", decoded(anchor))));
    is_elsewhere || path.exists() && (anchor.is_empty() || has_anchor())
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut normal, part| {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => normal.push(part),
        }
        normal
    })
}

/// The text with its `%20` and the like undone.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut parts = text.split('%');
    bytes.extend(parts.next().unwrap_or_default().bytes());
    for part in parts {
        match part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(part.bytes().skip(2));
            }
            None => bytes.extend(std::iter::once(b'%').chain(part.bytes())),
        }
    }
    String::from_utf8_lossy(&bytes).replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_files_and_elements_that_are_not_there_are_dead() {
        let site = std::env::temp_dir().join(format!("xtask-site-{}", std::process::id()));
        fs::create_dir_all(site.join("docs")).unwrap();
        let index = "<h1 id=\"größe\"></h1><a href=\"#gr%C3%B6%C3%9Fe\"></a><a href=\"docs/a.html#x\"></a>\
            <a href=\"docs/b.html\"></a><img src=\"c.svg\"><a href=\"https://example.org/d\"></a>";
        fs::write(site.join("index.html"), index).unwrap();
        fs::write(site.join("docs/a.html"), "<a href=\"../index.html\"></a><a href=\"../index.html#y\"></a>")
            .unwrap();
        let dead = dead_links(&site);
        fs::remove_dir_all(&site).unwrap();
        let expected = [
            "docs/a.html: `../index.html#y`",
            "index.html: `c.svg`",
            "index.html: `docs/a.html#x`",
            "index.html: `docs/b.html`",
        ];
        assert_eq!(dead.unwrap(), expected);
    }
}
