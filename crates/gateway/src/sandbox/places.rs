//! Files and directories that control threads may open (landlock), with reasons. Other roles may open none.

use super::role::Role;
use crate::device;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, PathFdError,
    RestrictionStatus, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus,
    Scope, make_bitflags,
};
use polder_devices::af_xdp;
use polder_devices::pci::vfio;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// A file, or a directory with everything below it.
#[derive(Clone, Copy, Debug)]
pub struct PathRule {
    /// Path of the place.
    pub path: &'static str,
    /// Kind of access.
    pub access: Reach,
    /// Reason why the gateway needs the place.
    pub reason: &'static str,
}

/// Kind of access to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Reading files and listing directories.
    Read,
    /// Reading, writing and ioctl on devices.
    Device,
    /// Pinning and unpinning BPF objects.
    Pins,
    /// Creating, writing, reading and removing files, and creating directories.
    Notes,
}

/// Places of the control threads of every gateway.
pub const PLACES: &[PathRule] = &[
    PathRule {
        path: "/proc",
        access: Reach::Read,
        reason: "threads, neighbours, routes, settings of the network",
    },
    PathRule { path: "/sys", access: Reach::Read, reason: "USB and PCI devices, members of bridges, CPUs" },
    PathRule {
        path: "/dev/net/tun",
        access: Reach::Device,
        reason: "TAPs of a reload, and TAPs that are opened again",
    },
    PathRule {
        path: af_xdp::OFFLOAD_NOTES,
        access: Reach::Notes,
        reason: "offloads that are switched off while a port is open",
    },
    PathRule { path: device::LOCKS, access: Reach::Notes, reason: "locks of interfaces that come later" },
    PathRule { path: "/dev/bus/usb", access: Reach::Device, reason: "adapters of this machine" },
    PathRule { path: vfio::DIRECTORY, access: Reach::Device, reason: "PCI devices of this machine" },
    PathRule { path: "/dev/null", access: Reach::Device, reason: "the C library" },
    PathRule { path: "/etc/hosts", access: Reach::Read, reason: "names of USB/IP servers" },
    PathRule { path: "/etc/host.conf", access: Reach::Read, reason: "names of USB/IP servers" },
    PathRule { path: "/etc/gai.conf", access: Reach::Read, reason: "names of USB/IP servers" },
    PathRule { path: "/etc/nsswitch.conf", access: Reach::Read, reason: "names of USB/IP servers" },
    PathRule { path: "/etc/resolv.conf", access: Reach::Read, reason: "names of USB/IP servers" },
    PathRule { path: "/run/systemd/resolve", access: Reach::Read, reason: "what /etc/resolv.conf leads to" },
    PathRule { path: "/run/NetworkManager", access: Reach::Read, reason: "what /etc/resolv.conf leads to" },
    PathRule { path: "/run/resolvconf", access: Reach::Read, reason: "what /etc/resolv.conf leads to" },
];

/// Places of a single gateway.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// Directories of the configuration, for reloads.
    pub(super) configuration: Vec<PathBuf>,
    /// Directories of UNIX sockets, which are removed at the end, and where a lost thread's note is written.
    pub(super) sockets: Vec<PathBuf>,
    /// BPF file system, where pins keep interfaces closed.
    pub(super) pins: Option<OwnedFd>,
}

impl Own {
    /// Places of the gateway with the configuration file `path`.
    pub(super) fn new<'p>(
        path: &Path,
        sockets: impl Iterator<Item = &'p Path>,
        pins: Option<OwnedFd>,
    ) -> Self {
        // Directories, because editors replace the file.
        let directory = |path: PathBuf| path.parent().map(Path::to_owned);
        let real = std::fs::canonicalize(path).ok();
        let configuration = [Some(path.to_owned()), real].into_iter().flatten().filter_map(directory);
        let sockets = sockets.filter_map(Path::parent).map(Path::to_owned).collect();
        Self { configuration: configuration.collect(), sockets, pins }
    }
}

/// Restricts the calling thread to the places of its role. Returns the landlock version.
///
/// # Errors
/// When the kernel has no landlock, or refuses.
pub(super) fn confine(role: Role, own: &Own) -> Result<String, String> {
    let status = restrict(role, own).map_err(|error| error.to_string())?;
    let version = match status.landlock {
        LandlockStatus::NotImplemented => {
            return Err("the kernel has no landlock (Linux 5.13 or newer)".to_owned());
        }
        LandlockStatus::NotEnabled => return Err("not among `lsm=` of the kernel's command line".to_owned()),
        LandlockStatus::Available { effective_abi, .. } => effective_abi as i32,
    };
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => format!("version {version}"),
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => {
            format!("version {version}, which cannot restrict everything that Polder restricts")
        }
    })
}

fn restrict(role: Role, own: &Own) -> Result<RestrictionStatus, RulesetError> {
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::Signal)?;
    if role != Role::Control {
        ruleset = ruleset.handle_access(AccessNet::ConnectTcp)?.scope(Scope::AbstractUnixSocket)?;
    }
    let mut created = ruleset.create()?;
    if role == Role::Control {
        created = created.add_rules(rules(own))?;
    }
    created.restrict_self()
}

/// Rules of places that exist now; others stay forbidden, except inside permitted directories.
fn rules(own: &Own) -> impl Iterator<Item = Result<PathBeneath<OwnedFd>, RulesetError>> {
    let opened = |path: &Path| -> Option<OwnedFd> {
        let opened: Result<PathFd, PathFdError> = PathFd::new(path);
        opened.ok()?.as_fd().try_clone_to_owned().ok()
    };
    let fixed = PLACES.iter().filter_map(move |place| Some((opened(Path::new(place.path))?, place.access)));
    let read = own.configuration.iter().filter_map(move |path| Some((opened(path)?, Reach::Read)));
    let notes = own.sockets.iter().filter_map(move |path| Some((opened(path)?, Reach::Notes)));
    let pins = own.pins.iter().filter_map(|pins| Some((pins.try_clone().ok()?, Reach::Pins)));
    fixed.chain(read).chain(notes).chain(pins).map(|(file, access)| {
        // Rights that only directories have are refused for a file.
        let directory = rustix::fs::fstat(&file).is_ok_and(|status| {
            rustix::fs::FileType::from_raw_mode(status.st_mode) == rustix::fs::FileType::Directory
        });
        let access = if directory { access.rights() } else { access.rights() & AccessFs::from_file(KNOWN) };
        Ok(PathBeneath::new(file, access))
    })
}

impl Reach {
    fn rights(self) -> BitFlags<AccessFs> {
        match self {
            Self::Read => make_bitflags!(AccessFs::{ReadFile | ReadDir}),
            Self::Device => make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | IoctlDev}),
            Self::Pins => make_bitflags!(AccessFs::{ReadDir | MakeDir | MakeReg | RemoveFile}),
            Self::Notes => make_bitflags!(AccessFs::{
                ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeDir | RemoveFile
            }),
        }
    }
}

/// Newest landlock version whose access rights were reviewed here.
const KNOWN: ABI = ABI::V7;
