//! Work of a given duration per packet, in place of filters, ciphers and inspection.

use anyhow::anyhow;
use polder_testbed::clock;
use polder_testbed::topology::pin_here;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Duration;

/// Times a calibration is repeated; the fastest counts, for nothing makes it faster than it is.
const TRIES: u32 = 5;
/// Rounds of a calibration.
const ROUNDS: u32 = 2_000_000;

/// Links between two looks at the clock.
const UNIT: u32 = 2000;

/// Chain of `links` dependent multiplications over the packet's bytes.
#[inline(never)]
pub(in crate::scenarios) fn work(bytes: &[u8], links: u32) -> u64 {
    let words = bytes.as_chunks::<8>().0;
    let mut sum = 0x9e37_79b9_7f4a_7c15_u64;
    for link in 0..links {
        let word = words.get(link as usize & 7).copied().unwrap_or_default();
        sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(29);
    }
    sum
}

/// Nanoseconds that a link takes on this core.
pub(in crate::scenarios) fn calibrate() -> f64 {
    let bytes = [0x5a; 64];
    let fastest = (0..TRIES).map(|_| {
        let start = clock::thread_cpu();
        black_box(work(black_box(&bytes), ROUNDS));
        clock::thread_cpu() - start
    });
    fastest.min().unwrap_or(Duration::ZERO).as_secs_f64() * 1e9 / f64::from(ROUNDS)
}

/// Number of links that take `nanos` nanoseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "thousands at most")]
pub(in crate::scenarios) fn links(nanos: u32, link_nanos: f64) -> u32 {
    (f64::from(nanos) / link_nanos).round() as u32
}

/// Speed-up of two threads on two cores over one of them alone, with work that shares nothing: the upper bound for
/// two workers. Less than two if the cores are threads of one core, or other processes use them.
pub(super) fn side_by_side([first, second]: [usize; 2], time: Duration) -> anyhow::Result<f64> {
    let alone = rates(&[first], time)?;
    Ok(rates(&[first, second], time)? / alone)
}

/// The work that threads on these cores do together in a second, in units of their own.
fn rates(cores: &[usize], time: Duration) -> anyhow::Result<f64> {
    let start = Barrier::new(cores.len());
    std::thread::scope(|scope| {
        let run = |core: usize| {
            let pinned = pin_here(core);
            start.wait();
            pinned.map(|()| rate(time))
        };
        let threads = cores.iter().map(|&core| scope.spawn(move || run(core))).collect::<Vec<_>>();
        let rates =
            threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("the work panicked"))?);
        rates.sum()
    })
}

fn rate(time: Duration) -> f64 {
    let (start, bytes) = (clock::now(), [0x5a; 64]);
    let mut count = 0_u32;
    while clock::now() - start < time {
        black_box(work(black_box(&bytes), UNIT));
        count += 1;
    }
    f64::from(count) / (clock::now() - start).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_do_some_work() {
        let ratio =
            side_by_side([0, polder_testbed::machine::cores() - 1], Duration::from_millis(5)).unwrap();
        assert!(ratio.is_finite() && ratio > 0.0, "{ratio}");
    }

    #[test]
    fn links_take_time_and_depend_on_the_bytes() {
        let link = calibrate();
        assert!((0.1..100.0).contains(&link), "{link} ns");
        assert_eq!((links(0, 2.0), links(500, 2.0), links(1000, 2.0)), (0, 250, 500));
        assert_ne!(work(&[1; 64], 8), work(&[2; 64], 8), "the bytes count");
    }
}
