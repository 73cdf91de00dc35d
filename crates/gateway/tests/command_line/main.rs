//! The program as people and scripts use it: what it prints, and how it ends.

#![expect(clippy::disallowed_methods, reason = "a test looks at the real clock to give up")]

mod beside;
mod boundary;
mod completions;
mod confined;
mod container;
mod devices;
mod events;
mod gateway;
mod install;
mod manual;
mod metrics;
mod package;
mod plain;
mod preflight;
mod safe;
mod support;
mod sys;
mod unit;
mod usb;
