//! The Debian package and the programs of a source tree, as lintian and a second build see them.

use anyhow::{Context as _, ensure};
use polder_testbed::command;
use polder_testbed::peers::polder::program;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A source tree.
#[derive(Debug)]
pub struct Tree(PathBuf);

/// A folder that goes with its value.
struct Folder(PathBuf);

impl Folder {
    fn make() -> anyhow::Result<Self> {
        let folder = Self(std::env::temp_dir().join(format!("polder-lab-package-{}", std::process::id())));
        fs::create_dir_all(&folder.0)?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays is in the folder for temporary files.
        let _: std::io::Result<()> = fs::remove_dir_all(&self.0);
    }
}

impl Tree {
    /// The tree that the working directory is in.
    ///
    /// # Errors
    /// When it is in none.
    pub fn here() -> anyhow::Result<Self> {
        let here = std::env::current_dir()?;
        let found = here.ancestors().find(|folder| folder.join("scripts/build-deb").is_file());
        found
            .map(|folder| Self(folder.to_owned()))
            .context("the working directory is in no source tree of Polder")
    }

    /// Builds the package of the program beside this one, and counts lintian's errors.
    ///
    /// # Errors
    /// When the package cannot be built, lintian is not there, or it finds nothing in a wrong package.
    pub fn lintian_errors(&self) -> anyhow::Result<u64> {
        ensure!(command::exists("lintian"), "{}", command::remedy("lintian"));
        let folder = Folder::make()?;
        ensure!(errors(&wrong(&folder.0)?)? > 0, "lintian finds nothing in a package that is wrong");
        errors(&self.package(&folder.0)?)
    }

    /// Links between pages of the package that lead nowhere, and all of them.
    ///
    /// # Errors
    /// When the package cannot be built, or its pages have no links.
    pub fn links(&self) -> anyhow::Result<[u64; 2]> {
        let folder = Folder::make()?;
        let unpacked = folder.0.join("unpacked");
        let package = self.package(&folder.0)?;
        command::run(Command::new("dpkg-deb").arg("--extract").args([&package, &unpacked]))?;
        let [dead, all] = links_below(&unpacked)?;
        ensure!(all > 0, "no page of the package has a link");
        Ok([dead, all])
    }

    /// Builds the package of the programs beside this one into a folder.
    fn package(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let programs = program()?;
        let programs = programs.parent().context("a program is in a folder")?;
        ensure!(
            programs.join("polder-top").is_file(),
            "`polder-top` is not beside `polder`: build the workspace"
        );
        let mut build = Command::new(self.0.join("scripts/build-deb"));
        build
            .arg("--programs")
            .arg(programs)
            .arg("--output")
            .arg(folder)
            .env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
        Ok(command::run(&mut build)?.trim().into())
    }

    /// True if two builds for release in two folders are the same bytes. It takes as long as they do.
    ///
    /// # Errors
    /// When a build fails.
    pub fn is_reproducible(&self) -> anyhow::Result<bool> {
        let script = self.0.join("scripts/build-reproducible");
        let output = Command::new(&script).arg("--twice").output();
        let output = output.with_context(|| format!("cannot start {}", script.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() || said.contains("differ"), "{}", command::last_lines(&said, 12));
        Ok(output.status.success())
    }
}

/// Links to files in the pages below a folder: broken links, and all links.
fn links_below(folder: &Path) -> anyhow::Result<[u64; 2]> {
    let [mut dead, mut all] = [0, 0];
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            let below = links_below(&path)?;
            (dead, all) = (dead + below[0], all + below[1]);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(&path)?;
            let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
            for target in targets.filter(|target| !target.is_empty() && !target.contains(':')) {
                all += 1;
                dead += u64::from(!path.with_file_name(target).exists());
            }
        }
    }
    Ok([dead, all])
}

/// Number of lintian's errors.
fn errors(package: &Path) -> anyhow::Result<u64> {
    let mut lintian = Command::new("lintian");
    let output = lintian.args(["--no-tag-display-limit", "--fail-on", "none"]).arg(package).output()?;
    ensure!(output.status.success(), "lintian ended with {}", output.status);
    Ok(count(&String::from_utf8_lossy(&output.stdout)))
}

fn count(said: &str) -> u64 {
    said.lines().filter(|line| line.starts_with("E: ")).count() as u64
}

/// A package with what Debian's policy forbids.
fn wrong(folder: &Path) -> anyhow::Result<PathBuf> {
    let (files, package) = (folder.join("wrong"), folder.join("wrong.deb"));
    fs::create_dir_all(files.join("DEBIAN"))?;
    fs::create_dir_all(files.join("usr/local/bin"))?;
    let control = "Package: wrong\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: wrong\n";
    fs::write(files.join("DEBIAN/control"), control)?;
    command::run(Command::new("dpkg-deb").args(["-Znone", "--build"]).arg(&files).arg(&package))?;
    Ok(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_and_warnings_are_not() {
        let said = "E: polder: no-copyright-file\nW: polder: odd [E: not one]\nE: polder: dir-in-usr-local\n";
        assert_eq!((count(said), count("")), (2, 0));
    }

    #[test]
    fn a_working_directory_in_the_tree_is_found() {
        let tree = Tree::here().expect("tests run in the tree");
        assert!(tree.0.join("scripts/build-reproducible").is_file());
    }
}
