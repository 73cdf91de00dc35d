//! Allocations, counted where they happen: in the allocator, by thread.

mod sys;

use sys::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of times that the calling thread has allocated or grown memory.
pub fn on_this_thread() -> u64 {
    sys::count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_allocation_in_seventeen_packets_is_one_in_seventeen() {
        let before = on_this_thread();
        let mut kept = 0;
        for packet in 0..17 * 100 {
            let boxed = (packet % 17 == 5).then(|| std::hint::black_box(Box::new(packet)));
            kept += u64::from(boxed.is_some());
        }
        assert_eq!((on_this_thread() - before, kept), (100, 100));
    }

    #[test]
    fn growth_counts_and_other_threads_do_not() {
        let mut vector = Vec::<u64>::with_capacity(1);
        let before = on_this_thread();
        vector.extend_from_slice(std::hint::black_box(&[1, 2, 3]));
        assert_eq!(on_this_thread() - before, 1);
        let before = on_this_thread();
        let other = std::thread::spawn(|| {
            let before = on_this_thread();
            drop(std::hint::black_box(vec![1; 100]));
            on_this_thread() - before
        });
        assert_eq!(other.join().unwrap(), 1);
        let spawning = on_this_thread() - before;
        assert!(spawning < 50, "{spawning}");
    }
}
