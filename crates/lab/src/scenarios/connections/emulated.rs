//! Instructions of a masqueraded packet in a guest, whose kernel has flowtables where this machine's may have none.
//!
//! The guest runs the part of this scenario that measures frames. A nanosecond of its time is an instruction, so what that
//! part reports as time is a number of instructions; nothing is said of caches.

use super::Run;
use crate::report::Report;
use anyhow::Context as _;
use polder_testbed::guest::{Guest, Kernel, Options, files};
use polder_testbed::meters::statistics::Samples;
use polder_testbed::peers::polder;
use std::time::Duration;

/// Rows here, and rows there.
const ROWS: &str = "connections.emulated.instructions_per_packet.";
const MEASURED: &str = "connections.frames.rules_3.cpu_ns_per_packet.";
const FORWARDERS: [&str; 5] = ["polder", "kernel", "kernel_again", "flowtable", "plain"];

/// Polder carries on kernels that have TCX.
const SUITE: &str = "bookworm-backports";
const MODULES: &[&str] = &[
    "veth",
    "tun",
    "af_packet_diag",
    "sch_ingress",
    "cls_bpf",
    // Found by its name when nf_tables starts, so no dependency says it.
    "crc32c_generic",
    "nf_tables",
    "nft_ct",
    "nft_chain_nat",
    "nft_masq",
    "nf_conntrack_netlink",
    "nf_flow_table_inet",
    "nft_flow_offload",
];
const MEMORY_MIB: u32 = 1536;
/// Report of a run, among the files of the guest.
const REPORT: &str = "/tmp/report";
/// Time for which a run may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// Fills the rows.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    let rows = FORWARDERS.map(|forwarder| format!("{ROWS}{forwarder}"));
    if !run.is_due(&rows) {
        return Ok(());
    }
    let Some(kernel) = run.or_skip(&rows, available())? else { return Ok(()) };
    run.place("the guest", "any", "one emulated processor, a nanosecond an instruction");
    let rounds = run.quick_or(1, 4);
    let reports = reports(&kernel, rounds, &|line| run.says(line))?;
    for (row, forwarder) in rows.iter().zip(FORWARDERS) {
        let row_there = format!("{MEASURED}{forwarder}");
        let there = reports.iter().filter_map(|report| report.row(&row_there)).collect::<Vec<_>>();
        run.record(row, &there.iter().filter_map(|row| row.value).collect::<Samples>());
        // Rates are of the guest's time, which means nothing here.
        let reason = there.iter().find_map(|row| row.reason.as_deref()?.rsplit_once("Mpps, "));
        let carried = reason.map_or("not measured", |(_, carried)| carried);
        run.remark(row, format!("emulated, {}: {carried}", kernel.version()));
    }
    Ok(())
}

fn available() -> anyhow::Result<Kernel> {
    Guest::available()?;
    let kernel = Kernel::of_suite(SUITE)?;
    kernel.with_dependencies(&[&files::MODULES, MODULES].concat())?;
    Ok(kernel)
}

/// Reports of so many runs in one guest.
fn reports(kernel: &Kernel, rounds: u32, says: &dyn Fn(&str)) -> anyhow::Result<Vec<Report>> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let program = program.canonicalize().with_context(|| format!("cannot find {}", program.display()))?;
    let gateway = polder::program()?;
    let [own, gateway] =
        [&program, &gateway].map(|path| path.to_str().context("the path of a program is text"));
    let (own, gateway) = (own?, gateway?);
    let modules = [&files::MODULES, MODULES].concat();
    let options =
        Options { memory_mib: MEMORY_MIB, counts: true, ..Options::of(&program, &modules, &files::PROGRAMS) };
    says("a guest starts");
    let mut guest = Guest::boot_with_files(kernel, &options)?;
    let mut reports = Vec::new();
    for round in 0..rounds {
        let report = format!("{REPORT}-{round}");
        // What was not written as a report is written as no report, so that its absence is noticed.
        let script = format!(
            "{own} run connections --quick --only {MEASURED} --gateway {gateway} --json {report}.part || true
             mv {report}.part {report} || echo none > {report}"
        );
        let text = guest.run_until_written(&["sh", "-c", &script], &report, PATIENCE, says)?;
        reports.push(serde_json::from_str(&text).context("the guest's run has no report")?);
    }
    guest.power_off()?;
    Ok(reports)
}
