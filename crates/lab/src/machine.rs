//! What the machine is, in the words of its kernel.

use std::fs;

/// The kernel's release.
pub fn kernel() -> String {
    first_line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned())
}

/// The processor's name.
pub fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name").or(line.strip_prefix("Model")));
    name.and_then(|rest| rest.split_once(':'))
        .map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

/// Cores that this process may run on.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn first_line(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()?.lines().next().map(|line| line.trim().to_owned())
}
