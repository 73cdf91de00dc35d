//! Requests as clients send them, and malformed ones.

use crate::oracle::{FILES, LENGTH, MOUNT, NFS, TARGETS, nfs};
use crate::words::{call, opaque, system, word, words};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::path::Path;

/// Handle, known or unknown.
fn handle() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![8 => select(&FILES[..]).prop_map(|file| file.0.to_vec()), 1 => vec(any::<u8>(), 0..80)]
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let odd = select(vec![&b".."[..], b"/", b"a\0b", b"/etc/passwd", b"../../etc", b""]);
    prop_oneof![
        4 => select(&FILES[..]).prop_map(|file| file.1.to_vec()),
        2 => odd.prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 0..400),
    ]
}

fn offset() -> impl Strategy<Value = u64> {
    let length = LENGTH as u64;
    prop_oneof![0..length + 10, Just(length), Just(u64::MAX), Just(1 << 63), any::<u64>()]
}

/// Arguments that fit a procedure, or another.
fn arguments() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Vec::new()),
        handle().prop_map(|handle| opaque(&handle)),
        (handle(), name()).prop_map(|(handle, name)| [opaque(&handle), opaque(&name)].concat()),
        (handle(), offset(), prop_oneof![Just(8192_u32), 0..20_000_u32, any::<u32>()]).prop_map(
            |(handle, offset, count)| {
                [opaque(&handle), offset.to_be_bytes().to_vec(), word(count)].concat()
            }
        ),
        select(vec![&b"/"[..], b"/etc", b""]).prop_map(opaque),
    ]
}

fn credential() -> impl Strategy<Value = (u32, Vec<u8>)> {
    prop_oneof![
        4 => Just((0, Vec::new())),
        4 => (vec(any::<u8>(), 0..260), vec(any::<u32>(), 0..18))
            .prop_map(|(machine, groups)| (1, system(&machine, &groups))),
        1 => (any::<u32>(), vec(any::<u8>(), 0..410)),
    ]
}

/// A call, mostly for an existing file.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let program = prop_oneof![8 => Just(NFS), 3 => Just(MOUNT), 1 => any::<u32>()];
    let version = prop_oneof![9 => Just(3_u32), 1 => any::<u32>()];
    let procedure = prop_oneof![9 => select(vec![0_u32, 1, 3, 6]), 1 => 0..30_u32];
    (any::<u32>(), program, version, procedure, credential(), arguments()).prop_map(
        |(xid, program, version, procedure, credential, arguments)| {
            call(xid, (program, version, procedure), (credential.0, &credential.1), &arguments)
        },
    )
}

/// Some bytes changed, the end cut off, or bytes added.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    let end = prop_oneof![Just(None), any::<prop::sample::Index>().prop_map(Some)];
    (request(), changes, end, 0..6_usize).prop_map(|(mut request, changes, end, more)| {
        for (place, byte) in changes {
            let place = place.index(request.len());
            request[place] = byte;
        }
        match end {
            Some(end) => request.truncate(end.index(request.len() + 1)),
            None => request.resize(request.len() + more, 0),
        }
        request
    })
}

proptest! {
    #[test]
    fn well_formed_calls_get_the_answer_of_the_reference(request in request()) {
        nfs(&request);
    }

    #[test]
    fn damaged_calls_get_the_error_of_the_reference(request in damaged()) {
        nfs(&request);
    }

    #[test]
    fn noise_is_answered_as_the_reference_does(noise in vec(any::<u8>(), 0..160)) {
        nfs(&noise);
    }
}

#[test]
fn committed_inputs_are_answered_as_the_reference_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    for (target, oracle) in TARGETS {
        let files = std::fs::read_dir(folder.join(target)).expect("there are inputs").flatten();
        let inputs = files.map(|file| std::fs::read(file.path()).unwrap()).collect::<Vec<_>>();
        assert!(inputs.len() > 20, "inputs are committed");
        inputs.iter().for_each(|input| oracle(input));
    }
}

#[test]
fn lengths_are_not_believed() {
    // Four gigabytes of handle, of name, of credential: nothing is reserved for them, nothing is read.
    for place in [24, 40, 56] {
        let arguments = [opaque(FILES[0].0), opaque(b"file")].concat();
        let mut request = call(1, (NFS, 3, 3), (0, &[]), &arguments);
        request[place..place + 4].copy_from_slice(&[0xff; 4]);
        nfs(&request);
    }
    nfs(&[call(1, (NFS, 3, 3), (0, &[]), &opaque(FILES[0].0)), words(&[u32::MAX - 1])].concat());
}
