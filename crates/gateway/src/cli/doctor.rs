//! `polder doctor`: host settings that cost performance.

use super::arguments::Doctor;
use super::failure::Failure;
use super::screen::Screen;
use crate::config::device::Device;
use crate::config::load;
use crate::doctor::{Finding, Host, State, measure};
use crate::show::Layout;
use serde_json::json;

pub(super) fn doctor(arguments: &Doctor) -> Result<(), Failure> {
    let host = Host::this();
    let interfaces = match &arguments.file {
        Some(file) => {
            let configuration = load(file)?.configuration;
            configuration.ports.iter().filter_map(|port| interface(&port.device)).collect()
        }
        None => host.interfaces(),
    };
    let measured = measure();
    let findings = host.examine(&measured, &interfaces);
    let screen = Screen::stdout();
    let text = match arguments.json {
        true => format!("{}\n", json!({ "format": 1, "findings": findings })),
        false => draw(&findings, screen.layout()),
    };
    Ok(screen.write(&text)?)
}

fn interface(device: &Device) -> Option<String> {
    match device {
        Device::Interface(name) => Some(name.clone()),
        Device::Tap(_)
        | Device::Lan78xx(_)
        | Device::Usb(_)
        | Device::Pci(_)
        | Device::Tun(_)
        | Device::Kernel => None,
    }
}

fn draw(findings: &[Finding], layout: Layout) -> String {
    let mut text = String::new();
    let mut last = "";
    for finding in findings {
        if finding.of != last {
            text.push_str(&format!(
                "{}{}\n",
                if last.is_empty() { "" } else { "\n" },
                layout.bold(&format!("[{}]", finding.of))
            ));
            last = &finding.of;
        }
        let mark = match finding.state {
            State::Good => layout.good("✓"),
            State::Costly => layout.odd("!"),
            State::Unknown => layout.dim("?"),
        };
        text.push_str(&layout.entry(&mark, finding.topic, &finding.text));
        for (what, command) in [("change", &finding.change), ("back", &finding.undo)] {
            if let Some(command) = command {
                text.push_str(&layout.entry(" ", "", &format!("{what}: {command}")));
            }
        }
    }
    let costly = findings.iter().filter(|finding| finding.state == State::Costly).count();
    let sum = match costly {
        0 => "no setting reduces packet rate or adds latency".to_owned(),
        1 => "1 setting reduces packet rate or adds latency".to_owned(),
        several => format!("{several} settings reduce packet rate or add latency"),
    };
    format!("{text}\n{sum}\n")
}
