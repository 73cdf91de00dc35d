//! Declarations of rows: each number of a gateway is declared once for all outputs.
//!
//! A row is a structure that [`rows!`] declares. The declaration of a field contains everything about it:
//!
//! ```text
//!  /// Packets handed to the device.                               documentation, whose first line is the metric's help
//!  pub transmitted: u64                                            key in JSON
//!      => counter("port_transmitted", Packets)                     kind, name and unit of the metric
//!         right(9, "transmitted") top(3, "out/s") trend(),         columns of `polder show` and of `polder top`
//! ```
//!
//! It defines the fields that serde reads and writes, the metric families ([`expose`]), the columns of a
//! [`Table`](super::table::Table) and of [`top`](super::top), and the difference between two views ([`subtract_rows`]): a
//! `counter` is subtracted, a `gauge` and a `total` are not. `counted` has no metric.
//!
//! Clauses are methods of [`Field`]; a new clause is a new method. The type of a field implements [`FieldValue`], as rows do.
//! Metric families without a field of their own (texts as labels, counters of several fields under one name) follow the
//! structure after `also`.

use super::family::{Family, Kind, Labels, Metric, Unit};
use super::field_value::FieldDescription;
pub(crate) use super::field_value::{FieldValue, Read};
use super::layout::{Align, Layout};
use prometheus_client::encoding::DescriptorEncoder;
use std::collections::HashMap;
use std::fmt;

/// Declares a row: its fields, with their descriptions for all outputs.
macro_rules! rows {
    ($(
        $(#[$about:meta])*
        pub struct $row:ident {
            $(
                #[doc = $help:literal]
                $(#[$more:meta])*
                pub $field:ident: $type:ty $(=> $($clause:ident ($($argument:tt)*))+)?,
            )*
        }
        $(also $families:expr;)?
    )+) => {$(
        $(#[$about])*
        pub struct $row {
            $(#[doc = $help] $(#[$more])* pub $field: $type,)*
        }

        impl $crate::show::row::Row for $row {
            const FIELDS: &'static [$crate::show::row::Field<Self>] = &[$($(
                $crate::show::row::Field::<Self>::new(
                    $help,
                    |row| &row.$field,
                    |now, then| $crate::show::row::FieldValue::subtract(&mut now.$field, &then.$field),
                    |rows, description, out| {
                        let held = rows.iter().map(|(labels, row)| (labels.clone(), &row.$field));
                        $crate::show::row::FieldValue::expose(held.collect::<Vec<_>>(), description, out)
                    },
                )$(.$clause($($argument)*))+,
            )?)*];
            $(const FAMILIES: &'static [$crate::show::family::Family<Self>] = $families;)?
        }
    )+};
}
pub(crate) use rows;

/// A row with its declaration.
pub(crate) trait Row: Sized + 'static {
    /// Fields with a declaration.
    const FIELDS: &'static [Field<Self>];
    /// Families without a field of their own.
    const FAMILIES: &'static [Family<Self>] = &[];

    /// Values that identify a row among others.
    fn key(&self) -> Vec<String> {
        let of = |field: &Field<Self>| (field.get)(self).read().map(|read| read.to_string());
        Self::FIELDS.iter().filter(|field| field.is_key).map(|field| of(field).unwrap_or_default()).collect()
    }

    /// Labels of the row's metrics.
    fn labels(&self) -> Labels {
        let of = |field: &Field<Self>| {
            let read = (field.get)(self).read();
            Some((field.label?, read.map(|read| read.to_string()).unwrap_or_default()))
        };
        Labels(Self::FIELDS.iter().filter_map(of).collect())
    }

    /// Subtracts the counters of `then`.
    fn difference(&mut self, then: &Self) {
        Self::FIELDS.iter().filter(|field| field.differs).for_each(|field| (field.subtract)(self, then));
        Self::FIELDS.iter().filter_map(|field| field.derive).for_each(|derive| derive(self));
    }

    /// Columns of a table of such rows, in order.
    fn columns() -> Vec<(&'static Field<Self>, &'static Column<Self>)> {
        let of =
            |field: &'static Field<Self>| field.columns.iter().flatten().map(move |column| (field, column));
        let mut columns = Self::FIELDS.iter().flat_map(of).collect::<Vec<_>>();
        columns.sort_by_key(|(_, column)| column.place);
        columns
    }
}

/// Subtracts the counters of earlier rows with the same key; for equal keys, of the row at the same index.
pub(crate) fn subtract_rows<R: Row>(now: &mut [R], earlier: &[R]) {
    let keys = earlier.iter().map(Row::key).collect::<Vec<_>>();
    let by_key = keys.iter().zip(earlier).rev().collect::<HashMap<_, _>>();
    for (place, row) in now.iter_mut().enumerate() {
        let key = row.key();
        let at_place = earlier.get(place).filter(|_| keys[place] == key);
        if let Some(then) = at_place.or_else(|| by_key.get(&key).copied()) {
            row.difference(then);
        }
    }
}

/// Encodes the families of `rows`, each with its labels.
pub(crate) fn expose<R: Row>(rows: &[(Labels, &R)], out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    R::FAMILIES.iter().try_for_each(|family| family.encode(rows, out))?;
    let mut exposed = R::FIELDS.iter().filter(|field| field.description.metric.is_some() || field.is_nested);
    exposed.try_for_each(|field| (field.expose)(rows, &field.description, out))
}

/// Declaration of a field.
pub(crate) struct Field<T: 'static> {
    description: FieldDescription,
    get: fn(&T) -> &dyn FieldValue,
    subtract: fn(&mut T, &T),
    expose: Expose<T>,
    label: Option<&'static str>,
    is_key: bool,
    is_nested: bool,
    differs: bool,
    /// Computes a quotient after a subtraction.
    derive: Option<fn(&mut T)>,
    columns: [Option<Column<T>>; 4],
    pub(super) top: Option<Top<T>>,
    /// True if the sparkline of `polder top` includes it.
    pub(super) is_trend: bool,
}

type Expose<T> = for<'r> fn(&[(Labels, &'r T)], &FieldDescription, &mut DescriptorEncoder<'_>) -> fmt::Result;

/// A column of a table.
pub(crate) struct Column<T> {
    place: usize,
    /// Title; empty for a column that belongs to the one before it.
    pub(super) title: &'static str,
    pub(super) align: Align,
    cell: Option<Cell<T>>,
}

/// Function that returns a column's text for a row.
type Cell<T> = fn(&T, Layout) -> String;

/// A column of `polder top`.
pub(super) struct Top<T> {
    pub(super) place: usize,
    pub(super) title: &'static str,
    pub(super) value: TopValue<T>,
}

/// Value of a column of `polder top`.
pub(super) enum TopValue<T> {
    /// The field's value.
    Own,
    /// Another value, formatted like the field's.
    Of(fn(&T) -> Read),
    /// The row's share of the sum over all rows.
    PartOfAll(fn(&T) -> f64),
}

impl<T> Field<T> {
    /// A field without further declarations.
    pub(crate) const fn new(
        help: &'static str,
        get: fn(&T) -> &dyn FieldValue,
        subtract: fn(&mut T, &T),
        expose: Expose<T>,
    ) -> Self {
        let description = FieldDescription { help, metric: None, part: "", unit: Unit::Plain, grows: false };
        Self {
            description,
            get,
            subtract,
            expose,
            label: None,
            is_key: false,
            is_nested: false,
            differs: false,
            derive: None,
            columns: [const { None }; 4],
            top: None,
            is_trend: false,
        }
    }

    const fn metric(mut self, kind: Kind, name: &'static str, unit: Unit) -> Self {
        self.description.metric = Some(Metric { name, unit, kind });
        (self.description.unit, self.description.grows) = (unit, matches!(kind, Kind::Counter));
        self
    }

    /// A counter with a metric.
    pub(crate) const fn counter(self, name: &'static str, unit: Unit) -> Self {
        self.counted(unit).metric(Kind::Counter, name, unit)
    }

    /// Counters by name, with a metric whose label `part` is the name.
    pub(crate) const fn counters(mut self, name: &'static str, unit: Unit, part: &'static str) -> Self {
        self.description.part = part;
        self.counter(name, unit)
    }

    /// A counter without a metric of its own.
    pub(crate) const fn counted(mut self, unit: Unit) -> Self {
        (self.description.unit, self.description.grows, self.differs) = (unit, true, true);
        self
    }

    /// A counter whose total is shown even in views of a period.
    pub(crate) const fn total(self, name: &'static str, unit: Unit) -> Self {
        self.metric(Kind::Counter, name, unit)
    }

    /// A gauge with a metric.
    pub(crate) const fn gauge(self, name: &'static str, unit: Unit) -> Self {
        self.metric(Kind::Gauge, name, unit)
    }

    /// A gauge without a metric.
    pub(crate) const fn state(mut self, unit: Unit) -> Self {
        self.description.unit = unit;
        self
    }

    /// A quotient, computed after a subtraction.
    pub(crate) const fn derived(mut self, derive: fn(&mut T)) -> Self {
        self.derive = Some(derive);
        self
    }

    /// A part of the row's key.
    pub(crate) const fn key(mut self) -> Self {
        self.is_key = true;
        self
    }

    /// A label of the row's metrics.
    pub(crate) const fn label(mut self, name: &'static str) -> Self {
        self.label = Some(name);
        self
    }

    /// Marks the field as nested rows with declarations of their own.
    pub(crate) const fn rows(mut self) -> Self {
        (self.is_nested, self.differs) = (true, true);
        self
    }

    /// A left-aligned column of a table.
    pub(crate) const fn left(self, place: usize, title: &'static str) -> Self {
        self.with(Column { place, title, align: Align::Left, cell: None })
    }

    /// A right-aligned column of a table.
    pub(crate) const fn right(self, place: usize, title: &'static str) -> Self {
        self.with(Column { place, title, align: Align::Right, cell: None })
    }

    /// A left-aligned column with another text than the field's.
    pub(crate) const fn left_of(self, place: usize, title: &'static str, cell: Cell<T>) -> Self {
        self.with(Column { place, title, align: Align::Left, cell: Some(cell) })
    }

    /// A right-aligned column with another text than the field's.
    pub(crate) const fn right_of(self, place: usize, title: &'static str, cell: Cell<T>) -> Self {
        self.with(Column { place, title, align: Align::Right, cell: Some(cell) })
    }

    const fn with(mut self, column: Column<T>) -> Self {
        let mut place = 0;
        while self.columns[place].is_some() {
            place += 1;
        }
        self.columns[place] = Some(column);
        self
    }

    /// A column of `polder top`.
    pub(crate) const fn top(self, place: usize, title: &'static str) -> Self {
        self.tops(place, title, TopValue::Own)
    }

    /// A column of `polder top` with another value than the field's.
    pub(crate) const fn top_of(self, place: usize, title: &'static str, value: fn(&T) -> Read) -> Self {
        self.tops(place, title, TopValue::Of(value))
    }

    /// A column of `polder top` with the row's share of the sum over all rows.
    pub(crate) const fn top_part(self, place: usize, title: &'static str, value: fn(&T) -> f64) -> Self {
        self.tops(place, title, TopValue::PartOfAll(value))
    }

    const fn tops(mut self, place: usize, title: &'static str, value: TopValue<T>) -> Self {
        self.top = Some(Top { place, title, value });
        self
    }

    /// Includes the number in the sparkline of `polder top`.
    pub(crate) const fn trend(mut self) -> Self {
        self.is_trend = true;
        self
    }

    /// Value of the field in `row`.
    pub(super) fn read(&self, row: &T) -> Option<Read> {
        (self.get)(row).read()
    }

    /// Unit of the field, and true for a counter.
    pub(super) fn unit(&self) -> (Unit, bool) {
        (self.description.unit, self.description.grows)
    }
}

impl<T> Column<T> {
    /// Text of the column for `row`.
    pub(super) fn text(&self, field: &Field<T>, row: &T, layout: Layout) -> String {
        let own = || field.read(row).map(|read| read.text(field.description, layout));
        self.cell.map(|cell| cell(row, layout)).or_else(own).unwrap_or_default()
    }
}

impl<R: Row> FieldValue for R {
    fn read(&self) -> Option<Read> {
        None
    }

    fn subtract(&mut self, earlier: &Self) {
        if self.key() == earlier.key() {
            self.difference(earlier);
        }
    }

    fn expose(
        rows: Vec<(Labels, &Self)>,
        _told: &FieldDescription,
        out: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        expose(&rows, out)
    }
}

/// Rows with labels of their own, in addition to those of the containing row.
impl<R: Row> FieldValue for Vec<R> {
    fn read(&self) -> Option<Read> {
        None
    }

    fn subtract(&mut self, earlier: &Self) {
        subtract_rows(self, earlier);
    }

    fn expose(
        rows: Vec<(Labels, &Self)>,
        _told: &FieldDescription,
        out: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        let all = rows
            .iter()
            .flat_map(|(labels, held)| held.iter().map(|row| (labels.clone().with(row.labels()), row)));
        expose(&all.collect::<Vec<_>>(), out)
    }
}
