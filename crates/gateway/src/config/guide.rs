//! The guide's tables of keys.

use super::bridge::{Bridge, FloodLimit, Member, MemberVlans, StaticEntry};
use super::buffers::Buffers;
use super::file::File;
use super::filters::Filter;
use super::gateway::Gateway;
use super::keys::{Key, Keyed, Reload};
use super::lan78xx::Adapter;
use super::model::Configuration;
use super::port::Port;
use super::queue::PortQueue;
use super::router::{Router, StaticRoute};
use super::tunnel::Tunnel;
use toml::Value;

/// The tables of keys as the guide has them, by the title under which they stand.
pub fn tables() -> Vec<(&'static str, String)> {
    vec![
        table::<File>(),
        table::<Gateway>(),
        table::<Buffers>(),
        table::<Port>(),
        table::<PortQueue>(),
        table::<Adapter>(),
        table::<Tunnel>(),
        table::<Bridge>(),
        table::<FloodLimit>(),
        table::<Member>(),
        table::<MemberVlans>(),
        table::<StaticEntry>(),
        table::<Filter>(),
        table::<Router>(),
        table::<StaticRoute>(),
    ]
}

fn table<T: Keyed>() -> (&'static str, String) {
    let mut text =
        "| key | type, unit | range | default | reload | meaning |\n|---|---|---|---|---|---|\n".to_owned();
    let (usual, all) = (T::default(), Configuration::default());
    T::KEYS.iter().for_each(|key| text.push_str(&row(key, &usual, &all)));
    (T::TITLE, text)
}

fn row<T: Keyed>(key: &Key<T>, usual: &T, all: &Configuration) -> String {
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
    let cells = [format!("`{}`", key.name), shape.kind(), range, default, reload.to_owned()];
    let meaning = key.meaning.trim().trim_end_matches('.');
    let row = format!("| {} | {meaning} |\n", cells.join(" | "));
    row.replace("|  |", "| |").replace("|  |", "| |")
}

fn default(value: Option<Value>) -> String {
    match value {
        None | Some(Value::Table(_)) => String::new(),
        Some(Value::Integer(number)) => number.to_string(),
        Some(value) => format!("`{value}`"),
    }
}
