//! The published pages are those of the published reports.
#![cfg(test)]

use polder_lab::publish;
use polder_lab::report::{Better, Report, Row};
use polder_lab::scenarios::ALL;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn published_pages_are_those_of_the_reports() {
    let found = publish::differences(&root().join("docs/measurements")).unwrap();
    assert_eq!(found, [""; 0], "`cargo run -p polder-lab -- publish` writes them");
}

#[test]
fn the_front_page_has_at_most_100_lines() {
    let text = fs::read_to_string(root().join("docs/measurements/README.md")).unwrap();
    assert!(text.lines().count() <= 100, "{}", text.lines().count());
}

#[test]
fn every_figure_of_how_fast_is_generated() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let (_, section) = text.split_once("\n## How fast\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let (before, rest) = section.split_once("<!-- begin: polder lab publish -->").unwrap();
    let (table, after) = rest.split_once("<!-- end: polder lab publish -->").unwrap();
    assert!(table.lines().count() > 5, "{table}");
    let has_figure = |text: &str| text.contains(|character: char| character.is_ascii_digit());
    assert!(!has_figure(before) && !has_figure(after), "{before}{after}");
}

/// A folder with a page for each scenario, and reports of `start` that were made at these times.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("pd-publish-{name}-{}", std::process::id()));
        let folder = root.join("docs/measurements");
        fs::create_dir_all(folder.join("2026-01-01")).unwrap();
        for scenario in ALL {
            fs::write(folder.join(scenario.name).with_extension("md"), "# A title\n").unwrap();
        }
        let notes = "[[beside]]\nwhat = \"start\"\npolder = \"start.first_packet_ms\"\n\
            configuration = \"veth\"\nreadme = true\n\
            [[missed]]\nrows = \"start.resident_<x>\"\ncause = \"a cause\"\n";
        fs::write(folder.join("publish.toml"), notes).unwrap();
        fs::write(
            root.join("README.md"),
            "# A\n<!-- begin: polder lab publish -->\n<!-- end: polder lab publish -->\nend\n",
        )
        .unwrap();
        Self(root)
    }

    fn folder(&self) -> PathBuf {
        self.0.join("docs/measurements")
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.0.join(path)).unwrap()
    }

    /// Adds a report with this time of the first packet.
    fn report(&self, name: &str, at: u64, first_packet: f64) {
        self.changed_report(name, (at, first_packet), |_| {});
    }

    /// The same, with a change.
    fn changed_report(&self, name: &str, (at, first_packet): (u64, f64), change: impl Fn(&mut Report)) {
        let row = |name: &str, value: f64, goal: f64| Row {
            name: name.to_owned(),
            value: Some(value),
            unit: "ms".to_owned(),
            better: Better::Lower,
            goal: Some(goal),
            met: Some(value <= goal),
            reason: None,
            spread: None,
            samples: 1,
        };
        let mut report = Report {
            scenario: "start".to_owned(),
            at,
            command: String::new(),
            machine: polder_testbed::machine::Machine::default(),
            placement: Vec::new(),
            quick: false,
            configuration: Vec::new(),
            left_out: Vec::new(),
            rows: vec![
                row("start.first_packet_ms", first_packet, 200.0),
                row("start.resident_mib", 70.0, 64.0),
            ],
            curves: Vec::new(),
            tables: Vec::new(),
        };
        change(&mut report);
        let path = self.folder().join("2026-01-01").join(name);
        fs::write(path, serde_json::to_string(&report).unwrap()).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn the_newest_report_counts_and_missed_goals_have_their_cause() {
    let folder = Folder::new("newest");
    folder.report("a.json", 200, 300.0);
    folder.report("b.json", 100, 50.0);
    publish::write(&folder.folder()).unwrap();
    let page = folder.read("docs/measurements/start.md");
    assert!(page.starts_with("# A title\n\n## Results\n"), "{page}");
    let sentence = "300 ms; goal at most 200 ms: **missed by 50 %** (`start.first_packet_ms`).\n";
    assert!(page.contains(sentence), "{page}");
    assert!(
        page.contains("* 0 of 2 goals are held, 2 missed.\n* Missed by 50 %: `start.first_packet_ms`, "),
        "{page}"
    );
    assert!(page.contains("(2026-01-01/a.json)") && !page.contains("b.json"), "{page}");
    assert!(
        page.contains("In no published report: ") && page.contains(", `start.route_added_ms.routes_1m`"),
        "{page}"
    );
    let front = folder.read("docs/measurements/README.md");
    assert!(front.contains("| [`start.resident_mib`](start.md) | ≤ 64.0 | 70.0 ms | a cause |"), "{front}");
    assert!(
        front.contains("| [`start.first_packet_ms`](start.md) | ≤ 200 | 300 ms | not looked for |"),
        "{front}"
    );
    let readme = folder.read("README.md");
    assert!(
        readme.contains("| start | 300 ms |  | veth | [2026-01-01](docs/measurements/2026-01-01/a.json) |"),
        "{readme}"
    );
    assert!(readme.ends_with("<!-- end: polder lab publish -->\nend\n"), "{readme}");
}

#[test]
fn a_check_writes_nothing_and_says_what_differs() {
    let folder = Folder::new("check");
    folder.report("a.json", 200, 50.0);
    publish::write(&folder.folder()).unwrap();
    assert_eq!(publish::differences(&folder.folder()).unwrap(), [""; 0]);
    folder.report("b.json", 300, 60.0);
    let found = publish::differences(&folder.folder()).unwrap().join("\n");
    assert!(found.contains("2026-01-01/a.json: no page uses it; delete it"), "{found}");
    assert!(found.contains("/start.md:11: ") && found.contains("| start | 60.0 ms |"), "{found}");
    assert!(found.contains("/README.md:"), "{found}");
    assert!(folder.read("docs/measurements/start.md").contains("50.0 ms"));
    // A document that leads to a report keeps it.
    fs::write(folder.0.join("docs/a.md"), "[a](measurements/2026-01-01/a.json)").unwrap();
    let found = publish::differences(&folder.folder()).unwrap().join("\n");
    assert!(!found.contains("delete it"), "{found}");
}

/// The day on which the rules for reports begin.
const DAY: u64 = 1_795_651_200;

#[test]
fn a_report_that_breaks_a_rule_is_refused() {
    let refused = |at: u64, change: &dyn Fn(&mut Report)| {
        let folder = Folder::new(&format!("rules-{at}"));
        folder.changed_report("a.json", (at, 50.0), change);
        publish::write(&folder.folder()).err().map(|error| error.to_string())
    };
    assert_eq!(refused(DAY, &|_| {}), None);
    let quick = |report: &mut Report| report.quick = true;
    let changed = |report: &mut Report| report.machine.commit.push_str("+changes");
    for (rule, change) in [("a quick run", quick as fn(&mut Report)), ("a changed tree", changed)] {
        let why = refused(DAY, &change).unwrap_or_default();
        assert!(why.contains(&format!("2026-01-01/a.json is refused: {rule};")), "{why}");
        assert_eq!(refused(DAY - 1, &change), None, "{rule}");
    }
}

#[test]
fn a_figure_of_few_rounds_is_left_out() {
    let page = |at: u64, samples: usize, unit: &str| {
        let folder = Folder::new(&format!("few-{at}-{samples}-{unit}"));
        folder.changed_report("a.json", (at, 50.0), |report| {
            report.rows[0].samples = samples;
            unit.clone_into(&mut report.rows[0].unit);
            report.rows[1].samples = 10;
        });
        publish::write(&folder.folder()).unwrap();
        folder.read("docs/measurements/start.md")
    };
    let is_shown = |page: &str| page.contains("(`start.first_packet_ms`).");
    for (samples, unit, shown) in
        [(1, "ms", false), (9, "packets", false), (10, "ms", true), (1, "packets", true)]
    {
        assert_eq!(is_shown(&page(DAY, samples, unit)), shown, "{samples} {unit}");
        let older = page(DAY - 1, samples, unit);
        assert!(is_shown(&older), "{older}");
        assert_eq!(older.contains("Older than the rules for reports: 1 rows"), !shown, "{older}");
    }
    assert!(page(DAY, 1, "ms").contains("In no published report: `start.first_packet_ms`"));
}
