//! The rows of `polder show buffers`.

use super::gateway::{Gateway, PortState};
use crate::config::buffers::headroom;
use crate::show::buffers::{Buffers, Places, PoolRow, TransferRow};
use polder_buffers::{BufferPlace, BufferStats, Class, Kind};
use std::sync::PoisonError;
use std::time::Duration;

/// Rows of the pools, and of the places that frames are in.
pub(super) fn buffers(gateway: &Gateway) -> Buffers {
    let manager = gateway.memory.manager();
    // Collects frames that are on their way back to their pools.
    manager.region().free_slots();
    let accounts = manager.accounts();
    let now = Duration::from_nanos(gateway.clock.elapsed().0);
    let rates = gateway.memory.rates.lock().unwrap_or_else(PoisonError::into_inner).look(now, &accounts);
    let frames = accounts.iter().filter(|account| account.kind == Kind::Frames);
    let mut places = Places {
        posted: manager.counted(BufferPlace::Posted),
        held: manager.counted(BufferPlace::Held),
        shared: manager.region().shared().into(),
        lent: manager.counted(BufferPlace::Lent),
        ..Places::default()
    };
    for BufferStats { total, cold, reserve, cached, .. } in frames {
        places.total += u64::from(*total);
        places.free += u64::from(*cold) + cached;
        places.reserve += u64::from(*reserve);
    }
    let fragments = accounts.iter().filter(|account| account.kind == Kind::Blocks);
    let strays = manager.region().late_frees() + fragments.map(|account| account.late_frees).sum::<u64>();
    Buffers {
        frame_bytes: manager.region().slot_bytes(),
        headroom: headroom(&gateway.configuration),
        pools: accounts.iter().zip(rates).map(|(account, rate)| pool(account, rate)).collect(),
        places: places.finish(),
        transfers: transfers(gateway),
        strays,
    }
}

/// Rows of the transfer memory of USB adapters.
fn transfers(gateway: &Gateway) -> Vec<TransferRow> {
    let of_port = |state: &PortState| Some(state.handle()?.transfers(&state.configuration.name));
    gateway.ports.iter().filter_map(of_port).flatten().collect()
}

fn pool(account: &BufferStats, rate: Option<f64>) -> PoolRow {
    let events = account.events;
    PoolRow {
        kind: match account.kind {
            Kind::Frames => "frames".to_owned(),
            Kind::Blocks => "blocks".to_owned(),
        },
        class: match account.class {
            Class::Control => "control".to_owned(),
            Class::Data => "data".to_owned(),
        },
        total: account.total.into(),
        cold: account.cold.into(),
        bytes: account.bytes,
        reserve: account.reserve.into(),
        cached: account.cached,
        out: account.out(),
        taken: account.taken,
        ready_ahead: account.acting.ready_ahead,
        reloaded: account.acting.is_reloaded,
        gives_back: account.acting.gives_back,
        rate,
        reloads: events.reloads,
        loaded: events.loaded,
        failures: events.failures,
        given_back: events.given_back,
        on_demand: events.on_demand,
        lowest: events.lowest.into(),
        exhausted: account.exhausted,
    }
}
