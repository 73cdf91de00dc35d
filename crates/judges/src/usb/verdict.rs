//! Result of an examination, and how it comes about.

use polder_testbed::{clock, interrupt};
use std::time::Duration;

/// A check: its name, and the examination.
pub(super) type Check<B> = (&'static str, fn(&mut B) -> anyhow::Result<()>);

/// Result of an examination.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// Checks that were passed.
    pub passed: Vec<String>,
    /// Checks that were not, and why.
    pub failed: Vec<String>,
    /// Broken subjects that were found out, and the check that did.
    pub caught: Vec<String>,
    /// Broken subjects that passed for honest ones.
    pub missed: Vec<String>,
    /// Duration of each part.
    pub took: Vec<(String, Duration)>,
    /// The guest's kernel.
    pub kernel: String,
}

impl Judgement {
    /// Holds checks of a subject of that name.
    pub(super) fn hold<B>(
        &mut self,
        subject: &str,
        checks: &[Check<B>],
        bed: &mut B,
        says: &dyn Fn(&str),
    ) -> anyhow::Result<()> {
        for (name, examine) in checks {
            says(name);
            let start = clock::now();
            let result = examine(bed);
            interrupt::check()?;
            let name = format!("{subject}: {name}");
            self.took.push((name.clone(), clock::now() - start));
            match result {
                Ok(()) => self.passed.push(name),
                Err(error) => self.failed.push(format!("{name}: {error:#}")),
            }
        }
        Ok(())
    }

    /// Gives a broken subject the check that has to find it.
    pub(super) fn look_for<B>(
        &mut self,
        subject: &str,
        (name, examine): Check<B>,
        bed: &mut B,
    ) -> anyhow::Result<()> {
        let start = clock::now();
        match examine(bed) {
            Ok(()) => self.missed.push(subject.to_owned()),
            Err(error) => self.caught.push(format!("{subject}: {name}: {error:#}")),
        }
        self.took.push((subject.to_owned(), clock::now() - start));
        interrupt::check()?;
        Ok(())
    }
}
