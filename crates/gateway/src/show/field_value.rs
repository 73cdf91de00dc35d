//! Types of field values: reading, subtracting and exposing them.

use super::family::{self, Labels, Metric, Unit};
use super::layout::{Layout, duration};
use prometheus_client::encoding::DescriptorEncoder;
use std::collections::BTreeMap;
use std::fmt;

/// Description of a field: help, metric and number format.
#[derive(Clone, Copy)]
pub(crate) struct FieldDescription {
    pub(super) help: &'static str,
    pub(super) metric: Option<Metric>,
    /// Label for the keys of a map's numbers.
    pub(super) part: &'static str,
    pub(super) unit: Unit,
    /// True for a counter, which has a rate.
    pub(super) grows: bool,
}

impl FieldDescription {
    /// Help text of the metric; a boolean is 1 if true.
    fn help(&self) -> String {
        let help = self.help.trim_start();
        help.strip_prefix("True if").map_or_else(|| help.to_owned(), |rest| format!("1 if{rest}"))
    }
}

/// Value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Read {
    /// A name or a state.
    Text(String),
    /// An integer.
    Whole(i128),
    /// A quotient.
    Part(f64),
}

impl fmt::Display for Read {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => formatter.write_str(text),
            Self::Whole(number) => number.fmt(formatter),
            Self::Part(part) => part.fmt(formatter),
        }
    }
}

impl Read {
    /// Text in a table: a counter with its rate, a time with its unit, another number as it is.
    pub(super) fn text(&self, description: FieldDescription, layout: Layout) -> String {
        let Self::Whole(number) = self else { return self.to_string() };
        let number = u64::try_from(*number).unwrap_or(0);
        match (description.unit, description.grows) {
            (Unit::Bytes, true) => layout.bytes(number),
            (_, true) => layout.count(number),
            (Unit::Nanos, false) => duration(number),
            (Unit::ByteRate, false) => Layout { seconds: Some(1.0), ..layout }.bytes(number),
            (Unit::PacketRate, false) => Layout { seconds: Some(1.0), ..layout }.count(number),
            (Unit::Permille, false) => format!("{}.{} %", number / 10, number % 10),
            (_, false) => number.to_string(),
        }
    }
}

/// Types that a field can have.
pub(crate) trait FieldValue {
    /// The value; `None` if it is missing, and for nested rows.
    fn read(&self) -> Option<Read>;

    /// Subtracts an earlier value.
    fn subtract(&mut self, _earlier: &Self)
    where
        Self: Sized,
    {
    }

    /// Encodes the field's family for all rows with a number.
    fn expose(
        rows: Vec<(Labels, &Self)>,
        description: &FieldDescription,
        out: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result
    where
        Self: Sized,
    {
        let Some(metric) = description.metric else { return Ok(()) };
        let number = |(labels, held): (Labels, &Self)| match held.read()? {
            Read::Whole(number) => Some((labels, number)),
            Read::Text(_) | Read::Part(_) => None,
        };
        family::encode(metric, &description.help(), rows.into_iter().filter_map(number), out)
    }
}

macro_rules! held {
    ($($number:ty),+) => {$(
        impl FieldValue for $number {
            fn read(&self) -> Option<Read> {
                Some(Read::Whole(*self as i128))
            }

            fn subtract(&mut self, earlier: &Self) {
                *self = self.saturating_sub(*earlier);
            }
        }
    )+};
}
held!(u16, u32, u64, usize, i64);

impl FieldValue for bool {
    fn read(&self) -> Option<Read> {
        Some(Read::Whole((*self).into()))
    }
}

impl FieldValue for f64 {
    fn read(&self) -> Option<Read> {
        Some(Read::Part(*self))
    }
}

impl FieldValue for String {
    fn read(&self) -> Option<Read> {
        Some(Read::Text(self.clone()))
    }
}

/// Exposed as the number of texts.
impl FieldValue for Vec<String> {
    fn read(&self) -> Option<Read> {
        self.len().read()
    }
}

impl FieldValue for Vec<u64> {
    fn read(&self) -> Option<Read> {
        Some(Read::Whole(self.iter().map(|&number| i128::from(number)).sum()))
    }

    fn subtract(&mut self, earlier: &Self) {
        self.iter_mut().zip(earlier).for_each(|(now, then)| now.subtract(then));
    }
}

/// Conditions of a filter rule, which are part of its key.
impl FieldValue for BTreeMap<String, String> {
    fn read(&self) -> Option<Read> {
        Some(Read::Text(format!("{self:?}")))
    }
}

/// Counters by name.
impl FieldValue for BTreeMap<String, u64> {
    fn read(&self) -> Option<Read> {
        Some(Read::Whole(self.values().map(|&number| i128::from(number)).sum()))
    }

    fn subtract(&mut self, earlier: &Self) {
        for (name, count) in self {
            *count = count.saturating_sub(earlier.get(name).copied().unwrap_or(0));
        }
    }

    fn expose(
        rows: Vec<(Labels, &Self)>,
        description: &FieldDescription,
        out: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        let Some(metric) = description.metric else { return Ok(()) };
        let parts = rows.iter().flat_map(|(labels, held)| {
            held.iter().map(|(name, &number)| (labels.clone().and(description.part, name), number.into()))
        });
        family::encode(metric, &description.help(), parts, out)
    }
}

/// A missing value, now or earlier, stays as it is.
impl<H: FieldValue> FieldValue for Option<H> {
    fn read(&self) -> Option<Read> {
        self.as_ref()?.read()
    }

    fn subtract(&mut self, earlier: &Self) {
        if let (Some(now), Some(then)) = (self, earlier) {
            now.subtract(then);
        }
    }

    fn expose(
        rows: Vec<(Labels, &Self)>,
        description: &FieldDescription,
        out: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        let held = rows.into_iter().filter_map(|(labels, held)| Some((labels, held.as_ref()?)));
        H::expose(held.collect(), description, out)
    }
}
