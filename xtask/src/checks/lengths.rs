//! Files that are too long to read at a sitting.

use std::collections::BTreeMap;

use crate::sources;

/// Lines a file should have at most, its tests not counted.
pub(crate) const ABOUT: usize = 400;

/// Files above [`ABOUT`], longest first, as `LINES PATH`.
pub(crate) fn check(files: &[(String, String)]) -> Vec<String> {
    let mut long: Vec<(usize, &str)> = sources::rust(files)
        .filter(|(path, _)| !is_test(path))
        .map(|(path, text)| (lines_without_tests(text), path))
        .filter(|(lines, _)| *lines > ABOUT)
        .collect();
    long.sort_unstable_by(|left, right| right.cmp(left));
    long.into_iter().map(|(lines, path)| format!("{lines:>5} {path}")).collect()
}

/// Lines of code of each crate's `src`, by the crate's folder: without tests, comments and blank lines.
pub(crate) fn code(files: &[(String, String)]) -> BTreeMap<&str, usize> {
    let mut crates = BTreeMap::new();
    for (path, text) in sources::rust(files).filter(|(path, _)| !is_test(path)) {
        let place = path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/"));
        if let Some((name, _)) = place {
            *crates.entry(name).or_default() += lines_of_code(text);
        }
    }
    crates
}

/// Lines of code by purpose: the product, what stands on it, and tests, which are beside the code of all of these.
/// `crates` are the lines of each crate, as [`code`] counts them.
pub(crate) fn purposes(
    files: &[(String, String)],
    crates: &BTreeMap<&str, usize>,
) -> Vec<(&'static str, usize)> {
    let of = |names: &[&str]| names.iter().filter_map(|name| crates.get(name)).sum::<usize>();
    let all = sources::rust(files).filter(|(path, _)| path.starts_with("crates/"));
    let all = all.map(|(_, text)| {
        sources::without_comments(text).lines().filter(|line| !line.trim().is_empty()).count()
    });
    let outside = crates.values().sum::<usize>();
    vec![
        ("product", of(&["buffers", "datapath", "devices", "gateway", "top"])),
        ("testbed and demo", of(&["testbed", "demo"])),
        ("judges", of(&["judges"])),
        ("lab", of(&["lab"])),
        ("tests", all.sum::<usize>() - outside),
    ]
}

/// Lines of a file on which code stands that is not a test's; a line inside a string is code.
pub(crate) fn lines_of_code(text: &str) -> usize {
    let (code, shown) = (sources::code_only(text), sources::without_comments(text));
    let mut lines = code.lines().zip(shown.lines());
    let mut count = 0;
    while let Some((line, shown)) = lines.next() {
        if is_condition_of_tests(line) {
            skip_item(lines.by_ref().map(|(line, _)| line));
        } else {
            count += usize::from(!shown.trim().is_empty());
        }
    }
    count
}

fn is_condition_of_tests(line: &str) -> bool {
    let condition = line.trim();
    condition.starts_with("#[cfg(")
        && !condition.contains("not(test")
        && condition.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
}

/// Skips the lines of an item, an arm or a statement: up to where its brackets are closed.
fn skip_item<'a>(lines: impl Iterator<Item = &'a str>) {
    let mut depth = 0;
    for line in lines {
        let opened = line.matches(['{', '(', '[']).count();
        depth = (depth + opened).saturating_sub(line.matches(['}', ')', ']']).count());
        let line = line.trim();
        if depth == 0 && !line.is_empty() && !line.starts_with("#[") && line != ")]" {
            return;
        }
    }
}

fn is_test(path: &str) -> bool {
    let mut parts = path.trim_end_matches(".rs").split('/');
    parts.any(|part| part == "tests" || part.ends_with("_tests"))
}

/// Lines before the module of tests at the end of the file.
pub(crate) fn lines_without_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let is_start =
        |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{');
    lines.windows(2).position(is_start).unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, lines: usize, tests: usize) -> (String, String) {
        let tests = if tests == 0 {
            String::new()
        } else {
            format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "x\n".repeat(tests))
        };
        (path.to_owned(), "x\n".repeat(lines) + &tests)
    }

    #[test]
    fn tests_do_not_count() {
        let files = [file("crates/a/src/a.rs", ABOUT, 900), file("crates/a/tests/long.rs", 900, 0)];
        assert_eq!(check(&files), Vec::<String>::new());
    }

    #[test]
    fn comments_blanks_and_tests_are_no_code() {
        let text = "//! About.\n\nfn f() {\n    // Why.\n    g(\n\"\n// a string\");\n}\n\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
        let of = |path: &str| (path.to_owned(), text.to_owned());
        let files = [of("crates/a/src/a.rs"), of("crates/a/tests/b.rs"), of("xtask/src/main.rs")];
        assert_eq!(code(&files), BTreeMap::from([("a", 5)]));
        for tests in ["a/tests.rs", "a/loom_tests.rs", "tests/b.rs"] {
            assert_eq!(code(&[of(&format!("crates/a/src/{tests}"))]), BTreeMap::new(), "{tests}");
        }
    }

    #[test]
    fn tests_in_the_midst_of_code_are_no_code() {
        for test in [
            "#[cfg(test)]\nmod tests;",
            "#[cfg(all(test, loom))]\n#[expect(x)]\nmod loom_tests {\n}\n",
            "#[cfg(test)]\n\nfn t(\n  x: u8,\n) -> u8 {\n  if x { f() } else { 1 }\n}",
            "#[cfg(test)]\nModel(\n  u8),",
        ] {
            assert_eq!(lines_of_code(&format!("a;\n{test}\nb;\n")), 2, "{test}");
        }
        assert_eq!(lines_of_code("#[cfg(not(test))]\nfn f() {}\n"), 2);
    }

    #[test]
    fn long_files_come_longest_first() {
        let files = [file("a.rs", ABOUT + 1, 3), file("b.rs", 900, 0), file("c.md", 900, 0)];
        assert_eq!(check(&files), ["  900 b.rs", "  401 a.rs"]);
    }

    #[test]
    fn lines_have_a_purpose() {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let files = [
            file(
                "crates/buffers/src/a.rs",
                "//! A.\nfn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n",
            ),
            file("crates/judges/src/b.rs", "fn b() {\n}\n"),
            file("crates/lab/tests/c.rs", "fn c() {}\n"),
            file("xtask/src/d.rs", "fn d() {}\n"),
        ];
        let purposes = purposes(&files, &code(&files));
        let lines = |name: &str| purposes.iter().find(|purpose| purpose.0 == name).map(|purpose| purpose.1);
        assert_eq!((lines("product"), lines("judges"), lines("lab")), (Some(1), Some(2), Some(0)));
        assert_eq!(lines("tests"), Some(5));
    }
}
