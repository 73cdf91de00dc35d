//! Detects emulators that ignore `madvise` on memory, such as QEMU user mode; for tests only.
#![cfg_attr(
    test,
    expect(unsafe_code, reason = "UNSAFETY: a mapping of its own, for advice that changes no byte")
)]

use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io::Write as _;

/// True if `madvise` loads memory. Otherwise reports `test` as skipped.
pub(crate) fn brings_memory_in(test: &str) -> bool {
    let is_heeded = is_advice_heeded();
    if !is_heeded {
        skip(
            test,
            "this system, an emulator, answers MADV_POPULATE_WRITE with success and brings no memory in",
        );
    }
    is_heeded
}

/// False if `madvise` succeeds without allocating a page.
fn is_advice_heeded() -> bool {
    let page = rustix::param::page_size();
    let file = memfd_create("polder-test", MemfdFlags::CLOEXEC).expect("a file for a test");
    ftruncate(&file, page as u64).expect("a page for a test");
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: (1) a null hint without MAP_FIXED never replaces a mapping that exists (mmap(2)).
    let place = unsafe { mmap(core::ptr::null_mut(), page, access, MapFlags::SHARED, &file, 0) };
    let place = place.expect("a mapping for a test");
    // SAFETY: (1) the page was mapped above; (2) MADV_POPULATE_WRITE changes no byte (madvise(2)).
    let advised = unsafe { madvise(place, page, Advice::LinuxPopulateWrite) };
    let has_page = fstat(&file).expect("the file is open").st_blocks > 0;
    // SAFETY: (1) the page was mapped above, and nobody has a reference into it.
    unsafe { munmap(place, page) }.expect("munmap of a mapping of our own");
    // An error is no reason to skip: the test will report it.
    has_page || advised.is_err()
}

fn skip(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}\n");
    eprint!("{line}");
    let Some(path) = std::env::var_os("POLDER_SKIP_LOG") else { return };
    let log = std::fs::OpenOptions::new().create(true).append(true).open(path);
    log.and_then(|mut log| log.write_all(line.as_bytes())).expect("the log of skipped tests");
}
