//! Tins: classes of traffic by DSCP, each with a share of the link.

use super::super::list::Turns;
use crate::wire::Dscp;

/// Number of tins.
pub(in crate::queue) const TINS: usize = 4;
/// Names of the tins, by number.
pub const TIN_NAMES: [&str; TINS] = ["bulk", "best-effort", "video", "voice"];
const BULK: usize = 0;
const BEST_EFFORT: usize = 1;
const VIDEO: usize = 2;
const VOICE: usize = 3;
/// Shares of the link in sixteenths, if all tins have packets.
const SHARES: [i64; TINS] = [1, 5, 6, 4];

/// Classes of traffic that are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tins {
    /// All packets are one class.
    One,
    /// Bulk (LE, CS1), best effort, video (AF2x to AF4x, CS2 to CS4), voice (EF, VA, CS5 to CS7).
    #[default]
    Four,
}

impl Tins {
    /// Tin of a code point (RFC 4594, RFC 8622).
    #[inline]
    pub(super) const fn of(self, dscp: Dscp) -> usize {
        match (self, dscp.get()) {
            (Self::One, _) => BEST_EFFORT,
            (Self::Four, 1 | 8) => BULK,
            (Self::Four, 44 | 46 | 40 | 48 | 56) => VOICE,
            (Self::Four, 16 | 18 | 20 | 22 | 24 | 26 | 28 | 30 | 32 | 34 | 36 | 38) => VIDEO,
            (Self::Four, _) => BEST_EFFORT,
        }
    }
}

/// A tin: its hosts, and what it may send before the others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tin {
    pub(super) turns: Turns,
    pub(super) deficit: i64,
}

/// Tin that goes next: the highest that has packets and has not used up its share; `None` if all are empty.
///
/// If all that have packets have used theirs up, every tin gets its share anew.
#[inline]
pub(super) fn choose(tins: &mut [Tin; TINS], quantum: u32) -> Option<usize> {
    let next = |tins: &[Tin; TINS]| {
        (0..TINS).rev().find(|&tin| tins[tin].deficit > 0 && tins[tin].turns.first().is_some())
    };
    if let Some(tin) = next(tins) {
        return Some(tin);
    }
    let shares = SHARES.map(|share| share * i64::from(quantum));
    let waiting = tins.iter().zip(shares).filter(|(tin, _)| tin.turns.first().is_some());
    let rounds = waiting.map(|(tin, share)| -tin.deficit / share + 1).min()?;
    for (tin, share) in tins.iter_mut().zip(shares) {
        tin.deficit = (tin.deficit + rounds * share).min(share);
    }
    next(tins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points_have_their_tins() {
        let tin = |number| Tins::Four.of(Dscp::new(number).expect("a code point"));
        assert_eq!([0, 10, 63].map(tin), [BEST_EFFORT; 3]);
        assert_eq!([1, 8].map(tin), [BULK; 2]);
        assert_eq!([34, 24, 18].map(tin), [VIDEO; 3]);
        assert_eq!([46, 48, 44].map(tin), [VOICE; 3]);
        assert_eq!(Tins::One.of(Dscp::EXPEDITED), BEST_EFFORT);
    }
}
