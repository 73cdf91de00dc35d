//! Pictures of a report, as SVG.

use super::{Curve, Report, Row, forest, number};
use anyhow::anyhow;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::collections::BTreeMap;

/// Width of every picture, in pixels.
pub const WIDTH: u32 = 760;
pub(super) const COLOURS: [RGBColor; 6] = [
    RGBColor(11, 110, 153),
    RGBColor(217, 119, 6),
    RGBColor(77, 124, 15),
    RGBColor(157, 23, 77),
    RGBColor(91, 33, 182),
    RGBColor(71, 85, 105),
];
pub(super) const FONT: &str = "sans-serif";

/// A chart of intervals for the techniques of each source, a bar chart for each family of other rows that differ in
/// the last part of their names alone, and a line chart for each curve.
///
/// # Errors
/// When a chart cannot be drawn.
pub fn all(report: &Report) -> anyhow::Result<Vec<String>> {
    let mut pictures =
        forest::all(&report.rows).map_err(|error| anyhow!("cannot draw the techniques: {error}"))?;
    for (family, rows) in families(&report.rows) {
        pictures.push(bars(&family, &rows).map_err(|error| anyhow!("cannot draw {family}: {error}"))?);
    }
    pictures.extend(curves(report)?);
    Ok(pictures)
}

/// Pictures of the curves alone, as SVG documents.
///
/// # Errors
/// When a chart cannot be drawn.
pub fn curves(report: &Report) -> anyhow::Result<Vec<String>> {
    let drawn = report.curves.iter().filter(|curve| curve.lines.values().any(|line| line.len() > 1));
    drawn.map(|curve| lines(curve).map_err(|error| anyhow!("cannot draw {}: {error}", curve.title))).collect()
}

/// Rows with values of one kind whose names share all but the last part, at least two together, and before them the
/// row that has the shared part for its name.
fn families(rows: &[Row]) -> BTreeMap<String, Vec<&Row>> {
    let mut families = BTreeMap::<String, Vec<&Row>>::new();
    let measured = || rows.iter().filter(|row| row.value.is_some() && !forest::is_contrast(row, rows));
    for row in measured() {
        let family = row.name.rsplit_once('.').map_or("", |(family, _)| family);
        // Rows of a scenario as such have nothing in common.
        if family.contains('.') {
            families.entry(family.to_owned()).or_default().push(row);
        }
    }
    for (family, rows) in &mut families {
        let first = measured().find(|row| row.name == *family);
        rows.splice(0..0, first);
    }
    let tells = |rows: &[&Row]| rows.len() > 1 && rows.iter().any(|row| row.value > Some(0.0));
    let is_alike = |a: &Row, b: &Row| (&a.unit, a.better) == (&b.unit, b.better);
    families.retain(|_, rows| tells(rows) && rows.iter().all(|row| is_alike(row, rows[0])));
    families
}

pub(super) type DrawError = Box<dyn core::error::Error>;

fn bars(family: &str, rows: &[&Row]) -> Result<String, DrawError> {
    const BAR: i32 = 26;
    const LEFT: i32 = 170;
    let height = u32::try_from(rows.len())? * 34 + 56;
    let largest = rows.iter().filter_map(|row| row.value).fold(f64::MIN_POSITIVE, f64::max);
    let room = f64::from(WIDTH) - f64::from(LEFT) - 150.0;
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let unit = Some(rows[0].unit.as_str()).filter(|unit| !unit.is_empty()).map(|unit| format!("{unit}, "));
    let better = format!("{:?}", rows[0].better).to_lowercase();
    let title = format!("{family}  ({}{better} is better)", unit.unwrap_or_default());
    area.draw(&Text::new(title, (14, 14), (FONT, 16).into_font().style(FontStyle::Bold)))?;
    let mut top = 44;
    for (place, row) in rows.iter().enumerate() {
        let peer = row.name.rsplit('.').next().unwrap_or("");
        let value = row.value.unwrap_or(0.0);
        #[expect(clippy::cast_possible_truncation, reason = "pixels of a bounded picture")]
        let end = (LEFT + (room * value / largest) as i32).max(LEFT + 1);
        area.draw(&Text::new(peer.to_owned(), (14, top + 5), (FONT, 14)))?;
        let colour = COLOURS[place % COLOURS.len()];
        area.draw(&Rectangle::new([(LEFT, top), (end, top + BAR)], colour.filled()))?;
        let text = format!("{} {}", number(value), row.unit);
        area.draw(&Text::new(text, (end + 8, top + 5), (FONT, 14)))?;
        top += 34;
    }
    area.present()?;
    drop(area);
    Ok(svg)
}

/// Bounds of an axis for `values`, which may all be one.
fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), y| (low.min(y), high.max(y)));
    if low < high { (low, high) } else { (low - 0.5, low + 0.5) }
}

/// Values of which the largest is more than this many times the least stand on a logarithmic axis.
const WIDE: f64 = 20.0;

/// The decades around `low` and `high`, when they are positive and far enough apart for a logarithmic axis.
fn decades((low, high): (f64, f64)) -> Option<(f64, f64)> {
    let wide = low > 0.0 && high > WIDE * low;
    wide.then(|| (10_f64.powf(low.log10().floor()), 10_f64.powf(high.log10().ceil())))
}

/// The part of a picture's height that a line of the key takes.
const KEY: f64 = 0.12;

#[expect(clippy::cast_precision_loss, reason = "there are a few lines")]
fn keys(curve: &Curve) -> f64 {
    curve.lines.len() as f64
}

fn lines(curve: &Curve) -> Result<String, DrawError> {
    let points = || curve.lines.values().flatten().copied();
    let (left, right) = span(points().map(|(x, _)| x));
    let (low, high) = span(points().map(|(_, y)| y));
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (WIDTH, 320)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut builder = ChartBuilder::on(&area);
    builder.caption(&curve.title, (FONT, 16)).margin(14).x_label_area_size(40).y_label_area_size(70);
    match decades((low, high)) {
        Some((bottom, top)) => {
            let axis = (bottom..top).log_scale();
            draw(builder.build_cartesian_2d(left..right, axis)?, curve)?;
        }
        // Room above for the key, which would else hide lines that begin high.
        None => {
            draw(builder.build_cartesian_2d(left..right, 0.0..high * (1.05 + KEY * keys(curve)))?, curve)?
        }
    }
    area.present()?;
    drop(builder);
    drop(area);
    Ok(svg)
}

/// The mesh, a line for each of the curve's, and the key to them.
fn draw<'a, Y>(
    mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, Y>>,
    curve: &Curve,
) -> Result<(), DrawError>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .x_desc(&curve.x)
        .y_desc(&curve.y)
        .x_label_formatter(&|x| number(*x))
        .y_label_formatter(&|y| number(*y))
        .light_line_style(WHITE)
        .draw()?;
    for (place, (name, line)) in curve.lines.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let series = LineSeries::new(line.iter().copied(), colour.stroke_width(2));
        let key = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2));
        chart.draw_series(series)?.label(name).legend(key);
    }
    // Latencies rise to the right.
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn a_row_heads_its_family_and_zeros_are_no_picture() {
        let row =
            |name: &str, value| Row { name: name.to_owned(), value: Some(value), ..sample().rows[0].clone() };
        let rows = [
            row("a.b.c", 2.0),
            row("a.b", 1.0),
            row("a.b.d", 3.0),
            row("a.x", 1.0),
            row("a.z.c", 0.0),
            row("a.z.d", 0.0),
        ];
        let families = families(&rows);
        let names = families["a.b"].iter().map(|row| row.name.as_str()).collect::<Vec<_>>();
        assert_eq!((names.as_slice(), families.len()), (["a.b", "a.b.c", "a.b.d"].as_slice(), 1));
    }

    #[test]
    fn values_far_apart_stand_on_a_logarithmic_axis() {
        assert_eq!(decades((52.0, 5_200.0)), Some((10.0, 10_000.0)));
        assert_eq!(decades((52.0, 104.0)), None, "near each other");
        assert_eq!(decades((0.0, 104.0)), None, "a logarithm has no zero");
        let mut report = sample();
        let line = |last| vec![(0.0, 20.0), (50.0, 30.0), (100.0, last)];
        report.curves[0].lines = [("a".to_owned(), line(9_000.0))].into();
        let wide = all(&report).unwrap().pop().unwrap();
        report.curves[0].lines = [("a".to_owned(), line(40.0))].into();
        let narrow = all(&report).unwrap().pop().unwrap();
        let labelled = |picture: &str, label: &str| picture.contains(&format!("\n{label}\n"));
        assert!(labelled(&wide, "10 000") && labelled(&wide, "100"), "{wide}");
        assert!(!labelled(&narrow, "100.0") && !labelled(&narrow, "10 000"), "{narrow}");
    }

    #[test]
    fn a_family_becomes_bars_and_a_curve_lines() {
        let pictures = all(&sample()).unwrap();
        assert_eq!(pictures.len(), 2);
        assert!(
            pictures[0].contains("polder") && pictures[0].contains("vpp") && !pictures[0].contains("ovs")
        );
        assert!(
            pictures
                .iter()
                .all(|picture| picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"))
        );
    }
}
