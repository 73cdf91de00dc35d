//! Commands that need no gateway.

use super::support::{Folder, polder, repository, run};

#[test]
fn help_says_what_there_is() {
    let outcome = run(&["--help"]);
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""));
    insta::assert_snapshot!("help", outcome.out);
}

#[test]
fn a_wrong_command_line_is_code_2() {
    for arguments in
        [&["shew"][..], &["show"], &["show", "everything"], &["run", "a", "b"], &["release"], &[]]
    {
        let outcome = run(arguments);
        assert_eq!((outcome.code, outcome.out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(outcome.err.contains("--help") || outcome.err.contains("Usage"), "{}", outcome.err);
    }
    let watch = run(&["show", "ports", "--watch", "0"]);
    assert!(watch.code == Some(2) && watch.err.contains("0.1 to 86400"), "{}", watch.err);
}

#[test]
fn a_level_of_the_log_that_there_is_not_is_code_2() {
    let file = repository("examples").join("bridge.toml").display().to_string();
    let output = polder().args(["run", &file]).env("POLDER_LOG", "wran").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("POLDER_LOG: `wran` is not a log level") && said.contains("`warn`"), "{said}");
}

#[test]
fn examples_pass_the_check() {
    let mut count = 0;
    for entry in std::fs::read_dir(repository("examples")).expect("the examples") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let outcome = run(&["check", "--no-preflight", &path.display().to_string()]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.err);
        assert!(outcome.out.starts_with("✓ ") && outcome.out.lines().count() == 1, "{}", outcome.out);
        count += 1;
    }
    assert!(count >= 4, "{count} examples");
}

#[test]
fn a_broken_configuration_is_code_2_with_all_errors_and_their_number() {
    let path = "tests/broken/unknown-keys.toml";
    for command in ["check", "run"] {
        let outcome = run(&[command, path]);
        assert_eq!((outcome.code, outcome.out.as_str()), (Some(2), ""), "{}", outcome.err);
        insta::assert_snapshot!("unknown-keys", outcome.err);
    }
}

#[test]
fn findings_are_there_for_programs_too() {
    let outcome = run(&["check", "--json", "tests/broken/unknown-keys.toml"]);
    assert_eq!(outcome.code, Some(2));
    let json: serde_json::Value = serde_json::from_str(&outcome.out).expect(&outcome.out);
    let first = &json["findings"][0];
    assert_eq!((&json["format"], &first["severity"]), (&1.into(), &"error".into()));
    for key in ["file", "line", "column", "message", "text", "remedy"] {
        assert!(!first[key].is_null(), "{key} in {first}");
    }
}

#[test]
fn a_file_that_is_not_there_is_code_2() {
    for command in ["check", "run"] {
        let outcome = run(&[command, "/nowhere/gateway.toml"]);
        assert_eq!(outcome.code, Some(2));
        assert_eq!(
            outcome.err,
            "error: cannot read /nowhere/gateway.toml: No such file or directory (os error 2)\n"
        );
    }
}

#[test]
fn without_a_gateway_there_is_advice_and_code_1() {
    let folder = Folder::new("nobody");
    let absent = folder.0.join("absent.sock").display().to_string();
    let outcome = run(&["show", "path", "--socket", &absent]);
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(1), ""));
    assert!(
        outcome.err.contains("is the gateway running, and is this path the `control` in its configuration?"),
        "{}",
        outcome.err
    );

    let left = folder.0.join("left.sock");
    drop(std::os::unix::net::UnixListener::bind(&left).expect("a socket"));
    let outcome = run(&["reload", "--socket", &left.display().to_string()]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("the process that created it has ended"), "{}", outcome.err);
}

#[test]
fn somebody_else_behind_the_socket_is_noticed() {
    use std::io::{BufRead as _, Write as _};
    let folder = Folder::new("other");
    let path = folder.0.join("other.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let answers = ["{\"polder\":2,\"shown\":{}}\n", "220 mail ready\n", ""];
    let server = std::thread::spawn(move || {
        for answer in answers {
            let (stream, _) = listener.accept().expect("a client");
            let mut lines = std::io::BufReader::new(&stream);
            lines.read_line(&mut String::new()).expect("a request");
            (&stream).write_all(answer.as_bytes()).expect("it reads");
        }
    });
    for expected in ["answer in version 1", "answer in version 1", "has closed the connection"] {
        let outcome = run(&["show", "ports", "--socket", &path.display().to_string()]);
        assert_eq!(outcome.code, Some(1));
        assert!(outcome.err.contains(expected), "{}", outcome.err);
    }
    server.join().expect("the server");
}

#[test]
fn shells_get_completions() {
    for (shell, part) in
        [("bash", "_clap_complete_polder()"), ("zsh", "#compdef polder"), ("fish", "--command polder")]
    {
        let outcome = run(&["completions", shell]);
        assert_eq!(outcome.code, Some(0));
        assert!(outcome.out.contains(part) && outcome.out.contains("COMPLETE="), "{shell}: {}", outcome.out);
    }
}

#[test]
fn a_host_is_examined_without_a_gateway() {
    let outcome = run(&["doctor", "--json"]);
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""));
    let json: serde_json::Value = serde_json::from_str(&outcome.out).expect(&outcome.out);
    let findings = json["findings"].as_array().expect("a list");
    for (of, topic) in [("processor", "system calls"), ("processor", "wake-ups"), ("kernel", "version")] {
        let finding = findings.iter().find(|finding| finding["of"] == of && finding["topic"] == topic);
        assert!(finding.is_some_and(|finding| finding["text"] != ""), "{topic}: {json}");
    }
    let folder = Folder::new("doctor");
    let file = folder.0.join("gateway.toml");
    std::fs::write(&file, "version = 1\n[port.a]\ninterface = \"lo\"\n[port.b]\ntap = \"b\"\n[bridge.br0]\nmembers = [\"a\", \"b\"]\n").expect("the file");
    let outcome = run(&["doctor", &file.display().to_string()]);
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""));
    assert!(outcome.out.contains("[lo]") && outcome.out.contains("XDP"), "{}", outcome.out);
}

#[test]
fn a_narrow_terminal_without_utf_8_gets_ascii() {
    let bridge = repository("examples").join("bridge.toml").display().to_string();
    let commands = [
        (&["check", "--no-preflight", &bridge][..], 0),
        (&["check", "tests/broken/unknown-keys.toml"], 2),
        (&["doctor"], 0),
        (&["--help"], 0),
        (&["trace", "--help"], 0),
        (&["shew"], 2),
    ];
    for (arguments, code) in commands {
        for columns in ["1", "20"] {
            let output = polder().args(arguments).env("COLUMNS", columns).env("LC_ALL", "C").output();
            let output = output.expect("it starts");
            let text = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&text);
            assert_eq!(output.status.code(), Some(code), "{arguments:?} of {columns}: {said}");
            assert!(!text.is_empty() && text.is_ascii(), "{arguments:?} of {columns}: {said}");
        }
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let polder = env!("CARGO_BIN_EXE_polder");
    let script = format!("{polder} completions zsh | head -c 10 >/dev/null; exit ${{PIPESTATUS[0]}}");
    let status = std::process::Command::new("bash").args(["-c", &script]).status().expect("bash starts");
    assert_eq!(status.code(), Some(0));
}
