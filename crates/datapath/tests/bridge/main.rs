//! The bridge stage: decision by decision, and random histories against a model.

mod bench;
mod decisions;
mod history;
mod model;
