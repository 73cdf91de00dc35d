//! Checks that only look: each takes texts and answers with what it found.

pub(crate) mod circles;
pub(crate) mod decisions;
pub(crate) mod devices;
pub(crate) mod direction;
pub(crate) mod journey;
pub(crate) mod lengths;
pub(crate) mod links;
pub(crate) mod orders;
pub(crate) mod pages;
pub(crate) mod prose;
pub(crate) mod rooms;
pub(crate) mod words;
