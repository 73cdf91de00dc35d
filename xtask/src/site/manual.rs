//! Manual pages as Markdown: the subset of roff that `polder manual-pages` writes.

/// A manual page as a page of the site.
pub(super) fn markdown(title: &str, roff: &str) -> String {
    let mut page = format!("# {title}\n\n*For operators who look up a command, an option or a key.*\n");
    let mut lines = roff.lines();
    while let Some(line) = lines.next() {
        let (request, rest) = line.split_once(' ').unwrap_or((line, ""));
        match request {
            ".SH" => page.push_str(&format!("\n## {}\n\n", heading(rest))),
            ".TP" => {
                let term = lines.next().unwrap_or_default();
                page.push_str(&format!("\n{}\n: ", text(term)));
            }
            ".IP" => page.push_str("\n  - "),
            ".PP" => page.push('\n'),
            ".nf" => page.push_str("```text\n"),
            ".fi" => page.push_str("```\n"),
            ".br" | ".RS" | ".RE" | ".TH" | ".ie" | ".el" => {}
            _ if page.rsplit_once("```").is_some_and(|(_, block)| block.starts_with("text")) => {
                page.push_str(&format!("{}\n", characters(line)));
            }
            _ => page.push_str(&format!("{}\n", text(line))),
        }
    }
    page
}

/// `"SEE ALSO"` as a heading of the site.
fn heading(title: &str) -> String {
    let title = characters(title.trim_matches('"')).to_lowercase();
    // Titles of tables of keys are code.
    if title.starts_with('[') {
        return format!("`{title}`");
    }
    let mut letters = title.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// A line of text: fonts become elements, and nothing in it is Markdown.
fn text(line: &str) -> String {
    let mut html = String::new();
    let mut end = "";
    for (number, part) in line.split("\\f").enumerate() {
        let mut part = part;
        if number > 0 {
            html.push_str(end);
            let begin;
            (begin, end) = match part.get(..1) {
                Some("B") => ("<strong>", "</strong>"),
                Some("I") => ("<em>", "</em>"),
                _ => ("", ""),
            };
            html.push_str(begin);
            part = part.get(1..).unwrap_or_default();
        }
        html.push_str(&escaped(&characters(part)));
    }
    html + end
}

/// Characters that roff names or escapes.
fn characters(text: &str) -> String {
    let named = [("\\*(Aq", "'"), ("\\(aq", "'"), ("\\(bu", "•"), ("\\&", ""), ("\\-", "-"), ("\\e", "\\")];
    named.iter().fold(text.to_owned(), |text, (name, character)| text.replace(name, character))
}

fn escaped(text: &str) -> String {
    let mut html = String::new();
    for character in text.chars() {
        match character {
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '&' => html.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '$' => html.extend(['\\', character]),
            _ => html.push(character),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_terms_and_fonts_become_markdown() {
        let roff = ".ie \\n(.g .ds Aq \\(aq\n.TH polder-run 1\n.SH \"SEE ALSO\"\npolder\\-run <\\fIFILE\\fR>\n.PP\nIt isn\\*(Aqt.\n\
            .TP\n\\fB\\-\\-yes\\fR\nDo it_\n.br\n.RS 14\n.IP \\(bu 2\na: b\n.RE\n.SH [PORT.NAME]\n.nf\n[x] # y\n.fi\n";
        let expected = "# polder-run(1)\n\n*For operators who look up a command, an option or a key.*\n\n\
            ## See also\n\npolder-run &lt;<em>FILE</em>&gt;\n\nIt isn't.\n\n<strong>--yes</strong>\n: Do it\\_\n\n  - a: b\n\n\
            ## `[port.name]`\n\n```text\n[x] # y\n```\n";
        assert_eq!(markdown("polder-run(1)", roff), expected);
    }
}
