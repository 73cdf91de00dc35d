//! A pinned BPF link, which keeps an interface closed while no process runs.
//!
//! A pinned link survives the process, also if it is killed. The sockets do not, so the program finds none
//! and drops the packets. The next process takes the link over and replaces its program in one step.
//!
//! The pin's name is that of the interface. Outside the first process's network namespace the namespace's
//! number is added, because all namespaces share the file system.

use super::error::PinError;
use crate::bpf::sys;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The hook at which a link attaches a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkKind {
    /// XDP.
    Xdp,
    /// TCX.
    Tcx,
}

impl LinkKind {
    /// Returns kind and interface index of a link from the kernel's `bpf_link_info`; `None` and 0 for a link
    /// of another kind.
    pub(super) fn of(info: &[u8; 80]) -> (Option<Self>, u32) {
        let number = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
        match number(0) {
            LINK_OF_XDP => (Some(Self::Xdp), number(LINK_INTERFACE)),
            LINK_OF_TCX => (Some(Self::Tcx), number(LINK_INTERFACE)),
            _ => (None, 0),
        }
    }
}

/// A link that was found pinned.
#[derive(Debug)]
pub(super) struct Pinned {
    pub(super) link: OwnedFd,
    /// The index of its interface; 0 if the interface is gone.
    pub(super) interface: u32,
    /// The hook of the link, if known.
    pub(super) kind: Option<LinkKind>,
    path: PathBuf,
}

/// The path of one interface's link in the BPF file system.
#[derive(Clone, Debug)]
pub(crate) struct PinnedLink {
    interface: String,
    path: PathBuf,
    /// The path by which this process reaches it.
    reached: PathBuf,
}

impl PinnedLink {
    /// Returns the path of the link of `interface` in the calling thread's namespace.
    ///
    /// # Errors
    /// If no BPF file system is mounted that outlives the process.
    pub(super) fn of(interface: &str) -> Result<Self, PinError> {
        let root = root().ok_or_else(|| PinError::NoFileSystem { interface: interface.to_owned() })?;
        let name = Path::new("polder").join(file_name(interface));
        let (path, reached) = (root.path.join(&name), root.reached.join(&name));
        Ok(Self { interface: interface.to_owned(), path, reached })
    }

    /// Returns the path, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Like [`PinnedLink::of`], but mounts the BPF file system where none is, as bpftool(8) and ip(8) do.
    pub(super) fn make(interface: &str) -> Result<Self, PinError> {
        Self::of(interface).or_else(|error| {
            if !mounts_outlive_us() || sys::mount_bpf(HERE).is_err() {
                return Err(error);
            }
            Self::of(interface)
        })
    }

    /// Returns the link that is pinned here.
    pub(super) fn find(&self) -> Result<Option<Pinned>, PinError> {
        let link = match sys::open_pinned(&c_path(&self.reached)) {
            Ok(link) => link,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.error("open", errno)),
        };
        let info = sys::object_info(link.as_fd()).map_err(|errno| self.error("read", errno))?;
        let (kind, interface) = LinkKind::of(&info);
        Ok(Some(Pinned { link, interface, kind, path: self.reached.clone() }))
    }

    /// Pins `link` here.
    pub(super) fn pin(&self, link: &OwnedFd, (interface, kind): (u32, LinkKind)) -> Result<Pinned, PinError> {
        if let Some(directory) = self.reached.parent()
            && let Err(error) = std::fs::create_dir(directory)
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            return Err(self.error("create the directory of", errno));
        }
        sys::pin(link.as_fd(), &c_path(&self.reached)).map_err(|errno| self.error("pin", errno))?;
        let link = link.try_clone();
        let link =
            link.map_err(|error| self.error("keep", Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        Ok(Pinned { link, interface, kind: Some(kind), path: self.reached.clone() })
    }

    pub(super) fn error(&self, step: &'static str, errno: Errno) -> PinError {
        let path = self.path.display().to_string();
        PinError::Path { interface: self.interface.clone(), step, path, errno }
    }
}

impl Pinned {
    /// Removes the pin; the link lives on while it is open.
    pub(super) fn unpin(&self) -> Result<(), Errno> {
        std::fs::remove_file(&self.path).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

/// True if a pinned link keeps the interface closed, or will when its process ends.
pub fn is_left_closed(interface: &str) -> bool {
    PinnedLink::of(interface).and_then(|place| place.find()).is_ok_and(|pinned| pinned.is_some())
}

/// Facts about the BPF file system, found before the process gave up access to other processes.
#[derive(Debug)]
struct Prepared {
    root: Option<Root>,
    /// The network namespace number of the first process.
    first_namespace: Option<u64>,
}

/// The BPF file system in which links are pinned.
#[derive(Clone, Debug)]
struct Root {
    path: PathBuf,
    /// The path by which this process reaches it.
    reached: PathBuf,
}

static PREPARED: OnceLock<Prepared> = OnceLock::new();

/// Finds the directory of pinned links once and for all, before the process gives up access to other
/// processes. With `mount`, mounts the BPF file system where none is. Returns the directory that contains the
/// pinned links.
pub fn prepare(mount: bool) -> Option<OwnedFd> {
    if mount && root().is_none() && mounts_outlive_us() {
        // Opening a port reports a missing file system.
        let _ = sys::mount_bpf(HERE);
    }
    let found = root();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |root: &Root| rustix::fs::open(&root.path, flags, Mode::empty()).ok();
    let directory = found.as_ref().and_then(open);
    let lasting = directory.as_ref().and_then(|directory| directory.try_clone().ok());
    // The descriptor stays open for the life of the process, since its number is part of the path.
    let number = lasting.map(IntoRawFd::into_raw_fd);
    let root = found.zip(number).map(|(root, number)| Root {
        reached: if root.path == path_of(HERE) {
            root.path.clone()
        } else {
            format!("/proc/self/fd/{number}").into()
        },
        ..root
    });
    let _ = PREPARED.set(Prepared { root, first_namespace: namespace_number(OF_FIRST_NAMESPACE) });
    directory
}

/// Returns the BPF file system that survives this process and its mount namespace.
fn root() -> Option<Root> {
    if let Some(prepared) = PREPARED.get() {
        return prepared.root.clone();
    }
    find_root().map(|path| Root { reached: path.clone(), path })
}

fn path_of(path: &CStr) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path.to_bytes()))
}

fn find_root() -> Option<PathBuf> {
    let path = |path| Some(path_of(path));
    let (here, first) = (bpf_device(HERE), bpf_device(OF_FIRST_PROCESS));
    match (here, first) {
        // `ip netns exec` hides /sys/fs/bpf behind a new /sys; the first process's is used.
        (Ok(None) | Err(_), Ok(Some(_))) => path(OF_FIRST_PROCESS),
        (Ok(Some(here)), Ok(Some(first))) if here != first => path(OF_FIRST_PROCESS),
        (Ok(Some(_)), Ok(Some(_))) => path(HERE),
        // A confined process cannot see the first process's file system, and was given this.
        (Ok(Some(_)), Ok(None) | Err(_)) if mounts_outlive_us() => path(HERE),
        _ => None,
    }
}

/// True if another process lives in our mount namespace and keeps its mounts.
fn mounts_outlive_us() -> bool {
    let parent = rustix::process::getppid().map_or(1, |parent| parent.as_raw_nonzero().get());
    let mounts = |process: &str| std::fs::metadata(format!("/proc/{process}/ns/mnt")).map(|file| file.ino());
    let own = mounts("self").ok();
    own.is_some() && ["1", &parent.to_string()].iter().any(|process| mounts(process).ok() == own)
}

/// Returns the device number of the BPF file system at `path`; `None` for another file system.
fn bpf_device(path: &CStr) -> Result<Option<u64>, Errno> {
    let kind = rustix::fs::statfs(path)?.f_type;
    if u64::try_from(kind).ok() != Some(BPF_MAGIC) {
        return Ok(None);
    }
    Ok(Some(rustix::fs::stat(path)?.st_dev))
}

/// Returns the name of an interface's link. Dots are reserved in the BPF file system.
pub(super) fn file_name(interface: &str) -> String {
    let name = interface.replace('%', "%25").replace('.', "%2e");
    let first = match PREPARED.get() {
        Some(prepared) => prepared.first_namespace,
        None => namespace_number(OF_FIRST_NAMESPACE),
    };
    match (namespace_number("/proc/thread-self/ns/net"), first) {
        (Some(own), first) if first != Some(own) => format!("{name}@{own}"),
        _ => name,
    }
}

fn namespace_number(path: &str) -> Option<u64> {
    std::fs::metadata(path).map(|metadata| metadata.ino()).ok()
}

fn c_path(path: &Path) -> CString {
    CString::new(OsStr::as_bytes(path.as_os_str())).unwrap_or_default()
}

const HERE: &CStr = c"/sys/fs/bpf";
const OF_FIRST_NAMESPACE: &str = "/proc/1/ns/net";
const OF_FIRST_PROCESS: &CStr = c"/proc/1/root/sys/fs/bpf";
/// `BPF_FS_MAGIC` of linux/magic.h.
const BPF_MAGIC: u64 = 0xcafe_4a11;
/// `BPF_LINK_TYPE_*`, and where the interface stands in `struct bpf_link_info`.
const LINK_OF_XDP: u32 = 6;
const LINK_OF_TCX: u32 = 11;
const LINK_INTERFACE: usize = 16;
