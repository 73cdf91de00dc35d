//! Traces of packets, compared with the gateway's behaviour.

#![expect(clippy::disallowed_methods, reason = "a test looks at the real clock to give up")]

mod bench;
mod oracle;

mod hostile;
mod same;
mod walks;

// Where the fuzzer has it too.
use polder::trace;
