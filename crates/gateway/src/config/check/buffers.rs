//! Buffers: that headers and copies find room in them.

use super::super::buffers::{Buffers, Headroom, headroom, needed_headroom};
use super::super::diagnostics::Diagnostic;
use super::super::model::Configuration;
use super::super::read::BuffersDraft;
use super::super::section::Findings;
use polder_buffers::HEADROOM;

/// Memory for small pieces when nothing is said: this part of the packet memory.
const FRAGMENTS_SHARE: u32 = 4;

/// What the section says, with defaults that depend on others filled in.
pub(super) fn resolve(draft: &BuffersDraft, memory_mib: u32) -> Buffers {
    Buffers {
        fragments_mib: draft.fragments_mib.unwrap_or((memory_mib / FRAGMENTS_SHARE).max(1)),
        copy_break: draft.copy_break.as_ref().map_or(draft.rest.copy_break, |at| at.value),
        headroom: draft.headroom.as_ref().map_or(Headroom::Auto, |at| at.value),
        ..draft.rest.clone()
    }
}

/// Checks that what is put in front of packets finds room.
pub(super) fn check(draft: &BuffersDraft, configuration: &Configuration, findings: &Findings) {
    let needed = needed_headroom(configuration);
    if needed > HEADROOM {
        let message =
            format!("tunnels and tags put {needed} bytes in front of a packet, which has {HEADROOM}");
        let remedy = "leave out `key`, `checksum` or `sequence` of the tunnels with the longest headers";
        findings.note(Diagnostic::error(0..0, message).remedy(remedy));
    }
    if let Some(at) = &draft.headroom
        && let Headroom::Bytes(bytes) = at.value
        && bytes < needed
    {
        let message = format!("{bytes} bytes in front of packets, and the configuration can add {needed}");
        let remedy = format!(
            "leave `headroom` out, or set it to {needed} or more; with \"off\" packets are copied to make room"
        );
        findings.note(Diagnostic::error(at.span.clone(), message).remedy(remedy));
    }
    let room = configuration.gateway.slot_bytes / 2;
    let most = u16::try_from(room).unwrap_or(u16::MAX).saturating_sub(headroom(configuration));
    if let Some(at) = draft.copy_break.as_ref().filter(|at| at.value > most) {
        let message = format!("a copy of {} bytes and its headroom are more than half a slot", at.value);
        let remedy = format!("copy at most {most} bytes, or set `slot_bytes` to 4096");
        findings.note(Diagnostic::error(at.span.clone(), message).remedy(remedy));
    }
}
