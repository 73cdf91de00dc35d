//! The Debian package: its files, lintian's findings, and its way into a root folder and out of it.

mod guest;

use super::support::{Folder, repository, root_or_skip, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files that the package must have, and the mode of each.
const FILES: &[(&str, &str)] = &[
    ("usr/bin/polder", "-rwxr-xr-x"),
    ("usr/bin/polder-top", "-rwxr-xr-x"),
    ("usr/lib/udev/rules.d/70-polder-usb.rules", "-rw-r--r--"),
    ("usr/lib/sysusers.d/polder.conf", "-rw-r--r--"),
    ("usr/share/bash-completion/completions/polder", "-rw-r--r--"),
    ("usr/share/zsh/vendor-completions/_polder", "-rw-r--r--"),
    ("usr/share/fish/vendor_completions.d/polder.fish", "-rw-r--r--"),
    ("usr/share/man/man1/polder.1.gz", "-rw-r--r--"),
    ("usr/share/man/man1/polder-run.1.gz", "-rw-r--r--"),
    ("usr/share/man/man5/polder.toml.5.gz", "-rw-r--r--"),
    ("usr/share/doc/polder/changelog.gz", "-rw-r--r--"),
    ("usr/share/doc/polder/copyright", "-rw-r--r--"),
    ("usr/share/doc/polder/examples/bridge.toml", "-rw-r--r--"),
    ("usr/share/doc/polder/docs/guide/configuration.md", "-rw-r--r--"),
    ("usr/share/polder/grafana-dashboard.json", "-rw-r--r--"),
    ("usr/share/polder/prometheus-rules.yml", "-rw-r--r--"),
    ("etc/polder/", "drwxr-xr-x"),
];

/// The program under test is in the package, so that its files are those of this tree without a build for release.
#[test]
fn the_package_is_whole_and_installs_upgrades_and_purges() {
    const NAME: &str = "the_package_is_whole_and_installs_upgrades_and_purges";
    if !root_or_skip(NAME) {
        return;
    }
    let needs =
        [("dpkg-buildpackage", "dpkg-dev"), ("dh", "debhelper"), ("make", "make"), ("readelf", "binutils")];
    for (program, package) in needs {
        if Command::new(program).arg("--version").output().is_err() {
            return skip(NAME, &format!("`{program}` is not installed (package {package})"));
        }
    }
    let folder = Folder::new("package");
    let package = build(&folder.0);
    contents(&package);
    links(&folder.0, &package);
    scripts(&package);
    life(&folder.0, &package);
    if !lint(&package) {
        skip(NAME, "`lintian` is not installed");
    }
}

fn build(folder: &Path) -> PathBuf {
    let programs = Path::new(env!("CARGO_BIN_EXE_polder")).parent().expect("a folder");
    assert!(programs.join("polder-top").is_file(), "polder-top is missing: `cargo build --workspace`");
    let mut command = Command::new(repository("scripts/build-deb"));
    command.arg("--programs").arg(programs).arg("--output").arg(folder).env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    let said = run(&mut command);
    let package = PathBuf::from(said.trim());
    let name = package.file_name().expect("a file").to_string_lossy();
    let begin = concat!("polder_", env!("CARGO_PKG_VERSION"), "_");
    assert!(name.starts_with(begin), "{name} has not the version of Cargo.toml");
    package
}

/// Standard output of a command that must succeed.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn contents(package: &Path) {
    let list = run(Command::new("dpkg-deb").arg("--contents").arg(package));
    let rows = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect::<Vec<_>>();
    for (path, mode) in FILES {
        let there = rows.iter().any(|row| row[0] == *mode && row[5] == format!("./{path}"));
        assert!(there, "{path} {mode}: {list}");
    }
    for row in &rows {
        assert_eq!(row[1], "root/root", "{row:?}");
        assert!(!row[5].starts_with("./usr/local"), "{row:?}");
    }
}

/// Every link of the guide leads somewhere.
fn links(folder: &Path, package: &Path) {
    let root = folder.join("extracted");
    run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(&root));
    let guide = root.join("usr/share/doc/polder/docs/guide");
    let mut count = 0;
    for page in fs::read_dir(&guide).expect("the guide").map(|entry| entry.expect("a page").path()) {
        let text = fs::read_to_string(&page).expect("a page");
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for target in targets.filter(|target| !target.is_empty() && !target.contains("://")) {
            count += 1;
            assert!(guide.join(target).exists(), "{} has a dead link to {target}", page.display());
        }
    }
    assert!(count > 50, "{count} links");
}

/// No script enables or starts the service; an upgrade takes one that runs along, and a removal stops it.
fn scripts(package: &Path) {
    let control = Folder::new("package-control");
    run(Command::new("dpkg-deb").arg("--control").arg(package).arg(&control.0));
    let script = |name| fs::read_to_string(control.0.join(name)).expect(name);
    let after = script("postinst");
    assert!(after.contains("! polder upgrade; then") && after.contains("systemd-sysusers"), "{after}");
    assert!(!after.contains("deb-systemd-invoke start"), "{after}");
    let before = script("prerm");
    assert!(before.contains("\"$1\" = remove ") && before.contains("deb-systemd-invoke stop"), "{before}");
}

/// Installs, upgrades, removes and purges the package in a folder.
fn life(folder: &Path, package: &Path) {
    let root = folder.join("root");
    for part in ["info", "updates", "triggers"] {
        fs::create_dir_all(root.join("var/lib/dpkg").join(part)).expect("a folder");
    }
    fs::write(root.join("var/lib/dpkg/status"), "").expect("a file");
    dpkg(&root, &["--install"], package);
    installed(&root);
    let own = root.join("etc/polder/gateway.toml");
    fs::write(&own, "version = 1\n").expect("a file");

    dpkg(&root, &["--install"], &newer(folder, package));
    installed(&root);
    let versions =
        run(Command::new("dpkg-query").arg("-W").arg(format!("--admindir={}/var/lib/dpkg", root.display())));
    assert_eq!(versions.trim(), "polder\t9:1-1");

    dpkg(&root, &["--purge"], Path::new("polder"));
    let left = run(Command::new("find").arg(&root).args(["-name", "*polder*"]));
    assert_eq!(left.trim(), root.join("etc/polder").display().to_string());
    assert_eq!(fs::read_to_string(&own).expect("a configuration is its writer's"), "version = 1\n");
}

fn installed(root: &Path) {
    let program = root.join("usr/bin/polder");
    run(Command::new(&program).arg("--version"));
    let sections = run(Command::new("readelf").args(["-S", "-W"]).arg(&program));
    assert!(sections.contains(".text"), "{sections}");
    assert!(!sections.contains(".symtab") && !sections.contains(".debug_line"), "{sections}");
    let places = ["usr/lib/systemd/system/polder.service", "lib/systemd/system/polder.service"];
    let unit = places.iter().find_map(|place| fs::read_to_string(root.join(place)).ok()).expect("the unit");
    let ours = fs::read_to_string(repository("packaging/polder.service")).expect("the unit");
    assert_eq!(unit, ours.replace("/usr/local/bin/", "/usr/bin/"));
    let groups = fs::read_to_string(root.join("etc/group")).expect("groups");
    assert!(groups.lines().any(|line| line.starts_with("polder:")), "{groups}");
    assert!(!root.join("etc/systemd/system/multi-user.target.wants/polder.service").exists());
}

/// Runs dpkg on the packages below `root`, with the scripts told where that is.
fn dpkg(root: &Path, arguments: &[&str], package: &Path) {
    let mut command = Command::new("dpkg");
    command.arg(format!("--root={}", root.display()));
    command.args(["--force-script-chrootless", "--force-depends", "--force-unsafe-io", "--log=/dev/null"]);
    run(command.args(arguments).arg(package).env("DEBIAN_FRONTEND", "noninteractive"));
}

/// The same package with a higher version.
fn newer(folder: &Path, package: &Path) -> PathBuf {
    let (files, result) = (folder.join("newer"), folder.join("newer.deb"));
    run(Command::new("dpkg-deb").arg("--raw-extract").arg(package).arg(&files));
    let control = files.join("DEBIAN/control");
    let text = fs::read_to_string(&control).expect("the control file");
    let old = concat!("Version: ", env!("CARGO_PKG_VERSION"));
    fs::write(&control, text.replace(old, "Version: 9:1-1")).expect("the control file");
    run(Command::new("dpkg-deb").args(["-Znone", "--build"]).arg(&files).arg(&result));
    result
}

/// Looks for lintian's errors and warnings; false without it. A wrong package shows that it looks.
fn lint(package: &Path) -> bool {
    let look =
        |package: &Path| Command::new("lintian").args(["--fail-on", "error,warning"]).arg(package).output();
    let Ok(told) = look(package) else { return false };
    let said = String::from_utf8_lossy(&[told.stdout, told.stderr].concat()).into_owned();
    assert!(told.status.success(), "{said}");

    let folder = Folder::new("package-wrong");
    let (files, wrong) = (folder.0.join("files"), folder.0.join("wrong.deb"));
    fs::create_dir_all(files.join("DEBIAN")).expect("a folder");
    fs::create_dir_all(files.join("usr/local/bin")).expect("a folder");
    let control = "Package: wrong\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: wrong\n";
    fs::write(files.join("DEBIAN/control"), control).expect("a file");
    run(Command::new("dpkg-deb").args(["-Znone", "--build"]).arg(&files).arg(&wrong));
    let told = look(&wrong).expect("lintian starts");
    assert!(!told.status.success(), "lintian finds nothing in a wrong package");
    true
}

#[test]
#[ignore = "long: builds cargo-cyclonedx once"]
fn the_list_of_components_has_the_dependencies_of_the_program() {
    let folder = Folder::new("components");
    let path = run(Command::new(repository("scripts/sbom")).arg(&folder.0));
    let text = fs::read_to_string(path.trim()).expect("the list");
    let list = serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
    assert_eq!(list["bomFormat"], "CycloneDX");
    let components = list["components"].as_array().expect("components");
    let name = |component: &serde_json::Value| component["name"].as_str().expect("a name").to_owned();
    let names = components.iter().map(name).collect::<Vec<_>>();
    for linked in ["polder-datapath", "clap", "rustix", "toml"] {
        assert!(names.iter().any(|name| name == linked), "{linked}: {names:?}");
    }
    for other in ["proptest", "insta", "polder-lab"] {
        assert!(!names.iter().any(|name| name == other), "{other} is not linked");
    }
    let lock = fs::read_to_string(repository("Cargo.lock")).expect("the lock file");
    for component in components {
        assert!(component["licenses"].is_array(), "{} has no licence", name(component));
        let hash = component["hashes"][0]["content"].as_str();
        assert!(hash.is_none_or(|hash| lock.contains(hash)), "{} is not that of Cargo.lock", name(component));
    }
    assert!(!text.contains(&std::env::temp_dir().display().to_string()), "paths of this machine");
}

#[test]
#[ignore = "long: two builds for release"]
fn two_builds_in_two_folders_are_the_same_bytes() {
    run(Command::new(repository("scripts/build-reproducible")).arg("--twice"));
}

/// Output of the script's comparison of a program that prints `printed`, if its builds differ.
fn difference(printed: &str) -> Option<String> {
    let folder = Folder::new("reproducible");
    let write = |path: &str, text: &str| {
        let path = folder.0.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    write("Cargo.toml", "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
    write("src/main.rs", &format!("fn main() {{ println!(\"{{}}\", {printed}) }}\n"));
    write(".gitignore", "target\n");
    let script = folder.0.join("scripts/build-reproducible");
    fs::create_dir_all(script.parent().expect("a folder")).expect("a folder");
    fs::copy(repository("scripts/build-reproducible"), &script).expect("a copy");
    let make = "git init --quiet . && cargo generate-lockfile --offline && git add --all";
    run(Command::new("sh").args(["-c", make]).current_dir(&folder.0));
    let output = Command::new(script).args(["--twice", "--package", "tiny", "--profile", "dev"]).output();
    let output = output.expect("the script starts");
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn builds_are_told_apart_by_a_path_of_their_folder_alone() {
    const NAME: &str = "builds_are_told_apart_by_a_path_of_their_folder_alone";
    for program in ["git", "strip"] {
        if Command::new(program).arg("--version").output().is_err() {
            return skip(NAME, &format!("`{program}` is not installed"));
        }
    }
    assert_eq!(difference("file!()"), None, "a path that is remapped");
    let said = difference("env!(\"CARGO_MANIFEST_DIR\")").expect("a path that is not");
    assert!(said.contains("tiny has paths of this machine"), "{said}");
}
