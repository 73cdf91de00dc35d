//! Bytes to headers, or a refusal.
