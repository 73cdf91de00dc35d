//! The container of the guide: its capabilities, and a gateway that has no others.

use super::support::{Folder, repository, root_or_skip};
use polder::sandbox::rights::RIGHTS;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// Capabilities that the guide's command line gives the container.
fn granted() -> BTreeSet<String> {
    let guide = std::fs::read_to_string(repository("docs/guide/install.md")).expect("the guide");
    let (_, line) = guide.split_once("podman create").expect("the command line");
    let (line, _) = line.split_once("podman init").expect("its end");
    assert!(line.contains("--cap-drop all") && !line.contains("--privileged"), "{line}");
    let words = line.split_whitespace().collect::<Vec<_>>();
    let added = words.windows(2).filter(|pair| pair[0] == "--cap-add").map(|pair| pair[1].to_lowercase());
    added.collect()
}

/// Its root cannot be written to, `/run` is of its own, and no program that it starts gains a right.
#[test]
fn a_gateway_carries_with_the_capabilities_of_the_guides_container_alone() {
    const NAME: &str = "a_gateway_carries_with_the_capabilities_of_the_guides_container_alone";
    let table = RIGHTS.iter().map(|right| right.capability.to_string().to_lowercase());
    let table = table.map(|name| name.trim_start_matches("cap_").to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(granted(), table);
    if !root_or_skip(NAME) {
        return;
    }
    let folder = Folder::new("container");
    let file = folder.0.join("gateway.toml");
    let text = "version = 1\n[port.lan]\ninterface = \"pdlan\"\n[port.host]\ntap = \"pdhost\"\n[bridge.br0]\n\
                members = [\"lan\", \"host\"]\n";
    std::fs::write(&file, text).expect("the file");
    let granted = granted().iter().map(|name| format!(",+{name}")).collect::<String>();
    let rights = format!("setpriv --no-new-privs --bounding-set=-all{granted} --inh-caps=-all");
    let script = format!(
        "ip link add pdlan type veth peer name pdfar && ip link set pdlan up && ip link set pdfar up
         mount -t tmpfs tmpfs /run && mkdir /run/polder && mount -o remount,bind,ro /
         ! touch /etc/polder-was-here 2>&-
         {rights} grep CapEff /proc/self/status
         {rights} $POLDER run --yes $FILE &
         gateway=$!
         for i in $(seq 200); do
             ip link set pdhost up 2>&- || :
             $POLDER show ports --json | tr -d ' \\n' | grep -c 'state\":\"open.*state\":\"open' && break || sleep 0.05
         done
         kill $gateway; wait $gateway; echo code $?"
    );
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "sh", "-e", "-c", &script]).stdin(Stdio::null());
    let output = command.env("POLDER", env!("CARGO_BIN_EXE_polder")).env("FILE", &file).output();
    let output = output.expect("unshare starts");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let all = RIGHTS.iter().fold(0, |all, right| all | right.capability.bitmask());
    assert!(said.contains(&format!("CapEff:\t{all:016x}")), "{said}");
    assert!(said.contains("\n1\n") && said.contains("code 0"), "both ports are open: {said}");
}
