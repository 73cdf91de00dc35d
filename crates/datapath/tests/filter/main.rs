//! Filters: against a naive first match, and what the rejected are told.

mod oracle;
mod reject;
mod rules;
