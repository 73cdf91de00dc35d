//! Directory of this machine, readable by every client of the service.
//!
//! A handle names a place in a table of files that were looked up before, and holds a keyed hash of that place, so
//! that no client gets a file by guessing. Files come into the table by LOOKUP alone: a single name, opened below a
//! directory of the table with `openat2`, which follows no link and leaves neither the directory nor its file system.
//! So what is outside cannot be named. The table holds files open: a handle means the same file for as long as the
//! process lives, and goes on meaning it when it is renamed.
//!
//! Clients have no identity: they get the rights that the mode grants to others.

use super::store::{Found, HANDLE_BYTES, Handle, Read, Store};
use nfs3_types::nfs3::{fattr3, ftype3, nfsstat3, nfstime3, specdata3};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, major, minor, open, openat2};
use rustix::io::{Errno, pread};
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Files that are known at once, each of which is held open once or twice.
const MOST_NODES: usize = 4096;
/// Bytes of a name (`NAME_MAX`).
const MOST_NAME: usize = 255;
const READ_BY_OTHERS: u32 = 0o004;
const SEARCH_BY_OTHERS: u32 = 0o001;
const ROOT: usize = 0;

/// A directory and its looked-up files.
#[derive(Debug)]
pub struct Directory {
    nodes: Vec<Node>,
    /// Places by file system and number of the file.
    places: HashMap<(u64, u64), usize>,
    /// Maximum number of known files.
    most: usize,
    key: RandomState,
}

/// A file that is known.
#[derive(Debug)]
struct Node {
    /// `O_PATH` descriptor of the file; not opened for reading.
    place: OwnedFd,
    /// Opened for reading: regular files that everybody may read.
    content: Option<OwnedFd>,
    /// The directory in which it was found first.
    parent: usize,
}

impl Directory {
    /// Serves `path`.
    ///
    /// # Errors
    /// When it is not a directory, or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let place = open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&place)?;
        let root = Node { place, content: None, parent: ROOT };
        let places = HashMap::from([(identity(&stat), ROOT)]);
        Ok(Self { nodes: vec![root], places, most: MOST_NODES, key: RandomState::new() })
    }

    /// The same with at most `most` known files, the directory itself included.
    #[must_use]
    pub fn with_room_for(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Number of files that are known, the directory itself included.
    pub fn known(&self) -> usize {
        self.nodes.len()
    }

    fn handle(&self, place: usize) -> Handle {
        let number = u32::try_from(place).unwrap_or(u32::MAX);
        let mut bytes = [0; HANDLE_BYTES];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        bytes[4..].copy_from_slice(&self.key.hash_one(number).to_be_bytes());
        Handle(bytes)
    }

    /// The place that a handle names. One that was made by another process is stale.
    fn place(&self, handle: &[u8]) -> Result<usize, nfsstat3> {
        let bytes = handle.first_chunk::<HANDLE_BYTES>().filter(|_| handle.len() == HANDLE_BYTES);
        let &[a, b, c, d, ..] = bytes.ok_or(nfsstat3::NFS3ERR_BADHANDLE)?;
        let place = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        let known = place < self.nodes.len() && self.handle(place).0 == handle;
        if known { Ok(place) } else { Err(nfsstat3::NFS3ERR_STALE) }
    }

    fn stat(&self, place: usize) -> Result<Stat, nfsstat3> {
        fstat(&self.nodes[place].place).map_err(status)
    }

    /// Opens `name` in the directory at `parent`, unless it is known.
    fn find(&mut self, parent: usize, name: &[u8]) -> Result<usize, nfsstat3> {
        let place = open_below(&self.nodes[parent].place, name, OFlags::PATH).map_err(status)?;
        let stat = fstat(&place).map_err(status)?;
        if let Some(&known) = self.places.get(&identity(&stat)) {
            return Ok(known);
        }
        if self.nodes.len() >= self.most {
            return Err(nfsstat3::NFS3ERR_SERVERFAULT);
        }
        let content = if kind(&stat) == FileType::RegularFile && stat.st_mode & READ_BY_OTHERS != 0 {
            self.content(parent, name, &stat)?
        } else {
            None
        };
        self.nodes.push(Node { place, content, parent });
        self.places.insert(identity(&stat), self.nodes.len() - 1);
        Ok(self.nodes.len() - 1)
    }

    /// The same file, opened for reading; `None` when the process itself may not.
    fn content(&self, parent: usize, name: &[u8], stat: &Stat) -> Result<Option<OwnedFd>, nfsstat3> {
        // Whatever has taken the name meanwhile is not waited for, and not kept.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        match open_below(&self.nodes[parent].place, name, flags) {
            Ok(file) if identity(&fstat(&file).map_err(status)?) == identity(stat) => Ok(Some(file)),
            Ok(_) => Err(nfsstat3::NFS3ERR_NOENT),
            Err(Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(error) => Err(status(error)),
        }
    }
}

impl Store for Directory {
    fn root(&mut self) -> Handle {
        self.handle(ROOT)
    }

    fn attributes(&mut self, object: &[u8]) -> Result<fattr3, nfsstat3> {
        let place = self.place(object)?;
        Ok(attributes(&self.stat(place)?))
    }

    fn lookup(&mut self, directory: &[u8], name: &[u8]) -> Result<Found, nfsstat3> {
        let parent = self.place(directory)?;
        let stat = self.stat(parent)?;
        if kind(&stat) != FileType::Directory {
            return Err(nfsstat3::NFS3ERR_NOTDIR);
        }
        if stat.st_mode & SEARCH_BY_OTHERS == 0 {
            return Err(nfsstat3::NFS3ERR_ACCES);
        }
        let place = match name {
            [] => return Err(nfsstat3::NFS3ERR_NOENT),
            name if name.len() > MOST_NAME => return Err(nfsstat3::NFS3ERR_NAMETOOLONG),
            name if name.iter().any(|byte| matches!(byte, b'/' | 0)) => {
                return Err(nfsstat3::NFS3ERR_ACCES);
            }
            b"." => parent,
            // Never the kernel's: the root is its own parent.
            b".." => self.nodes[parent].parent,
            name => self.find(parent, name)?,
        };
        let found = self.stat(place)?;
        Ok(Found { handle: self.handle(place), attributes: attributes(&found), directory: attributes(&stat) })
    }

    fn read(&mut self, file: &[u8], offset: u64, into: &mut [u8]) -> Result<Read, nfsstat3> {
        let place = self.place(file)?;
        let stat = self.stat(place)?;
        if kind(&stat) == FileType::Directory {
            return Err(nfsstat3::NFS3ERR_ISDIR);
        }
        if kind(&stat) != FileType::RegularFile {
            return Err(nfsstat3::NFS3ERR_INVAL);
        }
        let content = self.nodes[place].content.as_ref().filter(|_| stat.st_mode & READ_BY_OTHERS != 0);
        let content = content.ok_or(nfsstat3::NFS3ERR_ACCES)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        // The kernel does not know offsets beyond 2^63, and no file reaches that far.
        let bytes = if offset < size { pread(content, &mut *into, offset).map_err(status)? } else { 0 };
        let at_end = offset.saturating_add(bytes as u64) >= size;
        Ok(Read { bytes, at_end, attributes: attributes(&stat) })
    }
}

/// A directory that outlives the service that was made for it.
#[derive(Clone, Debug)]
pub struct SharedDirectory(Arc<Mutex<Directory>>);

impl SharedDirectory {
    /// One that can be given to several services, one after the other.
    pub fn new(directory: Directory) -> Self {
        Self(Arc::new(Mutex::new(directory)))
    }

    /// Runs `work` on it. The table is whole after a panic: missing files are looked up again.
    fn with<T>(&self, work: impl FnOnce(&mut Directory) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Store for SharedDirectory {
    fn root(&mut self) -> Handle {
        self.with(Directory::root)
    }

    fn attributes(&mut self, object: &[u8]) -> Result<fattr3, nfsstat3> {
        self.with(|directory| directory.attributes(object))
    }

    fn lookup(&mut self, directory: &[u8], name: &[u8]) -> Result<Found, nfsstat3> {
        self.with(|files| files.lookup(directory, name))
    }

    fn read(&mut self, file: &[u8], offset: u64, into: &mut [u8]) -> Result<Read, nfsstat3> {
        self.with(|directory| directory.read(file, offset, into))
    }
}

/// Opens a single name. Links are not followed, so a link is opened itself or not at all.
fn open_below(directory: &OwnedFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(directory.as_fd(), name, flags, Mode::empty(), resolve)
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn attributes(stat: &Stat) -> fattr3 {
    let type_ = match kind(stat) {
        FileType::Directory => ftype3::NF3DIR,
        FileType::Symlink => ftype3::NF3LNK,
        FileType::BlockDevice => ftype3::NF3BLK,
        FileType::CharacterDevice => ftype3::NF3CHR,
        FileType::Socket => ftype3::NF3SOCK,
        FileType::Fifo => ftype3::NF3FIFO,
        FileType::RegularFile | FileType::Unknown => ftype3::NF3REG,
    };
    let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
    fattr3 {
        type_,
        mode: stat.st_mode & 0o7777,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: unsigned(stat.st_size),
        used: unsigned(stat.st_blocks) * 512,
        rdev: specdata3 { specdata1: major(stat.st_rdev), specdata2: minor(stat.st_rdev) },
        fsid: stat.st_dev,
        fileid: stat.st_ino,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
    }
}

/// NFS has no time before 1970, and none after 2106.
fn time(seconds: i64, nanoseconds: u64) -> nfstime3 {
    let seconds = u32::try_from(seconds.max(0)).unwrap_or(u32::MAX);
    nfstime3 { seconds, nseconds: u32::try_from(nanoseconds).unwrap_or(0) }
}

fn status(error: Errno) -> nfsstat3 {
    match error {
        Errno::NOENT => nfsstat3::NFS3ERR_NOENT,
        // What the flags of `openat2` forbid: a link, a mount point, a way out.
        Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::XDEV => nfsstat3::NFS3ERR_ACCES,
        Errno::NOTDIR => nfsstat3::NFS3ERR_NOTDIR,
        Errno::NAMETOOLONG => nfsstat3::NFS3ERR_NAMETOOLONG,
        Errno::STALE => nfsstat3::NFS3ERR_STALE,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => nfsstat3::NFS3ERR_SERVERFAULT,
        _ => nfsstat3::NFS3ERR_IO,
    }
}
