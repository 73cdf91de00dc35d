//! NFS as a service of a given cost, and the parameters of its requests for a generator.

use super::consumer::{Maker, Service};
use super::nfs::{Counters, Directory, Handle, Nfs, SharedDirectory, Store as _};
use super::{Echo, say};
use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

/// Prefix of a line that names a file and its handle.
pub const HANDLE: &str = "handle ";
/// Number of files that are named.
const NAMED: usize = 16;

/// NFS whose requests have an additional cost.
struct Files {
    nfs: Nfs<SharedDirectory>,
    more: Echo,
}

impl Service for Files {
    fn answer(&mut self, request: &[u8], answer: &mut Vec<u8>) -> bool {
        self.more.work();
        self.nfs.respond(request, answer)
    }
}

/// Makes services of a directory, and says the handles of files in it. Handles outlive a service that has
/// panicked.
///
/// # Errors
/// When the directory cannot be served.
pub(super) fn maker(directory: &Path, more: Echo) -> anyhow::Result<Maker> {
    // Each file that is known is held open; a process that may not have more serves fewer.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let files = Directory::open(directory).with_context(|| {
        format!("cannot serve {}: it must be a directory that can be opened", directory.display())
    })?;
    let mut files = SharedDirectory::new(files);
    let root = files.root();
    tell(".", root);
    for entry in std::fs::read_dir(directory)?.flatten().take(NAMED) {
        if let Ok(found) = files.lookup(&root.0, entry.file_name().as_bytes()) {
            tell(&entry.file_name().to_string_lossy(), found.handle);
        }
    }
    let counters = Arc::<Counters>::default();
    Ok(Box::new(move || {
        let nfs = Nfs::new(files.clone(), Arc::clone(&counters));
        Box::new(Files { nfs, more }) as Box<dyn Service>
    }))
}

fn tell(name: &str, handle: Handle) {
    let hex = handle.0.map(|byte| format!("{byte:02x}")).concat();
    say(format!("{HANDLE}{hex} {name}"));
}
