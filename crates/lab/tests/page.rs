//! Reports as pages, in a browser that is as narrow as a phone.
#![cfg(test)]

use polder_lab::report::{Report, page};
use polder_testbed::command;
use polder_testbed::skip::skip;
use std::path::{Path, PathBuf};
use std::process::Command;

const BROWSER: &str = "chromium";
/// Width of a phone, in pixels.
const PHONE: u32 = 390;
/// Says in the outer page's title, for each inner page, how many elements stick out of it and how wide it is. What BARS stands
/// for may be wider.
const MEASURE: &str = "
addEventListener('load', () => {
  const seen = [...document.querySelectorAll('iframe')].map(frame => {
    const inner = frame.contentDocument, wide = frame.contentWindow.innerWidth;
    const sticksOut = e =>
      e.checkVisibility() && !e.closest('BARS') && e.getBoundingClientRect().right > wide + 1;
    return [...inner.body.querySelectorAll('*')].filter(sticksOut).length + ':' + inner.documentElement.scrollWidth;
  });
  document.title = seen.join(' ');
});";

/// All published reports.
fn published() -> Vec<Report> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/measurements");
    let days = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = days.filter(|day| day.is_dir()).flat_map(|day| std::fs::read_dir(day).unwrap());
    let mut files = files.map(|entry| entry.unwrap().path()).collect::<Vec<PathBuf>>();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files.iter().map(|file| serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()).collect()
}

/// The browser, which asks nobody anything; its files are in `folder`.
fn browser(folder: &Path) -> Command {
    let mut browser = Command::new(BROWSER);
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
    browser.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    browser.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    browser
}

/// Elements that may be wider than a screen: they have bars to scroll by. A picture is scaled as a whole.
const BARS: &str = ".wide, pre, svg";

/// Elements that stick out and width, of each of these pages in a frame of `width` pixels; `bars` may stick out.
fn measure(pages: &[String], width: u32, bars: &str) -> Vec<(usize, u32)> {
    let folder = std::env::temp_dir().join(format!("polder-page-{width}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let frame = |page: &String| {
        let page = page.replace('&', "&amp;").replace('"', "&quot;");
        format!("<iframe style=\"width:{width}px;height:800px;border:0\" srcdoc=\"{page}\"></iframe>\n")
    };
    let frames = pages.iter().map(frame).collect::<String>();
    let file = folder.join("pages.html");
    let script = MEASURE.replace("BARS", bars);
    let outer =
        format!("<!doctype html><meta charset=\"utf-8\"><title>-</title><script>{script}</script>{frames}");
    std::fs::write(&file, outer).unwrap();
    let mut browser = browser(&folder);
    browser.args(["--window-size=1400,1000", "--dump-dom"]).arg(format!("file://{}", file.display()));
    let said = command::run(&mut browser);
    std::fs::remove_dir_all(&folder).unwrap();
    let said = said.unwrap();
    let (_, rest) = said.split_once("<title>").unwrap();
    let (title, _) = rest.split_once("</title>").unwrap();
    let pair = |word: &str| {
        let (count, width) = word.split_once(':').unwrap();
        (count.parse().unwrap(), width.parse().unwrap())
    };
    title.split_whitespace().map(pair).collect()
}

#[test]
fn no_page_is_wider_than_a_phone() {
    if !command::exists(BROWSER) {
        return skip("no_page_is_wider_than_a_phone", format!("{BROWSER} is not installed"));
    }
    let reports = published();
    assert!(reports.len() > 20);
    let mut pages = reports.iter().map(|report| page::render(report).unwrap()).collect::<Vec<_>>();
    for (report, page) in reports.iter().zip(&pages) {
        let file = format!("{}-{}.html", report.scenario, report.at);
        std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(file), page).unwrap();
    }
    // The meter finds what is too wide.
    pages.push(pages[0].replace("<h2>Rows", "<p style=\"width:600px\">wide</p><h2>Rows"));
    let mut seen = measure(&pages, PHONE, BARS);
    let (too_wide, width) = seen.pop().unwrap();
    assert!(too_wide > 0 && width > PHONE, "{too_wide} elements, {width} pixels");
    for (report, (too_wide, width)) in reports.iter().zip(seen) {
        let what = format!("{} of {}", report.scenario, page::date(report.at));
        assert!(too_wide == 0 && width <= PHONE, "{what}: {too_wide} elements, {width} pixels");
    }
}

/// Width of a sheet of A4 between its margins, in pixels.
const SHEET: u32 = 718;

#[test]
fn a_page_fits_a_sheet_and_is_printed_unfolded() {
    if !command::exists(BROWSER) {
        return skip("a_page_fits_a_sheet_and_is_printed_unfolded", format!("{BROWSER} is not installed"));
    }
    // A page on the screen with the rules of paper; what is folded is there for the meter once it is unfolded.
    let reports = published();
    let on_paper = |report: &Report| page::render(report).unwrap().replace("@media print", "@media screen");
    let wide = |page: &String| page.replace("</details>", "<p style=\"width:900px\">wide</p></details>");
    let pages = reports.iter().map(on_paper).collect::<Vec<_>>();
    let folded = pages.iter().filter(|page| page.contains("<details")).count();
    assert!(folded > 0, "{folded} of {} have what is folded", pages.len());
    let seen =
        measure(&pages.iter().cloned().chain(pages.iter().map(wide)).collect::<Vec<_>>(), SHEET, "svg");
    for (at, report) in reports.iter().enumerate() {
        let what = format!("{} of {}", report.scenario, page::date(report.at));
        let (too_wide, width) = seen[at];
        assert!(too_wide == 0 && width <= SHEET, "{what}: {too_wide} elements, {width} pixels");
        let is_folded = pages[at].contains("<details");
        assert!(!is_folded || seen[pages.len() + at].0 > 0, "{what}: what is folded is not printed");
    }
}

/// Width and height of the picture of a report, in pixels.
const PICTURE: (u32, u32) = (960, 1100);

/// Width and height of a PNG file.
fn size(png: &[u8]) -> (u32, u32) {
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

#[test]
fn the_guide_has_a_picture_of_a_report() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/report.png");
    if !command::exists(BROWSER) {
        return skip("the_guide_has_a_picture_of_a_report", format!("{BROWSER} is not installed"));
    }
    let reports = published();
    // The newest that is of more than a part.
    let known = |report: &Report| report.rows.iter().filter(|row| row.value.is_some()).count();
    let whole = |report: &&Report| report.scenario == "wire" && 2 * known(report) > report.rows.len();
    let newest = reports.iter().filter(whole).max_by_key(|report| report.at);
    let folder = std::env::temp_dir().join(format!("polder-picture-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, picture) = (folder.join("report.html"), folder.join("report.png"));
    std::fs::write(&file, page::render(newest.unwrap()).unwrap()).unwrap();
    let mut browser = browser(&folder);
    browser.args(["--hide-scrollbars", &format!("--window-size={},{}", PICTURE.0, PICTURE.1)]);
    browser.arg(format!("--screenshot={}", picture.display())).arg(format!("file://{}", file.display()));
    let said = command::run(&mut browser);
    let drawn = std::fs::read(&picture);
    std::fs::remove_dir_all(&folder).unwrap();
    let drawn = drawn.unwrap_or_else(|error| panic!("{error}: {said:?}"));
    if std::env::var_os("POLDER_BLESS").is_some() {
        std::fs::write(&kept, &drawn).unwrap();
    }
    assert_eq!((size(&drawn), size(&std::fs::read(kept).unwrap())), (PICTURE, PICTURE));
}
