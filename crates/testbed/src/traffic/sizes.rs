//! Packet lengths of a stream: one length, or a mix that repeats (RFC 6985).
//!
//! Lengths are counted as RFC 2544 counts them: Ethernet header and FCS included.

use anyhow::{Context as _, ensure};

/// Bytes of the FCS, which a frame in memory does not have.
pub const FCS: usize = 4;

/// Lengths by letter (RFC 6985, section 4).
const LETTERS: &[(char, usize)] =
    &[('a', 64), ('b', 128), ('c', 256), ('d', 512), ('e', 1024), ('f', 1280), ('g', 1518), ('h', 2112)];

/// A pattern of lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(Vec<usize>);

impl Sizes {
    /// All packets alike.
    pub fn all(frame_bytes: usize) -> Self {
        Self(vec![frame_bytes])
    }

    /// A genome of RFC 6985, such as `aaaaaaadddg`: one letter a packet, from the first again after
    /// the last.
    ///
    /// # Errors
    /// When it is empty, or has a letter that has no length.
    pub fn genome(letters: &str) -> anyhow::Result<Self> {
        ensure!(!letters.is_empty(), "an IMIX genome has at least one letter");
        let length = |letter| {
            let known = LETTERS.iter().find(|(known, _)| *known == letter);
            known.map(|&(_, length)| length).with_context(|| format!("no length is called `{letter}`"))
        };
        letters.chars().map(length).collect::<anyhow::Result<_>>().map(Self)
    }

    /// The lengths, in the order of packets.
    pub fn pattern(&self) -> &[usize] {
        &self.0
    }

    /// Bytes of an average packet.
    #[expect(clippy::cast_precision_loss, reason = "lengths are small")]
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<usize>() as f64 / self.0.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_genome_is_a_length_for_each_letter() {
        let mix = Sizes::genome("aadg").unwrap();
        assert_eq!(mix.pattern(), [64, 64, 512, 1518]);
        assert!((mix.mean() - 539.5).abs() < 1e-9);
        assert!(Sizes::genome("").is_err() && Sizes::genome("ax").is_err());
    }
}
