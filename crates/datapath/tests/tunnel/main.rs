//! Tunnels: what goes in comes out, whatever happens on the way; and nothing is lost uncounted.

#[path = "../oracle/mod.rs"]
mod oracle;

mod cases;
mod frames;
mod journey;
mod model;
mod outer_v6;
mod scapy;

/// Runs the fuzzer's committed seeds.
#[test]
fn committed_inputs() {
    let ours = oracle::TARGETS.into_iter().filter(|target| ["tunnel", "outer_v6"].contains(&target.0));
    for (name, target) in ours {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
        for file in std::fs::read_dir(folder).expect("a folder of inputs") {
            target(&std::fs::read(file.expect("a readable folder").path()).expect("a readable input"));
        }
    }
}
