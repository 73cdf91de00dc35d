//! `polder trace`: shows the fate of a packet in a running gateway.

use super::arguments::{SOURCE, Trace as Arguments};
use super::ask::odd;
use super::failure::{Failure, WRONG};
use super::screen::Screen;
use crate::control::client::Client;
use crate::control::{Answer, Ask};
use crate::show::ports::PortRow;
use crate::show::{View, What};
use crate::trace::spec::{Defaults, Spec};
use crate::trace::{TraceRequest, pcap, to_digits};
use anyhow::{Context as _, bail};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

pub(super) fn trace(arguments: &Arguments) -> Result<(), Failure> {
    // Errors that need no gateway are reported first.
    let asked = match &arguments.pcap {
        Some(path) => Asked::Frames(of_file(path, arguments.number)?),
        None => Asked::Spec(parse(&arguments.packet.join(" "))?),
    };
    let mut client = Client::connect(&arguments.gateway.socket()?)?;
    let frames = match asked {
        Asked::Frames(frames) => frames,
        Asked::Spec(spec) => {
            let bytes = build(&spec, &mut client, &arguments.port)?;
            vec![Frame { whole: bytes.len(), bytes }]
        }
    };
    let screen = Screen::stdout();
    for (number, frame) in frames.iter().enumerate() {
        let request = TraceRequest {
            port: arguments.port.clone(),
            frame: to_digits(&pcap::Captured { bytes: &frame.bytes, whole: frame.whole }.padded()),
        };
        let answer = client.ask(Ask::Trace(request))?;
        let Answer::Traced(traced) = answer else { return Err(odd(&answer)) };
        if arguments.json {
            screen.write(&format!("{}\n", serde_json::to_string(&traced)?))?;
        } else {
            let gap = if number > 0 { "\n" } else { "" };
            screen.write(&format!("{gap}{}", traced.draw(screen.layout())))?;
        }
    }
    Ok(())
}

enum Asked {
    Spec(Spec),
    Frames(Vec<Frame>),
}

/// A captured packet and its length on the network, which a file may exaggerate.
struct Frame {
    bytes: Vec<u8>,
    whole: usize,
}

fn parse(text: &str) -> Result<Spec, Failure> {
    Spec::parse(text).map_err(|error| complain(&error.render(text)))
}

fn complain(text: &str) -> Failure {
    let screen = Screen::stderr();
    // An error of the write cannot be reported.
    let _: io::Result<()> = screen.write(&format!("{}: {text}\n", screen.layout().bad("error")));
    Failure::Told(WRONG)
}

/// Builds the packet of a description; missing addresses come from the gateway's port.
fn build(spec: &Spec, client: &mut Client, name: &str) -> Result<Vec<u8>, Failure> {
    let row = port(client, name)?;
    let speaks = row.as_ref().filter(|row| row.role != "bridge");
    let speaks = speaks.and_then(|row| row.router_mac.as_ref().or(row.mac.as_ref()));
    let dst = speaks.and_then(|mac| mac.parse().ok());
    spec.build(Defaults { src: SOURCE, dst }).map_err(|error| complain(&error.to_string()))
}

fn port(client: &mut Client, name: &str) -> Result<Option<PortRow>, Failure> {
    let Answer::Shown(shown) = client.ask(Ask::show(What::Ports))? else {
        return Ok(None);
    };
    let View::Ports(rows) = shown.view else { return Ok(None) };
    Ok(rows.into_iter().find(|row| row.name == name))
}

/// The packets of a capture file, or the one with a number.
fn of_file(path: &Path, number: Option<u64>) -> Result<Vec<Frame>, Failure> {
    let bytes = read(path).with_context(|| format!("cannot read the capture file {}", path.display()))?;
    let frames = pcap::frames(&bytes).map_err(|error| complain(&format!("{}: {error}", path.display())))?;
    let chosen = match number {
        None => frames,
        Some(number) => {
            let at = usize::try_from(number - 1).unwrap_or(usize::MAX);
            let Some(frame) = frames.get(at) else {
                let count = frames.len();
                return Err(complain(&format!(
                    "{} has {count} packets, so there is no packet {number}",
                    path.display()
                )));
            };
            vec![*frame]
        }
    };
    let (total, cut) = (chosen.len(), chosen.iter().filter(|frame| frame.bytes.len() < frame.whole).count());
    if cut > 0 {
        let screen = Screen::stderr();
        let text = format!("{cut} of {total} packets were captured in part: missing bytes are read as zeros");
        // An error of the write cannot be reported.
        let _: io::Result<()> = screen.write(&format!("{}: {text}\n", screen.layout().bold("note")));
    }
    Ok(chosen.into_iter().map(|frame| Frame { bytes: frame.bytes.to_vec(), whole: frame.whole }).collect())
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let most = u64::try_from(pcap::MOST_BYTES)?;
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        io::stdin().lock().take(most + 1).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    }
    if bytes.len() > pcap::MOST_BYTES {
        bail!(
            "the capture is larger than {} MiB: shorten it with `editcap -r` or `tcpdump -r … -c …`",
            most >> 20
        );
    }
    Ok(bytes)
}
