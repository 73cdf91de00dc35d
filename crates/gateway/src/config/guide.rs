//! Tables of keys for the guide and the manual page.

use super::bridge::{Bridge, FloodLimit, Member, MemberVlans, StaticEntry};
use super::buffers::Buffers;
use super::file::File;
use super::filters::Filter;
use super::gateway::Gateway;
use super::keys::{Key, Keyed, Reload};
use super::lab::Lab;
use super::lan78xx::Adapter;
use super::liveness::{Bfd, Keepalive};
use super::metrics::Metrics;
use super::model::Configuration;
use super::modem::Modem;
use super::port::Port;
use super::queue::PortQueue;
use super::router::{Router, StaticRoute};
use super::shaper::Shaper;
use super::source_guard::SourceGuard;
use super::tunnel::Tunnel;
use toml::Value;

/// A kind of table of the file, with its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOfKeys {
    /// Title under which it is described.
    pub title: &'static str,
    /// Its keys, in the order of the guide.
    pub keys: Vec<KeyRow>,
}

/// A key, in the words of the guide, which are Markdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// Its name in the file.
    pub key: &'static str,
    /// Type and unit of its value.
    pub kind: String,
    /// Values that it takes; empty for any of its type.
    pub range: String,
    /// Its default; empty if there is none.
    pub default: String,
    /// Class of a change: by a reload, or by more.
    pub reload: &'static str,
    /// Meaning, in a phrase.
    pub meaning: &'static str,
}

/// The tables of keys, in the order of the guide.
pub fn tables() -> Vec<TableOfKeys> {
    vec![
        table::<File>(),
        table::<Gateway>(),
        table::<Metrics>(),
        table::<Buffers>(),
        table::<Port>(),
        table::<PortQueue>(),
        table::<Shaper>(),
        table::<SourceGuard>(),
        table::<Modem>(),
        table::<Adapter>(),
        table::<Tunnel>(),
        table::<Bfd>(),
        table::<Keepalive>(),
        table::<Bridge>(),
        table::<FloodLimit>(),
        table::<Member>(),
        table::<MemberVlans>(),
        table::<StaticEntry>(),
        table::<Filter>(),
        table::<Router>(),
        table::<StaticRoute>(),
        table::<Lab>(),
    ]
}

impl TableOfKeys {
    /// The table as the guide has it.
    pub fn markdown(&self) -> String {
        let head = "| key | type, unit | range | default | reload | meaning |\n|---|---|---|---|---|---|\n";
        self.keys.iter().fold(head.to_owned(), |text, row| text + &row.markdown())
    }
}

impl KeyRow {
    fn markdown(&self) -> String {
        let Self { key, kind, range, default, reload, meaning } = self;
        let row = format!("| `{key}` | {kind} | {range} | {default} | {reload} | {meaning} |\n");
        row.replace("|  |", "| |").replace("|  |", "| |")
    }
}

fn table<T: Keyed>() -> TableOfKeys {
    let (usual, all) = (T::default(), Configuration::default());
    TableOfKeys { title: T::TITLE, keys: T::KEYS.iter().map(|key| row(key, &usual, &all)).collect() }
}

fn row<T: Keyed>(key: &Key<T>, usual: &T, all: &Configuration) -> KeyRow {
    let shape = (key.access.shape)();
    let default = match (key.required, key.usual) {
        (_, Some(text)) => text.to_owned(),
        (Some(_), None) => "required".to_owned(),
        (None, None) => default((key.access.write)(usual, all)),
    };
    let reload = match key.reload {
        Reload::Live => "yes",
        Reload::Reopen(_) => "reopen",
        Reload::Restart(_) => "restart",
        Reload::Depends(text, _) => text,
    };
    let range = key.range.map_or_else(|| shape.range(), str::to_owned);
    let meaning = key.meaning.trim().trim_end_matches('.');
    KeyRow { key: key.name, kind: shape.kind(), range, default, reload, meaning }
}

fn default(value: Option<Value>) -> String {
    match value {
        None | Some(Value::Table(_)) => String::new(),
        Some(Value::Integer(number)) => number.to_string(),
        Some(value) => format!("`{value}`"),
    }
}
