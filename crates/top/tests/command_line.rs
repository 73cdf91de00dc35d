//! `polder-top` without a terminal or a gateway.

#![expect(clippy::unwrap_used, reason = "a program that does not start is a failed test")]

use std::process::Command;

/// Exit code, and both outputs.
fn top(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_polder-top")).args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn help_has_the_keys() {
    let (code, said) = top(&["--help"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("--gateway") && said.contains("s sort") && said.contains("q quit"), "{said}");
}

#[test]
fn a_gateway_that_is_not_there_is_named() {
    let (code, said) = top(&["--socket", "/nonexistent/gw.sock"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.starts_with("error: /nonexistent/gw.sock") && !said.contains('\x1b'), "{said}");
}

#[test]
fn an_interval_out_of_range_is_a_wrong_command_line() {
    for wrong in ["0", "61", "fast"] {
        let (code, said) = top(&["--interval", wrong]);
        assert!(code == Some(2) && said.contains("--interval"), "{said}");
    }
}
