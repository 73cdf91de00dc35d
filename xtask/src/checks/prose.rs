//! Sentences of documents: one a line, and none longer than people read in one go.

/// Words that a sentence has at most.
const SENTENCE: usize = 40;
/// Words that a table's cell has at most: it is a phrase, and what needs more stands below the table.
const CELL: usize = 25;
/// Abbreviations that end no sentence.
const ABBREVIATIONS: &[&str] = &["e.g.", "i.e.", "cf.", "vs."];

/// One line for each sentence or cell of a Markdown file that is too long, and for each line with more or less
/// than a sentence.
pub(crate) fn check(files: &[(String, String)]) -> Vec<String> {
    let documents = files.iter().filter(|(path, _)| path.ends_with(".md"));
    documents.flat_map(|(path, text)| check_file(path, text)).collect()
}

fn check_file(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut say = |at: usize, what: String| found.push(format!("{path}:{}: {what}", at + 1));
    let mut is_code = false;
    // The line at which a sentence began that has not ended yet.
    let mut open = None;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let fence = line.starts_with("```");
        is_code ^= fence;
        if is_code || fence || is_no_text(line) {
            open = None;
            let cells = if is_code || fence { Vec::new() } else { cells(line) };
            let long = cells.into_iter().map(words).filter(|words| *words > CELL);
            long.for_each(|words| {
                say(at, format!("a cell of {words} words; {CELL} at most, the rest below"))
            });
            continue;
        }
        if let Some(before) = open.take().filter(|_| !begins_item(line)) {
            say(before, "a sentence goes on in the next line".to_owned());
        }
        let sentences = sentences(line);
        if sentences.len() > 1 {
            say(at, format!("{} sentences in one line", sentences.len()));
        }
        let long = sentences.iter().map(|sentence| words(sentence)).filter(|words| *words > SENTENCE);
        long.for_each(|words| say(at, format!("a sentence of {words} words; {SENTENCE} at most")));
        open = (!ends_sentence(line)).then_some(at);
    }
    found
}

/// True for blank lines, headings, tables, HTML, quotations and definitions of links.
fn is_no_text(line: &str) -> bool {
    line.is_empty() || line.starts_with(['#', '|', '<', '>']) || line.starts_with('[') && line.contains("]: ")
}

fn begins_item(line: &str) -> bool {
    let number = line.split_once(". ").is_some_and(|(number, _)| number.parse::<u8>().is_ok());
    line.starts_with("* ") || line.starts_with("- ") || number
}

fn cells(line: &str) -> Vec<&str> {
    if line.starts_with('|') { line.split('|').collect() } else { Vec::new() }
}

/// Number of words, without targets of links.
fn words(text: &str) -> usize {
    let mut words = 0;
    for (part, piece) in text.split("](").enumerate() {
        let piece = if part == 0 { piece } else { piece.split_once(')').map_or("", |(_, after)| after) };
        let is_word = |word: &&str| word.contains(char::is_alphanumeric);
        words += piece.split_whitespace().filter(is_word).count();
    }
    words
}

fn is_closing(character: char) -> bool {
    matches!(character, '*' | '"' | '\'' | ')' | ']' | '_')
}

fn ends_sentence(line: &str) -> bool {
    line.trim_end_matches(is_closing).ends_with(['.', '!', '?', ':', ';'])
}

/// A line by sentences: one ends before a space that follows a full stop and precedes a capital letter, a code or
/// a bold word.
fn sentences(line: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut begin = 0;
    for (space, _) in line.match_indices(' ') {
        let (before, after) = (&line[begin..space], &line[space + 1..]);
        let in_code = line[..space].matches('`').count() % 2 == 1;
        let stop = before.trim_end_matches(is_closing);
        let stops = stop.ends_with(['.', '!', '?']) && !ABBREVIATIONS.iter().any(|end| stop.ends_with(end));
        let goes_on = begins_item(&line[begin..]) && stop.len() <= 3;
        let next = after.trim_start_matches(['*', '"', '[', '(']).chars().next();
        if stops && !in_code && !goes_on && next.is_some_and(|next| next.is_uppercase() || next == '`') {
            sentences.push(before);
            begin = space + 1;
        }
    }
    sentences.push(&line[begin..]);
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        check(&[("a.md".to_owned(), text.to_owned()), ("a.rs".to_owned(), "// A. B.".to_owned())])
    }

    #[test]
    fn a_long_sentence_and_a_long_cell_are_found() {
        let long = format!("{}end.", "word ".repeat(40));
        assert_eq!(found(&format!("Short.\n{long}\n")), ["a.md:2: a sentence of 41 words; 40 at most"]);
        assert_eq!(found(&long[5..]), [""; 0]);
        let cell = "word ".repeat(26);
        assert_eq!(
            found(&format!("| a | {cell}|")),
            ["a.md:1: a cell of 26 words; 25 at most, the rest below"]
        );
        assert_eq!(found(&format!("```\n{long}\n| {cell} |\n```\n# {long}")), [""; 0]);
    }

    #[test]
    fn a_line_has_one_sentence() {
        assert_eq!(found("One ends. **Another** begins."), ["a.md:1: 2 sentences in one line"]);
        assert_eq!(found("This goes\non."), ["a.md:1: a sentence goes on in the next line"]);
        assert_eq!(
            found("* One.\n  Two, e.g. `A. B`.\n* a phrase\n* another\n\n1. First.\n2. Second"),
            [""; 0]
        );
    }

    #[test]
    fn targets_of_links_are_no_words() {
        assert_eq!(words("see [this page](a/b c d.md) – now"), 4);
    }
}
