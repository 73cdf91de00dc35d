//! BPF programs at netfilter's hooks (linux/netfilter/nfnetlink_hook.h), of whose changes the kernel tells nobody.

use super::tc;
use polder_devices::netlink::{Client, find, network_number, put};
use rustix::io::Errno;
use rustix::net::netlink::NETFILTER;
use std::sync::atomic::{AtomicBool, Ordering};

/// A program at a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HookedProgram {
    /// Id of the program; 0 if the kernel does not tell it.
    id: u32,
    family: u8,
    hook: &'static str,
}

impl HookedProgram {
    pub(super) fn text(&self) -> String {
        let family = if i32::from(self.family) == libc::AF_INET { "IPv4" } else { "IPv6" };
        format!("BPF program {} at netfilter's hook `{}` ({family})", self.id, self.hook)
    }
}

/// True once the kernel has not known hooks: each further request would have it look for the module.
static IS_MISSING: AtomicBool = AtomicBool::new(false);

/// Reads the programs that forwarded packets pass; none from a kernel without `CONFIG_NETFILTER_NETLINK_HOOK`.
///
/// # Errors
/// Errors of the kernel.
pub(super) fn read() -> Result<Vec<HookedProgram>, Errno> {
    let mut programs = Vec::new();
    // Relaxed: a flag that orders nothing.
    if IS_MISSING.load(Ordering::Relaxed) {
        return Ok(programs);
    }
    let mut client = match Client::open(Some(NETFILTER)) {
        Ok(client) => client,
        Err(error) => return tc::without(error),
    };
    for family in [libc::AF_INET, libc::AF_INET6].map(|family| u8::try_from(family).unwrap_or_default()) {
        for (number, hook) in HOOKS {
            match client.dump(GET_HOOKS, &request(family, number)) {
                Ok(answers) => {
                    let ids = answers.iter().filter_map(|(_, body)| program(body));
                    programs.extend(ids.map(|id| HookedProgram { id, family, hook }));
                }
                Err(Errno::INVAL) if hook == HOOKS[0].1 => {
                    IS_MISSING.store(true, Ordering::Relaxed);
                    return Ok(programs);
                }
                Err(error) => tc::without(error)?,
            }
        }
    }
    Ok(programs)
}

fn request(family: u8, hook: u32) -> Vec<u8> {
    let mut body = vec![family, 0, 0, 0];
    put(&mut body, HOOK_NUMBER, &hook.to_be_bytes());
    body
}

/// Id of the program that a message about a hook is of; `None` for another hook.
fn program(body: &[u8]) -> Option<u32> {
    let information = find(body.get(4..)?, CHAIN_INFO)?;
    let kind = network_number(find(information, INFO_TYPE)?)?;
    let id = || network_number(find(find(information, INFO_DESCRIPTION)?, BPF_ID)?);
    (kind == TYPE_BPF).then(|| id().unwrap_or_default())
}

/// Netfilter's hooks (`NF_INET_*`) that forwarded packets pass.
const HOOKS: [(u32, &str); 3] = [(0, "prerouting"), (2, "forward"), (4, "postrouting")];
/// `NFNL_SUBSYS_HOOK` and `NFNL_MSG_HOOK_GET`.
const GET_HOOKS: u16 = 0xc00;
/// `NFNLA_HOOK_*` and `NFNL_HOOK_TYPE_BPF`.
const HOOK_NUMBER: u16 = 1;
const CHAIN_INFO: u16 = 6;
const INFO_DESCRIPTION: u16 = 1;
const INFO_TYPE: u16 = 2;
const BPF_ID: u16 = 1;
const TYPE_BPF: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// A message about a hook of that type.
    fn message(kind: u32, id: Option<u32>) -> Vec<u8> {
        let mut description = Vec::new();
        if let Some(id) = id {
            put(&mut description, BPF_ID, &id.to_be_bytes());
        }
        let mut information = Vec::new();
        put(&mut information, INFO_DESCRIPTION, &description);
        put(&mut information, INFO_TYPE, &kind.to_be_bytes());
        let mut body = request(2, 2);
        put(&mut body, CHAIN_INFO, &information);
        body
    }

    #[test]
    fn a_program_is_told_from_other_hooks() {
        assert_eq!(program(&message(TYPE_BPF, Some(77))), Some(77));
        assert_eq!(program(&message(TYPE_BPF, None)), Some(0));
        // A chain of nf_tables, and a function of a module, which has no information.
        assert_eq!(program(&message(1, Some(77))), None);
        assert_eq!(program(&request(2, 2)), None);
        let whole = message(TYPE_BPF, Some(77));
        // 77 stands before the type, so any truncation hides what the message is of.
        assert!((0..whole.len()).all(|length| program(&whole[..length]).is_none()));
    }

    #[test]
    fn a_program_is_named_with_its_hook() {
        let text = |family| HookedProgram { id: 7, family, hook: "forward" }.text();
        assert_eq!(text(2), "BPF program 7 at netfilter's hook `forward` (IPv4)");
        assert!(text(10).ends_with("(IPv6)"));
    }
}
