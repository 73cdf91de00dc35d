//! The bridge stage: decision by decision, random histories against a model, and what it publishes against what it does.

mod bench;
mod decisions;
mod history;
mod hot;
mod local;
mod model;
