//! `make install`, and the installed files.

use super::support::{Folder, repository, skip};
use std::path::Path;
use std::process::{Command, Output};

/// Runs `make install` into `folder`, with programs that are built and a `cargo` that must not be run.
fn install(folder: &Path) -> Output {
    use std::os::unix::fs::PermissionsExt;
    let (built, tools) = (folder.join("built"), folder.join("tools"));
    std::fs::create_dir_all(&built).expect("a folder");
    std::fs::create_dir_all(&tools).expect("a folder");
    for program in ["polder", "polder-top", "polder-demo", "polder-lab"] {
        std::fs::copy(env!("CARGO_BIN_EXE_polder"), built.join(program)).expect("a copy");
    }
    let cargo = tools.join("cargo");
    std::fs::write(&cargo, format!("#!/bin/sh\ntouch {}/cargo-was-run\nexit 1\n", folder.display()))
        .expect("a script");
    std::fs::set_permissions(&cargo, PermissionsExt::from_mode(0o755)).expect("a mode");
    Command::new("make")
        .arg("install")
        .arg(format!("RELEASE={}", built.display()))
        .arg(format!("DESTDIR={}", folder.join("root").display()))
        .arg("PREFIX=/opt/polder")
        .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", tools.display()))
        .env_remove("MAKEFLAGS")
        .current_dir(repository(""))
        .output()
        .expect("make starts")
}

#[test]
fn what_is_built_is_installed_stripped_and_without_cargo() {
    for program in ["make", "strip", "readelf"] {
        if Command::new(program).arg("--version").output().is_err() {
            skip(
                "what_is_built_is_installed_stripped_and_without_cargo",
                &format!("`{program}` is not installed"),
            );
            return;
        }
    }
    let folder = Folder::new("install");
    let output = install(&folder.0);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!folder.0.join("cargo-was-run").exists(), "cargo was run");
    let prefix = folder.0.join("root/opt/polder");
    for program in ["polder", "polder-top", "polder-demo", "polder-lab"] {
        let installed = prefix.join("bin").join(program);
        let sections =
            Command::new("readelf").args(["-S", "-W"]).arg(&installed).output().expect("readelf starts");
        let sections = String::from_utf8_lossy(&sections.stdout);
        assert!(sections.contains(".text"), "{program} is no program");
        assert!(!sections.contains(".symtab") && !sections.contains(".debug_line"), "{sections}");
        let version = Command::new(installed).arg("--version").output().expect("it starts");
        assert!(version.status.success());
    }
    let unit = std::fs::read_to_string(prefix.join("lib/systemd/system/polder.service")).expect("the unit");
    assert!(unit.contains("ExecStart=/opt/polder/bin/polder run"), "{unit}");
    for page in ["man1/polder.1", "man1/polder-run.1", "man5/polder.toml.5"] {
        assert!(prefix.join("share/man").join(page).is_file(), "{page}");
    }
    // The rule names a group, which somebody has to make.
    let rule =
        std::fs::read_to_string(prefix.join("lib/udev/rules.d/70-polder-usb.rules")).expect("the rule");
    let group = rule.split("GROUP=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a group");
    let users = std::fs::read_to_string(prefix.join("lib/sysusers.d/polder.conf")).expect("the group's file");
    assert!(users.lines().any(|line| line.starts_with(&format!("g {group} "))), "{users}");
}
