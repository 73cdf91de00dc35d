//! The answer to any bytes, by a reference that is written from RFC 5531 and RFC 1813 without a line of
//! the service, over files that exist nowhere.

use crate::nfs::{Counters, Found, Handle, Nfs, Read, Store};
use crate::words::{Reader, opaque, word, words};
use nfs3_types::nfs3::{fattr3, ftype3, nfsstat3, nfstime3, specdata3};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The name of a fuzz target and of its folder of inputs, and its oracle.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// Every target.
pub(crate) const TARGETS: [Target; 1] = [("nfs", nfs)];

/// Subjects of requests: the programs, and the files.
pub(crate) const NFS: u32 = 100_003;
pub(crate) const MOUNT: u32 = 100_005;
/// Handles are sequences of one letter; a file's number is its place.
pub(crate) const FILES: [(&[u8; 12], &[u8]); 3] =
    [(b"rrrrrrrrrrrr", b"."), (b"ffffffffffff", b"file"), (b"ssssssssssss", b"sub")];
/// The file's content is a count of its bytes.
pub(crate) const LENGTH: usize = 20_001;

/// Checks the answer, and that exactly one counter has moved.
///
/// # Panics
/// When the service and the reference disagree.
pub(crate) fn nfs(request: &[u8]) {
    let counters = Arc::new(Counters::default());
    let mut service = Nfs::new(Model, Arc::clone(&counters));
    let mut answer = b"before".to_vec();
    let answered = service.respond(request, &mut answer);
    let expected = reference(request);
    assert_eq!(answered, expected.is_some(), "whether {request:02x?} is answered");
    assert_eq!(&answer[..6], b"before");
    let got = &answer[6..];
    assert!(
        got == expected.as_deref().unwrap_or_default(),
        "{request:02x?}:\n{got:02x?}\nwanted\n{expected:02x?}"
    );
    let counts = [&counters.served, &counters.refused, &counters.short, &counters.not_calls];
    assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)).iter().sum::<u64>(), 1);
}

/// Three files: a directory, a file and an empty directory in it.
#[derive(Debug)]
struct Model;

fn byte(place: u64) -> u8 {
    u8::try_from(place % 251).expect("less than 251")
}

impl Model {
    fn find(handle: &[u8]) -> Result<usize, nfsstat3> {
        FILES.iter().position(|(known, _)| *known == handle).ok_or(nfsstat3::NFS3ERR_BADHANDLE)
    }

    fn attributes_of(file: usize) -> fattr3 {
        let number = u32::try_from(file).expect("few");
        let at = |seconds| nfstime3 { seconds, nseconds: number };
        fattr3 {
            type_: if file == 1 { ftype3::NF3REG } else { ftype3::NF3DIR },
            mode: 0o751,
            nlink: 1 + number,
            uid: 3,
            gid: 4,
            size: if file == 1 { LENGTH as u64 } else { 60 },
            used: 1 << 33,
            rdev: specdata3 { specdata1: 5, specdata2: 6 },
            fsid: 7 << 40,
            fileid: u64::from(number) + 1,
            atime: at(8),
            mtime: at(9),
            ctime: at(10),
        }
    }
}

impl Store for Model {
    fn root(&mut self) -> Handle {
        Handle(*FILES[0].0)
    }

    fn attributes(&mut self, object: &[u8]) -> Result<fattr3, nfsstat3> {
        Self::find(object).map(Self::attributes_of)
    }

    fn lookup(&mut self, directory: &[u8], name: &[u8]) -> Result<Found, nfsstat3> {
        match (Self::find(directory)?, FILES.iter().position(|file| file.1 == name)) {
            (1, _) => Err(nfsstat3::NFS3ERR_NOTDIR),
            (0, Some(file)) => Ok(Found {
                handle: Handle(*FILES[file].0),
                attributes: Self::attributes_of(file),
                directory: Self::attributes_of(0),
            }),
            (_, _) => Err(nfsstat3::NFS3ERR_NOENT),
        }
    }

    fn read(&mut self, file: &[u8], offset: u64, into: &mut [u8]) -> Result<Read, nfsstat3> {
        let file = Self::find(file)?;
        if file != 1 {
            return Err(nfsstat3::NFS3ERR_ISDIR);
        }
        let left = (LENGTH as u64).saturating_sub(offset);
        let bytes = into.len().min(usize::try_from(left).expect("short"));
        for (place, into) in into[..bytes].iter_mut().enumerate() {
            *into = byte(offset + place as u64);
        }
        Ok(Read { bytes, at_end: left <= bytes as u64, attributes: Self::attributes_of(file) })
    }
}

/// The answer to a request; `None` when there is none.
fn reference(request: &[u8]) -> Option<Vec<u8>> {
    let mut rest = Reader(request);
    let (xid, kind) = (rest.word()?, rest.word()?);
    if kind != 0 {
        return None;
    }
    // MSG_DENIED, RPC_MISMATCH, from 2 to 2.
    if rest.word()? != 2 {
        return Some(words(&[xid, 1, 1, 0, 2, 2]));
    }
    let (program, version, procedure) = (rest.word()?, rest.word()?, rest.word()?);
    if let Err(status) = authenticate(&mut rest) {
        return Some(words(&[xid, 1, 1, 1, status]));
    }
    // MSG_ACCEPTED, with a verifier that is none.
    let accepted = |status: u32, rest: Vec<u8>| Some([words(&[xid, 1, 0, 0, 0, status]), rest].concat());
    match (program, version) {
        (NFS | MOUNT, 3) => {}
        (NFS | MOUNT, _) => return accepted(2, words(&[3, 3])),
        _ => return accepted(1, Vec::new()),
    }
    let result = match (program, procedure) {
        (_, 0) => rest.ends().map(|()| Vec::new()),
        (NFS, 1) => getattr(rest),
        (NFS, 3) => lookup(rest),
        (NFS, 6) => read(rest),
        (MOUNT, 1) => mount(rest),
        (MOUNT, 3) => rest.opaque(1024).and_then(|_| rest.ends()).map(|()| Vec::new()),
        _ => return accepted(3, Vec::new()),
    };
    result.map_or_else(|| accepted(4, Vec::new()), |result| accepted(0, result))
}

/// Credentials and verifier; the status of AUTH_ERROR.
fn authenticate(rest: &mut Reader<'_>) -> Result<(), u32> {
    const BAD_CREDENTIAL: u32 = 1;
    const REJECTED_CREDENTIAL: u32 = 2;
    const BAD_VERIFIER: u32 = 3;
    let flavor = rest.word().ok_or(BAD_CREDENTIAL)?;
    let body = rest.opaque(400).ok_or(BAD_CREDENTIAL)?;
    match flavor {
        0 => {}
        1 => system(Reader(body)).ok_or(BAD_CREDENTIAL)?,
        _ => return Err(REJECTED_CREDENTIAL),
    }
    let flavor = rest.word().ok_or(BAD_VERIFIER)?;
    let body = rest.opaque(400).ok_or(BAD_VERIFIER)?;
    if flavor == 0 && body.is_empty() { Ok(()) } else { Err(BAD_VERIFIER) }
}

fn system(mut body: Reader<'_>) -> Option<()> {
    body.word()?;
    body.opaque(255)?;
    let _user_and_group = (body.word()?, body.word()?);
    let groups = body.word().filter(|groups| *groups <= 16)?;
    (0..groups).try_for_each(|_| body.word().map(drop))?;
    body.ends()
}

fn find(handle: &[u8]) -> Option<usize> {
    FILES.iter().position(|(known, _)| *known == handle)
}

/// `fattr3` (RFC 1813, 2.3.5).
fn attributes(file: usize) -> Vec<u8> {
    let number = u32::try_from(file).expect("few");
    let (kind, size) = if file == 1 { (1, u32::try_from(LENGTH).expect("short")) } else { (2, 60) };
    words(&[
        kind,
        0o751,
        1 + number,
        3,
        4,
        0,
        size,
        2,
        0,
        5,
        6,
        7 << 8,
        0,
        0,
        number + 1,
        8,
        number,
        9,
        number,
        10,
        number,
    ])
}

/// Attributes that may be there or not.
fn optional(file: usize) -> Vec<u8> {
    [word(1), attributes(file)].concat()
}

const BAD_HANDLE: u32 = 10_001;

fn getattr(mut rest: Reader<'_>) -> Option<Vec<u8>> {
    let handle = rest.opaque(64)?;
    rest.ends()?;
    Some(find(handle).map_or_else(|| word(BAD_HANDLE), |file| [word(0), attributes(file)].concat()))
}

fn lookup(mut rest: Reader<'_>) -> Option<Vec<u8>> {
    let (directory, name) = (rest.opaque(64)?, rest.opaque(usize::MAX)?);
    rest.ends()?;
    let failed = |status| Some(words(&[status, 0]));
    let Some(directory) = find(directory) else { return failed(BAD_HANDLE) };
    let known = FILES.iter().find(|file| file.1 == name).filter(|_| directory == 0);
    match (directory, known) {
        (1, _) => failed(20),
        (_, None) => failed(2),
        (_, Some((handle, _))) => {
            let file = find(*handle)?;
            Some([word(0), opaque(*handle), optional(file), optional(0)].concat())
        }
    }
}

fn read(mut rest: Reader<'_>) -> Option<Vec<u8>> {
    let (handle, offset, count) = (rest.opaque(64)?, rest.long()?, rest.word()?);
    rest.ends()?;
    match find(handle) {
        None => Some(words(&[BAD_HANDLE, 0])),
        Some(1) => {
            let end = offset.saturating_add(u64::from(count.min(8192))).min(LENGTH as u64);
            let data = (offset..end).map(byte).collect::<Vec<_>>();
            let at_end = u32::from(offset.saturating_add(data.len() as u64) >= LENGTH as u64);
            let length = u32::try_from(data.len()).expect("short");
            Some([word(0), optional(1), words(&[length, at_end]), opaque(&data)].concat())
        }
        Some(_) => Some(words(&[21, 0])),
    }
}

fn mount(mut rest: Reader<'_>) -> Option<Vec<u8>> {
    let path = rest.opaque(1024)?;
    rest.ends()?;
    if path != b"/" {
        return Some(word(2));
    }
    Some([word(0), opaque(FILES[0].0), words(&[2, 1, 0])].concat())
}
