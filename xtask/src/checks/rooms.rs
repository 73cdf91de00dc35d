//! Unsafe code has its rooms, and the crate without any says so to the compiler.

use crate::sources;

/// Paths in which the word `unsafe` may stand. `*` matches inside one name, `**` any number of folders.
pub(crate) const ROOMS: &[&str] = &[
    "crates/buffers/src/**",
    "crates/devices/src/**/bus/**",
    "crates/*/src/**/sys.rs",
    "crates/*/tests/**/sys.rs",
    "crates/*/tests/**/counting_allocator.rs",
    "crates/devices/tests/devices/common.rs", // namespaces and raw sockets, the tests' own end of a wire
];

/// Crates that forbid it, by the file that must hold the attribute.
pub(crate) const FORBID: &[&str] = &["crates/datapath/src/lib.rs"];

/// Beginning of an opened room's reason.
const REASON: &str = "reason = \"UNSAFETY: ";

/// One sentence for each breach in the project's Rust files.
pub(crate) fn check(files: &[(String, String)]) -> Vec<String> {
    let mut breaches: Vec<String> =
        sources::rust(files).flat_map(|(path, text)| check_file(path, text)).collect();
    for path in FORBID {
        let source = files.iter().find(|(known, _)| known == path).map(|(_, text)| text.as_str());
        if !source.is_some_and(forbids) {
            breaches.push(format!("{path}: `#![forbid(unsafe_code)]` is missing"));
        }
    }
    breaches
}

fn check_file(path: &str, text: &str) -> Vec<String> {
    let code = sources::code_only(text);
    let lines = sources::lines_with_word(&code, "unsafe");
    let in_room = ROOMS.iter().any(|room| matches(room, path));
    let outside =
        lines.iter().filter(|_| !in_room).map(|line| format!("{path}:{line}: `unsafe` outside of its rooms"));
    let unexplained = opened_without_reason(text, &code)
        .into_iter()
        .map(|line| format!("{path}:{line}: `expect(unsafe_code)` needs `{REASON}…\"`"));
    outside.chain(unexplained).collect()
}

/// Lines on which a room is opened without saying why.
fn opened_without_reason(text: &str, code: &str) -> Vec<usize> {
    let opened = sources::lines_with_word(code, "unsafe_code");
    let lines: Vec<&str> = code.lines().collect();
    let explained = |line: usize| {
        let near = text.lines().skip(line - 1).take(3).collect::<String>();
        near.contains(REASON)
    };
    opened.into_iter().filter(|&line| opens(&lines, line) && !explained(line)).collect()
}

/// True if the word on `line` is the argument of `expect(`, there or on the line above.
fn opens(lines: &[&str], line: usize) -> bool {
    let near = lines[line.saturating_sub(2)..line].concat();
    let near: String = near.split_whitespace().collect();
    near.contains("expect(unsafe_code")
}

/// True if the attribute stands in the code itself, unconditionally.
fn forbids(source: &str) -> bool {
    let code: String = sources::code_only(source).split_whitespace().collect();
    code.contains("#![forbid(unsafe_code)]")
}

/// True if a path matches a pattern of folders and names.
fn matches(pattern: &str, path: &str) -> bool {
    let (head, pattern_rest) = pattern.split_once('/').unwrap_or((pattern, ""));
    let (name, path_rest) = path.split_once('/').unwrap_or((path, ""));
    if head == "**" {
        return pattern_rest.is_empty()
            || matches(pattern_rest, path)
            || !path_rest.is_empty() && matches(pattern, path_rest);
    }
    let same = head == "*" || head == name;
    match (pattern_rest.is_empty(), path_rest.is_empty()) {
        (true, true) => same,
        (false, false) => same && matches(pattern_rest, path_rest),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAPATH: &str = "//! The journey.\n#![forbid(unsafe_code)]\n";

    fn check_one(path: &str, text: &str) -> Vec<String> {
        check(&[(FORBID[0].to_owned(), DATAPATH.to_owned()), (path.to_owned(), text.to_owned())])
    }

    #[test]
    fn unsafe_outside_of_its_rooms_is_found_with_its_line() {
        let found = check_one("crates/gateway/src/worker.rs", "fn f() {\n    unsafe { g() }\n}\n");
        assert_eq!(found, ["crates/gateway/src/worker.rs:2: `unsafe` outside of its rooms"]);
        assert_eq!(check_one("crates/datapath/src/wire/ip.rs", "unsafe impl Send for X {}").len(), 1);
        assert_eq!(check_one("crates/devices/src/tap/rx.rs", "unsafe { read() }").len(), 1);
    }

    #[test]
    fn unsafe_in_its_rooms_is_fine() {
        for path in [
            "crates/buffers/src/ring.rs",
            "crates/devices/src/af_xdp/sys.rs",
            "crates/devices/src/bus/mmio.rs",
            "crates/devices/src/lan78xx/bus/usb/transfer.rs",
            "crates/testbed/src/topology/sys.rs",
            "crates/gateway/src/sys.rs",
            "crates/datapath/tests/common/counting_allocator.rs",
        ] {
            assert_eq!(check_one(path, "unsafe { f() }"), Vec::<String>::new(), "{path}");
        }
    }

    #[test]
    fn speaking_of_it_is_not_using_it() {
        let text = "// unsafe { }\n/* unsafe */\nconst A: &str = \"unsafe\";\n#![deny(unsafe_code)]\n";
        assert_eq!(check_one("crates/gateway/src/lib.rs", text), Vec::<String>::new());
    }

    #[test]
    fn a_room_says_why_it_is_open() {
        let explained = "#[expect(unsafe_code, reason = \"UNSAFETY: a mapping\")]\nfn f() {}\n";
        let split =
            "#[cfg_attr(x,\n    expect(\n        unsafe_code,\n        reason = \"UNSAFETY: a hint\"))]\n";
        let bare = "\n#[expect(unsafe_code, reason = \"needed\")]\nfn f() {}\n";
        assert_eq!(check_one("crates/buffers/src/a.rs", explained), Vec::<String>::new());
        assert_eq!(check_one("crates/buffers/src/a.rs", split), Vec::<String>::new());
        assert_eq!(check_one("crates/buffers/src/a.rs", bare).len(), 1);
    }

    #[test]
    fn forbid_must_stand_in_the_code_and_unconditionally() {
        assert!(forbids(DATAPATH));
        assert!(!forbids("// #![forbid(unsafe_code)]\n"));
        assert!(!forbids("#![cfg_attr(test, forbid(unsafe_code))]\n"));
        assert!(!forbids("#![deny(unsafe_code)]\n"));
        assert_eq!(check(&[]), ["crates/datapath/src/lib.rs: `#![forbid(unsafe_code)]` is missing"]);
    }

    #[test]
    fn patterns_match_folders_and_names() {
        assert!(matches("a/**/x.rs", "a/x.rs") && matches("a/**/x.rs", "a/b/c/x.rs"));
        assert!(!matches("a/**/x.rs", "b/x.rs") && !matches("a/**/x.rs", "a/y.rs"));
        assert!(matches("a/*/c", "a/b/c") && !matches("a/*/c", "a/b/b/c"));
        assert!(matches("a/**", "a/b/c") && !matches("a/**", "b"));
    }
}
