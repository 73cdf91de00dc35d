//! Blocks on pages of all sizes: each can be brought in and given back.

use super::*;
use crate::emulated::brings_memory_in;
use crate::policy::Reloadable as _;
use crate::region::page_sizes;
use crate::reserve::Marks;

fn memory(page_bytes: usize, large_blocks: bool) -> FragmentMemory {
    let policy = AllocationPolicy::Growing(Marks::for_target(6));
    // An odd number of blocks: single pages begin in the middle of a page of 64 KiB unless blocks are whole pages.
    let options =
        FragmentOptions { blocks: 13, spare_pages: 3, large_blocks, policy, ..FragmentOptions::default() };
    FragmentMemory::with_pages(options, page_bytes).expect("memory for a test")
}

fn committed(memory: &FragmentMemory) -> u64 {
    let status = rustix::fs::fstat(memory.inner.memory.file(0)).expect("the file is open");
    u64::try_from(status.st_blocks).expect("a count of 512 bytes") * 512
}

#[test]
fn blocks_are_whole_pages_of_every_size() {
    for page_bytes in page_sizes() {
        for large_blocks in [true, false] {
            let memory = memory(page_bytes, large_blocks);
            let block = (memory.reserve().units_of(0) as usize) << UNIT_SHIFT;
            let least = if large_blocks { 32_768 } else { 4096 };
            assert_eq!(block, least.max(page_bytes));
            let large = memory.reserve().count() as usize - 3;
            assert_eq!(large, (13 * 32_768_usize).div_ceil(block), "as much memory as was asked for");
            assert_eq!(memory.free_blocks().0 as usize, (6 * 32_768_usize).div_ceil(block));
        }
    }
}

#[test]
fn memory_of_blocks_comes_and_goes_on_pages_of_every_size() {
    if !brings_memory_in("memory_of_blocks_comes_and_goes_on_pages_of_every_size") {
        return;
    }
    for page_bytes in page_sizes() {
        for large_blocks in [true, false] {
            let memory = memory(page_bytes, large_blocks);
            let block = u64::from(memory.reserve().units_of(0)) << UNIT_SHIFT;
            let blocks = memory.reserve();
            let before = committed(&memory);
            let spare = (3 * PAGE_BYTES).next_multiple_of(rustix::param::page_size()) as u64;
            assert_eq!(before, u64::from(blocks.level()) * block + spare);
            let loaded = u64::from(blocks.load(5).expect("memory for a test"));
            assert_eq!(committed(&memory), before + loaded * block);
            let gone = u64::from(blocks.unload(4, &mut || {}));
            assert_eq!((gone, committed(&memory)), (4, before + loaded * block - 4 * block));
        }
    }
}

/// A piece of 64 KiB blocks is released and carved as one of 32 KiB blocks is.
#[test]
fn pieces_of_every_block_come_home() {
    for page_bytes in page_sizes() {
        let memory = memory(page_bytes, true);
        let mut fragments = memory.fragments();
        let mut frames = Vec::new();
        assert_eq!(fragments.take_bulk(192, 900, &mut frames), 900);
        assert!(frames.iter().all(|frame| frame.slot_bytes() == 192));
        let ends = frames
            .iter()
            .map(|frame| (frame.offset_in_region() / 4096, (frame.offset_in_region() + 191) / 4096));
        assert!(ends.into_iter().all(|(first, last)| first == last), "E7");
        fragments.release_bulk(&mut frames);
        drop(fragments);
        assert!(memory.is_home());
    }
}
