//! A guest in which `polder` runs.

use crate::program;
use polder_testbed::guest::agent::{Answer, Request};
use polder_testbed::guest::{Guest, Kernel, Options};
use polder_testbed::peers::polder::find;
use polder_testbed::{clock, command, peers};
use serde_json::Value;
use std::time::Duration;

/// Time for which anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Socket of the gateway inside.
pub(crate) const SOCKET: &str = "/run/gw.sock";

/// Parts of a guest.
pub(crate) struct Inside<'a> {
    /// Modules of the kernel.
    pub(crate) modules: &'a [&'a str],
    /// Modules that are loaded later.
    pub(crate) spare_modules: &'a [&'a str],
    /// Suite of Debian that the kernel is from; `None` for the machine's own.
    pub(crate) suite: Option<&'a str>,
    /// Programs.
    pub(crate) programs: &'a [&'a str],
    /// Commands that make namespaces and interfaces, one a line.
    pub(crate) setup: &'a str,
}

impl Inside<'_> {
    /// Fails where it cannot be had.
    pub(crate) fn available(&self) -> anyhow::Result<Kernel> {
        for program in self.programs.iter().copied().chain(["ldd"]) {
            anyhow::ensure!(command::exists(program), "{}", command::remedy(program));
        }
        let own = Guest::available()?;
        let kernel = self.suite.map_or(Ok(own), Kernel::of_suite)?;
        kernel.with_dependencies(&[self.modules, self.spare_modules].concat())?;
        Ok(kernel)
    }
}

/// The machine inside.
pub(crate) struct Machine {
    pub(crate) guest: Guest,
    /// Process of the gateway that was started last.
    pub(crate) polder: u32,
}

impl Machine {
    /// Boots, and makes what `inside` says.
    pub(crate) fn boot(kernel: &Kernel, inside: &Inside<'_>) -> Self {
        let polder = peers::polder::program().unwrap();
        let programs = inside.programs.iter().copied().chain([polder.to_str().unwrap()]).collect::<Vec<_>>();
        let options = Options {
            spare_modules: inside.spare_modules,
            memory_mib: 768,
            ..Options::of(program(), inside.modules, &programs)
        };
        let mut guest = Guest::boot(kernel, &options).unwrap();
        for line in inside.setup.lines().map(str::trim).filter(|line| !line.is_empty()) {
            guest.run(line).unwrap();
        }
        Self { guest, polder: 0 }
    }

    /// Starts a gateway.
    pub(crate) fn gateway(&mut self, configuration: &str) {
        self.guest.ask(&Request::Write("/tmp/gw.toml".to_owned(), configuration.to_owned())).unwrap();
        let words = ["polder", "run", "--yes", "/tmp/gw.toml"].map(str::to_owned).to_vec();
        self.polder = self.guest.ask(&Request::Start(words)).unwrap().parse().unwrap();
        self.until("polder answers", |machine| machine.show("ports").is_some());
    }

    pub(crate) fn says(&mut self, line: &str) -> Answer {
        self.guest.try_ask(&Request::run(line), PATIENCE).unwrap()
    }

    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let end = clock::now() + PATIENCE;
        while !holds(self) {
            if clock::now() > end {
                let said = self.guest.ask(&Request::Read(format!("/tmp/said-{}", self.polder)));
                panic!("never: {what}: {}", said.unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Output of `polder show WHAT --json`.
    pub(crate) fn show(&mut self, what: &str) -> Option<Value> {
        let answer = self.says(&format!("polder show {what} --json --socket {SOCKET}"));
        serde_json::from_str(&answer.text).ok().filter(|_| answer.ok)
    }

    pub(crate) fn count(&mut self, what: &str, name: &str) -> Option<i64> {
        find(&self.show(what)?, name)?.as_i64()
    }

    pub(crate) fn reaches(&mut self, from: &str, to: &str, options: &str) {
        let line = format!("ip netns exec {from} ping -n -q -c 2 -i 0.2 -W 2 {options} {to}");
        self.until(&line, |machine| machine.says(&line).text.contains(" 0% packet loss"));
    }
}
