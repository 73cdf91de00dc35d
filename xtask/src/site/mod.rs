//! The site: documents, examples and manual pages, made into a book by mdBook, without a dead link.
//!
//! ```text
//!  documents, what they link to ─┐
//!  folders of examples ──────────┼─▶ target/site-source ─▶ mdbook ─▶ target/site ─▶ dead links
//!  polder manual-pages ──────────┘
//! ```
//!
//! Nothing is copied by hand: `docs/SUMMARY.md` has the order of pages, and of a folder in it the files become a page.

mod html;
mod manual;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::checks::links::{resolve, targets_in};
use crate::checks::pages::{self, SUMMARY};
use crate::process;
use crate::run::Run;
use crate::say;
use crate::sources;

/// Folders of `target` with what mdBook reads and what it writes.
const SOURCE: &str = "site-source";
const SITE: &str = "site";
/// Folder in which `scripts/mdbook` puts the program for root.
const MDBOOK: &str = "/var/cache/polder/mdbook";
/// Settings and style of the site.
const SETTINGS: [&str; 2] = ["book.toml", "site.css"];
/// Line of the list that stands for the manual pages.
const MANUAL: &str = "<!-- manual pages -->";
/// Bound of one program.
const BOUND: Duration = Duration::from_secs(3 * 60);

/// Builds the site into `target/site`.
pub(crate) fn build(run: &mut Run) -> Result<()> {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let target = run.root().join(target);
    let Some(mdbook) = mdbook(run, &target) else {
        return run.missing_tool("mdbook", "`scripts/mdbook`");
    };
    let program = target.join("debug/polder");
    ensure!(program.exists(), "the manual pages need `cargo build --package polder`; `make site` does it");
    let source = target.join(SOURCE);
    if source.exists() {
        fs::remove_dir_all(&source).context("the last site's source cannot be removed")?;
    }
    let manual = source.join("roff");
    fs::create_dir_all(&manual).with_context(|| format!("{} cannot be made", manual.display()))?;
    let manual = manual.to_string_lossy().into_owned();
    run.must_succeed(&mut run.command(&program.to_string_lossy(), &["manual-pages", &manual]), BOUND)?;
    let mut files = sources::all(run.root())?;
    let of_commands = manual_pages(Path::new(&manual))?;
    fs::remove_dir_all(&manual).context("manual pages cannot be removed")?;
    replace_manual(&mut files, &of_commands)?;
    let pages = source.join("src");
    for (path, text) in stage(&files).into_iter().chain(of_commands) {
        write(&pages.join(path), text.as_bytes())?;
    }
    for path in linked(&files) {
        write(&pages.join(&path), &fs::read(run.root().join(&path)).context(path)?)?;
    }
    for name in SETTINGS {
        fs::copy(run.root().join("docs/site").join(name), source.join(name)).context(name)?;
    }
    let site = target.join(SITE);
    let folders = [source.to_string_lossy(), site.to_string_lossy()];
    run.must_succeed(&mut run.command(&mdbook, &["build", &folders[0], "--dest-dir", &folders[1]]), BOUND)?;
    let dead = html::dead_links(&site)?;
    say::list("dead links:", &dead);
    ensure!(dead.is_empty(), "{} to mend", dead.len());
    say::line(&format!("the site begins at {}", site.join("index.html").display()));
    Ok(())
}

/// The program that makes the book: of this user's cache, of the target folder, or of the search path.
fn mdbook(run: &Run, target: &Path) -> Option<String> {
    let folders = [std::env::var_os("POLDER_MDBOOK").map(PathBuf::from), Some(MDBOOK.into())];
    let folders = folders.into_iter().flatten().chain([target.join("mdbook")]);
    let built = folders.map(|folder| folder.join("bin/mdbook").to_string_lossy().into_owned());
    built
        .chain(["mdbook".to_owned()])
        .find(|program| process::answers(&mut run.command(program, &["--version"])))
}

/// Pages of commands and of the configuration's keys: path in the site and text. `polder(1)` comes first.
fn manual_pages(folder: &Path) -> Result<Vec<(String, String)>> {
    let mut pages = Vec::new();
    for file in fs::read_dir(folder).context("manual pages cannot be listed")? {
        let path = file.context("a manual page cannot be listed")?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let section = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        let title = format!("{name}({section})");
        pages.push((format!("man/{name}.{section}.md"), manual::markdown(&title, &text)));
    }
    pages.sort_by_key(|(path, _)| (path != "man/polder.1.md", path.clone()));
    Ok(pages)
}

/// Has the list name the manual pages.
fn replace_manual(files: &mut [(String, String)], pages: &[(String, String)]) -> Result<()> {
    let list = files.iter_mut().find(|(path, _)| path == SUMMARY);
    let Some((_, list)) = list.filter(|(_, list)| list.contains(MANUAL)) else {
        bail!("{SUMMARY} has no line `{MANUAL}`");
    };
    let line = |(path, text): &(String, String)| {
        let title = text.lines().next().unwrap_or_default().trim_start_matches("# ").to_owned();
        format!("- [{title}](../{path})\n")
    };
    *list = list.replace(MANUAL, pages.iter().map(line).collect::<String>().trim_end());
    Ok(())
}

/// The pages of the site, and its list, as mdBook takes them.
fn stage(files: &[(String, String)]) -> Vec<(String, String)> {
    let text = |wanted: &str| files.iter().find(|(path, _)| path == wanted).map(|(_, text)| text);
    let list = pages::list(files);
    let mut staged = vec![("SUMMARY.md".to_owned(), summary(&list, files))];
    for entry in pages::entries(&list) {
        if is_folder(&entry.path, files) {
            staged.push((format!("{}/README.md", entry.path), folder_page(&entry, files)));
        } else if let Some(page) = text(&entry.path) {
            staged.push((
                entry.path.clone(),
                with_readers(&to_index_pages(&entry.path, page, files), &entry.readers),
            ));
        }
    }
    staged
}

/// The list with paths from the root and without lines for readers.
fn summary(list: &str, files: &[(String, String)]) -> String {
    let lines = list.lines().filter(|line| !pages::is_readers(line)).map(|line| {
        targets_in(line).into_iter().fold(line.to_owned(), |line, target| {
            let path = resolve(SUMMARY, target);
            let page = if is_folder(&path, files) { format!("{path}/README.md") } else { path };
            line.replace(&format!("]({target})"), &format!("]({page})"))
        })
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn is_folder(path: &str, files: &[(String, String)]) -> bool {
    files.iter().any(|(file, _)| file.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')))
}

/// The text of a page with links to folders, and to their `README.md`, leading to the pages that mdBook makes of them.
fn to_index_pages(path: &str, text: &str, files: &[(String, String)]) -> String {
    let mut changed = text.to_owned();
    for target in targets_in(text).into_iter().collect::<BTreeSet<_>>() {
        if is_folder(&resolve(path, target), files) {
            changed = changed.replace(&format!("]({target})"), &format!("]({target}/index.md)"));
        } else if let Some(folder) = target.strip_suffix("README.md") {
            for end in [')', '#'] {
                changed = changed.replace(&format!("]({target}{end}"), &format!("]({folder}index.md{end}"));
            }
        }
    }
    changed
}

/// A page with the files of a folder.
fn folder_page(entry: &pages::Entry, files: &[(String, String)]) -> String {
    let pages::Entry { path, readers } = entry;
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut letters = name.chars();
    let title = letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>());
    let mut page = format!("# {}\n\n{readers}\n", title.unwrap_or_default());
    for (file, text) in files {
        let Some(name) = file.strip_prefix(path).and_then(|rest| rest.strip_prefix('/')) else { continue };
        let language = name.rsplit('.').next().unwrap_or_default();
        page.push_str(&format!("\n## {name}\n\n```{language}\n{}\n```\n", text.trim_end()));
    }
    page
}

/// The page with the line for its readers below its title, unless it has one.
fn with_readers(page: &str, readers: &str) -> String {
    match page.split_once('\n') {
        Some((title, rest)) if !readers.is_empty() && !pages::says_readers(page) => {
            format!("{title}\n\n{readers}\n{rest}")
        }
        _ => page.to_owned(),
    }
}

/// Files that pages link to and that are none themselves.
fn linked(files: &[(String, String)]) -> BTreeSet<String> {
    let known = files.iter().map(|(path, _)| path.as_str()).collect::<BTreeSet<_>>();
    let pages =
        pages::entries(&pages::list(files)).into_iter().map(|entry| entry.path).collect::<BTreeSet<_>>();
    let texts = files.iter().filter(|(path, _)| pages.contains(path));
    let targets =
        texts.flat_map(|(path, text)| targets_in(text).into_iter().map(move |target| resolve(path, target)));
    targets.filter(|path| known.contains(path.as_str()) && !path.ends_with(".md")).collect()
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    fs::write(path, content).with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<(String, String)> {
        let list = "# Summary\n\n[Polder](../README.md)\n\n# Guide\n\n*For operators.*\n\n- [A](guide/a.md)\n\
            - [Examples](../examples)\n\n# Manual\n\n<!-- manual pages -->\n";
        let files = [
            (SUMMARY, list),
            ("README.md", "# Polder\n\n*For all.*\n\n[examples](examples) [a](docs/guide/a.md)\n"),
            (
                "docs/guide/a.md",
                "# A\n\n![b](b.svg) [c](../../examples/c.toml) [p](../../README.md#polder)\n",
            ),
            ("docs/guide/b.svg", "<svg/>"),
            ("examples/c.toml", "version = 1\n"),
        ];
        files.map(|(path, text)| (path.to_owned(), text.to_owned())).to_vec()
    }

    #[test]
    fn folders_are_pages_and_each_page_says_for_whom_it_is() {
        let mut files = files();
        let manual = [("man/polder.1.md".to_owned(), "# polder(1)\n".to_owned())];
        replace_manual(&mut files, &manual).unwrap();
        let staged = stage(&files);
        let page = |wanted: &str| staged.iter().find(|(path, _)| path == wanted).unwrap().1.as_str();
        assert_eq!(
            page("SUMMARY.md"),
            "# Summary\n\n[Polder](README.md)\n\n# Guide\n\n\n- [A](docs/guide/a.md)\n- [Examples](examples/README.md)\n\n\
             # Manual\n\n- [polder(1)](man/polder.1.md)"
        );
        assert!(page("README.md").contains("[examples](examples/index.md) [a](docs/guide/a.md)"));
        assert!(page("docs/guide/a.md").starts_with("# A\n\n*For operators.*\n\n![b]"));
        assert!(page("docs/guide/a.md").ends_with("[p](../../index.md#polder)\n"));
        let examples = "# Examples\n\n*For operators.*\n\n## c.toml\n\n```toml\nversion = 1\n```\n";
        assert_eq!(page("examples/README.md"), examples);
        assert_eq!(linked(&files).into_iter().collect::<Vec<_>>(), ["docs/guide/b.svg", "examples/c.toml"]);
    }
}
