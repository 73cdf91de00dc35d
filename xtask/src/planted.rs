//! Orderings that are made too weak on purpose, one at a time: the model checker finds each of them.
//!
//! A copy of the sources is changed, never the tree itself.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::process;
use crate::run::Run;
use crate::say;
use crate::sources;
use crate::steps;
use crate::tally::{self, Line};

/// An ordering that is too weak.
#[derive(Debug)]
struct Planted {
    /// Name of the fault.
    name: &'static str,
    /// File in which it stands.
    file: &'static str,
    /// Code as it is, which stands there once.
    sound: &'static str,
    /// The same with an ordering that is too weak.
    weak: &'static str,
    /// Module whose models find it.
    models: &'static str,
}

/// Package whose models find them.
const PACKAGE: &str = "polder-buffers";

/// Faults, each of which is found.
const FAULTS: &[Planted] = &[
    Planted {
        name: "ring: the producer's cursor",
        file: "crates/buffers/src/ring.rs",
        sound: "self.shared.written.store(self.written, Ordering::Release)",
        weak: "self.shared.written.store(self.written, Ordering::Relaxed)",
        models: "ring::loom_tests",
    },
    Planted {
        name: "ring: a look at the consumer's cursor",
        file: "crates/buffers/src/ring.rs",
        sound: "self.read = self.shared.read.load(Ordering::Acquire)",
        weak: "self.read = self.shared.read.load(Ordering::Relaxed)",
        models: "ring::loom_tests",
    },
    Planted {
        name: "reorder buffer: what has passed",
        file: "crates/buffers/src/reorder.rs",
        sound: "self.cursor.0.store(self.next.to_word(), Ordering::Release)",
        weak: "self.cursor.0.store(self.next.to_word(), Ordering::Relaxed)",
        models: "reorder::loom_tests",
    },
    Planted {
        name: "reorder buffer: a look at the cursor",
        file: "crates/buffers/src/reorder.rs",
        sound: "self.cursor.0.load(Ordering::Acquire)",
        weak: "self.cursor.0.load(Ordering::Relaxed)",
        models: "reorder::loom_tests",
    },
    Planted {
        name: "eventcount: the sleeper's fence",
        file: "crates/buffers/src/eventcount.rs",
        sound: "fence(Ordering::SeqCst);\n    }",
        weak: "fence(Ordering::AcqRel);\n    }",
        models: "eventcount::loom_tests",
    },
    Planted {
        name: "eventcount: the producer's fence",
        file: "crates/buffers/src/eventcount.rs",
        sound: "fence(Ordering::SeqCst);\n        self.0.load(",
        weak: "fence(Ordering::AcqRel);\n        self.0.load(",
        models: "eventcount::loom_tests",
    },
    Planted {
        name: "slot reserve: the end of a give-back",
        file: "crates/buffers/src/slot_reserve/asleep.rs",
        sound: "self.moves.fetch_add(1, Ordering::Release)",
        weak: "self.moves.fetch_add(1, Ordering::Relaxed)",
        models: "slot_reserve::loom_tests",
    },
    Planted {
        name: "work queue: a value is given",
        file: "crates/buffers/src/work_queue.rs",
        sound: "self.shared.given.store(self.given, Ordering::Release)",
        weak: "self.shared.given.store(self.given, Ordering::Relaxed)",
        models: "work_queue::loom_tests",
    },
    Planted {
        name: "work queue: a cell was read",
        file: "crates/buffers/src/work_queue.rs",
        sound: "compare_exchange(taken, next, Ordering::Release, Ordering::Relaxed)",
        weak: "compare_exchange(taken, next, Ordering::Relaxed, Ordering::Relaxed)",
        models: "work_queue::loom_tests",
    },
    Planted {
        name: "stack: a push",
        file: "crates/buffers/src/stack.rs",
        sound: "compare_exchange_weak(top, new, Ordering::Release, Ordering::Relaxed)",
        weak: "compare_exchange_weak(top, new, Ordering::Relaxed, Ordering::Relaxed)",
        models: "loom_tests::a_",
    },
    Planted {
        name: "stack: a pop",
        file: "crates/buffers/src/stack.rs",
        sound: "compare_exchange_weak(top, new, Ordering::Acquire, Ordering::Acquire)",
        weak: "compare_exchange_weak(top, new, Ordering::Relaxed, Ordering::Relaxed)",
        models: "loom_tests::a_",
    },
    Planted {
        name: "aliases: the last reader",
        file: "crates/buffers/src/frame/aliases.rs",
        sound: "fetch_sub(1, Ordering::AcqRel)",
        weak: "fetch_sub(1, Ordering::Relaxed)",
        models: "aliases::loom_tests",
    },
    Planted {
        name: "blocks: the last user",
        file: "crates/buffers/src/blocks.rs",
        sound: "fetch_sub(references, Ordering::AcqRel)",
        weak: "fetch_sub(references, Ordering::Relaxed)",
        models: "carver::loom_tests",
    },
    Planted {
        name: "list of late frees: a push",
        file: "crates/buffers/src/remote_free.rs",
        sound: "compare_exchange_weak(head, index, Ordering::Release, Ordering::Relaxed)",
        weak: "compare_exchange_weak(head, index, Ordering::Relaxed, Ordering::Relaxed)",
        models: "remote_free::loom_tests",
    },
    Planted {
        name: "reserve: a surplus",
        file: "crates/buffers/src/reserve.rs",
        sound: "fence(Ordering::SeqCst);\n        if !self.knows_surplus",
        weak: "fence(Ordering::AcqRel);\n        if !self.knows_surplus",
        models: "reserve::loom_tests",
    },
];

/// The fewest that have to be found, whatever is taken out of the list.
const FEWEST: usize = 5;

const BUILD: Duration = Duration::from_secs(25 * 60);

/// Plants each fault in a copy of the sources and runs the models that are to find it.
pub(crate) fn check(run: &mut Run) -> Result<()> {
    let folder = run.root().join("target/planted");
    let files = sources::all(run.root())?;
    let is_built = |path: &str| {
        ["crates/", "xtask/", "Cargo.", "clippy.toml", "rust-toolchain"]
            .iter()
            .any(|start| path.starts_with(start))
    };
    for (path, text) in files.iter().filter(|(path, _)| is_built(path)) {
        write_if_changed(&folder.join(path), text)?;
    }
    let mut missed = Vec::new();
    for fault in FAULTS {
        let found = plant(run, &folder, fault).with_context(|| format!("fault `{}`", fault.name))?;
        say::line(&format!("    {}: {}", if found { "found" } else { "NOT FOUND" }, fault.name));
        if !found {
            missed.push(fault.name);
        }
    }
    ensure!(missed.is_empty(), "the model checker does not find: {}", missed.join(", "));
    ensure!(FAULTS.len() >= FEWEST, "{} faults; {FEWEST} at least", FAULTS.len());
    say::line(&format!("{:>5} orderings that are too weak were found", FAULTS.len()));
    Ok(())
}

/// True if the models fail while the fault is in place.
fn plant(run: &Run, folder: &Path, fault: &Planted) -> Result<bool> {
    let path = folder.join(fault.file);
    let sound = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let weak = planted(&sound, fault)?;
    fs::write(&path, weak).with_context(|| format!("cannot write {}", path.display()))?;
    let found = has_failure(run, folder, fault);
    fs::write(&path, sound).with_context(|| format!("cannot write {}", path.display()))?;
    found
}

/// The source with the fault.
fn planted(source: &str, fault: &Planted) -> Result<String> {
    let count = source.matches(fault.sound).count();
    ensure!(count == 1, "{}: `{}` stands there {count} times, not once", fault.file, fault.sound);
    Ok(source.replacen(fault.sound, fault.weak, 1))
}

fn has_failure(run: &Run, folder: &Path, fault: &Planted) -> Result<bool> {
    let command = |more: &[&str]| -> Command {
        let mut cargo = steps::loom_command(run, &["-p", PACKAGE, fault.models], steps::PREEMPTIONS);
        // Little of a fault is explored before it is found: the compiler's time counts.
        for setting in ["opt-level=1", "codegen-units=16", "debug=false"] {
            cargo.args(["--config", &format!("profile.release.package.{}.{setting}", PACKAGE)]);
        }
        cargo.args(more).current_dir(folder);
        cargo
    };
    run.must_succeed(&mut command(&["--no-run", "--quiet"]), BUILD)?;
    let mut ran = 0;
    let status = process::run(command(&["--quiet"]).stderr(std::process::Stdio::null()), BUILD, |line| {
        if let Line::Sum(sum) = tally::read(line) {
            ran += sum.passed + sum.failed;
        }
    })?;
    ensure!(ran > 0 || !status.success(), "no model is called `{}`", fault.models);
    Ok(!status.success())
}

/// Writes a file unless it is as wanted, so that cargo sees no change where there is none.
fn write_if_changed(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|before| before == text) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_can_be_planted_and_is_weaker() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tool has a folder");
        for fault in FAULTS {
            let source = fs::read_to_string(root.join(fault.file)).expect(fault.file);
            let weak = planted(&source, fault).expect(fault.name);
            assert_ne!(weak, source);
            assert!(weak.contains("Relaxed") || weak.contains("AcqRel"), "{}", fault.name);
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names = FAULTS.iter().map(|fault| fault.name).collect::<Vec<_>>();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FAULTS.len());
        assert!(names.len() >= FEWEST);
    }
}
