//! Picture of techniques: what each brings, as a point with its interval on one axis.

use super::plot::{COLOURS, DrawError, FONT, WIDTH};
use super::{Row, number};
use plotters::prelude::*;
use std::collections::BTreeMap;

/// Ending of the rows that say by how much a technique is better, in percent.
const GAIN: &str = ".gain";
/// Marks of the axis, as ratios of *on* to *off*; marks inside the axis are drawn.
const MARKS: [f64; 22] = [
    0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0,
    100.0, 200.0, 1000.0,
];
/// Columns of the picture, in pixels: the axis, and the values behind it.
const LEFT: f64 = 190.0;
const RIGHT: f64 = 600.0;
const VALUES: i32 = 620;
/// Pixels between two marks, at least.
const APART: f64 = 40.0;
const LINE: i32 = 24;
/// Colours of the points: left ends in pixels, and meanings.
const LEGEND: [(i32, RGBColor, &str); 3] = [
    (190, COLOURS[2], "better"),
    (270, COLOURS[3], "worse"),
    (350, COLOURS[5], "no effect, or not decided: the line has 1 × in it"),
];

/// Gain of one technique as ratios of *on* to *off*: the median, and its interval.
#[derive(Clone, Debug, PartialEq)]
struct Gain {
    technique: String,
    percent: f64,
    ratio: f64,
    interval: (f64, f64),
}

impl Gain {
    fn of(row: &Row) -> Option<(String, Self)> {
        let base = row.name.strip_suffix(GAIN)?;
        let (at, _) = base.match_indices('.').nth(1)?;
        let (family, technique) = (base[..at].to_owned(), base[at + 1..].to_owned());
        let ratio = |percent: f64| (1.0 + percent / 100.0).max(MARKS[0]);
        let (percent, (low, high)) = (row.value?, row.spread?);
        let interval = (ratio(low), ratio(high));
        Some((family, Self { technique, percent, ratio: ratio(percent), interval }))
    }

    fn colour(&self) -> RGBColor {
        match self.interval {
            (low, _) if low > 1.0 => COLOURS[2],
            (_, high) if high < 1.0 => COLOURS[3],
            _ => COLOURS[5],
        }
    }
}

/// True if a row belongs to a technique that is drawn here: there is a gain beside it.
pub(super) fn is_contrast(row: &Row, rows: &[Row]) -> bool {
    let Some((base, _)) = row.name.rsplit_once('.') else { return false };
    rows.iter().any(|other| other.name.strip_suffix(GAIN) == Some(base))
}

/// A picture for each source of which there are gains.
pub(super) fn all(rows: &[Row]) -> Result<Vec<String>, DrawError> {
    let mut families = BTreeMap::<String, Vec<Gain>>::new();
    for (family, gain) in rows.iter().filter_map(Gain::of) {
        families.entry(family).or_default().push(gain);
    }
    families.iter().map(|(family, gains)| draw(family, gains)).collect()
}

/// A logarithmic axis of ratios.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn around(gains: &[Gain]) -> Self {
        let (low, high) = gains.iter().fold((0.95_f64, 1.05_f64), |(low, high), gain| {
            (low.min(gain.interval.0.min(gain.ratio)), high.max(gain.interval.1.max(gain.ratio)))
        });
        Self { low: low.ln(), high: high.ln() }
    }

    /// Pixels from the left.
    #[expect(clippy::cast_possible_truncation, reason = "pixels of a bounded picture")]
    fn at(&self, ratio: f64) -> i32 {
        (LEFT + (RIGHT - LEFT) * (ratio.ln() - self.low) / (self.high - self.low)).round() as i32
    }

    /// Marks inside, far enough from each other, and 1 among them.
    fn marks(&self) -> Vec<f64> {
        let mut chosen = vec![1.0];
        let inside = |mark: &f64| (self.low..=self.high).contains(&mark.ln());
        for mark in MARKS.into_iter().filter(inside) {
            let is_free = |other: &f64| f64::from((self.at(mark) - self.at(*other)).abs()) >= APART;
            if chosen.iter().all(is_free) {
                chosen.push(mark);
            }
        }
        chosen
    }
}

fn draw(family: &str, gains: &[Gain]) -> Result<String, DrawError> {
    let bottom = 44 + i32::try_from(gains.len())? * LINE;
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (WIDTH, u32::try_from(bottom)? + 54)).into_drawing_area();
    area.fill(&WHITE)?;
    let title = format!("{family}  (on ÷ off, right of 1 is better; line: where the median lies with 95 %)");
    area.draw(&Text::new(title, (14, 14), (FONT, 16).into_font().style(FontStyle::Bold)))?;
    let axis = Axis::around(gains);
    for mark in axis.marks() {
        let x = axis.at(mark);
        let colour = if mark == 1.0 { BLACK.mix(0.7) } else { BLACK.mix(0.15) };
        area.draw(&PathElement::new([(x, 40), (x, bottom)], colour))?;
        let text = if mark == 1.0 { "1 ×".to_owned() } else { format!("{mark} ×") };
        area.draw(&Text::new(text, (x - 10, bottom + 6), (FONT, 14)))?;
    }
    let mut middle = 44 + LINE / 2;
    for gain in gains {
        let (low, high) = gain.interval;
        let colour = gain.colour();
        area.draw(&Text::new(gain.technique.clone(), (14, middle - 7), (FONT, 14)))?;
        let line = [(axis.at(low), middle), (axis.at(high), middle)];
        area.draw(&PathElement::new(line, colour.stroke_width(3)))?;
        area.draw(&Circle::new((axis.at(gain.ratio), middle), 5, colour.filled()))?;
        let sign = if gain.percent > 0.0 { "+" } else { "" };
        let text = format!("{sign}{} %", number(gain.percent));
        area.draw(&Text::new(text, (VALUES, middle - 7), (FONT, 14)))?;
        middle += LINE;
    }
    for (left, colour, meaning) in LEGEND {
        area.draw(&Circle::new((left + 5, bottom + 38), 5, colour.filled()))?;
        area.draw(&Text::new(meaning, (left + 16, bottom + 31), (FONT, 14)))?;
    }
    area.present()?;
    drop(area);
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    fn row(name: &str, value: f64, spread: (f64, f64)) -> Row {
        Row { name: name.to_owned(), value: Some(value), spread: Some(spread), ..sample().rows[0].clone() }
    }

    #[test]
    fn a_gain_is_right_of_one_and_a_loss_left() {
        let rows = [
            row("tables.A.A3.gain", 600.0, (500.0, 700.0)),
            row("tables.A.A4.gain", 0.5, (-1.0, 2.0)),
            row("tables.A.A5.gain", -20.0, (-30.0, -10.0)),
        ];
        let gains = rows.iter().filter_map(Gain::of).map(|(_, gain)| gain).collect::<Vec<_>>();
        let axis = Axis::around(&gains);
        let [gain, none, loss] = [0, 1, 2].map(|place| &gains[place]);
        assert!(axis.at(gain.interval.0) > axis.at(1.0) && axis.at(loss.interval.1) < axis.at(1.0));
        assert!(axis.at(none.interval.0) < axis.at(1.0) && axis.at(none.interval.1) > axis.at(1.0));
        assert_eq!([gain, none, loss].map(Gain::colour), [COLOURS[2], COLOURS[5], COLOURS[3]]);
        assert_eq!((axis.at(8.0), axis.at(0.7)), (600, 190), "the ends of the intervals");
    }

    #[test]
    fn marks_keep_apart_and_have_one_among_them() {
        let (_, gain) = Gain::of(&row("usb.c.pools.16_kib.gain", 40_000.0, (-5.0, 40_000.0))).unwrap();
        assert_eq!(gain.technique, "pools.16_kib");
        let axis = Axis::around(&[gain]);
        let mut marks = axis.marks().iter().map(|mark| axis.at(*mark)).collect::<Vec<_>>();
        assert!(marks.contains(&axis.at(1.0)));
        marks.sort_unstable();
        assert!(marks.windows(2).all(|pair| f64::from(pair[1] - pair[0]) >= APART), "{marks:?}");
    }

    #[test]
    fn rows_beside_a_gain_are_of_a_contrast() {
        let rows = ["tables.A.A3.gain", "tables.A.A3.on", "tables.A.alone.on", "overload"]
            .map(|name| row(name, 1.0, (0.5, 2.0)));
        let found = rows.each_ref().map(|row| is_contrast(row, &rows));
        assert_eq!(found, [true, true, false, false]);
        assert_eq!(all(&rows).unwrap().len(), 1);
    }
}
