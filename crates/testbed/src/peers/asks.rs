//! Requests to a service.

use crate::services::HANDLE;
use anyhow::Context as _;
use std::path::{Path, PathBuf};

/// Kind of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asks {
    /// Its own bytes, back.
    #[default]
    Echo,
    /// The same, and every second request costs [`DEAR_US`].
    Mixed,
    /// Attributes of a file (NFSv3 GETATTR).
    NfsGetattr,
    /// The first 8 KiB of a file (NFSv3 READ).
    NfsRead,
}

/// Cost of a costly request, in microseconds.
pub const DEAR_US: u32 = 50;
/// The file that requests are about.
pub const FILE: &str = "block";
/// Size of the file, and the length of a READ.
pub const FILE_BYTES: u32 = 8192;
/// Packets of a reply to READ on a network of 1500 bytes, and of 1600: its 8320 bytes and a UDP header, in
/// parts of 1480 and 1576.
const READ_PARTS: u64 = 6;
/// Programs, versions and procedures (RFC 1813), and RPC's own version.
const RPC: u32 = 2;
const NFS: (u32, u32) = (100_003, 3);
const GETATTR: u32 = 1;
const READ: u32 = 6;

impl Asks {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Echo => "udp_echo",
            Self::Mixed => "udp_echo_mixed",
            Self::NfsGetattr => "nfs_getattr",
            Self::NfsRead => "nfs_read",
        }
    }

    /// Packets of a whole answer.
    pub fn parts(self) -> u64 {
        match self {
            Self::Echo | Self::Mixed | Self::NfsGetattr => 1,
            Self::NfsRead => READ_PARTS,
        }
    }

    /// Arguments of the program that serves, with its files below `directory`.
    ///
    /// # Errors
    /// When the files cannot be made.
    pub(super) fn arguments(self, directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
        match self {
            Self::Echo => return Ok(vec!["serve".into(), "echo".into()]),
            Self::Mixed => {
                let dear = DEAR_US.to_string().into();
                return Ok(vec!["serve".into(), "echo".into(), "--every-second-us".into(), dear]);
            }
            Self::NfsGetattr | Self::NfsRead => {}
        }
        let served = directory.join("served");
        std::fs::create_dir_all(&served).with_context(|| format!("cannot make {}", served.display()))?;
        std::fs::write(served.join(FILE), vec![0x5a; FILE_BYTES as usize])?;
        // Clients get what everybody may read, whatever this process' mask is.
        for (path, mode) in [(&served, 0o755), (&served.join(FILE), 0o644)] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(path, mode)?;
        }
        Ok(vec!["serve".into(), "nfs".into(), "--directory".into(), served])
    }

    /// Payload of a request, to a service with the output `said`; `None` where the generator's own
    /// is sent.
    ///
    /// # Errors
    /// When it has not said what the file's handle is.
    pub fn request(self, said: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let handle = || {
            let lines = said.lines().filter_map(|line| line.strip_prefix(HANDLE)?.split_once(' '));
            let hex = lines.into_iter().find(|(_, name)| *name == FILE).map(|(hex, _)| hex);
            hex.and_then(from_hex).context("the service did not say the handle of its file")
        };
        Ok(match self {
            Self::Echo | Self::Mixed => None,
            Self::NfsGetattr => Some(call(GETATTR, &handle()?, &[])),
            // An offset of 0, and how much.
            Self::NfsRead => Some(call(READ, &handle()?, &[0, 0, FILE_BYTES])),
        })
    }
}

/// A call without credentials (RFC 5531): number 0, and a handle before other arguments.
fn call(procedure: u32, handle: &[u8], arguments: &[u32]) -> Vec<u8> {
    let length = u32::try_from(handle.len()).expect("a handle has at most 64 bytes");
    let head = [0, 0, RPC, NFS.0, NFS.1, procedure, 0, 0, 0, 0, length];
    let mut bytes = head.map(u32::to_be_bytes).concat();
    bytes.extend_from_slice(handle);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(arguments.iter().flat_map(|word| word.to_be_bytes()));
    bytes
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::nfs::{Counters, Directory, Nfs, Store as _};
    use std::sync::Arc;

    #[test]
    fn requests_are_answered_by_the_service_in_so_many_parts() {
        let outer = std::env::temp_dir().join(format!("polder-asks-{}", std::process::id()));
        for asks in [Asks::NfsGetattr, Asks::NfsRead] {
            let served = asks.arguments(&outer).unwrap().pop().unwrap();
            let mut directory = Directory::open(&served).unwrap();
            let root = directory.root();
            let handle = directory.lookup(&root.0, FILE.as_bytes()).unwrap().handle;
            let hex = handle.0.map(|byte| format!("{byte:02x}")).concat();
            let said = format!("{HANDLE}00 .\n{HANDLE}{hex} {FILE}\nready\n");
            let request = asks.request(&said).unwrap().unwrap();
            assert!(asks.request("ready").is_err());
            let mut answer = Vec::new();
            assert!(Nfs::new(directory, Arc::<Counters>::default()).respond(&request, &mut answer));
            assert_eq!(answer[20..28], [0; 8], "{asks:?} is accepted and carried out");
            let udp = answer.len() as u64 + 8;
            for room in [1480, 1576] {
                assert_eq!(udp.div_ceil(room), asks.parts(), "{asks:?} in parts of {room}");
            }
        }
        std::fs::remove_dir_all(outer).unwrap();
    }
}
