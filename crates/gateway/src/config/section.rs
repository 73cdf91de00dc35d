//! One table of the file, read key by key with places kept.
//!
//! Reading never stops at the first error: each key is read for itself, what is wrong is noted, and the
//! caller goes on. A misspelled key is read as the one that it was most likely meant to be, so that nothing
//! is said to be missing that is only misspelled.

use super::diagnostics::{Diagnostic, Severity};
use super::names::Names;
use super::notation::Notation;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Bytes of the text.
pub(super) type Span = Range<usize>;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) span: Span,
}

/// Reason why a value cannot be taken.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) message: String,
    pub(super) remedy: Option<String>,
    /// Place, if it is not the value as a whole.
    pub(super) span: Option<Span>,
    /// True if the message does not go on from the name of the key.
    pub(super) is_sentence: bool,
}

impl Refusal {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), remedy: None, span: None, is_sentence: false }
    }

    /// One for which there is a finding already.
    pub(super) fn noted() -> Self {
        Self { is_sentence: true, ..Self::new("") }
    }

    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// The same of an element of a list, which stands at `span`.
    pub(super) fn of_element(mut self, span: Span) -> Self {
        if !self.is_sentence {
            self.message = format!("has an element that {}", self.message);
            self.span.get_or_insert(span);
        }
        self
    }
}

/// Errors, and warnings, that are made at most; further ones are counted.
pub(super) const MOST_FINDINGS: usize = 200;

/// Findings so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    errors: RefCell<Noted>,
    warnings: RefCell<Noted>,
}

/// Findings of one severity.
#[derive(Debug, Default)]
struct Noted {
    made: Vec<Diagnostic>,
    /// Number of further ones, and the place of the last.
    further: (usize, Span),
}

impl Findings {
    pub(super) fn note(&self, finding: Diagnostic) {
        let noted = match finding.severity {
            Severity::Error => &self.errors,
            Severity::Warning => &self.warnings,
        };
        noted.borrow_mut().note(finding.span.clone(), || finding);
    }

    /// Notes an error that is made if it is among the first.
    pub(super) fn note_error(&self, span: Span, make: impl FnOnce() -> Diagnostic) {
        self.errors.borrow_mut().note(span, make);
    }

    pub(super) fn refuse(&self, refusal: Refusal, span: Span) {
        if refusal.message.is_empty() {
            return;
        }
        let finding = Diagnostic::error(refusal.span.unwrap_or(span), refusal.message);
        self.note(match refusal.remedy {
            Some(remedy) => finding.remedy(remedy),
            None => finding,
        });
    }

    pub(super) fn into_inner(self) -> Vec<Diagnostic> {
        let (errors, warnings) = (self.errors.into_inner(), self.warnings.into_inner());
        errors.all("errors").into_iter().chain(warnings.all("warnings")).collect()
    }
}

impl Noted {
    fn note(&mut self, span: Span, make: impl FnOnce() -> Diagnostic) {
        if self.made.len() < MOST_FINDINGS {
            self.made.push(make());
        } else {
            self.further = (self.further.0 + 1, span);
        }
    }

    /// The findings, and behind them one about those that were only counted.
    fn all(self, noun: &str) -> Vec<Diagnostic> {
        let Self { mut made, further: (count, span) } = self;
        if let (1.., Some(last)) = (count, made.last()) {
            let message = format!("{count} further {noun} are not listed; this is the last one");
            let remedy = format!("correct the first {MOST_FINDINGS} and check again");
            made.push(Diagnostic {
                severity: last.severity,
                place: usize::MAX,
                ..Diagnostic::error(span, message).remedy(remedy)
            });
        }
        made
    }
}

/// The keys that a kind of table has.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    /// Noun of the table, with its article.
    pub(super) noun: &'static str,
    /// Its keys, in the order of the guide.
    pub(super) keys: Vec<&'static str>,
    /// Keys that another table has.
    pub(super) moved: Vec<&'static str>,
}

/// One table of the file.
pub(super) struct Section<'d> {
    /// The table as people write it, such as `[port.lan]`.
    pub(super) title: String,
    /// Place of the table.
    pub(super) span: Span,
    /// Entries of its keys; of one that is missing, what was most likely meant to be it.
    entries: BTreeMap<&'static str, Entry<'d>>,
    pub(super) findings: &'d Findings,
    pub(super) names: &'d Names,
}

impl<'d> Section<'d> {
    /// Opens a table; notes each key that a table of this kind does not have.
    pub(super) fn open(
        title: String,
        span: Span,
        table: &'d DeTable<'d>,
        kind: Kind,
        (findings, names): (&'d Findings, &'d Names),
    ) -> Self {
        let known = |name: &str| kind.keys.iter().copied().find(|known| *known == name);
        let (said, unknown) =
            table.iter().partition::<Vec<Entry<'d>>, _>(|(name, _)| known(str_of(name)).is_some());
        let said = said.into_iter().filter_map(|entry| Some((known(str_of(entry.0))?, entry)));
        let mut entries = said.collect::<BTreeMap<_, _>>();
        let mut remedy = |entry: Entry<'d>| match closest(str_of(entry.0), kind.keys.iter().copied()) {
            Some(meant) => {
                entries.entry(meant).or_insert(entry);
                format!("did you mean `{meant}`?")
            }
            None if kind.moved.contains(&str_of(entry.0)) => {
                "this key is for measurements: move it to the table `[lab]`".to_owned()
            }
            None => format!("the keys of {} are {}", kind.noun, list(&kind.keys)),
        };
        for entry in unknown {
            findings.note_error(entry.0.span(), || {
                let message = format!("`{}` is not a key of {}", printable(str_of(entry.0)), kind.noun);
                Diagnostic::error(entry.0.span(), message).remedy(remedy(entry)).before(span.start)
            });
        }
        Self { title, span, entries, findings, names }
    }

    /// Opens the table that is the value of `key`, if there is one.
    pub(super) fn open_key(&self, key: &str, title: String, kind: Kind) -> Option<Self> {
        self.open_value(self.value(key)?, title, kind)
    }

    /// Opens a value that has to be a table.
    pub(super) fn open_value(
        &self,
        value: &'d Spanned<DeValue<'d>>,
        title: String,
        kind: Kind,
    ) -> Option<Self> {
        let Some(table) = value.get_ref().as_table() else {
            self.refuse_table(value, &title, title.trim_matches('`'));
            return None;
        };
        Some(self.open_table(title, value.span(), table, kind))
    }

    /// Opens a table inside this one.
    pub(super) fn open_table(&self, title: String, span: Span, table: &'d DeTable<'d>, kind: Kind) -> Self {
        Self::open(title, span, table, kind, (self.findings, self.names))
    }

    /// The tables in the table `key`, with their names, in the order of the file.
    pub(super) fn named(&self, key: &str) -> Vec<(At<&'d str>, Option<&'d DeTable<'d>>, Span)> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let Some(table) = value.get_ref().as_table() else {
            self.refuse_table(value, &format!("`{key}`"), &format!("[{key}.NAME]"));
            return Vec::new();
        };
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let entry = |(name, value): (&'d Name<'d>, &'d Spanned<DeValue<'d>>)| {
            let inner = value.get_ref().as_table();
            if inner.is_none() {
                let title = format!("{key}.{}", printable(str_of(name)));
                self.refuse_table(value, &format!("`{title}`"), &format!("[{title}]"));
            }
            (At { value: str_of(name), span: name.span() }, inner, value.span())
        };
        entries.into_iter().map(entry).collect()
    }

    fn refuse_table(&self, value: &Spanned<DeValue<'_>>, name: &str, header: &str) {
        let Refusal { message, .. } = wrong_type("a table", value.get_ref());
        let remedy = format!("write `{header}` on a line of its own and the keys below it");
        self.error(value.span(), format!("{name} {message}"), remedy);
    }

    /// The value of `key`, if it is there.
    pub(super) fn value(&self, key: &str) -> Option<&'d Spanned<DeValue<'d>>> {
        self.entry(key).map(|(_, value)| value)
    }

    /// `key` and its value; without it, what was most likely meant to be it.
    fn entry(&self, key: &str) -> Option<Entry<'d>> {
        self.entries.get(key).copied()
    }

    /// Places of `key`: of its name, its value, and the elements of that if it is a list.
    pub(super) fn place(&self, key: &str) -> Option<((Span, Span), Vec<Span>)> {
        let (name, value) = self.entry(key)?;
        let elements = value.get_ref().as_array().into_iter().flat_map(|array| array.iter());
        Some(((name.span(), value.span()), elements.map(Spanned::span).collect()))
    }

    /// Opens each table of the list that is the value of `key`; `title` is that of the list.
    pub(super) fn open_list(&self, key: &str, title: &str, kind: impl Fn() -> Kind) -> Vec<Self> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let Some(array) = value.get_ref().as_array() else {
            let Refusal { message, .. } = wrong_type("a list of tables", value.get_ref());
            self.error(value.span(), format!("`{key}` {message}"), format!("write each as `{title}`"));
            return Vec::new();
        };
        array.iter().filter_map(|value| self.open_value(value, title.to_owned(), kind())).collect()
    }

    /// True if `key` is there, readable or not.
    pub(super) fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Place of the name of `key`.
    pub(super) fn key_span(&self, key: &str) -> Option<Span> {
        self.entry(key).map(|(name, _)| name.span())
    }

    /// Reads `key` by its notation; notes what is wrong with its value.
    pub(super) fn read_as<T>(&self, key: &str, notation: &impl Notation<T>) -> Option<T> {
        let value = self.value(key)?;
        let noted = |refusal: Refusal| {
            let message =
                if refusal.is_sentence { refusal.message } else { format!("`{key}` {}", refusal.message) };
            self.findings.refuse(Refusal { message, ..refusal }, value.span());
        };
        notation.read(value, self).map_err(noted).ok()
    }

    /// Notes an error at `span`.
    pub(super) fn error(&self, span: Span, message: impl Into<String>, remedy: impl Into<String>) {
        self.findings.note(Diagnostic::error(span, message).remedy(remedy));
    }
}

/// A key with its value.
type Entry<'d> = (&'d Name<'d>, &'d Spanned<DeValue<'d>>);
/// A key and where it stands.
type Name<'d> = Spanned<Cow<'d, str>>;

fn str_of<'d>(name: &'d Name<'d>) -> &'d str {
    name.get_ref()
}

/// The refusal of a value of another type than the `expected`.
pub(super) fn wrong_type(expected: &str, found: &DeValue<'_>) -> Refusal {
    let article = if matches!(found, DeValue::Integer(_) | DeValue::Array(_)) { "an" } else { "a" };
    Refusal::new(format!("has to be {expected}, not {article} {}", found.type_str()))
}

/// The known word that `word` was most likely meant to be.
pub(super) fn closest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let word = word.to_lowercase().replace('-', "_");
    let distance = |candidate: &&'k str| strsim::damerau_levenshtein(&word, &candidate.replace('-', "_"));
    let nearest = known.min_by_key(distance)?;
    let length = word.chars().count().max(nearest.chars().count());
    (distance(&nearest) <= length.div_ceil(3).min(3)).then_some(nearest)
}

/// Words for a sentence: `a`, `b` and `c`.
pub(super) fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.as_slice() {
        [] => "none".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `text` on one line and without anything that commands a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The finding for an error in the notation itself.
pub(super) fn syntax(error: &toml::de::Error, text: &str) -> Diagnostic {
    let message = error.message().replace('\n', ", ");
    let remedy = if message.contains("quoted") {
        "put text in quotes; write numbers, `true` and `false` without"
    } else if message.contains("duplicate") {
        "remove one of the two"
    } else {
        "the syntax is not TOML; docs/guide/configuration.md has examples"
    };
    let span = error.span().unwrap_or(0..0);
    let first = if message.contains("duplicate") { first_of(&span, text) } else { None };
    let finding = Diagnostic::error(span, message).remedy(remedy);
    match first {
        Some(first) => finding.related(first, "first here"),
        None => finding,
    }
}

/// Place of the earlier line with the same table, or with the same key in its table.
fn first_of(span: &Span, text: &str) -> Option<Span> {
    let name = |line: &str| {
        let line = line.trim();
        let end = if line.starts_with('[') { line.rfind(']').map(|end| end + 1) } else { line.find('=') };
        end.map(|end| line[..end].trim_end_matches('=').trim().to_owned())
    };
    let begin = text.get(..span.start)?.rfind('\n').map_or(0, |newline| newline + 1);
    let wanted = name(text[begin..].lines().next()?)?;
    let mut end = begin;
    for line in text[..begin].split_inclusive('\n').rev() {
        let start = end - line.len();
        if name(line).as_ref() == Some(&wanted) {
            return Some(start..start + line.trim_end().len());
        }
        // A key is searched for in its table alone.
        if line.trim_start().starts_with('[') && !wanted.starts_with('[') {
            return None;
        }
        end = start;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::MOST_FINDINGS;
    use std::fmt::Write as _;
    use std::path::Path;

    fn report(lines: impl Iterator<Item = String>) -> super::super::Report {
        let mut text = "version = 1\n[port.a]\ninterface = \"eth0\"\nrole = \"router\"\n".to_owned();
        lines.for_each(|line| writeln!(text, "{line}").expect("it is written to memory"));
        parse(&text, Path::new("a.toml")).expect_err("it is wrong")
    }

    /// A hundred thousand of each: a cost that grows with the square of their number does not end.
    #[test]
    fn errors_are_made_up_to_a_bound_and_counted_beyond() {
        const MANY: usize = 100_000;
        let unknown = report((0..MANY).map(|number| format!("k{number} = 1")));
        assert_eq!(unknown.errors(), MOST_FINDINGS + 1);
        let last = unknown.findings().last().expect("findings");
        assert_eq!(last.message, "99800 further errors are not listed; this is the last one");
        assert_eq!((last.line, last.text), (MANY + 4, "k99999"));
        assert_eq!(unknown.to_string().matches("error: ").count(), MOST_FINDINGS + 1);

        let ports = report((1..MANY).map(|number| format!("[port.p{number}]\ninterface = \"eth{number}\"")));
        let message = ports.findings().next().expect("a finding").message.to_owned();
        assert_eq!((ports.errors(), &*message), (1, "100000 ports and tunnels are too many for one gateway"));

        let members = (0..10_000).map(|number| format!("\"x{number}\"")).collect::<Vec<_>>().join(",");
        let names = report([format!("[bridge.br0]\nmembers = [{members}]")].into_iter());
        assert_eq!(names.errors(), MOST_FINDINGS + 1);
    }
}
