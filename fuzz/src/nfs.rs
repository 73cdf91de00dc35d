//! Calls of NFS, mount and others, each wrong in a way of its own.

use super::Seeds;

#[expect(dead_code, reason = "what the tests read answers with")]
#[path = "../../crates/lab/tests/nfs/words.rs"]
mod words;

use words::{call, opaque, system, word, words};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const ROOT: &[u8] = b"rrrrrrrrrrrr";
const FILE: &[u8] = b"ffffffffffff";
const NOBODY: (u32, &[u8]) = (0, &[]);

fn read(handle: &[u8], offset: u64, count: u32) -> Vec<u8> {
    let arguments = [opaque(handle), offset.to_be_bytes().to_vec(), word(count)].concat();
    call(6, (NFS, 3, 6), NOBODY, &arguments)
}

fn lookup(handle: &[u8], name: &[u8]) -> Vec<u8> {
    call(3, (NFS, 3, 3), NOBODY, &[opaque(handle), opaque(name)].concat())
}

pub(crate) fn seeds() -> Seeds {
    let getattr = call(1, (NFS, 3, 1), NOBODY, &opaque(ROOT));
    let cut = |length: usize| getattr[..length].to_vec();
    let named = |machine: &[u8], groups: &[u32]| call(2, (NFS, 3, 0), (1, &system(machine, groups)), &[]);
    let changed = |place: usize, value: u32| {
        let mut request = getattr.clone();
        request[place..place + 4].copy_from_slice(&value.to_be_bytes());
        request
    };
    vec![
        ("null", call(0, (NFS, 3, 0), NOBODY, &[])),
        ("null-with-arguments", call(0, (NFS, 3, 0), NOBODY, &[0; 4])),
        ("getattr", getattr.clone()),
        ("getattr-nobodys-handle", call(1, (NFS, 3, 1), NOBODY, &opaque(&[7; 32]))),
        ("getattr-long-handle", call(1, (NFS, 3, 1), NOBODY, &opaque(&[7; 65]))),
        ("getattr-and-more", [&getattr[..], &[0; 4]].concat()),
        ("lookup", lookup(ROOT, b"file")),
        ("lookup-in-a-file", lookup(FILE, b"file")),
        ("lookup-up", lookup(ROOT, b"../file")),
        ("lookup-long", lookup(ROOT, &[b'x'; 300])),
        ("read", read(FILE, 0, 8192)),
        ("read-much", read(FILE, 4000, u32::MAX)),
        ("read-the-end", read(FILE, 20_000, 10)),
        ("read-far", read(FILE, u64::MAX, 10)),
        ("read-a-directory", read(ROOT, 0, 10)),
        ("write", call(7, (NFS, 3, 7), NOBODY, &opaque(FILE))),
        ("mount", call(4, (MOUNT, 3, 1), NOBODY, &opaque(b"/"))),
        ("mount-elsewhere", call(4, (MOUNT, 3, 1), NOBODY, &opaque(b"/etc"))),
        ("unmount", call(4, (MOUNT, 3, 3), NOBODY, &opaque(b"/"))),
        ("dump", call(4, (MOUNT, 3, 2), NOBODY, &[])),
        ("version-2", call(5, (NFS, 2, 1), NOBODY, &opaque(ROOT))),
        ("portmapper", call(5, (100_000, 2, 3), NOBODY, &[0; 16])),
        ("rpc-version-3", changed(8, 3)),
        ("reply", changed(4, 1)),
        ("no-kind", changed(4, 9)),
        ("system", named(b"somebody", &[1, 2, 3])),
        ("system-many-groups", named(b"somebody", &[1; 17])),
        ("system-long-name", named(&[b'x'; 256], &[])),
        ("system-cut", call(2, (NFS, 3, 0), (1, &[0; 8]), &[])),
        ("gss", call(2, (NFS, 3, 0), (6, &[0; 8]), &[])),
        ("long-credential", changed(28, 401)),
        ("credential-of-four-gigabytes", changed(28, u32::MAX)),
        ("verifier", changed(32, 1)),
        ("handle-of-four-gigabytes", changed(40, u32::MAX)),
        ("short", cut(20)),
        ("no-credential", cut(24)),
        ("no-verifier", cut(36)),
        ("half-a-handle", cut(48)),
        ("words", words(&[0; 3])),
        ("empty", Vec::new()),
    ]
}
