//! Frames whose fate may differ between the bridges: each rule with its reason.

/// A difference that is known, and why it is.
pub(super) struct Explanation {
    /// A few words.
    pub(super) name: &'static str,
    /// Reason why the bridges differ.
    pub(super) reason: &'static str,
    /// True if the frame's fate may differ.
    pub(super) covers: fn(&[u8]) -> bool,
}

/// All of them. What no rule covers counts.
pub(super) const EXPLANATIONS: &[Explanation] = &[];

/// The explanation of a frame's fate.
pub(super) fn explanation(frame: &[u8]) -> Option<&'static Explanation> {
    EXPLANATIONS.iter().find(|explanation| (explanation.covers)(frame))
}
