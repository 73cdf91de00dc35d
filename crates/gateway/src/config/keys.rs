//! Tables of keys: one entry for each key, from which it is read, written, compared and documented.
//!
//! [`section!`] defines a kind of table of the file as the struct that holds its values. An entry is
//!
//! ```text
//! /// Meaning, as the guide has it.
//! key: Type = default, notation => reload;
//! ```
//!
//! and a key without a field of its own is `key as Type, notation, get, set => reload`. Checks of keys
//! against each other are apart; they work on a [`Draft`], which knows where each key stands.

use super::diagnostics::Diagnostic;
use super::model::Configuration;
use super::notation::Shape;
use super::section::{At, Kind, Section, Span};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// One key of a kind of table `T`.
pub(super) struct Key<T: 'static> {
    /// Its name in the file.
    pub(super) name: &'static str,
    /// Meaning, in a phrase.
    pub(super) meaning: &'static str,
    /// Class of a change.
    pub(super) reload: Reload<T>,
    /// Way of its value from the file into `T` and back.
    pub(super) access: Access<T>,
    /// Its default in the words of the guide, where that is no constant.
    pub(super) usual: Option<&'static str>,
    /// Remedy where it is missing, if it may not be.
    pub(super) required: Option<&'static str>,
    /// Values that it takes in the words of the guide, where they depend on other keys.
    pub(super) range: Option<&'static str>,
    /// True if a table with these values has it; others do not write it.
    pub(super) only: Option<fn(&T) -> bool>,
}

/// Way of the value of a key from the file into `T` and back.
pub(super) struct Access<T> {
    /// Reads the key; false after a finding.
    pub(super) read: fn(&mut T, &Section<'_>, &'static str) -> bool,
    /// The value as it is written, if it is.
    pub(super) write: fn(&T, &Configuration) -> Option<Value>,
    /// Values that can stand in the file.
    pub(super) shape: fn() -> Shape,
}

impl<T> Access<T> {
    /// A key that is read apart, because what stands there has places of its own.
    pub(super) const fn elsewhere(
        write: fn(&T, &Configuration) -> Option<Value>,
        shape: fn() -> Shape,
    ) -> Self {
        Self { read: |_, _, _| true, write, shape }
    }
}

/// Class of a change, with the reason why a reload is not enough.
pub(super) enum Reload<T: 'static> {
    /// A reload, and no packet is lost.
    Live,
    /// The device of the port has to be opened anew.
    Reopen(&'static str),
    /// A restart.
    Restart(&'static str),
    /// One of these by other keys: in the words of the guide, and the reason why it is no reload.
    Depends(&'static str, fn(&T) -> Option<&'static str>),
}

/// Values of a kind of table, with its keys.
pub(super) trait Keyed: Default + 'static {
    /// Noun of the table, with its article.
    const NOUN: &'static str;
    /// Title under which the guide describes it.
    const TITLE: &'static str;
    /// Its keys, in the order of the guide.
    const KEYS: &'static [Key<Self>];

    /// The kind of table.
    fn kind() -> Kind {
        Kind { noun: Self::NOUN, keys: Self::KEYS.iter().map(|key| key.name).collect(), moved: Vec::new() }
    }
}

impl<T> Key<T> {
    /// An entry without further remarks.
    pub(super) const fn new(
        name: &'static str,
        meaning: &'static str,
        access: Access<T>,
        reload: Reload<T>,
    ) -> Self {
        Self { name, meaning, reload, access, usual: None, required: None, range: None, only: None }
    }

    /// Describes a default that is no constant.
    pub(super) const fn usual(mut self, text: &'static str) -> Self {
        self.usual = Some(text);
        self
    }

    /// Refuses a table without the key, with what to add as the remedy.
    pub(super) const fn required(mut self, remedy: &'static str) -> Self {
        self.required = Some(remedy);
        self
    }

    /// Describes values that depend on other keys.
    pub(super) const fn range(mut self, text: &'static str) -> Self {
        self.range = Some(text);
        self
    }

    /// Writes the key for some tables alone.
    pub(super) const fn only(mut self, has: fn(&T) -> bool) -> Self {
        self.only = Some(has);
        self
    }

    /// The value as it is written, if it is.
    pub(super) fn written(&self, table: &T, all: &Configuration) -> Option<Value> {
        let has = self.only.is_none_or(|has| has(table));
        if has { (self.access.write)(table, all) } else { None }
    }

    /// Reason why a running gateway cannot give the key of `table` another value; `None` if it can.
    pub(super) fn why_fixed(&self, table: &T) -> Option<&'static str> {
        match self.reload {
            Reload::Live => None,
            Reload::Reopen(reason) | Reload::Restart(reason) => Some(reason),
            Reload::Depends(_, reason) => reason(table),
        }
    }
}

/// A table of the file: its values, with defaults for what was left out, and the places of its keys.
#[derive(Debug)]
pub(super) struct Draft<T> {
    /// The values.
    pub(super) value: T,
    /// The table as people write it, such as `[port.lan]`.
    pub(super) title: String,
    /// Place of the table.
    pub(super) span: Span,
    /// Place of its name in its header, if it has one.
    pub(super) name: Span,
    places: BTreeMap<&'static str, Place>,
}

#[derive(Debug)]
struct Place {
    key: Span,
    value: Span,
    elements: Vec<Span>,
    is_readable: bool,
}

impl<T: Keyed> Draft<T> {
    /// A table that was left out.
    pub(super) fn absent() -> Self {
        let places = BTreeMap::new();
        Self { value: T::default(), title: T::TITLE.to_owned(), span: 0..0, name: 0..0, places }
    }

    /// Reads the keys of a table; what is wrong with them is noted.
    pub(super) fn read(section: &Section<'_>) -> Self {
        let mut draft = Self { title: section.title.clone(), span: section.span.clone(), ..Self::absent() };
        for key in T::KEYS {
            if let Some(((name, value), elements)) = section.place(key.name) {
                let is_readable = (key.access.read)(&mut draft.value, section, key.name);
                draft.places.insert(key.name, Place { key: name, value, elements, is_readable });
            } else if let Some(remedy) = key.required {
                let message = format!("{} has no `{}`", section.title, key.name);
                section.error(section.span.clone(), message, remedy);
            }
        }
        draft
    }

    /// Reads the keys of a table with a name in its header.
    pub(super) fn named(section: &Section<'_>, name: At<String>, field: fn(&mut T) -> &mut String) -> Self {
        let mut draft = Self { name: name.span, ..Self::read(section) };
        *field(&mut draft.value) = name.value;
        draft
    }

    /// Reads each table of the list that is the value of `key`; `title` is that of the parent.
    pub(super) fn read_list(parent: &Section<'_>, key: &str, title: &str) -> Vec<Self> {
        let section = |section: Section<'_>| Self::read(&section);
        parent.open_list(key, title, T::kind).into_iter().map(section).collect()
    }

    fn place(&self, key: &str) -> Option<&Place> {
        debug_assert!(T::KEYS.iter().any(|known| known.name == key), "{key} is no key of {}", T::NOUN);
        self.places.get(key)
    }

    /// True if `key` is there, readable or not.
    pub(super) fn has(&self, key: &str) -> bool {
        self.place(key).is_some()
    }

    /// True if `key` is there and its value could not be read.
    pub(super) fn is_unreadable(&self, key: &str) -> bool {
        self.place(key).is_some_and(|place| !place.is_readable)
    }

    /// Place of the value of `key`, if it is there and could be read.
    pub(super) fn at(&self, key: &str) -> Option<&Span> {
        self.place(key).filter(|place| place.is_readable).map(|place| &place.value)
    }

    /// True if no required key is missing or unreadable.
    pub(super) fn is_complete(&self) -> bool {
        T::KEYS.iter().all(|key| key.required.is_none() || self.at(key.name).is_some())
    }

    /// The value of `key` as `pick` finds it, with its place, if it is there and could be read.
    pub(super) fn get<'a, V>(&'a self, key: &str, pick: impl FnOnce(&'a T) -> V) -> Option<(V, &'a Span)> {
        Some((pick(&self.value), self.at(key)?))
    }

    /// Place of the name of `key`.
    pub(super) fn key(&self, key: &str) -> Option<&Span> {
        self.place(key).map(|place| &place.key)
    }

    /// Place of an element of the list `key`, or of its value where that is no list.
    pub(super) fn element(&self, key: &str, index: usize) -> Span {
        let place = self.place(key);
        place.map_or(0..0, |place| place.elements.get(index).unwrap_or(&place.value).clone())
    }

    /// Adds the place of an element to the list `key`, where that is there.
    pub(super) fn add_element(&mut self, key: &str, span: Span) {
        if let Some(place) = self.places.get_mut(key) {
            place.elements.push(span);
        }
    }

    /// The finding that `key` has no meaning because of another one, if it is there.
    pub(super) fn refuse(&self, key: &str, why: &str, remedy: &str) -> Option<Diagnostic> {
        let message = format!("{} cannot have `{key}`: {why}", self.title);
        Some(Diagnostic::error(self.key(key)?.clone(), message).remedy(remedy))
    }
}

/// The keys of a table with their values, as they are written.
pub(super) fn written<T: Keyed>(table: &T, all: &Configuration) -> Table {
    let entry = |key: &Key<T>| Some((key.name.to_owned(), key.written(table, all)?));
    T::KEYS.iter().filter_map(entry).collect()
}

/// A key that has another value, as `old → new`.
pub(super) fn changed<T: Keyed>(
    key: &Key<T>,
    (old, old_all): (&T, &Configuration),
    (new, new_all): (&T, &Configuration),
) -> Option<String> {
    let text = |value: Option<Value>| value.map_or_else(|| "–".to_owned(), |value| value.to_string());
    let (old, new) = (key.written(old, old_all), key.written(new, new_all));
    (old != new).then(|| format!("{} → {}", text(old), text(new)))
}

/// Way of the value of a key into a field and back, or through two functions.
macro_rules! access {
    ($($field:ident).+, $type:ty, $notation:expr) => {
        access!(
            |table: &Self| Some(table.$($field).+.clone()),
            |table: &mut Self, value| table.$($field).+ = value,
            $type,
            $notation
        )
    };
    ($get:expr, $set:expr, $type:ty, $notation:expr) => {
        $crate::config::keys::Access {
            read: |table: &mut Self, section, key| {
                let set: fn(&mut Self, $type) = $set;
                section.read_as::<$type>(key, &$notation).map(|value| set(table, value)).is_some()
            },
            write: |table: &Self, all| {
                let get: fn(&Self) -> Option<$type> = $get;
                $crate::config::notation::Notation::<$type>::write(&$notation, &get(table)?, all)
            },
            shape: || $crate::config::notation::Notation::<$type>::shape(&$notation),
        }
    };
}

/// Notation of an enum that is one of a few words, or a number.
macro_rules! word_or {
    ($type:ident::$number:ident, $notation:expr, $($word:literal = $value:ident),+) => {
        $crate::config::notation::WordOr {
            words: &[$(($word, $type::$value)),+],
            number: $notation,
            from: $type::$number,
            number_of: |value| match value {
                $($type::$value => None,)+
                $type::$number(number) => Some(*number),
            },
        }
    };
}

/// Defines a kind of table: the struct with its values, and its keys.
macro_rules! section {
    (@name $key:ident) => { stringify!($key) };
    (@name $key:ident $name:literal) => { $name };
    (
        $(#[$about:meta])*
        $visibility:vis struct $table:ident($noun:literal, $title:literal) {
            $($(#[$own_about:meta])+ $own:ident : $own_type:ty = $own_default:expr;)*
            keys:
            $(
                #[doc = $meaning:literal]
                $key:ident $(= $name:literal)?
                $(: $(@[$attribute:meta])* $type:ty = $default:expr, $notation:expr =>)?
                $(as $other:ty, $other_notation:expr, $get:expr, $set:expr =>)?
                $(@ $access:expr =>)?
                $reload:expr $(, $remark:ident($text:expr))*;
            )*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
        $visibility struct $table {
            $($(#[$own_about])+ pub $own: $own_type,)*
            $($(#[doc = $meaning] $(#[$attribute])* pub $key: $type,)?)*
        }

        impl Default for $table {
            fn default() -> Self {
                Self { $($own: $own_default,)* $($($key: $default,)?)* }
            }
        }

        impl $crate::config::keys::Keyed for $table {
            const NOUN: &'static str = $noun;
            const TITLE: &'static str = $title;
            const KEYS: &'static [$crate::config::keys::Key<Self>] = &[$(
                $crate::config::keys::Key::new(
                    section!(@name $key $($name)?),
                    $meaning,
                    $(access!($key, $type, $notation))?
                    $(access!($get, $set, $other, $other_notation))?
                    $($access)?,
                    $reload,
                )$(.$remark($text))*,
            )*];
        }
    };
}

/// Defines a choice of the file: values with the words by which they are read, written and shown.
macro_rules! choices {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$what:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub enum $name {
            $($(#[$what])* #[serde(rename = $word)] $value,)+
        }

        impl $name {
            /// All values with their words.
            pub(super) const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$value),)+];

            /// The value in the word of the file.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$value => $word,)+ }
            }
        }
    };
}
