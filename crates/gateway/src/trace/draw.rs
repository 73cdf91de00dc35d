//! A trace as text.

use super::spec::describe;
use super::{Step, Trace, from_digits};
use crate::show::Layout;

/// Bytes in a line of the hexadecimal dump.
const LINE: usize = 16;
/// Maximum number of dumped bytes of a packet.
const SHOWN: usize = 128;

impl Trace {
    /// The trace as text.
    pub fn draw(&self, layout: Layout) -> String {
        let mut text =
            format!("{} {}\n", layout.bold(&self.port), layout.dim(&format!("{} bytes", self.bytes)));
        text.push_str(&format!("  {}\n", self.packet));
        for step in &self.steps {
            text.push_str(&step.draw(layout));
        }
        for sent in &self.sent {
            let kind = if sent.is_answer { "and sends its own packet on" } else { "leaves by" };
            text.push_str(&format!("{} {kind} {}\n", layout.good("→"), layout.bold(&sent.port)));
            text.push_str(&format!("  {}\n", sent.packet));
            text.push_str(&layout.dim(&dump(&from_digits(&sent.frame).unwrap_or_default())));
        }
        for ended in &self.dropped {
            let times =
                if ended.packets > 1 { format!(" ({} packets)", ended.packets) } else { String::new() };
            let title = format!("{}{times}: {}", ended.reason, ended.meaning);
            text.push_str(&format!("{} dropped: {title}\n", layout.bad("✗")));
            text.push_str(&layout.entry(" ", "", &ended.remedy));
        }
        let end = match self.fate.as_str() {
            "taken" => "the gateway takes it",
            "waits" => "it waits for the neighbour's link-layer address",
            "held" => "it waits for the other fragments",
            "carried" => "its port's eBPF program forwards it as the kernel would",
            "kernel" => "the kernel receives it; Polder never sees it",
            _ => "",
        };
        if !end.is_empty() {
            text.push_str(&format!("{} {end}\n", layout.odd("•")));
        }
        for effect in &self.effects {
            text.push_str(&layout.entry(&layout.dim("~"), "it would", effect));
        }
        text
    }
}

impl Step {
    fn draw(&self, layout: Layout) -> String {
        let mark = if self.is_answer { layout.odd("↩") } else { layout.line("│") };
        layout.entry(&mark, &self.stage, &self.text)
    }
}

/// Hexadecimal dump of the first bytes.
fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (number, line) in bytes[..bytes.len().min(SHOWN)].chunks(LINE).enumerate() {
        let digits = line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
        text.push_str(&format!("  {:04x}  {digits}\n", number * LINE));
    }
    if bytes.len() > SHOWN {
        text.push_str(&format!("        … {} bytes more\n", bytes.len() - SHOWN));
    }
    text
}

/// Description of a frame, without the bytes of a long payload.
pub fn brief(frame: &[u8]) -> String {
    describe(frame).brief().to_string()
}
