//! The steps, in the order of a run: what is quick to say comes first.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::arm;
use crate::checks::{
    circles, decisions, devices, direction, journey, lengths, links, orders, pages, prose, rooms, words,
};
use crate::fuzz;
use crate::miri;
use crate::planted;
use crate::process;
use crate::programs;
use crate::run::Run;
use crate::say;
use crate::site;
use crate::sources;

/// One step of a run.
#[derive(Debug)]
pub(crate) struct Step {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// Property that the step checks.
    pub(crate) about: &'static str,
    /// True if it runs beside the step in front of it.
    pub(crate) is_beside: bool,
    /// Does it.
    pub(crate) run: fn(&mut Run) -> Result<()>,
}

/// Steps of CI. Tests wait for packets most of their time: what compiles for long and says little runs beside them.
pub(crate) const CI: &[Step] = &[
    Step::new("fmt", "the code is formatted", fmt),
    Step::new(
        "words",
        "no unfinished work, no path of one machine, no doc comment that begins with a question",
        words,
    ),
    Step::new("links", "links between documents lead somewhere", links),
    Step::new("decisions", "a decision is a page, and its paths exist", decisions),
    Step::new("pages", "each document is in the site's list and says for whom it is", pages),
    Step::new("prose", "one sentence a line, none over 40 words, in documents", prose),
    Step::new("direction", "gateway → devices → datapath → buffers", direction),
    Step::new("circles", "no circle among the top-level modules of a crate, few among its files", circles),
    Step::new("devices", "few files of the gateway tell kinds of device apart", devices),
    Step::new("rooms", "unsafe code stands in its rooms, the datapath forbids it", rooms),
    Step::new("orders", "each ordering of an atomic access has its argument", orders),
    Step::new("size", "lines of code of each crate (a report)", size),
    Step::new("journey", "files on the way of a bridged, encapsulated packet (a report)", way),
    Step::new("lengths", "files above 400 lines (a report)", lengths),
    Step::new("deny", "licences, bans, sources and advisories of dependencies", deny),
    Step::new("test", "unit, integration and namespace tests", test),
    // These two have folders of their own and begin while tests are built.
    Step::beside("loom", "interleavings of the lock-free parts", loom),
    Step::beside("fuzz-replay", "every committed input of the fuzz targets", fuzz::replay),
    Step::beside("clippy", "lints, warnings are errors", clippy),
    Step::beside("docs", "documentation, warnings are errors", docs),
    Step::beside("doc-tests", "tests in documentation", doc_tests),
    Step::beside(
        "arm",
        "the product compiles for 64-bit ARM, buffers and parsers pass under emulation",
        arm::check,
    ),
];

/// Steps that take too long for CI.
pub(crate) const LONG: &[Step] = &[
    Step::new("soak", "tests that take minutes", soak),
    Step::new("loom-deep", "more interleavings", loom_deep),
    Step::new(
        "loom-planted",
        "orderings that are too weak, one at a time, are found by the models",
        planted::check,
    ),
    Step::new("miri", "tests of memory and of pure parts, by the interpreter's rules", miri::check),
    Step::new("valgrind", "tests of the buffers, each access to the heap checked", valgrind),
    Step::new(
        "arm-long",
        "tests of buffers and datapath for 64-bit ARM; size of the static program",
        arm::long,
    ),
    Step::new("site", "the site of the documents, without a dead link", site::build),
    Step::new("fuzz-long", "three minutes for each fuzz target", fuzz::long),
];

impl Step {
    const fn new(name: &'static str, about: &'static str, run: fn(&mut Run) -> Result<()>) -> Self {
        Self { name, about, is_beside: false, run }
    }

    const fn beside(name: &'static str, about: &'static str, run: fn(&mut Run) -> Result<()>) -> Self {
        Self { name, about, is_beside: true, run }
    }
}

/// Folder in which `scripts/cargo-deny` puts the program.
const CARGO_DENY: &str = "/var/cache/polder/cargo-deny";

/// Preemptions of a thread in one interleaving that CI explores.
pub(crate) const PREEMPTIONS: &str = "3";

/// Bounds: a step that takes longer hangs.
const QUICK: Duration = Duration::from_secs(3 * 60);
const BUILD: Duration = Duration::from_secs(40 * 60);
const TESTS: Duration = Duration::from_secs(40 * 60);
const HOURS: Duration = Duration::from_secs(4 * 60 * 60);

/// The step with that name.
pub(crate) fn find(name: &str) -> Option<&'static Step> {
    CI.iter().chain(LONG).find(|step| step.name == name)
}

fn fmt(run: &mut Run) -> Result<()> {
    if !process::answers(&mut run.command("cargo", &["fmt", "--version"])) {
        return run.missing_tool("rustfmt", "`rustup component add rustfmt`, or the package of that name");
    }
    run.must_succeed(&mut run.command("cargo", &["fmt", "--all", "--", "--check"]), QUICK)?;
    if fuzz::exists(run.root()) {
        let arguments = ["fmt", "--manifest-path", fuzz::MANIFEST, "--", "--check"];
        run.must_succeed(&mut run.command("cargo", &arguments), QUICK)?;
    }
    Ok(())
}

fn words(run: &mut Run) -> Result<()> {
    nothing_found(&words::check(&sources::all(run.root())?))
}

fn links(run: &mut Run) -> Result<()> {
    nothing_found(&links::check(&sources::all(run.root())?))
}

fn decisions(run: &mut Run) -> Result<()> {
    nothing_found(&decisions::check(&sources::all(run.root())?))
}

fn pages(run: &mut Run) -> Result<()> {
    nothing_found(&pages::check(&sources::all(run.root())?))
}

fn prose(run: &mut Run) -> Result<()> {
    nothing_found(&prose::check(&sources::all(run.root())?))
}

fn direction(run: &mut Run) -> Result<()> {
    nothing_found(&direction::check(&metadata(run)?))
}

/// Packages of the workspace, as cargo tells of them.
fn metadata(run: &Run) -> Result<Value> {
    let mut cargo = run.command("cargo", &["metadata", "--format-version", "1", "--no-deps"]);
    let answer = process::output(&mut cargo)?;
    serde_json::from_str(&answer).context("cargo metadata answered something else than JSON")
}

fn circles(run: &mut Run) -> Result<()> {
    let tree = sources::all(run.root())?;
    nothing_found(&circles::check(&tree))?;
    let circles = circles::among_files(&tree).map_err(anyhow::Error::msg)?;
    for circle in &circles {
        let circles::Circle { crate_name, files, .. } = circle;
        say::line(&format!("{:>5} files in crates/{crate_name}/src: {}", files.len(), files.join(", ")));
        let reason = circle.accepted().map(|accepted| format!("      accepted: {}", accepted.reason));
        reason.iter().for_each(|text| say::line(text));
    }
    say::line(&format!("{:>5} circles of files", circles.len()));
    nothing_found(&circles::unaccepted(&circles))
}

fn devices(run: &mut Run) -> Result<()> {
    nothing_found(&devices::check(&sources::all(run.root())?).map_err(anyhow::Error::msg)?)
}

fn rooms(run: &mut Run) -> Result<()> {
    nothing_found(&rooms::check(&sources::all(run.root())?))
}

fn orders(run: &mut Run) -> Result<()> {
    let files = sources::all(run.root())?;
    say::line(&format!(
        "{:>5} orderings of atomic accesses, each with a row in {}",
        orders::count(&files),
        orders::PAGE
    ));
    nothing_found(&orders::check(&files))
}

fn size(run: &mut Run) -> Result<()> {
    let files = sources::all(run.root())?;
    let crates = lengths::code(&files);
    for (name, lines) in &crates {
        say::line(&format!("{lines:>7} crates/{name}/src"));
    }
    let sum: usize = crates.values().sum();
    say::line(&format!("{sum:>7} in all: lines of code without tests, comments and blanks"));
    for (purpose, lines) in lengths::purposes(&files, &crates) {
        say::line(&format!("{lines:>7} {purpose}"));
    }
    Ok(())
}

fn way(run: &mut Run) -> Result<()> {
    let steps = journey::files(&sources::all(run.root())?).map_err(anyhow::Error::msg)?;
    for journey::Step { stage, path, lines, .. } in &steps {
        say::line(&format!("{stage:<12} {lines:>5} {path}"));
    }
    let lines: usize = steps.iter().map(|step| step.lines).sum();
    let code: usize = steps.iter().map(|step| step.code).sum();
    say::line(&format!("{} files, {lines} lines without tests, {code} of them code", steps.len()));
    Ok(())
}

fn lengths(run: &mut Run) -> Result<()> {
    let long = lengths::check(&sources::all(run.root())?);
    say::list(
        &format!("warning: files above {} lines without tests; is each one thing?", lengths::ABOUT),
        &long,
    );
    Ok(())
}

fn deny(run: &mut Run) -> Result<()> {
    let folder = std::env::var("POLDER_CARGO_DENY").unwrap_or_else(|_| CARGO_DENY.to_owned());
    let built = format!("{folder}/bin/cargo-deny");
    // The program takes the word by which cargo calls it.
    let checks =
        |program: &str, words: &[&str]| run.command(program, &[&["deny", "--locked"], words].concat());
    let programs = [built.as_str(), "cargo"];
    let Some(program) =
        programs.into_iter().find(|program| process::answers(&mut checks(program, &["--version"])))
    else {
        return run
            .missing_tool("cargo-deny", "`scripts/cargo-deny`, or `cargo install cargo-deny --locked`");
    };
    let check = ["check", "--hide-inclusion-graph"];
    let of_tree = [&check[..], &["licenses", "bans", "sources"]].concat();
    run.must_succeed(&mut checks(program, &of_tree), QUICK)?;
    if !process::answers(&mut checks(program, &["fetch", "db"])) {
        run.skip("cargo deny check advisories", "the database of advisories cannot be fetched");
        return Ok(());
    }
    run.must_succeed(&mut checks(program, &[&check[..], &["advisories"]].concat()), QUICK)
}

fn clippy(run: &mut Run) -> Result<()> {
    if !process::answers(&mut run.command("cargo", &["clippy", "--version"])) {
        return run.missing_tool("clippy", "`rustup component add clippy`, or the package of that name");
    }
    // `make demo` and an installation build with fewer features than the workspace has.
    let parts =
        [&["--workspace", "--all-targets"][..], &["-p", "polder", "-p", "polder-demo"], &["-p", "polder"]];
    for part in parts {
        let arguments = [&["clippy", "--locked"], part, &["--", "-D", "warnings"]].concat();
        run.must_succeed(&mut run.command("cargo", &arguments), BUILD)?;
    }
    Ok(())
}

fn docs(run: &mut Run) -> Result<()> {
    let mut cargo = run.command("cargo", &["doc", "--workspace", "--no-deps", "--locked"]);
    run.must_succeed(cargo.env("RUSTDOCFLAGS", appended("RUSTDOCFLAGS", "-D warnings")), BUILD)
}

fn test(run: &mut Run) -> Result<()> {
    let programs = programs::build(run, BUILD)?;
    programs::run(run, programs, TESTS)
}

fn doc_tests(run: &mut Run) -> Result<()> {
    let words = ["test", "--workspace", "--locked", "--no-fail-fast", "--doc"];
    run.tests("doc-tests", &mut run.command("cargo", &words), TESTS)
}

fn soak(run: &mut Run) -> Result<()> {
    let arguments = [
        "test",
        "--workspace",
        "--lib",
        "--bins",
        "--tests",
        "--locked",
        "--no-fail-fast",
        "--",
        "--ignored",
    ];
    run.tests("soak", &mut run.command("cargo", &arguments), HOURS)
}

fn loom(run: &mut Run) -> Result<()> {
    explore(run, "loom", PREEMPTIONS, BUILD)
}

fn loom_deep(run: &mut Run) -> Result<()> {
    explore(run, "loom-deep", "5", HOURS)
}

/// Runs the model checker on the unit tests in modules called `loom_tests`, with a build folder of its
/// own, so that neither build throws the other away.
fn explore(run: &mut Run, log: &str, preemptions: &str, deadline: Duration) -> Result<()> {
    if !has_loom_tests(&run.root().join("crates/buffers/src")) {
        bail!("crates/buffers/src holds no module called `loom_tests`");
    }
    let preemptions = std::env::var("LOOM_MAX_PREEMPTIONS").unwrap_or_else(|_| preemptions.to_owned());
    let models = ["-p", "polder-buffers", "-p", "polder-datapath", "loom_tests"];
    let mut cargo = loom_command(run, &models, &preemptions);
    run.tests(log, &mut cargo, deadline)
}

/// Command that runs models, by packages and the beginning of a name.
pub(crate) fn loom_command(run: &Run, models: &[&str], preemptions: &str) -> Command {
    let arguments = [&["test", "--release", "--locked", "--lib"], models].concat();
    let mut cargo = run.command("cargo", &arguments);
    cargo
        .env("RUSTFLAGS", appended("RUSTFLAGS", "--cfg loom"))
        .env("CARGO_TARGET_DIR", run.root().join("target/loom"))
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "none")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
        .env("LOOM_MAX_PREEMPTIONS", preemptions);
    cargo
}

/// Runs the tests of the buffers in valgrind's memcheck: the stable compiler has no sanitizers. It sees what
/// lies on the heap (magazines, links, boxes that cross threads), not slots of packet memory, which the
/// tests mark themselves.
fn valgrind(run: &mut Run) -> Result<()> {
    if !process::answers(Command::new("valgrind").arg("--version")) {
        run.skip("valgrind", "not installed: `apt-get install valgrind`");
        return Ok(());
    }
    let runner = r#"target."cfg(all())".runner = ["valgrind", "-q", "--error-exitcode=9"]"#;
    let mut arguments =
        vec!["test", "-p", "polder-buffers", "--locked", "--lib", "--tests", "--config", runner];
    // In valgrind the thread that is looked at takes page faults of valgrind's own.
    arguments.extend(["--", "--skip", "the_packet_thread_does_not_fault"]);
    let mut cargo = run.command("cargo", &arguments);
    // Without libc, rustix looks at the loader's vectors, which are not as they seem in valgrind.
    cargo
        .env("RUSTFLAGS", appended("RUSTFLAGS", "--cfg rustix_use_libc"))
        .env("CARGO_TARGET_DIR", run.root().join("target/valgrind"));
    run.tests("valgrind", &mut cargo, HOURS)
}

fn has_loom_tests(folder: &Path) -> bool {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .filter_map(|file| fs::read_to_string(file.path()).ok())
        .any(|source| source.contains("mod loom_tests"))
}

/// The value of a variable with flags appended to it.
fn appended(variable: &str, flags: &str) -> String {
    match std::env::var(variable) {
        Ok(before) if !before.trim().is_empty() => format!("{before} {flags}"),
        _ => flags.to_owned(),
    }
}

fn nothing_found(found: &[String]) -> Result<()> {
    if found.is_empty() {
        return Ok(());
    }
    say::list("found:", found);
    bail!("{} to mend", found.len())
}
