//! Findings about a configuration, for people: place, offending text, remedy.
//!
//! ```text
//! error: `rolle` is not a key of a port
//!   --> gateway.toml:6:1
//!    |
//!  6 | rolle = "underlay"
//!    | ^^^^^
//!    = help: did you mean `role`?
//! ```

use serde::Serialize;
use std::fmt;
use std::ops::Range;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// It can be used, but is hardly what was meant.
    Warning,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its severity.
    pub severity: Severity,
    /// The finding, in one sentence.
    pub message: String,
    /// Its place, in bytes of the text.
    pub span: Range<usize>,
    /// Its place among the others, in bytes of the text.
    pub place: usize,
    /// Label of that place; may be empty.
    pub label: String,
    /// Other places that belong to it, with what to say about them.
    pub related: Vec<(Range<usize>, String)>,
    /// Remedy.
    pub remedy: Option<String>,
}

impl Diagnostic {
    /// An error at `span`.
    pub fn error(span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            message: message.into(),
            place: span.start,
            span,
            label: String::new(),
            related: Vec::new(),
            remedy: None,
        }
    }

    /// A warning at `span`.
    pub fn warning(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(span, message) }
    }

    /// Is told before what is found in all of the text from `start` on, which may follow from it.
    #[must_use]
    pub fn before(mut self, start: usize) -> Self {
        self.place = self.place.min(start);
        self
    }

    /// Says something about the place itself.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Adds another place.
    #[must_use]
    pub fn related(mut self, span: Range<usize>, label: impl Into<String>) -> Self {
        self.related.push((span, label.into()));
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// All findings about one text, in the order of its lines; of a table's, keys that it does not have come first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Files that the text is of, in their order; at least one.
    files: Vec<FilePart>,
    text: String,
    /// Beginnings of the lines.
    lines: Vec<usize>,
    findings: Vec<Diagnostic>,
}

/// A file, and where its part of a text begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// Its name.
    pub file: String,
    /// The first byte of its part.
    pub start: usize,
}

/// A finding as `polder check --json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding<'a> {
    /// Its severity.
    pub severity: Severity,
    /// The file.
    pub file: &'a str,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The finding.
    pub message: &'a str,
    /// The offending text.
    pub text: &'a str,
    /// Remedy.
    pub remedy: Option<&'a str>,
}

impl Report {
    /// A report about `text`, which is what `file` contains.
    pub fn new(file: impl Into<String>, text: impl Into<String>, findings: Vec<Diagnostic>) -> Self {
        Self::of_files(vec![FilePart { file: file.into(), start: 0 }], text, findings)
    }

    /// A report about `text`, of which the `files` have a part each, the first one from the beginning on.
    pub fn of_files(
        mut files: Vec<FilePart>,
        text: impl Into<String>,
        mut findings: Vec<Diagnostic>,
    ) -> Self {
        files.iter_mut().for_each(|part| part.file = harmless(&part.file));
        findings.sort_by_key(|finding| (finding.place, finding.span.start, finding.span.end));
        for finding in &mut findings {
            let labels = finding.related.iter_mut().map(|(_, label)| label);
            let texts = labels.chain([&mut finding.message, &mut finding.label]).chain(&mut finding.remedy);
            texts.for_each(|text| *text = harmless(text));
        }
        let text = text.into();
        let lines = [0].into_iter().chain(text.match_indices('\n').map(|(newline, _)| newline + 1)).collect();
        Self { files, text, lines, findings }
    }

    /// The findings, in their order.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.findings
    }

    /// Number of errors that there are.
    pub fn errors(&self) -> usize {
        self.findings.iter().filter(|finding| finding.severity == Severity::Error).count()
    }

    /// The findings with their places worked out.
    pub fn findings(&self) -> impl Iterator<Item = Finding<'_>> {
        self.findings.iter().map(|finding| {
            let place = SpanPosition::of(self, &finding.span);
            Finding {
                severity: finding.severity,
                file: &place.part.file,
                line: place.line,
                column: place.column,
                message: &finding.message,
                text: place.offending,
                remedy: finding.remedy.as_deref(),
            }
        })
    }

    /// The first errors with place and remedy, a line each without a picture, and how many more there are.
    pub fn brief(&self) -> String {
        const MOST: usize = 8;
        let line = |finding: Finding<'_>| {
            let remedy = finding.remedy.map(|remedy| format!(": {remedy}")).unwrap_or_default();
            format!("{}:{}:{} {}{remedy}", finding.file, finding.line, finding.column, finding.message)
        };
        let errors = self.findings().filter(|finding| finding.severity == Severity::Error);
        let mut lines = errors.take(MOST).map(line).collect::<Vec<_>>();
        let more = self.errors().saturating_sub(MOST);
        lines.extend((more > 0).then(|| format!("and {more} more: `polder check` lists all")));
        lines.join("\n")
    }

    /// The report as text, with colours if `colour`.
    pub fn render(&self, colour: bool) -> String {
        let mut output = String::new();
        for finding in &self.findings {
            Renderer { report: self, paint: Paint { colour }, output: &mut output }.finding(finding);
            output.push('\n');
        }
        output
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.render(false).trim_end())
    }
}

impl std::error::Error for Report {}

/// Line and column of a span.
struct SpanPosition<'a> {
    part: &'a FilePart,
    /// The line in its file.
    line: usize,
    column: usize,
    content: &'a str,
    /// The part of the span on its first line.
    offending: &'a str,
}

impl<'a> SpanPosition<'a> {
    fn of(report: &'a Report, span: &Range<usize>) -> Self {
        let text = &report.text;
        let start = floor_boundary(text, span.start);
        let line = report.lines.partition_point(|&begin| begin <= start);
        let begin = report.lines[line - 1];
        let content = text[begin..].split('\n').next().unwrap_or_default();
        let content = content.strip_suffix('\r').unwrap_or(content);
        let end = floor_boundary(text, span.end).clamp(start, (begin + content.len()).max(start));
        let part = report.files.partition_point(|part| part.start <= start).saturating_sub(1);
        let part = &report.files[part];
        let line = line - report.lines.partition_point(|&begin| begin < part.start);
        let column = text[begin..start].chars().count() + 1;
        Self { part, line, column, content, offending: &text[start..end] }
    }
}

/// Text from a file, with nothing in it that commands the terminal.
fn harmless(text: &str) -> String {
    text.chars().map(harmless_character).collect()
}

fn harmless_character(c: char) -> char {
    if c.is_control() { '\u{fffd}' } else { c }
}

fn floor_boundary(text: &str, index: usize) -> usize {
    let index = index.min(text.len());
    (0..=index).rev().find(|&candidate| text.is_char_boundary(candidate)).unwrap_or(0)
}

#[derive(Clone, Copy)]
struct Paint {
    colour: bool,
}

impl Paint {
    fn bold(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[1;{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn severity(self, severity: Severity, text: &str) -> String {
        match severity {
            Severity::Error => self.bold("31", text),
            Severity::Warning => self.bold("33", text),
        }
    }

    fn frame(self, text: &str) -> String {
        self.bold("34", text)
    }
}

struct Renderer<'a> {
    report: &'a Report,
    paint: Paint,
    output: &'a mut String,
}

impl Renderer<'_> {
    fn finding(&mut self, finding: &Diagnostic) {
        let word = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let primary = SpanPosition::of(self.report, &finding.span);
        let mut places = vec![(&finding.span, finding.label.as_str(), true)];
        places.extend(finding.related.iter().map(|(span, label)| (span, label.as_str(), false)));
        places.sort_by_key(|(span, _, _)| span.start);
        let lines = places.iter().map(|(span, _, _)| SpanPosition::of(self.report, span));
        let lines = lines.map(|place| (place.part.start, place.line)).collect::<Vec<_>>();
        let width = lines.iter().map(|(_, line)| *line).max().map_or(1, |line| line.to_string().len());

        self.line(&format!("{}: {}", self.paint.severity(finding.severity, word), finding.message));
        let at = format!("{}:{}:{}", primary.part.file, primary.line, primary.column);
        self.line(&format!("{:width$}{} {at}", "", self.paint.frame("-->")));
        self.line(&format!("{:width$} {}", "", self.paint.frame("|")));
        for (index, (span, label, is_primary)) in places.into_iter().enumerate() {
            let same_line = index > 0 && lines[index - 1] == lines[index];
            let before = if index > 0 { lines[index - 1] } else { (primary.part.start, lines[index].1) };
            if lines[index].0 != before.0 {
                let SpanPosition { part, line, column, .. } = SpanPosition::of(self.report, span);
                let file = format!("{:width$}{} {}:{line}:{column}", "", self.paint.frame(":::"), part.file);
                self.line(&file);
            } else if lines[index].1 > before.1 + 1 {
                self.line(&self.paint.frame("..."));
            }
            let severity = is_primary.then_some(finding.severity);
            self.place(span, label, severity, width, !same_line);
        }
        if let Some(remedy) = &finding.remedy {
            let help = format!("{:width$} {} {}", "", self.paint.frame("="), self.paint.bold("36", "help"));
            self.line(&format!("{help}: {remedy}"));
        }
    }

    /// The line of a place (if `with_line`), and the marks below it.
    fn place(
        &mut self,
        span: &Range<usize>,
        label: &str,
        severity: Option<Severity>,
        width: usize,
        with_line: bool,
    ) {
        let place = SpanPosition::of(self.report, span);
        let before = place.column - 1;
        let length = place.offending.chars().count().max(1);
        let window = Window::around(place.content.chars().count(), before, length);
        if with_line {
            let number = self.paint.frame(&format!("{:>width$} |", place.line));
            let shown = window.cut(place.content);
            self.line(format!("{number} {shown}").trim_end());
        }
        let mark = if severity.is_some() { "^" } else { "-" };
        let marks = mark.repeat(length.min(window.end.saturating_sub(before)).max(1));
        let text = format!("{marks} {label}");
        let painted = match severity {
            Some(severity) => self.paint.severity(severity, text.trim_end()),
            None => self.paint.frame(text.trim_end()),
        };
        let bar = self.paint.frame("|");
        let indent = before - window.start + window.prefix().chars().count();
        self.line(&format!("{:width$} {bar} {:indent$}{painted}", "", ""));
    }

    fn line(&mut self, line: &str) {
        self.output.push_str(line);
        self.output.push('\n');
    }
}

/// The part of a long line that is shown, in characters.
struct Window {
    start: usize,
    end: usize,
    total: usize,
}

impl Window {
    const WIDTH: usize = 96;

    fn around(total: usize, before: usize, length: usize) -> Self {
        if total <= Self::WIDTH {
            return Self { start: 0, end: total, total };
        }
        let start = if before + length <= Self::WIDTH { 0 } else { before.saturating_sub(24) };
        Self { start, end: (start + Self::WIDTH).min(total), total }
    }

    fn prefix(&self) -> &'static str {
        if self.start > 0 { "..." } else { "" }
    }

    fn cut(&self, content: &str) -> String {
        let suffix = if self.end < self.total { "..." } else { "" };
        let shown = content.chars().skip(self.start).take(self.end - self.start);
        // One character stays one column.
        let clean: String = shown.map(|c| if c == '\t' { ' ' } else { harmless_character(c) }).collect();
        format!("{}{clean}{suffix}", self.prefix())
    }
}
