//! Files that have grown past what one reads at a sitting.

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

/// Lines of code in the crates: without tests, comments and blank lines.
pub(crate) fn code(files: &[(String, String)]) -> usize {
    let crates =
        sources::rust(files).filter(|(path, _)| path.starts_with("crates/") && path.contains("/src/"));
    crates
        .filter(|(path, _)| !is_test(path))
        .map(|(_, text)| {
            let code = sources::code_only(text);
            code.lines().take(lines_without_tests(text)).filter(|line| !line.trim().is_empty()).count()
        })
        .sum()
}

fn is_test(path: &str) -> bool {
    path.split('/').any(|folder| folder == "tests") || path.ends_with("/tests.rs")
}

/// Lines before the module of tests at the end of the file.
fn lines_without_tests(text: &str) -> usize {
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
        let text = "//! About.\n\nfn f() {\n    // Why.\n    g();\n}\n\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n";
        let of = |path: &str| (path.to_owned(), text.to_owned());
        assert_eq!(code(&[of("crates/a/src/a.rs"), of("crates/a/tests/b.rs"), of("xtask/src/main.rs")]), 3);
    }

    #[test]
    fn long_files_come_longest_first() {
        let files = [file("a.rs", ABOUT + 1, 3), file("b.rs", 900, 0), file("c.md", 900, 0)];
        assert_eq!(check(&files), ["  900 b.rs", "  401 a.rs"]);
    }
}
