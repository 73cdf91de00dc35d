//! The picture of the journey in documents is that of the list of stages.

use polder_datapath::counters::Stage;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(path).expect("a document of this tree")
}

/// Fails with the text that the document should have.
fn has(document: &str, expected: &str) {
    assert!(read(document).contains(expected), "{document} has to show:\n{expected}");
}

#[test]
fn documents_show_the_journey_of_the_list_of_stages() {
    let (picture, list) = (Stage::picture(), Stage::list());
    has("../../README.md", &picture);
    has("../../ARCHITECTURE.md", &format!("{picture}\n{list}"));
    let commented: String = format!("{picture}\n{list}")
        .lines()
        .map(|line| format!("//! {line}").trim_end().to_owned() + "\n")
        .collect();
    has("src/lib.rs", &commented);
}

#[test]
fn each_stage_has_its_source() {
    for stage in Stage::ALL {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(stage.source());
        assert!(source.exists(), "{} of {}", source.display(), stage.name());
    }
}

#[test]
fn files_on_the_way_exist_and_stand_once() {
    let files: Vec<&str> = Stage::ALL.iter().flat_map(|stage| stage.files()).copied().collect();
    for (at, file) in files.iter().enumerate() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
        assert!(path.is_file(), "{file} is on the way of a packet, and there is no such file");
        assert!(!files[..at].contains(file), "{file} stands twice");
    }
}
