//! Families of metrics: name, help, unit and kind of each, and its value in a row.

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;

/// Unit of packets.
pub(super) const PACKETS: &str = "packets";
/// Unit of bytes: of packets with the Ethernet header and without the FCS.
pub(super) const BYTES: &str = "bytes";
/// Unit of times.
pub(super) const SECONDS: &str = "seconds";
/// Unit of parts of a whole.
pub(super) const RATIO: &str = "ratio";
/// No unit: the name says what is counted.
pub(super) const NONE: &str = "";

/// A family of metrics with one value, or several, for each row of type `T`.
pub(super) struct Family<T: 'static> {
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    kind: Kind,
    values: Values<T>,
}

/// Kind of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A value that grows, and begins anew with the gateway.
    Counter,
    /// A state.
    Gauge,
    /// Texts as labels of the value 1.
    Info,
    /// A distribution of values.
    Histogram,
}

/// Values of a row.
enum Values<T> {
    /// One, or none where the row has none.
    One(fn(&T) -> Option<Value>),
    /// One for each value of further labels.
    Many(fn(&T) -> Vec<(Labels, Value)>),
    /// A distribution.
    Distribution(fn(&T) -> Distribution),
}

/// Distribution of times.
#[derive(Clone, Debug, Default)]
pub(super) struct Distribution {
    /// Sum of all times, in nanoseconds.
    pub(super) nanos: u64,
    /// Longest time of each class, none for the last one, and how many are in it.
    pub(super) classes: Vec<(Option<u64>, u64)>,
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// A number of things.
    Count(u64),
    /// A number with a sign.
    Signed(i64),
    /// A time in nanoseconds, exposed in seconds.
    Nanos(u64),
    /// A part in thousandths, exposed as a ratio.
    Permille(u64),
}

/// Labels with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Labels(pub(super) Vec<(&'static str, String)>);

impl Labels {
    /// One label.
    pub(super) fn one(name: &'static str, value: impl ToString) -> Self {
        Self(vec![(name, value.to_string())])
    }

    /// The same labels and another one.
    #[must_use]
    pub(super) fn and(mut self, name: &'static str, value: impl ToString) -> Self {
        self.0.push((name, value.to_string()));
        self
    }
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let labels = self.0.iter().map(|(name, value)| (*name, escaped(value))).collect::<Vec<_>>();
        labels.encode(encoder)
    }
}

/// Text of a label's value. Source: OpenMetrics 1.0, ABNF, `escaped-string`.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl<T> Family<T> {
    /// A counter of every row.
    pub(super) const fn counter(
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        value: fn(&T) -> Option<Value>,
    ) -> Self {
        Self { name, unit, help, kind: Kind::Counter, values: Values::One(value) }
    }

    /// A gauge of every row.
    pub(super) const fn gauge(
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        value: fn(&T) -> Option<Value>,
    ) -> Self {
        Self { name, unit, help, kind: Kind::Gauge, values: Values::One(value) }
    }

    /// Counters of every row, by further labels.
    pub(super) const fn counters(
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        values: fn(&T) -> Vec<(Labels, Value)>,
    ) -> Self {
        Self { name, unit, help, kind: Kind::Counter, values: Values::Many(values) }
    }

    /// Gauges of every row, by further labels.
    pub(super) const fn gauges(
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        values: fn(&T) -> Vec<(Labels, Value)>,
    ) -> Self {
        Self { name, unit, help, kind: Kind::Gauge, values: Values::Many(values) }
    }

    /// Texts about every row.
    pub(super) const fn info(
        name: &'static str,
        help: &'static str,
        texts: fn(&T) -> Vec<(Labels, Value)>,
    ) -> Self {
        Self { name, unit: NONE, help, kind: Kind::Info, values: Values::Many(texts) }
    }

    /// Distribution of times of every row.
    pub(super) const fn histogram(
        name: &'static str,
        help: &'static str,
        distribution: fn(&T) -> Distribution,
    ) -> Self {
        Self { name, unit: SECONDS, help, kind: Kind::Histogram, values: Values::Distribution(distribution) }
    }

    /// Encodes the family for all rows.
    fn encode(
        &self,
        rows: &[T],
        labels: fn(&T) -> Labels,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        let unit = (!self.unit.is_empty()).then(|| Unit::Other(self.unit.to_owned()));
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Info => MetricType::Info,
            Kind::Histogram => MetricType::Histogram,
        };
        let mut metric = encoder.encode_descriptor(self.name, self.help, unit.as_ref(), kind)?;
        for row in rows {
            if let Values::Distribution(distribution) = self.values {
                distribution(row).encode(&mut metric.encode_family(&labels(row))?)?;
            }
            for (further, value) in self.values.of(row) {
                let mut all = labels(row);
                all.0.extend(further.0);
                self.encode_value(value, &all, &mut metric)?;
            }
        }
        Ok(())
    }

    fn encode_value(&self, value: Value, labels: &Labels, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        if self.kind == Kind::Info {
            return metric.encode_info(labels);
        }
        if labels.0.is_empty() {
            return self.encode_number(value, metric);
        }
        self.encode_number(value, &mut metric.encode_family(labels)?)
    }

    fn encode_number(&self, value: Value, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        match (self.kind, value.number()) {
            (Kind::Counter, Number::Whole(number)) => {
                metric.encode_counter::<NoLabelSet, _, u64>(&number.unsigned_abs(), None)
            }
            (Kind::Counter, Number::Part(number)) => {
                metric.encode_counter::<NoLabelSet, _, u64>(&number, None)
            }
            (Kind::Gauge | Kind::Info | Kind::Histogram, Number::Whole(number)) => {
                metric.encode_gauge(&number)
            }
            (Kind::Gauge | Kind::Info | Kind::Histogram, Number::Part(number)) => {
                metric.encode_gauge(&number)
            }
        }
    }
}

impl Distribution {
    #[expect(clippy::cast_precision_loss, reason = "times are exposed as floating-point numbers")]
    fn encode(&self, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        // The library writes the largest number as infinity.
        let classes = self.classes.iter().map(|(longest, count)| (longest.map_or(f64::MAX, seconds), *count));
        let all = self.classes.iter().map(|(_, count)| count).sum();
        metric.encode_histogram::<NoLabelSet>(seconds(self.nanos), all, &classes.collect::<Vec<_>>(), None)
    }
}

impl<T> Values<T> {
    fn of(&self, row: &T) -> Vec<(Labels, Value)> {
        match self {
            Self::One(value) => value(row).map(|value| (Labels::default(), value)).into_iter().collect(),
            Self::Many(values) => values(row),
            Self::Distribution(_) => Vec::new(),
        }
    }
}

/// A number as it is written.
enum Number {
    Whole(i64),
    Part(f64),
}

impl Value {
    #[expect(clippy::cast_precision_loss, reason = "a time or a part is exposed as a floating-point number")]
    fn number(self) -> Number {
        match self {
            Self::Count(count) => Number::Whole(i64::try_from(count).unwrap_or(i64::MAX)),
            Self::Signed(number) => Number::Whole(number),
            Self::Nanos(nanos) => Number::Part(nanos as f64 / 1e9),
            Self::Permille(part) => Number::Part(part as f64 / 1000.0),
        }
    }

    /// Something that is true or not, as 1 or 0.
    pub(super) fn flag(is_true: bool) -> Self {
        Self::Count(u64::from(is_true))
    }
}

/// Families about the same rows.
pub(super) fn encode_all<T>(
    families: &[Family<T>],
    rows: &[T],
    labels: fn(&T) -> Labels,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    families.iter().try_for_each(|family| family.encode(rows, labels, encoder))
}
