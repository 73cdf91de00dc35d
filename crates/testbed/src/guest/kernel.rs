//! The guest's kernel: an uncompressed image and its modules.

use super::architecture::Architecture;
use anyhow::{Context as _, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The folder, unless it is named.
const FOLDER: &str = "/var/cache/polder/guest-kernel";
/// The variable that names it.
const VARIABLE: &str = "POLDER_GUEST_KERNEL";

/// A kernel that was fetched.
#[derive(Clone, Debug)]
pub struct Kernel {
    image: PathBuf,
    modules: BTreeMap<String, PathBuf>,
    /// Modules that are a part of the image.
    built_in: BTreeSet<String>,
    version: String,
    /// Flavour of Debian's kernels, such as `arm64-16k`; empty for the machine's own.
    flavour: String,
}

impl Kernel {
    /// Looks for the kernel of the machine's own Debian.
    ///
    /// # Errors
    /// When it is not there; the message says how to fetch it.
    pub fn find() -> anyhow::Result<Self> {
        Self::look("", "", "scripts/guest-kernel")
    }

    /// Looks for the kernel of another processor or page size: `arm64`, or `arm64-16k`, which Debian 13 has.
    ///
    /// # Errors
    /// When it is not there; the message says how to fetch it.
    pub fn of_flavour(suite: Option<&str>, flavour: &str) -> anyhow::Result<Self> {
        let named = suite.map_or_else(String::new, |suite| format!("--suite {suite} "));
        let suite = suite.map_or_else(String::new, |suite| format!("-{suite}"));
        let script = format!("scripts/guest-kernel {named}--flavour {flavour}");
        Self::look(&format!("{suite}-{flavour}"), flavour, &script)
    }

    /// Looks for the kernel of another suite of Debian, such as `bookworm-backports`.
    ///
    /// # Errors
    /// When it is not there; the message says how to fetch it.
    pub fn of_suite(suite: &str) -> anyhow::Result<Self> {
        Self::look(&format!("-{suite}"), "", &format!("scripts/guest-kernel --suite {suite}"))
    }

    /// Looks in the folder whose name ends with `suffix`.
    fn look(suffix: &str, flavour: &str, script: &str) -> anyhow::Result<Self> {
        let mut folder = std::env::var_os(VARIABLE).unwrap_or_else(|| FOLDER.into());
        folder.push(suffix);
        let folder = PathBuf::from(folder);
        let image = folder.join("vmlinux");
        ensure!(
            image.is_file(),
            "there is no guest kernel in {}: run {script} as root, or name the folder of the first in {VARIABLE}",
            folder.display()
        );
        let mut modules = BTreeMap::new();
        collect(&folder.join("modules"), &mut modules)?;
        let version = std::fs::read_to_string(folder.join("version")).unwrap_or_default().trim().to_owned();
        let built_in = std::fs::read_to_string(folder.join("built-in")).unwrap_or_default();
        let built_in = built_in.lines().filter_map(|line| Path::new(line).file_stem());
        let built_in = built_in.map(|stem| stem.to_string_lossy().replace('-', "_")).collect();
        Ok(Self { image, modules, built_in, version, flavour: flavour.to_owned() })
    }

    /// The processor that it is for.
    pub fn architecture(&self) -> Architecture {
        Architecture::of_flavour(&self.flavour)
    }

    /// Flavour of Debian's kernels, such as `arm64-16k`; empty for the machine's own.
    pub(super) fn flavour(&self) -> &str {
        &self.flavour
    }

    /// The uncompressed image.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// The package it came from.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The modules of those names and all that they need, in the order in which they can be loaded.
    ///
    /// # Errors
    /// When one is missing.
    pub fn with_dependencies(&self, names: &[&str]) -> anyhow::Result<Vec<(String, PathBuf)>> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        for name in names {
            self.visit(name, &mut seen, &mut order)?;
        }
        Ok(order)
    }

    fn visit(
        &self,
        name: &str,
        seen: &mut BTreeSet<String>,
        order: &mut Vec<(String, PathBuf)>,
    ) -> anyhow::Result<()> {
        let name = name.replace('-', "_");
        if self.built_in.contains(&name) || !seen.insert(name.clone()) {
            return Ok(());
        }
        let path = self.modules.get(&name);
        let path = path.with_context(|| {
            format!("the guest kernel has no module {name}; run scripts/guest-kernel again")
        })?;
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        for needed in needs(&bytes) {
            self.visit(&needed, seen, order)?;
        }
        order.push((name, path.clone()));
        Ok(())
    }
}

/// All modules below a folder, by name.
fn collect(folder: &Path, modules: &mut BTreeMap<String, PathBuf>) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, modules)?;
        } else if let Some(stem) = path.file_stem().filter(|_| path.extension().is_some_and(|e| e == "ko")) {
            modules.insert(stem.to_string_lossy().replace('-', "_"), path);
        }
    }
    Ok(())
}

/// Names of the modules that a module depends on, from its `.modinfo` section.
fn needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let rest = &module[at + KEY.len()..];
    let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
    let text = String::from_utf8_lossy(&rest[..end]);
    text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_read_from_the_module() {
        assert_eq!(needs(b"x\0license=GPL\0depends=usbcore,libphy\0name=y\0"), ["usbcore", "libphy"]);
        assert!(needs(b"x\0depends=\0name=y").is_empty() && needs(b"").is_empty());
    }
}
