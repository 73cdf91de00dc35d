//! The picture.

use crate::app::{App, View};
use crate::sample::{Source, name};
use polder::show::What;
use polder::show::layout::duration;
use polder::show::top::{self, Cell, Line as Row};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row as TableRow, Table, Wrap};
use std::cmp::Ordering;

/// Least size of a terminal.
const LEAST: (u16, u16) = (60, 24);
/// Columns of a number.
const NUMBER: u16 = 9;
/// Most columns of a sparkline.
const SPARK: u16 = 40;
/// Least height of a body that shows other views below the chosen one.
const TALL: u16 = 28;

/// Draws the picture of one gateway.
pub(crate) fn draw(frame: &mut Frame<'_>, app: &App, source: &Source) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let (width, height) = LEAST;
        let text = format!("polder top needs {width} x {height}; this is {} x {}", area.width, area.height);
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    let [head, tabs, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(title(app, source), head);
    frame.render_widget(views(app), tabs);
    tables(frame, body, app, source);
    frame.render_widget(keys(app), foot);
}

fn title<'a>(app: &App, source: &'a Source) -> Line<'a> {
    let sample = source.latest();
    if let Some(trouble) = &source.trouble {
        return Line::from(vec![Span::from(sample.gateway.clone()).bold(), format!("  {trouble}").red()]);
    }
    let [received, transmitted, dropped] = sample.totals.map(|rate| scaled(rate, 1000.0));
    let paused = if app.is_paused() { "  paused" } else { "" };
    let dropped = format!("  drops {dropped}/s");
    let dropped = if sample.totals[2] > 0.0 { dropped.red() } else { Span::from(dropped) };
    Line::from(vec![
        Span::from(sample.gateway.clone()).bold(),
        Span::from(format!("  up {}  in {received}/s  out {transmitted}/s", duration(sample.uptime_nanos))),
        dropped,
        paused.yellow(),
    ])
}

fn views(app: &App) -> Line<'static> {
    let view = |(number, view): (usize, &View)| {
        let text = format!(" {} {} ", number + 1, view.title());
        if *view == app.view() { Span::from(text).reversed() } else { Span::from(text) }
    };
    Line::from(View::ALL.iter().enumerate().map(view).collect::<Vec<_>>())
}

fn keys(app: &App) -> Line<'_> {
    if app.is_typing() {
        return Line::from(format!("filter: {}_", app.filter()));
    }
    let filter = if app.filter().is_empty() { String::new() } else { format!("  [{}]", app.filter()) };
    Line::from(format!("q quit  Tab view  s sort  r reverse  / filter  space pause  g next{filter}")).dim()
}

/// Titles of a view's columns.
fn titles(view: View) -> Vec<&'static str> {
    top::titles(match view {
        View::Ports => What::Ports,
        View::Stages => What::Path,
        View::Queues => What::Queues,
        View::Flows => What::Flows,
        View::Drops => What::Drops,
    })
}

/// Draws the chosen view, and below it on a tall terminal the views that follow, as far as there is room.
fn tables(frame: &mut Frame<'_>, area: Rect, app: &App, source: &Source) {
    let rows = shown(app.view(), app, source);
    table(frame, area, (app.view(), &rows), app, source);
    if area.height < TALL {
        return;
    }
    let lines = |rows: usize| u16::try_from(rows).unwrap_or(u16::MAX);
    let below = rows.len() - app.scrolled(rows.len()).min(rows.len());
    // A header, the rows, and an empty line.
    let mut used = lines(below).saturating_add(2);
    let at = View::ALL.iter().position(|&view| view == app.view()).unwrap_or(0);
    for &view in View::ALL.iter().cycle().skip(at + 1).take(View::ALL.len() - 1) {
        let rows = shown(view, app, source);
        let left = area.height.saturating_sub(used);
        // A title, a header and a row at least.
        if left < 3 || rows.is_empty() {
            continue;
        }
        let title = Rect { y: area.y + used, height: 1, ..area };
        frame.render_widget(Line::from(view.title()).dim(), title);
        let height = lines(rows.len()).saturating_add(1).min(left - 1);
        table(frame, Rect { y: title.y + 1, height, ..area }, (view, &rows), app, source);
        used += height + 2;
    }
}

/// Rows of a view that the filter leaves, in their order.
fn shown<'a>(view: View, app: &App, source: &'a Source) -> Vec<&'a Row> {
    let (sort, reverse) = order(view, app);
    let is_shown = |row: &&Row| row.cells.iter().any(|cell| text(cell).contains(app.filter()));
    let mut rows = source.latest().rows(view).iter().filter(is_shown).collect::<Vec<_>>();
    if let Some(column) = sort {
        rows.sort_by(|left, right| compare(left, right, column));
    }
    if reverse {
        rows.reverse();
    }
    rows
}

/// Column by which a view is sorted, and true for the smallest first; keys sort the chosen one.
fn order(view: View, app: &App) -> (Option<usize>, bool) {
    if view == app.view() { app.sort(titles(view).len()) } else { (None, false) }
}

fn table(frame: &mut Frame<'_>, area: Rect, (view, rows): (View, &[&Row]), app: &App, source: &Source) {
    let titles = titles(view);
    let (sort, _) = order(view, app);
    if rows.is_empty() {
        frame.render_widget(Paragraph::new("nothing").dim(), area);
        return;
    }
    let widths = widths(rows, &titles, area.width);
    let spark = usize::from(widths.spark);
    let header = titles.iter().enumerate().take(widths.columns.len()).map(|(column, title)| {
        let mark = if sort == Some(column) { "*" } else { "" };
        aligned(format!("{title}{mark}"), column == 0 || is_text(rows, column), widths.columns[column])
    });
    let header = header.chain((spark > 0).then(|| "trend".to_owned()));
    let scrolled = if view == app.view() { app.scrolled(rows.len()) } else { 0 };
    let lines = rows.iter().skip(scrolled).map(|row| {
        let cells = row.cells.iter().enumerate().take(widths.columns.len()).map(|(column, cell)| {
            aligned(text(cell), column == 0 || is_text(rows, column), widths.columns[column])
        });
        let history = source.history(view, name(row)).collect::<Vec<_>>();
        let trend = (spark > 0).then(|| sparkline(&history, spark, app.is_utf8()));
        TableRow::new(cells.chain(trend).collect::<Vec<_>>())
    });
    let constraints = widths.columns.iter().copied().chain((spark > 0).then_some(widths.spark));
    let table = Table::new(lines, constraints.map(Constraint::Length))
        .header(TableRow::new(header.collect::<Vec<_>>()).style(Style::new().bold()))
        .column_spacing(1);
    frame.render_widget(table, area);
}

/// Columns that fit, and those that are left for sparklines.
struct Widths {
    columns: Vec<u16>,
    spark: u16,
}

/// Columns are shown from the left as far as they fit; a long name gives way to numbers.
fn widths(rows: &[&Row], titles: &[&str], width: u16) -> Widths {
    let widest = |column: usize| {
        let cells =
            rows.iter().filter_map(|row| row.cells.get(column)).map(|cell| text(cell).chars().count());
        u16::try_from(cells.max().unwrap_or(0)).unwrap_or(u16::MAX)
    };
    let title = |column: usize| u16::try_from(titles[column].len()).unwrap_or(0) + 1;
    let mut columns = Vec::new();
    let mut left = width;
    for column in 0..titles.len() {
        let wanted =
            if is_text(rows, column) { widest(column).max(title(column)) } else { NUMBER.max(title(column)) };
        // The name leaves room for four numbers.
        let wanted =
            if column == 0 { wanted.min(width.saturating_sub(4 * (NUMBER + 1)).max(16)) } else { wanted };
        if wanted + 1 > left {
            break;
        }
        left -= wanted + 1;
        columns.push(wanted);
    }
    Widths { columns, spark: if left >= 8 { left.min(SPARK) } else { 0 } }
}

fn is_text(rows: &[&Row], column: usize) -> bool {
    rows.iter().any(|row| matches!(row.cells.get(column), Some(Cell::Text(text)) if !text.is_empty()))
}

fn aligned(text: String, left: bool, width: u16) -> String {
    let width = usize::from(width);
    let length = text.chars().count();
    if length > width {
        // Names differ at their ends.
        let head = width.saturating_sub(1).div_ceil(2);
        let tail = width.saturating_sub(1 + head);
        return text.chars().take(head).chain(['~']).chain(text.chars().skip(length - tail)).collect();
    }
    if left { text } else { format!("{text:>width$}") }
}

fn text(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Rate(rate) => scaled(*rate, 1000.0),
        Cell::Bits(bytes) => scaled(bytes * 8.0, 1000.0),
        Cell::Number(number) if *number >= 100.0 => format!("{number:.0}"),
        Cell::Number(number) => format!("{number:.1}"),
        Cell::Nanos(nanos) if *nanos < 1000.0 => format!("{nanos:.0} ns"),
        Cell::Nanos(nanos) if *nanos < 1e6 => format!("{:.1} us", nanos / 1e3),
        Cell::Nanos(nanos) => format!("{:.1} ms", nanos / 1e6),
        Cell::Share(share) => format!("{:.1} %", share * 100.0),
    }
}

/// A number with three digits and a prefix.
fn scaled(value: f64, step: f64) -> String {
    const PREFIXES: [&str; 5] = ["", "k", "M", "G", "T"];
    let (mut value, mut prefix) = (value, 0);
    while value >= step * 0.9995 && prefix + 1 < PREFIXES.len() {
        value /= step;
        prefix += 1;
    }
    let digits = if prefix == 0 && (value >= 10.0 || value == 0.0) || value >= 99.95 { 0 } else { 1 };
    let space = if prefix == 0 { "" } else { " " };
    format!("{value:.digits$}{space}{}", PREFIXES[prefix])
}

/// The largest numbers first, and texts in their order.
fn compare(left: &Row, right: &Row, column: usize) -> Ordering {
    let number = |row: &Row| match row.cells.get(column) {
        Some(
            Cell::Rate(number)
            | Cell::Bits(number)
            | Cell::Number(number)
            | Cell::Nanos(number)
            | Cell::Share(number),
        ) => Some(*number),
        Some(Cell::Text(_)) | None => None,
    };
    match (number(left), number(right)) {
        (Some(left), Some(right)) => right.total_cmp(&left),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => left.cells.get(column).map(text).cmp(&right.cells.get(column).map(text)),
    }
}

/// The last rates as a line of bars, relative to the largest of them.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index below eight")]
fn sparkline(series: &[f64], width: usize, is_utf8: bool) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const PLAIN: [char; 8] = ['_', '.', ',', '-', '=', '+', '*', '#'];
    let bars = if is_utf8 { BARS } else { PLAIN };
    let shown = &series[series.len().saturating_sub(width)..];
    let most = shown.iter().copied().fold(0.0, f64::max);
    let bar =
        |&rate: &f64| if most > 0.0 { bars[((rate / most * 7.0).round() as usize).min(7)] } else { bars[0] };
    shown.iter().map(bar).collect()
}
