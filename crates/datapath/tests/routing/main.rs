//! The router from frame to frame: every rule by its reason, every header against another writer.

mod cases;
mod fairness;
mod frames;
mod hot;
mod kernel;
mod neighbours;
mod random;
mod sources;
mod stand;
