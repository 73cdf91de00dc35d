//! Notations: how the value of a key is read, written and described.

use super::keys::{self, Draft, Keyed};
use super::model::Configuration;
use super::section::{Refusal, Section, wrong_type};
use super::values;
use std::fmt::Display;
use std::ops::RangeInclusive;
use toml::de::DeValue;
use toml::{Spanned, Value};

/// Notation of a value of type `T` in the file.
pub(super) trait Notation<T> {
    /// The value that stands in the file.
    fn read<'d>(&self, value: &'d Spanned<DeValue<'d>>, section: &Section<'d>) -> Result<T, Refusal>;

    /// The value as it is written; `None` for one that is said by leaving the key out.
    fn write(&self, value: &T, all: &Configuration) -> Option<Value>;

    /// Values that can stand in the file.
    fn shape(&self) -> Shape;
}

/// Values that can stand in the file, as the guide and the schema describe them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// `true` or `false`.
    Boolean,
    /// A whole number.
    Integer { low: i64, high: i64, unit: &'static str },
    /// One of a few numbers.
    Numbers { all: Vec<i64>, unit: &'static str },
    /// One of a few words.
    Words(Vec<&'static str>),
    /// A string: what it is, and which are taken.
    Text { what: &'static str, range: &'static str },
    /// A list.
    List(Box<Self>),
    /// One value, or a list of them.
    Many(Box<Self>),
    /// A value of one shape, or of another.
    Either(Box<Self>, Box<Self>),
    /// A table, or several, in the words of the guide.
    Table(&'static str),
}

impl Shape {
    /// Type and unit in the words of the guide.
    pub(super) fn kind(&self) -> String {
        match self {
            Self::Boolean => "boolean".to_owned(),
            Self::Integer { unit: "", .. } => "integer".to_owned(),
            Self::Integer { unit, .. } | Self::Numbers { unit, .. } => format!("integer, {unit}"),
            Self::Words(_) | Self::Text { what: "", .. } => "string".to_owned(),
            Self::Text { what, .. } => format!("string, {what}"),
            Self::List(element) => match element.kind().split_once(", ") {
                Some((kind, what)) => format!("list of {kind}s, {what}"),
                None => format!("list of {}s", element.kind()),
            },
            Self::Many(element) => format!("{}, or list", element.kind()),
            Self::Either(one, other) => match (one.as_ref(), other.as_ref()) {
                (Self::Words(words), other) => format!("{}, or {}", other.kind(), quoted(words)),
                (one, other) => format!("{}, or {}", one.kind(), other.kind()),
            },
            Self::Table(what) => (*what).to_owned(),
        }
    }

    /// Values that are taken, in the words of the guide.
    pub(super) fn range(&self) -> String {
        match self {
            Self::Boolean | Self::Table(_) => String::new(),
            Self::Integer { low, high, .. } => format!("{low} to {high}"),
            Self::Numbers { all, .. } => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            Self::Words(words) => quoted(words),
            Self::Text { range, .. } => (*range).to_owned(),
            Self::List(element) | Self::Many(element) => element.range(),
            Self::Either(one, other) => match (one.as_ref(), other.as_ref()) {
                (Self::Words(_), Self::Integer { .. }) => other.range(),
                (one, other) => format!("{}, {}", one.range(), other.range()),
            },
        }
    }
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
}

/// `true` or `false`.
pub(super) struct Boolean;

impl Notation<bool> for Boolean {
    fn read<'d>(&self, value: &'d Spanned<DeValue<'d>>, _: &Section<'d>) -> Result<bool, Refusal> {
        values::boolean(value.get_ref())
    }

    fn write(&self, value: &bool, _: &Configuration) -> Option<Value> {
        Some(Value::Boolean(*value))
    }

    fn shape(&self) -> Shape {
        Shape::Boolean
    }
}

/// A whole number in a range, with the unit of what is counted.
pub(super) struct Integer<T>(pub(super) RangeInclusive<T>, pub(super) &'static str);

impl<T: TryFrom<i64> + Into<i64> + Copy> Notation<T> for Integer<T> {
    fn read<'d>(&self, value: &'d Spanned<DeValue<'d>>, _: &Section<'d>) -> Result<T, Refusal> {
        values::integer(self.0.clone(), self.1)(value.get_ref())
    }

    fn write(&self, value: &T, _: &Configuration) -> Option<Value> {
        Some(Value::Integer((*value).into()))
    }

    fn shape(&self) -> Shape {
        Shape::Integer { low: (*self.0.start()).into(), high: (*self.0.end()).into(), unit: self.1 }
    }
}

/// One of a few numbers, with the unit of what is counted.
pub(super) struct OneOf(pub(super) &'static [u32], pub(super) &'static str);

impl Notation<u32> for OneOf {
    fn read<'d>(&self, value: &'d Spanned<DeValue<'d>>, _: &Section<'d>) -> Result<u32, Refusal> {
        let number = values::integer(0..=u32::MAX, self.1)(value.get_ref())?;
        if self.0.contains(&number) {
            return Ok(number);
        }
        let all = self.0.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (last, first) = all.split_last().expect("there is a number to choose");
        let refusal = Refusal::new(format!("cannot be {number}"));
        Err(refusal.remedy(format!("use {} or {last}", first.join(", "))))
    }

    fn write(&self, value: &u32, _: &Configuration) -> Option<Value> {
        Some(Value::Integer(i64::from(*value)))
    }

    fn shape(&self) -> Shape {
        Shape::Numbers { all: self.0.iter().map(|&number| number.into()).collect(), unit: self.1 }
    }
}

/// One of a few words.
pub(super) struct Choice<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Notation<T> for Choice<T> {
    fn read<'d>(&self, value: &'d Spanned<DeValue<'d>>, _: &Section<'d>) -> Result<T, Refusal> {
        values::choice(self.0, value.get_ref())
    }

    fn write(&self, value: &T, _: &Configuration) -> Option<Value> {
        word(self.0, value)
    }

    fn shape(&self) -> Shape {
        Shape::Words(self.0.iter().map(|&(word, _)| word).collect())
    }
}

fn word<T: PartialEq>(words: &[(&str, T)], value: &T) -> Option<Value> {
    words.iter().find(|(_, known)| known == value).map(|&(word, _)| word.into())
}

/// A word that stands for a value, or a number.
pub(super) struct WordOr<T: 'static, N> {
    /// The words.
    pub(super) words: &'static [(&'static str, T)],
    /// The number.
    pub(super) number: Integer<N>,
    /// The value that a number stands for.
    pub(super) from: fn(N) -> T,
    /// The number that stands for a value, if no word does.
    pub(super) number_of: fn(&T) -> Option<N>,
}

/// A number, or a word for none.
pub(super) const fn number_or<N: Copy>(
    words: &'static [(&'static str, Option<N>)],
    range: RangeInclusive<N>,
    unit: &'static str,
) -> WordOr<Option<N>, N> {
    WordOr { words, number: Integer(range, unit), from: Some, number_of: |value| *value }
}

impl<T: Copy + PartialEq, N: TryFrom<i64> + Into<i64> + Copy> Notation<T> for WordOr<T, N> {
    fn read<'d>(&self, value: &'d Spanned<DeValue<'d>>, section: &Section<'d>) -> Result<T, Refusal> {
        match value.get_ref().is_integer() {
            true => self.number.read(value, section).map(self.from),
            false => values::word_or_number(self.words, value.get_ref()),
        }
    }

    fn write(&self, value: &T, all: &Configuration) -> Option<Value> {
        word(self.words, value).or_else(|| self.number.write(&(self.number_of)(value)?, all))
    }

    fn shape(&self) -> Shape {
        let words = Shape::Words(self.words.iter().map(|&(word, _)| word).collect());
        Shape::Either(Box::new(words), Box::new(self.number.shape()))
    }
}

/// A string with a notation of its own: what it is, which are taken, and how it is read.
pub(super) struct Text<T> {
    pub(super) what: &'static str,
    pub(super) range: &'static str,
    pub(super) read: fn(&DeValue<'_>) -> Result<T, Refusal>,
    pub(super) write: fn(&T) -> String,
}

/// A string that is written as it is shown.
pub(super) const fn text<T: Display>(
    what: &'static str,
    range: &'static str,
    read: fn(&DeValue<'_>) -> Result<T, Refusal>,
) -> Text<T> {
    Text { what, range, read, write: |value| value.to_string() }
}

impl<T> Notation<T> for Text<T> {
    fn read<'d>(&self, value: &'d Spanned<DeValue<'d>>, _: &Section<'d>) -> Result<T, Refusal> {
        (self.read)(value.get_ref())
    }

    fn write(&self, value: &T, _: &Configuration) -> Option<Value> {
        Some(Value::String((self.write)(value)))
    }

    fn shape(&self) -> Shape {
        Shape::Text { what: self.what, range: self.range }
    }
}

/// A value that is left out where there is none.
pub(super) struct Given<N>(pub(super) N);

impl<T, N: Notation<T>> Notation<Option<T>> for Given<N> {
    fn read<'d>(&self, value: &'d Spanned<DeValue<'d>>, section: &Section<'d>) -> Result<Option<T>, Refusal> {
        self.0.read(value, section).map(Some)
    }

    fn write(&self, value: &Option<T>, all: &Configuration) -> Option<Value> {
        value.as_ref().and_then(|value| self.0.write(value, all))
    }

    fn shape(&self) -> Shape {
        self.0.shape()
    }
}

/// A list, left out where it is empty.
pub(super) struct List<N> {
    /// Notation of an element.
    pub(super) of: N,
    /// Noun of the elements, in the plural.
    pub(super) what: &'static str,
    /// Remedy for an empty list, if there may be none.
    pub(super) empty: Option<&'static str>,
    /// True if one element may stand without a list around it.
    pub(super) or_one: bool,
}

impl<N> List<N> {
    /// Takes a single element without a list around it, too.
    pub(super) const fn or_one(mut self) -> Self {
        self.or_one = true;
        self
    }
}

/// A list of what `what` says in the plural; if there may be no empty one, `empty` is the remedy.
pub(super) const fn list<N>(of: N, what: &'static str, empty: Option<&'static str>) -> List<N> {
    List { of, what, empty, or_one: false }
}

impl<T, N: Notation<T>> Notation<Vec<T>> for List<N> {
    fn read<'d>(&self, value: &'d Spanned<DeValue<'d>>, section: &Section<'d>) -> Result<Vec<T>, Refusal> {
        if self.or_one && !value.get_ref().is_array() {
            return Ok(vec![self.of.read(value, section)?]);
        }
        let array = value.get_ref().as_array().ok_or_else(|| {
            let refusal = wrong_type(&format!("a list of {}", self.what), value.get_ref());
            refusal.remedy("put the value in brackets: `[…]`")
        })?;
        let element = |value: &'d Spanned<DeValue<'d>>| {
            self.of.read(value, section).map_err(|refusal| refusal.of_element(value.span()))
        };
        match self.empty {
            Some(remedy) if array.is_empty() => Err(Refusal::new("is empty").remedy(remedy)),
            Some(_) | None => array.iter().map(element).collect(),
        }
    }

    fn write(&self, list: &Vec<T>, all: &Configuration) -> Option<Value> {
        let mut values = list.iter().filter_map(|value| self.of.write(value, all)).collect::<Vec<_>>();
        match values.len() {
            0 => None,
            1 if self.or_one => values.pop(),
            _ => Some(Value::Array(values)),
        }
    }

    fn shape(&self) -> Shape {
        let of = Box::new(self.of.shape());
        if self.or_one { Shape::Many(of) } else { Shape::List(of) }
    }
}

/// A table inside another: what to write in place of something else, and the check of its keys, which says
/// whether the table can be used.
pub(super) struct Inner<T>(pub(super) &'static str, pub(super) fn(&Draft<T>, &Section<'_>) -> bool);

impl<T: Keyed + Clone> Notation<T> for Inner<T> {
    fn read<'d>(&self, value: &'d Spanned<DeValue<'d>>, section: &Section<'d>) -> Result<T, Refusal> {
        let refusal = || wrong_type("a table", value.get_ref()).remedy(self.0);
        let table = value.get_ref().as_table().ok_or_else(refusal)?;
        let draft = Draft::read(&section.open_table(T::NOUN.to_owned(), value.span(), table, T::kind()));
        let is_usable = (self.1)(&draft, section) && draft.is_complete();
        if is_usable { Ok(draft.value) } else { Err(Refusal::noted()) }
    }

    fn write(&self, value: &T, all: &Configuration) -> Option<Value> {
        Some(Value::Table(keys::written(value, all)))
    }

    fn shape(&self) -> Shape {
        Shape::Table("table")
    }
}

/// A list of tables, left out where it is empty.
pub(super) fn tables<T: Keyed>(list: &[T], all: &Configuration) -> Option<Value> {
    let tables = list.iter().map(|table| Value::Table(keys::written(table, all)));
    (!list.is_empty()).then(|| Value::Array(tables.collect()))
}
