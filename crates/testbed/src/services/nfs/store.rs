//! Storage of the server: files by handle.

use nfs3_types::nfs3::{fattr3, nfs_fh3, nfsstat3};
use nfs3_types::xdr_codec::Opaque;

/// Bytes of a handle.
pub(super) const HANDLE_BYTES: usize = 12;

/// The name of a file that clients get: opaque to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub [u8; HANDLE_BYTES]);

impl Handle {
    pub(super) fn to_nfs(self) -> nfs_fh3 {
        nfs_fh3 { data: Opaque::owned(self.0.to_vec()) }
    }
}

/// Handle and attributes of a name.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its handle.
    pub handle: Handle,
    /// Its attributes.
    pub attributes: fattr3,
    /// Attributes of the directory that it is in.
    pub directory: fattr3,
}

/// Result of a read.
#[derive(Clone, Debug)]
pub struct Read {
    /// Number of bytes read.
    pub bytes: usize,
    /// True if the file's last byte is among them, or before them.
    pub at_end: bool,
    /// The file's attributes.
    pub attributes: fattr3,
}

/// Files that can be read. Handles come from clients: anything may be in them.
pub trait Store {
    /// The handle of the directory that is served.
    fn root(&mut self) -> Handle;

    /// Attributes of a file.
    ///
    /// # Errors
    /// The status that NFS has for it.
    fn attributes(&mut self, object: &[u8]) -> Result<fattr3, nfsstat3>;

    /// Looks `name` up in a directory.
    ///
    /// # Errors
    /// The status that NFS has for it.
    fn lookup(&mut self, directory: &[u8], name: &[u8]) -> Result<Found, nfsstat3>;

    /// Reads from a file, as much as there is and as `into` takes.
    ///
    /// # Errors
    /// The status that NFS has for it.
    fn read(&mut self, file: &[u8], offset: u64, into: &mut [u8]) -> Result<Read, nfsstat3>;
}
