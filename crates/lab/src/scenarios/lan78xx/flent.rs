//! Realtime response under load by flent: its test `rrul` between the stacks, judged from outside.

use super::output::{CUBIC, HOST, Output, Plan};
use super::rows::FLENT;
use super::rrul::{CODEL, PENDING};
use super::{Run, Testbed};
use crate::report::Curve;
use crate::scenarios::response::{LOST_MS, percentile};
use crate::scenarios::turns::in_turn;
use anyhow::Context as _;
use polder_testbed::command::{self, Running};
use polder_testbed::meters::sequence::ratio;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Time in which flent measures before its flows begin, and after they have ended; it cannot be changed.
const EDGE: f64 = 5.0;
/// Slow start, which does not count.
const START: f64 = 1.0;
/// Between two points.
const STEP: &str = "0.2";
/// Data of the first round, for flent's plots.
const DATA: &str = "rrul.flent.gz";

/// Results of flent: points in time, and each series with a value for each point that has one.
struct Told {
    at: Vec<f64>,
    series: BTreeMap<String, Vec<Option<f64>>>,
}

/// Fills the rows, and draws the curves of the first round.
pub(super) fn measure(run: &mut Run, stand: &Testbed) -> anyhow::Result<()> {
    if let Some(program) = ["flent", "netserver"].into_iter().find(|program| !command::exists(program)) {
        run.skip(&FLENT, &command::remedy(program));
        return Ok(());
    }
    let seconds = run.quick_or(2, 5);
    let mut curve = None;
    let sheet = in_turn(
        run,
        stand.samples,
        [()],
        |()| "rrul by flent".to_owned(),
        |(), sheet| {
            let told = rrul(stand, seconds, curve.is_none())?;
            let [added, lost] = told.added(f64::from(seconds)).context("flent's probes had no answer")?;
            let mbit =
                told.mean("TCP totals", f64::from(seconds)).context("flent's flows carried nothing")?;
            FLENT.iter().zip([added, lost, mbit]).for_each(|(row, value)| sheet.push(*row, value));
            curve.get_or_insert_with(|| told.curve());
            Ok(())
        },
    )?;
    curve.into_iter().for_each(|curve| run.curve(curve));
    sheet.record(run);
    run.remark(
        FLENT[0],
        format!(
            "`flent rrul`, {seconds} s of load, a point each {STEP} s: p99 of the four kinds of probes, points without \
             an answer as {} s, less the median without load. CUBIC, CoDel as in rrul. Data of the first round: {DATA}",
            LOST_MS / 1e3
        ),
    );
    Ok(())
}

fn rrul(stand: &Testbed, seconds: u32, keeps: bool) -> anyhow::Result<Told> {
    let output = Output::lay(&Plan { queue: Some(CODEL), pending: PENDING, ..Plan::usual(stand.cores) })?;
    let mut server = Running::start("netserver", output.command(false, "netserver").arg("-D"))?;
    let directory = output.directory();
    let table = directory.join("rrul.csv");
    let mut client = output.command(true, "flent");
    client.args(["rrul", "--ipv4", "--host", &HOST.to_string(), "--length", &seconds.to_string()]);
    client.arg(format!("--test-parameter=tcp_cong_control={CUBIC}"));
    client.args(["--step-size", STEP, "--format", "csv", "--output"]).arg(&table);
    command::run(client.arg("--data-dir").arg(directory).arg("--note=polder"))?;
    server.check()?;
    server.stop()?;
    if keeps {
        let data = std::fs::read_dir(directory)?.filter_map(Result::ok).map(|entry| entry.path());
        let is_data = |path: &PathBuf| path.to_string_lossy().ends_with(".flent.gz");
        let data = data.into_iter().find(is_data).context("flent has written no data")?;
        std::fs::copy(data, DATA).with_context(|| format!("cannot write {DATA}"))?;
    }
    let table = std::fs::read_to_string(&table).context("flent has written no table")?;
    Told::read(&table).context("flent's table has an unknown form")
}

impl Told {
    /// Reads flent's CSV: a line of names, then a line for each point.
    fn read(table: &str) -> Option<Self> {
        let mut lines = table.lines();
        let names = lines.next()?.split(',').skip(1).map(str::to_owned).collect::<Vec<_>>();
        let mut told = Self { at: Vec::new(), series: BTreeMap::new() };
        for line in lines {
            let mut cells = line.split(',');
            told.at.push(cells.next()?.parse().ok()?);
            for (name, cell) in names.iter().zip(cells) {
                told.series.entry(name.clone()).or_default().push(cell.parse().ok());
            }
        }
        (!told.at.is_empty()).then_some(told)
    }

    /// Values of the series of probes, or of one, between two times; `None` for a point without an answer.
    fn within(&self, prefix: &str, (from, until): (f64, f64)) -> Vec<Option<f64>> {
        let series =
            self.series.iter().filter(|(name, _)| name.starts_with(prefix) && !name.ends_with("avg"));
        let points = series.flat_map(|(_, values)| self.at.iter().zip(values));
        points.filter(|(at, _)| (from..until).contains(*at)).map(|(_, value)| *value).collect()
    }

    /// The 99th percentile under load less the median without, in ms; points under load without an answer, in percent.
    fn added(&self, seconds: f64) -> Option<[f64; 2]> {
        let mut idle = self.within("Ping", (0.0, EDGE)).into_iter().flatten().collect::<Vec<_>>();
        let loaded = self.within("Ping", (EDGE + START, EDGE + seconds));
        let lost = loaded.iter().filter(|value| value.is_none()).count();
        let mut loaded = loaded.iter().map(|value| value.unwrap_or(LOST_MS)).collect::<Vec<_>>();
        idle.sort_by(f64::total_cmp);
        loaded.sort_by(f64::total_cmp);
        let lost = 100.0 * ratio(lost as u64, loaded.len() as u64);
        Some([percentile(&loaded, 99)? - percentile(&idle, 50)?, lost])
    }

    /// Mean of a series under load.
    fn mean(&self, series: &str, seconds: f64) -> Option<f64> {
        let values = self.within(series, (EDGE + START, EDGE + seconds)).into_iter().flatten();
        let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
        (count > 0.0).then_some(sum / count)
    }

    /// Round trips of the probes over time.
    fn curve(&self) -> Curve {
        let probes = self.series.iter().filter(|(name, _)| name.starts_with("Ping"));
        let line = |values: &Vec<Option<f64>>| {
            self.at.iter().zip(values).filter_map(|(at, value)| Some((*at, (*value)?))).collect()
        };
        Curve {
            title: "rrul by flent".to_owned(),
            x: "s".to_owned(),
            y: "ms".to_owned(),
            lines: probes.map(|(name, values)| (name.replace("Ping (ms) ", ""), line(values))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    #[test]
    fn a_point_without_an_answer_is_a_lost_probe() {
        // 5 s without load, 5 s with it, 5 s without; five of the UDP probes under load have no answer.
        let mut table = "rrul,Ping (ms) avg,Ping (ms) UDP BE,TCP totals,Ping (ms) ICMP\n".to_owned();
        for point in 0..75 {
            let (udp, icmp, tcp) = match point {
                40..45 => ("", "4.5", "900"),
                25..50 => ("3.5", "4.5", "900"),
                _ => ("0.5", "0.5", ""),
            };
            writeln!(table, "{:.1},9999,{udp},{tcp},{icmp}", f64::from(point) / 5.0).unwrap();
        }
        let told = Told::read(&table).unwrap();
        assert_eq!(told.mean("TCP totals", 5.0), Some(900.0));
        let [added, lost] = told.added(5.0).unwrap();
        assert!((added - 1999.5).abs() < 1e-9 && (lost - 12.5).abs() < 1e-9, "{added} {lost}");
        // Answered by all, the slower kind is the percentile.
        let told = Told::read(&table.replace(",,900", ",3.5,900")).unwrap();
        assert_eq!(told.added(5.0).unwrap(), [4.0, 0.0]);
        assert!(Told::read("").is_none() && Told::read("rrul,Ping (ms) ICMP\nlater,3\n").is_none());
    }
}
