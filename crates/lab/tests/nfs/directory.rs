//! A real directory, served: what is in it, and nothing else.

use crate::nfs::{Counters, Directory, Nfs, SharedDirectory, Store as _};
use crate::oracle::{MOUNT, NFS};
use crate::words::{Reader, call, opaque, word};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory with a secret beside it.
pub(crate) struct Files(PathBuf);

impl Files {
    pub(crate) fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let outer = std::env::temp_dir().join(format!("polder-nfs-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&outer);
        fs::create_dir_all(outer.join("served/sub/deep")).unwrap();
        let files = Self(outer);
        for directory in ["", "sub", "sub/deep"] {
            let path = files.served().join(directory);
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        files.write("served/file", &(0..20_000_u32).map(|place| (place % 249) as u8).collect::<Vec<_>>());
        files.write("served/sub/deep/small", b"small");
        files.write("secret", b"secret");
        files
    }

    pub(crate) fn served(&self) -> PathBuf {
        self.0.join("served")
    }

    fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.0.join(name), content).unwrap();
        fs::set_permissions(self.0.join(name), fs::Permissions::from_mode(0o644)).unwrap();
    }

    fn client(&self) -> Client {
        Client::new(Directory::open(&self.served()).unwrap())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A client that has mounted.
struct Client {
    service: Nfs<SharedDirectory>,
    root: Vec<u8>,
}

/// A status of NFS.
type Status = u32;
const PERMISSION: Status = 13;
const NOT_THERE: Status = 2;
const NO_DIRECTORY: Status = 20;
const IS_DIRECTORY: Status = 21;
const INVALID: Status = 22;
const NAME_TOO_LONG: Status = 63;
const STALE: Status = 70;
const BAD_HANDLE: Status = 10_001;
const SERVER_FAULT: Status = 10_006;

impl Client {
    fn new(directory: Directory) -> Self {
        let service = Nfs::new(SharedDirectory::new(directory), Arc::new(Counters::default()));
        let mut client = Self { service, root: Vec::new() };
        let reply = client.ask((MOUNT, 1), &opaque(b"/"));
        let mut reply = Reader(&reply);
        assert_eq!(reply.word(), Some(0));
        client.root = reply.opaque(64).unwrap().to_vec();
        client
    }

    /// The result of a procedure that was carried out.
    fn ask(&mut self, (program, procedure): (u32, u32), arguments: &[u8]) -> Vec<u8> {
        let mut answer = Vec::new();
        let request = call(77, (program, 3, procedure), (0, &[]), arguments);
        assert!(self.service.respond(&request, &mut answer));
        let (head, result) = answer.split_at(24);
        assert_eq!(head, crate::words::words(&[77, 1, 0, 0, 0, 0]));
        result.to_vec()
    }

    fn lookup(&mut self, directory: &[u8], name: &[u8]) -> Result<Vec<u8>, Status> {
        let reply = self.ask((NFS, 3), &[opaque(directory), opaque(name)].concat());
        let mut reply = Reader(&reply);
        match reply.word().unwrap() {
            0 => Ok(reply.opaque(64).unwrap().to_vec()),
            status => Err(status),
        }
    }

    /// Kind, mode and size.
    fn attributes(&mut self, handle: &[u8]) -> Result<(u32, u32, u64), Status> {
        let reply = self.ask((NFS, 1), &opaque(handle));
        let mut reply = Reader(&reply);
        match reply.word().unwrap() {
            0 => {
                let (kind, mode) = (reply.word().unwrap(), reply.word().unwrap());
                reply.0 = &reply.0[12..];
                Ok((kind, mode, reply.long().unwrap()))
            }
            status => Err(status),
        }
    }

    /// Data, and whether it is the last.
    fn read(&mut self, handle: &[u8], offset: u64, count: u32) -> Result<(Vec<u8>, bool), Status> {
        let arguments = [opaque(handle), offset.to_be_bytes().to_vec(), word(count)].concat();
        let reply = self.ask((NFS, 6), &arguments);
        let mut reply = Reader(&reply);
        match reply.word().unwrap() {
            0 => {
                reply.0 = &reply.0[4 + 84..];
                let (count, last) = (reply.word().unwrap(), reply.word().unwrap());
                let data = reply.opaque(8192).unwrap();
                assert_eq!(usize::try_from(count).unwrap(), data.len());
                Ok((data.to_vec(), last == 1))
            }
            status => Err(status),
        }
    }
}

#[test]
fn files_are_found_and_read() {
    let files = Files::new();
    let mut client = files.client();
    let root = client.root.clone();
    let file = client.lookup(&root, b"file").unwrap();
    let wanted = fs::read(files.served().join("file")).unwrap();
    assert_eq!(client.attributes(&file), Ok((1, 0o644, wanted.len() as u64)));
    let (mut got, mut last) = (Vec::new(), false);
    while !last {
        let (data, end) = client.read(&file, got.len() as u64, 100_000).unwrap();
        assert!(!data.is_empty() && data.len() <= 8192);
        got.extend(data);
        last = end;
    }
    assert_eq!(got, wanted);
    assert_eq!(client.read(&file, 20_000, 10), Ok((Vec::new(), true)));
    assert_eq!(client.read(&file, u64::MAX, 10), Ok((Vec::new(), true)));
    assert_eq!(client.read(&file, 5, 0), Ok((Vec::new(), false)));
    let sub = client.lookup(&root, b"sub").unwrap();
    let deep = client.lookup(&sub, b"deep").unwrap();
    let small = client.lookup(&deep, b"small").unwrap();
    assert_eq!(client.read(&small, 1, 3), Ok((b"mal".to_vec(), false)));
    assert_eq!(client.lookup(&sub, b"small"), Err(NOT_THERE));
    assert_eq!(client.lookup(&small, b"x"), Err(NO_DIRECTORY));
    assert_eq!(client.read(&sub, 0, 10), Err(IS_DIRECTORY));
    // The same file has the same handle, whichever way it was found.
    assert_eq!(client.lookup(&deep, b"..").unwrap(), sub);
    assert_eq!(client.lookup(&sub, b".").unwrap(), sub);
    assert_eq!(client.lookup(&root, b"file").unwrap(), file);
}

#[test]
fn nothing_outside_can_be_named() {
    let files = Files::new();
    let served = files.served();
    symlink("../secret", served.join("relative")).unwrap();
    symlink(files.0.join("secret"), served.join("absolute")).unwrap();
    symlink("/", served.join("all")).unwrap();
    symlink("sub", served.join("inside")).unwrap();
    symlink("/proc/self/fd/0", served.join("magic")).unwrap();
    let mut client = files.client();
    let root = client.root.clone();
    for name in
        ["../secret", "sub/../../secret", "/etc/passwd", "/", "file/", "sub/deep", "a\0b", "\0", "../"]
    {
        assert_eq!(client.lookup(&root, name.as_bytes()), Err(PERMISSION), "{name:?}");
    }
    assert_eq!(client.lookup(&root, b""), Err(NOT_THERE));
    assert_eq!(client.lookup(&root, b"..").unwrap(), root, "the root is its own parent");
    assert_eq!(client.lookup(&root, &[b'x'; 255]), Err(NOT_THERE));
    assert_eq!(client.lookup(&root, &[b'x'; 256]), Err(NAME_TOO_LONG));
    assert_eq!(client.lookup(&root, &vec![b'x'; 60_000]), Err(NAME_TOO_LONG));
    // A link is a link: nobody follows it.
    for name in ["relative", "absolute", "all", "inside", "magic"] {
        let link = client.lookup(&root, name.as_bytes()).unwrap();
        assert_eq!(client.attributes(&link).map(|found| found.0), Ok(5), "{name}");
        assert_eq!(client.lookup(&link, b"etc"), Err(NO_DIRECTORY), "{name}");
        assert_eq!(client.read(&link, 0, 10), Err(INVALID), "{name}");
    }
}

#[test]
fn a_name_that_becomes_a_link_leads_nowhere() {
    let files = Files::new();
    let mut client = files.client();
    let root = client.root.clone();
    let file = client.lookup(&root, b"file").unwrap();
    let sub = client.lookup(&root, b"sub").unwrap();
    fs::rename(files.served().join("file"), files.served().join("renamed")).unwrap();
    fs::rename(files.served().join("sub"), files.served().join("moved")).unwrap();
    symlink(files.0.join("secret"), files.served().join("file")).unwrap();
    symlink(&files.0, files.served().join("sub")).unwrap();
    // Handles mean files and not names.
    assert_eq!(client.read(&file, 0, 3), Ok((vec![0, 1, 2], false)));
    assert!(client.lookup(&sub, b"deep").is_ok());
    assert_eq!(client.lookup(&sub, b"secret"), Err(NOT_THERE));
    let link = client.lookup(&root, b"sub").unwrap();
    assert_ne!(link, sub);
    assert_eq!(client.lookup(&link, b"secret"), Err(NO_DIRECTORY));
}

#[test]
fn handles_cannot_be_made_up() {
    let files = Files::new();
    let mut client = files.client();
    let root = client.root.clone();
    let file = client.lookup(&root, b"file").unwrap();
    for place in 0..file.len() {
        let mut guess = file.clone();
        guess[place] ^= 1;
        assert_eq!(client.attributes(&guess), Err(STALE), "byte {place}");
    }
    for guess in [&[][..], &file[1..], &[&file[..], &[0]].concat(), &[0xff; 64]] {
        assert_eq!(client.attributes(guess), Err(BAD_HANDLE));
    }
    // Another process has other handles for the same files.
    assert_eq!(files.client().attributes(&file), Err(STALE));
}

#[test]
fn clients_get_what_everybody_may_read() {
    let files = Files::new();
    files.write("served/private", b"private");
    let set = |name: &str, mode| {
        fs::set_permissions(files.served().join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    set("private", 0o640);
    let mut client = files.client();
    let root = client.root.clone();
    let private = client.lookup(&root, b"private").unwrap();
    assert_eq!(client.attributes(&private), Ok((1, 0o640, 7)));
    assert_eq!(client.read(&private, 0, 10), Err(PERMISSION));
    let file = client.lookup(&root, b"file").unwrap();
    set("file", 0o600);
    assert_eq!(client.read(&file, 0, 10), Err(PERMISSION), "it was readable when it was found");
    let sub = client.lookup(&root, b"sub").unwrap();
    set("sub", 0o750);
    assert_eq!(client.lookup(&sub, b"deep"), Err(PERMISSION));
}

#[test]
fn pipes_are_not_waited_for() {
    let files = Files::new();
    let pipe = files.served().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::set_permissions(&pipe, fs::Permissions::from_mode(0o666)).unwrap();
    let mut client = files.client();
    let root = client.root.clone();
    let pipe = client.lookup(&root, b"pipe").unwrap();
    assert_eq!(client.attributes(&pipe).map(|found| found.0), Ok(7));
    assert_eq!(client.read(&pipe, 0, 10), Err(INVALID));
}

#[test]
fn the_table_has_an_end() {
    let files = Files::new();
    for name in ["a", "b", "c"] {
        files.write(&format!("served/{name}"), b"");
    }
    let mut client = Client::new(Directory::open(&files.served()).unwrap().with_room_for(3));
    let root = client.root.clone();
    let known = [&b"a"[..], b"b"].map(|name| client.lookup(&root, name).unwrap());
    assert_eq!(client.lookup(&root, b"c"), Err(SERVER_FAULT), "the root has a place, too");
    assert_eq!(client.lookup(&root, b"b").as_ref(), Ok(&known[1]), "what is known stays known");
    assert!(client.attributes(&known[0]).is_ok());
}

#[test]
fn attributes_are_those_of_the_file() {
    let files = Files::new();
    let mut directory = Directory::open(&files.served()).unwrap();
    let root = directory.root().0;
    let found = directory.lookup(&root, b"file").unwrap();
    let (attributes, wanted) = (found.attributes, fs::metadata(files.served().join("file")).unwrap());
    assert_eq!(
        (attributes.fileid, attributes.fsid, attributes.size, u64::from(attributes.nlink), attributes.uid),
        (wanted.ino(), wanted.dev(), wanted.size(), wanted.nlink(), wanted.uid())
    );
    assert_eq!(i64::from(attributes.mtime.seconds), wanted.mtime());
    assert_eq!(i64::from(attributes.mtime.nseconds), wanted.mtime_nsec());
    assert_eq!(attributes.used, wanted.blocks() * 512);
    assert_eq!(found.directory.fileid, fs::metadata(files.served()).unwrap().ino());
    assert!(Directory::open(Path::new("/etc/passwd")).is_err(), "a file is no directory");
}
