//! What the manifest and the log keep of a horizon.

use crate::commit::TableWrites;
use crate::horizon::Position;
use crate::log_record::LoggedWrite;
use crate::manifest::edit::Edit;
use crate::memtable::Key;
use crate::table::Table;

/// Name of the manifest property that holds the horizon's position.
pub(crate) const HORIZON_PROPERTY: &str = "horizon";

/// Name of the manifest property that holds the floors of series with rings of their own.
pub(crate) const FLOORS_PROPERTY: &str = "floors";

/// The edits that keep the horizon of a table.
pub(crate) fn horizon_edits(table: &Table) -> Vec<Edit> {
    let gate = &table.version().gate;
    let position = (HORIZON_PROPERTY, gate.position().encode());
    let floors = gate.floors().map(|floors| (FLOORS_PROPERTY, encode_floors(&floors)));
    let edit = |(name, value): (&str, Vec<u8>)| Edit::SetProperty { table: table.id, name: name.into(), value };
    [Some(position), floors].into_iter().flatten().map(edit).collect()
}

/// Series and keys, each behind its length (u32).
pub(crate) fn encode_floors(floors: &[(Key, Key)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(floors.iter().map(|(series, key)| 8 + series.len() + key.len()).sum());
    for part in floors.iter().flat_map(|(series, key)| [series, key]) {
        out.extend_from_slice(&(part.len() as u32).to_le_bytes());
        out.extend_from_slice(part);
    }
    out
}

/// What `encode_floors` made.
pub(crate) fn decode_floors(mut bytes: &[u8]) -> Option<Vec<(Key, Key)>> {
    let mut part = || {
        let (length, rest) = bytes.split_at_checked(4)?;
        let (part, rest) = rest.split_at_checked(u32::from_le_bytes(length.try_into().ok()?) as usize)?;
        bytes = rest;
        Some((Key::from_slice(part), rest.is_empty()))
    };
    let mut floors = Vec::new();
    loop {
        let (series, _) = part()?;
        let (key, is_last) = part()?;
        floors.push((series, key));
        if is_last {
            return Some(floors);
        }
    }
}

/// Takes up what a log record says of the horizon; `None` if it makes no sense.
pub(crate) fn restore(table: &Table, write: &LoggedWrite<'_>) -> Option<()> {
    let gate = table.version().gate.clone();
    match write {
        LoggedWrite::Horizon(bytes) => gate.restore(Position::decode(bytes)?),
        LoggedWrite::Floors(bytes) => {
            decode_floors(bytes)?.into_iter().for_each(|(series, key)| gate.restore_floor(&series, key));
        }
        _ => {}
    }
    Some(())
}

/// The floors of the series that a commit writes to.
pub(crate) fn floors_of_writes(writes: &TableWrites) -> Vec<(Key, Key)> {
    let schema = writes.layout.schema();
    if schema.ring.series_max_rows.is_none() || schema.index_of.is_some() {
        return Vec::new();
    }
    let gate = writes.table.version().gate.clone();
    let own = writes.own.read();
    let mut floors: Vec<(Key, Key)> = Vec::new();
    let mut last: Option<Key> = None;
    own.for_each(|key, _| {
        let Some(series) = writes.layout.series_of(key).filter(|series| last.as_deref() != Some(*series)) else {
            return;
        };
        floors.extend(gate.floor_of(series).map(|floor| (Key::from_slice(series), floor)));
        last = Some(Key::from_slice(series));
    });
    floors
}
