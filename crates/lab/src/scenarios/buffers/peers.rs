//! The programs beside: DPDK's pools and three mallocs. Two small programs in C are compiled here, as
//! their users would, and run where Polder's own loops run.

use anyhow::{Context as _, anyhow, bail};
use polder_testbed::command;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Nanoseconds by the name that a program prints.
pub(super) type Figures = BTreeMap<String, f64>;

/// Allocator that is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Mempools and mbufs.
    Dpdk,
    /// A malloc, and the library that stands in for glibc's.
    Malloc(&'static str, Option<&'static str>),
}

/// All peers.
pub(super) const PEERS: [Peer; 4] = [
    Peer::Dpdk,
    Peer::Malloc("glibc", None),
    Peer::Malloc("jemalloc", Some("libjemalloc.so.2")),
    Peer::Malloc("mimalloc", Some("libmimalloc.so.2")),
];

impl Peer {
    /// Endings of the rows that it fills.
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Dpdk => &["dpdk_mempool", "dpdk_mbuf"],
            Self::Malloc("glibc", _) => &["glibc"],
            Self::Malloc("jemalloc", _) => &["jemalloc"],
            Self::Malloc(..) => &["mimalloc"],
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Dpdk => "libdpdk-dev",
            Self::Malloc("jemalloc", _) => "libjemalloc2",
            Self::Malloc("mimalloc", _) => "libmimalloc2.0",
            Self::Malloc(..) => "libc6-dev",
        }
    }
}

/// The programs, compiled; removed with it.
#[derive(Debug)]
pub(super) struct Programs {
    directory: PathBuf,
}

impl Programs {
    pub(super) fn new() -> anyhow::Result<Self> {
        let directory = std::env::temp_dir().join(format!("pdl-buffers-{}", std::process::id()));
        fs::create_dir_all(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
        for (name, text) in SOURCES {
            fs::write(directory.join(name), text)?;
        }
        Ok(Self { directory })
    }

    /// Makes the program of a peer ready to run.
    ///
    /// # Errors
    /// The missing library or compiler, with the package to install.
    pub(super) fn prepare(&self, peer: Peer) -> anyhow::Result<()> {
        match peer {
            Peer::Dpdk => self.compile("dpdk", &flags("libdpdk").with_context(|| remedy(peer))?),
            Peer::Malloc(_, library) => {
                if library.is_some_and(|library| find(library).is_none()) {
                    bail!(remedy(peer));
                }
                self.compile("malloc", &["-pthread".to_owned()])
            }
        }
    }

    fn compile(&self, name: &str, flags: &[String]) -> anyhow::Result<()> {
        let source = self.directory.join(name).with_extension("c");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O3"]).arg(source).arg("-o").arg(self.program(name));
        command::run(compiler.args(flags).arg("-march=native")).map(drop)
    }

    fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Runs a peer's program; `what` is a further argument.
    ///
    /// # Errors
    /// When it fails, or says something that is no figure.
    pub(super) fn run(
        &self,
        peer: Peer,
        (core, other): (usize, usize),
        rounds: usize,
        what: &[&str],
    ) -> anyhow::Result<Figures> {
        let name = if peer == Peer::Dpdk { "dpdk" } else { "malloc" };
        let mut program = Command::new(self.program(name));
        program.args([core, other, rounds].map(|number| number.to_string())).args(what);
        if let Peer::Malloc(_, Some(library)) = peer {
            program.env("LD_PRELOAD", find(library).with_context(|| remedy(peer))?);
        }
        let said = command::run(&mut program)?;
        figures(&said)
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        // What stays is a directory among temporary files.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

const SOURCES: [(&str, &str); 3] = [
    ("common.h", include_str!("common.h")),
    ("dpdk.c", include_str!("dpdk.c")),
    ("malloc.c", include_str!("malloc.c")),
];

/// Lines `NAME VALUE`; others are what a library says by itself.
fn figures(said: &str) -> anyhow::Result<Figures> {
    let figure = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    let figures: Figures = said.lines().filter_map(figure).collect();
    if figures.is_empty() { Err(anyhow!("no figure in what it said: {said}")) } else { Ok(figures) }
}

fn remedy(peer: Peer) -> String {
    let name = peer.names()[0].split('_').next().unwrap_or_default();
    format!("{name} is not installed: `apt-get install {}`", peer.package())
}

/// Flags by which a program is compiled and linked with a library.
fn flags(library: &str) -> anyhow::Result<Vec<String>> {
    let said = command::run(Command::new("pkg-config").args(["--cflags", "--libs", library]))?;
    Ok(said.split_whitespace().map(str::to_owned).collect())
}

/// Path of a library in the loader's directories.
fn find(library: &str) -> Option<PathBuf> {
    let architecture = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let directories = [architecture.as_str(), "/usr/lib64", "/usr/lib", "/usr/local/lib"];
    directories.iter().map(|directory| Path::new(directory).join(library)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_beside_chatter() {
        let figures = figures("EAL: Detected 2 lcores\nget_put.single.dpdk_mbuf 7.250\n").unwrap();
        assert_eq!(figures.get("get_put.single.dpdk_mbuf"), Some(&7.25));
        assert!(super::figures("nothing at all").is_err());
    }
}
