//! The product on 64-bit ARM: compiled for it, its tests run under emulation, its static program measured.
//!
//! QEMU emulates one process (`qemu-user`) and hands its system calls to this machine's kernel, which an emulated processor
//! cannot reorder the accesses of: orders of memory are judged by loom and by reading, not here.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::process;
use crate::run::Run;
use crate::say;

/// The machine, with the GNU C library and with one that is linked statically.
const GNU: &str = "aarch64-unknown-linux-gnu";
const MUSL: &str = "aarch64-unknown-linux-musl";

/// The compiler that links, and the emulator; what a program finds its libraries in.
const LINKER: &str = "aarch64-linux-gnu-gcc";
const STRIP: &str = "aarch64-linux-gnu-strip";
const EMULATOR: &str = "qemu-aarch64";
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// Test programs that run in CI: everything of the buffers, and the parsers of the datapath.
const TESTS: [&str; 5] = ["chain", "fragments", "pool", "reserve", "wire"];

/// Random cases of a property in CI. An emulated processor takes ten times as long.
const CASES: &str = "24";

/// Largest static program, stripped: 8 MiB are a part that a router's flash memory has room for.
const MOST_BYTES: u64 = 8 << 20;

const BUILD: Duration = Duration::from_secs(40 * 60);
const HOURS: Duration = Duration::from_secs(4 * 60 * 60);

/// Lints the product with the features of an installation, and runs tests of buffers and parsers.
pub(crate) fn check(run: &mut Run) -> Result<()> {
    if !has_target(run, "arm", GNU) {
        return Ok(());
    }
    let has_clippy = process::answers(&mut run.command("cargo", &["clippy", "--version"]));
    let lint = if has_clippy { "clippy" } else { "check" };
    let mut cargo = run.command("cargo", &[lint, "--locked", "--target", GNU, "-p", "polder"]);
    run.must_succeed(cargo.env("RUSTFLAGS", "-D warnings"), BUILD)?;
    if !has_tools(run, "arm", &[LINKER, EMULATOR]) {
        return Ok(());
    }
    let chosen = TESTS.iter().flat_map(|test| ["--test", test]).collect::<Vec<_>>();
    let mut cargo = tests(run, &[&["--lib"], &chosen[..]].concat());
    run.tests("arm", cargo.env("PROPTEST_CASES", CASES), BUILD)
}

/// Runs all tests of buffers and datapath, and measures the static program.
pub(crate) fn long(run: &mut Run) -> Result<()> {
    if has_target(run, "arm-long", GNU) && has_tools(run, "arm-long", &[LINKER, EMULATOR]) {
        run.tests("arm-long", &mut tests(run, &["--lib", "--tests"]), HOURS)?;
    }
    if has_target(run, "arm-static", MUSL) && has_tools(run, "arm-static", &[LINKER, STRIP, EMULATOR]) {
        measure_static(run)?;
    }
    Ok(())
}

/// The command that runs tests of both crates under emulation.
fn tests(run: &Run, chosen: &[&str]) -> Command {
    let crates = ["-p", "polder-buffers", "-p", "polder-datapath"];
    let arguments = [&["test", "--locked", "--no-fail-fast", "--target", GNU], &crates[..], chosen].concat();
    let mut cargo = run.command("cargo", &arguments);
    cargo
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("{EMULATOR} -L {LIBRARIES}"));
    cargo
}

/// Builds the static program, strips it, and has it say its version.
fn measure_static(run: &Run) -> Result<()> {
    let mut cargo =
        run.command("cargo", &["build", "--release", "--locked", "--target", MUSL, "-p", "polder"]);
    run.must_succeed(cargo.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", LINKER), BUILD)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| run.root().join("target"), Into::into);
    let folder = target.join(MUSL).join("release");
    let [program, stripped] = ["polder", "polder.stripped"].map(|name| folder.join(name));
    let mut strip = Command::new(STRIP);
    run.must_succeed(strip.arg("-o").args([&stripped, &program]), BUILD)?;
    run.must_succeed(Command::new(EMULATOR).arg(&stripped).arg("--version"), BUILD)?;
    let bytes = fs::metadata(&stripped).with_context(|| format!("{} is missing", stripped.display()))?.len();
    let verdict = if bytes <= MOST_BYTES { "no more" } else { "warning: more" };
    say::line(&format!(
        "{bytes:>9} bytes: the static program for {MUSL}, stripped; {verdict} than {MOST_BYTES}"
    ));
    Ok(())
}

/// True if the compiler has the library of `target`; otherwise `what` is skipped.
fn has_target(run: &mut Run, what: &str, target: &str) -> bool {
    let has = has_library(run, target);
    if !has {
        run.skip(what, &format!("no library for {target}: `rustup target add {target}`"));
    }
    has
}

fn has_library(run: &Run, target: &str) -> bool {
    let mut rustc = run.command("rustc", &["--print", "target-libdir", "--target", target]);
    process::output(&mut rustc).is_ok_and(|folder| Path::new(folder.trim()).is_dir())
}

/// True if the programs are installed; otherwise `what` is skipped.
fn has_tools(run: &mut Run, what: &str, programs: &[&str]) -> bool {
    let is_missing = |program: &&&str| !process::answers(Command::new(program).arg("--version"));
    let missing = programs.iter().filter(is_missing).copied().collect::<Vec<_>>();
    let has_library = Path::new(LIBRARIES).join("lib/libc.so").exists();
    if missing.is_empty() && has_library {
        return true;
    }
    let names = if missing.is_empty() { "libc6-dev-arm64-cross".to_owned() } else { missing.join(", ") };
    run.skip(what, &format!("not installed: {names}; `scripts/install-test-dependencies` has the packages"));
    false
}
