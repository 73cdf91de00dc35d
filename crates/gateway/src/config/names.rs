//! Names of ports and tunnels, and keys that refer to them.

use super::diagnostics::Diagnostic;
use super::model::Configuration;
use super::notation::{Notation, Shape};
use super::section::{Refusal, Section, closest, list};
use super::values;
use polder_buffers::PortId;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use toml::de::DeValue;
use toml::{Spanned, Value};

/// Most ports and tunnels together.
pub(super) const MAX_PORTS: usize = 16_384;
/// Unknown names of a file that a known one is looked for: each look goes over all of those.
const MOST_SUGGESTIONS: usize = 32;
/// Stands for a name that no port or tunnel has, after a finding.
pub(super) const UNKNOWN: PortId = PortId(u16::MAX);

/// Numbers of the ports, then of the tunnels, by name.
#[derive(Debug, Default)]
pub(super) struct Names {
    ids: BTreeMap<String, PortId>,
    /// Ports and tunnels that unknown names were most likely meant to be.
    meant: RefCell<BTreeSet<PortId>>,
    /// Unknown names that were noted, with the place of the table that has them.
    noted: RefCell<BTreeSet<(usize, String)>>,
}

impl Names {
    /// Numbers `ports`, then `tunnels`.
    pub(super) fn new(ports: &[&str], tunnels: &[&str]) -> Self {
        let names = ports.iter().chain(tunnels).take(MAX_PORTS);
        let ids = (0..).zip(names).map(|(id, &name)| (name.to_owned(), PortId(id)));
        Self { ids: ids.collect(), ..Self::default() }
    }

    /// True if an unknown name was most likely meant to be this one's.
    pub(super) fn is_meant(&self, id: PortId) -> bool {
        self.meant.borrow().contains(&id)
    }
}

/// The remedy for a name that is not among the `known`.
pub(super) fn unknown_name<'k>(
    name: &str,
    known: impl Iterator<Item = &'k str> + Clone,
    noun: &str,
) -> String {
    if let Some(close) = closest(name, known.clone()) {
        return format!("did you mean `{close}`?");
    }
    let all: Vec<&str> = known.collect();
    match all.as_slice() {
        [] => format!("the file has no {noun}"),
        all => format!("the file has {}", list(&all[..all.len().min(12)])),
    }
}

/// The name of a port or a tunnel: what it is for, in the words of the guide.
pub(super) struct Reference(pub(super) &'static str);

impl Notation<PortId> for Reference {
    fn read<'d>(&self, value: &'d Spanned<DeValue<'d>>, section: &Section<'d>) -> Result<PortId, Refusal> {
        let name = values::text(value.get_ref())?;
        let names = section.names;
        if let Some(&id) = names.ids.get(&name) {
            return Ok(id);
        }
        if names.noted.borrow_mut().insert((section.span.start, name.clone())) {
            let is_late = names.noted.borrow().len() > MOST_SUGGESTIONS;
            let known = names.ids.keys().map(String::as_str).take(if is_late { 0 } else { MAX_PORTS });
            names.meant.borrow_mut().extend(closest(&name, known.clone()).map(|known| names.ids[known]));
            let message = format!("there is no port or tunnel `{name}`");
            let finding = Diagnostic::error(value.span(), message);
            let remedy = || unknown_name(&name, known, "port");
            section.findings.note(if is_late { finding } else { finding.remedy(remedy()) });
        }
        Ok(UNKNOWN)
    }

    fn write(&self, id: &PortId, all: &Configuration) -> Option<Value> {
        all.table_of(*id).map(|name| name.into())
    }

    fn shape(&self) -> Shape {
        Shape::Text { what: "", range: self.0 }
    }
}

/// The name of a port, or of a tunnel with all its remotes: what it is for, in the words of the guide.
pub(super) struct Whole(pub(super) &'static str);

impl Notation<PortId> for Whole {
    fn read<'d>(&self, value: &'d Spanned<DeValue<'d>>, section: &Section<'d>) -> Result<PortId, Refusal> {
        Reference(self.0).read(value, section)
    }

    /// The first remote is written, and stands for the others.
    fn write(&self, id: &PortId, all: &Configuration) -> Option<Value> {
        let name = all.table_of(*id)?;
        // Tunnels of one list stand together.
        let place = all.place_of_tunnel(*id);
        let before = place.and_then(|place| all.tunnels.get(place.checked_sub(1)?));
        let is_further = before.is_some_and(|before| before.table == name);
        (!is_further).then(|| name.into())
    }

    fn shape(&self) -> Shape {
        Reference(self.0).shape()
    }
}
