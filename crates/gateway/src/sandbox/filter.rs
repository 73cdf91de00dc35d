//! seccomp filter programs from the table of calls.

use super::calls::{When, calls};
use super::role::Role;
use super::sys::install;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::collections::BTreeMap;

/// Restricts the calling thread to the calls of its role.
///
/// # Errors
/// When the kernel lacks seccomp, or refuses.
pub(super) fn confine(role: Role) -> Result<(), String> {
    let refused = |error: BackendError| error.to_string();
    let program = program(role).map_err(refused)?;
    if role == Role::Control {
        let unseen = unseen().map_err(refused)?;
        // Not logged, because each new thread triggers it.
        install(&unseen, false).map_err(|errno| errno.to_string())?;
    }
    install(&program, true).map_err(|errno| errno.to_string())
}

/// Filter of a role: EPERM for calls outside of its table.
pub(super) fn program(role: Role) -> Result<BpfProgram, BackendError> {
    let mut rules = BTreeMap::<i64, Vec<SeccompRule>>::new();
    // A separate filter answers `clone3` for control threads, which start threads; other roles get EPERM.
    let mut always = if role == Role::Control { vec![libc::SYS_clone3] } else { Vec::new() };
    for call in calls(role) {
        let conditions = conditions(call.when)?;
        if conditions.is_empty() {
            always.push(call.number);
        }
        rules.entry(call.number).or_default().extend(conditions);
    }
    for number in always {
        // A call without rules is permitted with all arguments.
        rules.insert(number, Vec::new());
    }
    build(rules, SeccompAction::Errno(libc::EPERM.cast_unsigned()), SeccompAction::Allow)
}

/// A filter that answers ENOSYS to `clone3`, whose flags are in memory that a filter cannot read.
fn unseen() -> Result<BpfProgram, BackendError> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    build(rules, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS.cast_unsigned()))
}

fn build(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    others: SeccompAction,
    these: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, others, these, architecture)?.try_into()
}

/// Rules of which at least one must match; empty for a call without a condition.
fn conditions(when: When) -> Result<Vec<SeccompRule>, BackendError> {
    use SeccompCmpArgLen::{Dword, Qword};
    let rule = |argument, length, operator, value| {
        SeccompRule::new(vec![SeccompCondition::new(argument, length, operator, value)?])
    };
    let number = |value: i32| u64::from(value.cast_unsigned());
    match when {
        When::Always => Ok(Vec::new()),
        When::OneOf(argument, values) => {
            values.iter().map(|&value| rule(argument, Dword, SeccompCmpOp::Eq, number(value))).collect()
        }
        When::Bits(argument, all, none) => {
            Ok(vec![rule(argument, Qword, SeccompCmpOp::MaskedEq(all | none), all)?])
        }
        When::OwnProcess(argument) => {
            let own = rustix::process::getpid().as_raw_nonzero().get();
            Ok(vec![rule(argument, Dword, SeccompCmpOp::Eq, number(own))?])
        }
    }
}
