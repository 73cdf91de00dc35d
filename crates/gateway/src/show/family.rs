//! Metric families: name, unit and kind, and the encoding of their values.

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit as UnitName;
use std::fmt;

/// Unit of a row's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// No unit: the name says what is counted.
    Plain,
    /// Packets.
    Packets,
    /// Frames: packets on a bridge or adapter, or buffers.
    Frames,
    /// Bytes of packets, with the Ethernet header and without the FCS.
    Bytes,
    /// Batches of packets.
    Batches,
    /// MAC addresses.
    Addresses,
    /// Nanoseconds, exposed as seconds.
    Nanos,
    /// Seconds.
    Seconds,
    /// Thousandths, exposed as a ratio.
    Permille,
    /// Mbit/s, exposed as bit/s.
    Mbit,
    /// kbit/s, exposed as bit/s.
    Kbit,
    /// Packets per second.
    PacketRate,
    /// Bytes per second, shown as bit/s.
    ByteRate,
}

/// Kind of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A counter, which restarts with the gateway.
    Counter,
    /// A current value.
    Gauge,
    /// Texts as labels of the value 1.
    Info,
    /// A distribution of values.
    Histogram,
}

/// Name, unit and kind of a family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    pub(crate) kind: Kind,
}

/// A family without a field of its own: values of each row with further labels, or a distribution.
pub(crate) struct Family<T: 'static> {
    metric: Metric,
    help: &'static str,
    values: Values<T>,
}

/// Values of a row.
enum Values<T> {
    /// A number.
    Number(fn(&T) -> i128),
    /// Numbers, each with labels.
    Numbers(fn(&T) -> Vec<(Labels, i128)>),
    /// Texts as labels of the value 1.
    Texts(fn(&T) -> Labels),
    /// A distribution.
    Distribution(fn(&T) -> Distribution),
}

/// Distribution of times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distribution {
    /// Sum of all times, in nanoseconds.
    pub(crate) nanos: u64,
    /// Upper limit of each class in nanoseconds, `None` for the last one, and the number of values in it.
    pub(crate) classes: Vec<(Option<u64>, u64)>,
}

/// Labels with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels(pub(crate) Vec<(&'static str, String)>);

impl Labels {
    /// A single label.
    pub(crate) fn one(name: &'static str, value: impl ToString) -> Self {
        Self::default().and(name, value)
    }

    /// Adds a label.
    #[must_use]
    pub(crate) fn and(mut self, name: &'static str, value: impl ToString) -> Self {
        self.0.push((name, value.to_string()));
        self
    }

    /// Adds labels.
    #[must_use]
    pub(crate) fn with(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let labels = self.0.iter().map(|(name, value)| (*name, escaped(value))).collect::<Vec<_>>();
        labels.encode(encoder)
    }
}

/// Escapes a label's value. Source: OpenMetrics 1.0, ABNF, `escaped-string`.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A number as it is written.
enum Number {
    Whole(i64),
    Part(f64),
}

impl Unit {
    /// Suffix of metric names; `None` without a unit.
    fn name(self) -> Option<UnitName> {
        let name = match self {
            Self::Plain => return None,
            Self::Packets => "packets",
            Self::Frames => "frames",
            Self::Bytes => "bytes",
            Self::Batches => "batches",
            Self::Addresses => "addresses",
            Self::Nanos | Self::Seconds => "seconds",
            Self::Permille => "ratio",
            Self::Mbit | Self::Kbit => "bits_per_second",
            Self::PacketRate => "packets_per_second",
            Self::ByteRate => "bytes_per_second",
        };
        Some(UnitName::Other(name.to_owned()))
    }

    #[expect(clippy::cast_precision_loss, reason = "a time or a part is exposed as a floating-point number")]
    fn number(self, number: i128) -> Number {
        let whole = |number| Number::Whole(i64::try_from(number).unwrap_or(i64::MAX));
        match self {
            Self::Plain | Self::Packets | Self::Frames | Self::Bytes | Self::Batches | Self::Addresses => {
                whole(number)
            }
            Self::PacketRate | Self::ByteRate => whole(number),
            Self::Nanos => Number::Part(number as f64 / 1e9),
            Self::Seconds => Number::Part(number as f64),
            Self::Permille => Number::Part(number as f64 / 1000.0),
            Self::Mbit => whole(number * 1_000_000),
            Self::Kbit => whole(number * 1000),
        }
    }
}

/// Encodes a family.
pub(crate) fn encode(
    metric: Metric,
    help: &str,
    samples: impl IntoIterator<Item = (Labels, i128)>,
    out: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let unit = metric.unit.name();
    let mut family = metric.begin(help, unit.as_ref(), out)?;
    for (labels, number) in samples {
        match metric.kind {
            Kind::Info => family.encode_info(&labels)?,
            _ if labels.0.is_empty() => metric.encode_number(number, &mut family)?,
            Kind::Counter | Kind::Gauge | Kind::Histogram => {
                metric.encode_number(number, &mut family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

impl Metric {
    /// Begins a family whose unit suffix is `unit`.
    fn begin<'out>(
        &self,
        help: &str,
        unit: Option<&'out UnitName>,
        out: &'out mut DescriptorEncoder<'_>,
    ) -> Result<MetricEncoder<'out>, fmt::Error> {
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Info => MetricType::Info,
            Kind::Histogram => MetricType::Histogram,
        };
        out.encode_descriptor(self.name, help, unit, kind)
    }

    fn encode_number(&self, number: i128, out: &mut MetricEncoder<'_>) -> fmt::Result {
        match (self.kind, self.unit.number(number)) {
            (Kind::Counter, Number::Whole(number)) => {
                out.encode_counter::<NoLabelSet, _, u64>(&number.unsigned_abs(), None)
            }
            (Kind::Counter, Number::Part(number)) => out.encode_counter::<NoLabelSet, _, u64>(&number, None),
            (Kind::Gauge | Kind::Info | Kind::Histogram, Number::Whole(number)) => out.encode_gauge(&number),
            (Kind::Gauge | Kind::Info | Kind::Histogram, Number::Part(number)) => out.encode_gauge(&number),
        }
    }
}

impl<T> Family<T> {
    /// Counters of each row, with further labels.
    pub(crate) const fn counters(
        (name, unit): (&'static str, Unit),
        help: &'static str,
        values: fn(&T) -> Vec<(Labels, i128)>,
    ) -> Self {
        Self { metric: Metric { name, unit, kind: Kind::Counter }, help, values: Values::Numbers(values) }
    }

    /// Gauges of each row, with further labels.
    pub(crate) const fn gauges(
        (name, unit): (&'static str, Unit),
        help: &'static str,
        values: fn(&T) -> Vec<(Labels, i128)>,
    ) -> Self {
        Self { metric: Metric { name, unit, kind: Kind::Gauge }, help, values: Values::Numbers(values) }
    }

    /// Texts of each row, as labels.
    pub(crate) const fn info(name: &'static str, help: &'static str, texts: fn(&T) -> Labels) -> Self {
        let metric = Metric { name, unit: Unit::Plain, kind: Kind::Info };
        Self { metric, help, values: Values::Texts(texts) }
    }

    /// A gauge of each row.
    pub(crate) const fn gauge(name: &'static str, help: &'static str, value: fn(&T) -> i128) -> Self {
        let metric = Metric { name, unit: Unit::Plain, kind: Kind::Gauge };
        Self { metric, help, values: Values::Number(value) }
    }

    /// A distribution of times of each row.
    pub(crate) const fn histogram(
        name: &'static str,
        help: &'static str,
        distribution: fn(&T) -> Distribution,
    ) -> Self {
        let metric = Metric { name, unit: Unit::Nanos, kind: Kind::Histogram };
        Self { metric, help, values: Values::Distribution(distribution) }
    }

    /// Encodes the family for all rows.
    pub(crate) fn encode(&self, rows: &[(Labels, &T)], out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        match self.values {
            Values::Number(value) => {
                let of = |(labels, row): &(Labels, &T)| (labels.clone(), value(row));
                encode(self.metric, self.help, rows.iter().map(of), out)
            }
            Values::Numbers(values) => {
                let numbers = rows.iter().flat_map(|(labels, row)| {
                    values(row).into_iter().map(|(further, number)| (labels.clone().with(further), number))
                });
                encode(self.metric, self.help, numbers, out)
            }
            Values::Texts(texts) => {
                let of = |(labels, row): &(Labels, &T)| (labels.clone().with(texts(row)), 1);
                encode(self.metric, self.help, rows.iter().map(of), out)
            }
            Values::Distribution(distribution) => {
                let unit = self.metric.unit.name();
                let mut family = self.metric.begin(self.help, unit.as_ref(), out)?;
                rows.iter().try_for_each(|(labels, row)| {
                    distribution(row).encode(&mut family.encode_family(labels)?)
                })
            }
        }
    }
}

impl Distribution {
    #[expect(clippy::cast_precision_loss, reason = "times are exposed as floating-point numbers")]
    fn encode(&self, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        // The library writes the maximum number as infinity.
        let classes = self.classes.iter().map(|(longest, count)| (longest.map_or(f64::MAX, seconds), *count));
        let all = self.classes.iter().map(|(_, count)| count).sum();
        metric.encode_histogram::<NoLabelSet>(seconds(self.nanos), all, &classes.collect::<Vec<_>>(), None)
    }
}
