//! Cost of a table of routes: look-ups of random destinations, updates, memory.
//!
//! `cargo bench -p polder-datapath --bench fib`
//!
//! IPv4 routes are drawn with the lengths of today's default-free tables (six of ten are /24), all over the
//! unicast addresses; IPv6 routes are /32 to /48 in 20 000 blocks. Destinations are random addresses inside
//! random routes, so that hardly any two of a batch share memory. Updates take a route away and bring it
//! back while nobody reads.
#![expect(clippy::print_stdout, reason = "the output is the purpose")]

use polder_datapath::route::{Fib, NextHopId, Prefix};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

const BATCH: usize = 64;
const BATCHES: usize = 20_000;
const ROUNDS: usize = 15;
const UPDATES: usize = 200_000;
const BLOCKS_V6: u64 = 20_000;

fn main() {
    for (routes, is_v6) in [(100, false), (1_000, false), (1_000_000, false), (100_000, true)] {
        measure(routes, is_v6);
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn measure(routes: usize, is_v6: bool) {
    let mut random = Random(fastrand::Rng::with_seed(routes as u64));
    let mut fib = if is_v6 { Fib::v6() } else { Fib::v4() };
    let mut prefixes = Vec::new();
    let start = Instant::now();
    while fib.len() < routes {
        let prefix = if is_v6 { random.prefix_v6() } else { random.prefix_v4() };
        if fib.insert(prefix, random.way()).is_none() {
            prefixes.push(prefix);
        }
    }
    let filled = start.elapsed().as_secs_f64();
    let mut reader = fib.reader();
    let destinations: Vec<[u8; 16]> = (0..BATCH * BATCHES).map(|_| random.inside(&prefixes)).collect();
    let mut ways = [NextHopId::NONE; BATCH];
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for batch in destinations.chunks_exact(BATCH) {
                let view = reader.view();
                if is_v6 {
                    view.lookup_all::<16>(batch, &mut ways);
                } else {
                    view.lookup_all::<4>(&short(batch), &mut ways);
                }
                black_box(&ways);
            }
            start.elapsed().as_secs_f64() * 1e9 / (BATCH * BATCHES) as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let start = Instant::now();
    for number in 0..UPDATES / 2 {
        let prefix = prefixes[number * 7919 % prefixes.len()];
        let way = fib.remove(prefix).expect("it is there");
        fib.insert(prefix, way);
    }
    let updates = UPDATES as f64 / start.elapsed().as_secs_f64();
    let family = if is_v6 { "IPv6" } else { "IPv4" };
    println!(
        "{routes:>8} {family}: {:5.1} ns a look-up ({:.1} to {:.1}), {:7.0} updates a second, {:7.1} bytes a route, filled in {filled:.2} s",
        times[ROUNDS / 2],
        times[0],
        times[ROUNDS - 1],
        updates,
        fib.bytes() as f64 / routes as f64,
    );
}

fn short(batch: &[[u8; 16]]) -> [[u8; 4]; BATCH] {
    let mut addresses = [[0; 4]; BATCH];
    for (to, &[a, b, c, d, ..]) in addresses.iter_mut().zip(batch) {
        *to = [a, b, c, d];
    }
    addresses
}

/// Draws of a table and its traffic.
struct Random(fastrand::Rng);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    fn way(&mut self) -> NextHopId {
        let number = u32::try_from(1 + self.next() % 200).expect("small");
        NextHopId::new(number).expect("small")
    }

    fn prefix_v4(&mut self) -> Prefix {
        let bits = match self.next() % 100 {
            0..60 => 24,
            60..72 => 22,
            72..80 => 23,
            80..86 => 20,
            86..91 => 21,
            91..95 => 19,
            95..97 => 18,
            97..99 => 16,
            _ => 28,
        };
        let [a, b, c, d, ..] = self.next().to_be_bytes();
        let address = Ipv4Addr::new(1 + a % 223, b, c, d);
        Prefix::new(IpAddr::V4(address), bits).expect("at most 28 bits")
    }

    fn prefix_v6(&mut self) -> Prefix {
        let bits = [32, 36, 40, 44, 48, 48, 48, 48][usize::try_from(self.next() % 8).expect("small")];
        // A block is the first 32 bits, the same for a number every time.
        let block = 0x2000_0000 + (self.next() % BLOCKS_V6) * 26_843;
        let address = u128::from(block << 32 | self.next() >> 32) << 64;
        Prefix::new(IpAddr::V6(Ipv6Addr::from_bits(address)), bits).expect("at most 48 bits")
    }

    fn inside(&mut self, prefixes: &[Prefix]) -> [u8; 16] {
        let index = usize::try_from(self.next() % prefixes.len() as u64).expect("an index");
        let prefix = prefixes[index];
        let random = u128::from(self.next()) << 64 | u128::from(self.next());
        let mask = u128::MAX.checked_shr(u32::from(prefix.bits())).unwrap_or(0);
        let first = match prefix.address() {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        };
        (first | random & mask).to_be_bytes()
    }
}
