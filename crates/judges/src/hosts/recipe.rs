//! Recipes as data: a network, the software of a host, probes, mutants.

use super::bed::Bed;

/// Software as people have it on a gateway, and what has to go on working.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(super) name: &'static str,
    /// Programs; the recipe is skipped where one is missing.
    pub(super) programs: &'static [&'static str],
    /// Modules of the kernel, beside those of every guest; a kernel that lacks them is replaced by a guest's.
    pub(super) modules: &'static [&'static str],
    /// Commands of a shell in an empty namespace that fail where the kernel lacks the modules.
    pub(super) needs: &'static str,
    pub(super) network: &'static Network,
    /// Commands that run once, behind those of the network.
    pub(super) setup: &'static [Script],
    /// Services in the order of their start; they end in reverse.
    pub(super) services: &'static [Service],
    /// Tables of the gateway's configuration, behind those of the network.
    pub(super) tables: &'static str,
    pub(super) probes: &'static [Probe],
    pub(super) mutants: &'static [Mutant],
    /// Words of the finding with which a gateway refuses to start while the services stand; none if it has to start.
    pub(super) refused: &'static [&'static str],
}

/// A network around the gateway, whose namespace is [`GATEWAY`].
#[derive(Debug)]
pub(super) struct Network {
    pub(super) wires: &'static [Wire],
    /// Namespaces without a wire.
    pub(super) others: &'static [&'static str],
    pub(super) setup: &'static [Script],
    /// Commands that take the interfaces from the kernel before Polder starts.
    pub(super) hand_over: &'static [Script],
    /// Commands that run when Polder answers.
    pub(super) arrived: &'static [Script],
    /// Commands that give the interfaces back to the kernel after Polder has ended.
    pub(super) give_back: &'static [Script],
    /// Tables of the configuration; a line [`MODE`] stands for the mode of a port.
    pub(super) tables: &'static str,
}

/// The gateway's namespace.
pub(super) const GATEWAY: &str = "gw";
/// Line of the configuration that is replaced by the mode of a port.
pub(super) const MODE: &str = "MODE";

/// An interface: its namespace and its name there.
pub(super) type Place = (&'static str, &'static str);

/// A wire between two interfaces.
#[derive(Debug)]
pub(super) struct Wire(pub(super) Place, pub(super) Place);

/// Commands of a shell in a namespace; `{dir}` stands for its directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script(pub(super) &'static str, pub(super) &'static str);

/// A service of a machine.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) at: &'static str,
    pub(super) kind: Kind,
    /// True if it starts after Polder alone.
    pub(super) late: bool,
    /// Files of its directory: name and text, in which `{dir}` stands for the directory.
    pub(super) files: &'static [(&'static str, &'static str)],
}

/// Kind of a service.
#[derive(Debug)]
pub(super) enum Kind {
    /// Commands of a shell, the last of which is `exec` with a program that runs until it is ended.
    Program(&'static str),
    /// Commands that put state into the kernel, and commands that remove it.
    State { start: &'static str, stop: &'static str },
}

impl Service {
    pub(super) const fn program(at: &'static str, line: &'static str) -> Self {
        Self { at, kind: Kind::Program(line), late: false, files: &[] }
    }

    pub(super) const fn state(at: &'static str, start: &'static str, stop: &'static str) -> Self {
        Self { at, kind: Kind::State { start, stop }, late: false, files: &[] }
    }

    /// Adds configuration files to the service.
    pub(super) const fn with(mut self, files: &'static [(&'static str, &'static str)]) -> Self {
        self.files = files;
        self
    }

    /// Starts the service after Polder instead of before.
    pub(super) const fn late(mut self) -> Self {
        self.late = true;
        self
    }
}

/// A protocol and a direction, with a question that is answered by yes or no.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) name: &'static str,
    pub(super) ask: Ask,
    /// Words of the finding of `polder check` that says that it will not work; none if it has to work.
    pub(super) said: &'static [&'static str],
    /// True if the kernel alone cannot do it.
    pub(super) polder_alone: bool,
}

/// Question of a probe, which is asked until the answer is yes or time is up.
#[derive(Debug)]
pub(super) enum Ask {
    /// True if `to` answers one ping.
    Ping { from: &'static str, to: &'static str, options: &'static str },
    /// True if the commands of a shell succeed.
    Holds(&'static str, &'static str),
    /// True if every echo request to `to` is seen at `via`, and none at `never`.
    Passes { from: &'static str, to: &'static str, via: Place, never: Option<Place> },
    /// A question of its own.
    Own(fn(&Bed<'_>) -> anyhow::Result<bool>),
}

impl Probe {
    pub(super) const fn new(name: &'static str, ask: Ask) -> Self {
        Self { name, ask, said: &[], polder_alone: false }
    }

    pub(super) const fn ping(name: &'static str, from: &'static str, to: &'static str) -> Self {
        Self::new(name, Ask::Ping { from, to, options: "" })
    }

    pub(super) const fn holds(name: &'static str, at: &'static str, line: &'static str) -> Self {
        Self::new(name, Ask::Holds(at, line))
    }

    pub(super) const fn own(name: &'static str, ask: fn(&Bed<'_>) -> anyhow::Result<bool>) -> Self {
        Self::new(name, Ask::Own(ask))
    }

    /// Marks the probe as one that `polder check` may report as not working.
    pub(super) const fn said(mut self, words: &'static [&'static str]) -> Self {
        self.said = words;
        self
    }

    /// Marks the probe as one that works only with Polder.
    pub(super) const fn polder_alone(mut self) -> Self {
        self.polder_alone = true;
        self
    }
}

/// A fault of the host, which probes have to find.
#[derive(Debug)]
pub(super) struct Mutant {
    pub(super) name: &'static str,
    /// Namespace, commands that make the fault, and commands that mend it.
    pub(super) at: &'static str,
    pub(super) begin: &'static str,
    pub(super) end: &'static str,
    /// Names of the probes each of which has to fail.
    pub(super) found_by: &'static [&'static str],
}

/// A fault whose commands are at one place.
impl Mutant {
    pub(super) const fn new(
        name: &'static str,
        (at, begin, end): (&'static str, &'static str, &'static str),
        found_by: &'static [&'static str],
    ) -> Self {
        Self { name, at, begin, end, found_by }
    }
}
