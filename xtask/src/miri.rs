//! Tests in Miri, which interprets a program and finds accesses that the language does not allow.
//!
//! It finds data races among the threads of a test, uses of memory that is gone, and references that contradict each
//! other. Unlike the model checker it runs one interleaving, with weak memory.

use std::time::Duration;

use anyhow::Result;

use crate::process;
use crate::run::Run;

/// The compiler that has the interpreter.
const TOOLCHAIN: &str = "+nightly";

/// Modules of the buffers whose tests map no memory, which the interpreter cannot do, and end within minutes.
const MODULES: &[&str] =
    &["bits::", "eventcount::", "fragment::carver::", "reorder::", "slot_reserve::", "stack::"];

/// Random cases of a property: an interpreted test takes some hundred times as long.
const CASES: &str = "4";

const HOURS: Duration = Duration::from_secs(4 * 60 * 60);

/// Runs tests of the buffers.
pub(crate) fn check(run: &mut Run) -> Result<()> {
    if !process::answers(&mut run.command("cargo", &[TOOLCHAIN, "miri", "--version"])) {
        run.skip("miri", "not installed: `rustup toolchain install nightly --component miri,rust-src`");
        return Ok(());
    }
    let arguments = [TOOLCHAIN, "miri", "test", "--locked", "-p", "polder-buffers", "--lib", "--"];
    let mut cargo = run.command("cargo", &[&arguments[..], MODULES].concat());
    cargo
        .env("CARGO_TARGET_DIR", run.root().join("target/miri"))
        .env("PROPTEST_CASES", CASES)
        // The library of properties looks for its files; system calls in assembly cannot be interpreted.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .env("RUSTFLAGS", "--cfg rustix_use_libc");
    run.tests("miri", &mut cargo, HOURS)
}
