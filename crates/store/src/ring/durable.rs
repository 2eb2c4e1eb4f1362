//! What the manifest and the log keep of a horizon.
//!
//! Each commit record says where the horizon was before it, and each edit of the manifest that takes rows away where it is:
//! else a start could bring back an older version of a row whose newest one is gone. The rest of the way follows from the
//! rows, but for moves that make room in a ring of bytes: the manifest has those first.

use std::sync::Arc;

use crate::commit::TableWrites;
use crate::engine::Engine;
use crate::error::Result;
use crate::horizon::{Gate, Position};
use crate::log_record::LoggedWrite;
use crate::manifest::edit::Edit;
use crate::memtable::Key;
use crate::table::Table;

/// Name of the manifest property that holds the horizon's position.
pub(crate) const HORIZON_PROPERTY: &str = "horizon";

/// Name of the manifest property that holds the floors of series with rings of their own.
pub(crate) const FLOORS_PROPERTY: &str = "floors";

/// The edit that keeps the floors of a table, if it has any.
pub(crate) fn floors_edit(table: &Table) -> Option<Edit> {
    let value = encode_floors(&table.version().gate.floors()?);
    Some(Edit::SetProperty { table: table.id, name: FLOORS_PROPERTY.into(), value })
}

impl Engine {
    /// Commits edits, and with them where the horizons of `tables` are, as far as that is news.
    pub(crate) fn commit_with_horizons(&self, edits: Vec<Edit>, tables: &[&Table]) -> Result<()> {
        let positions = tables.iter().map(|table| (*table, table.version().gate.position()));
        self.commit_positions(edits, positions.collect())
    }

    /// The positions were read before the log is made durable here: none comes from a commit that a crash could take back.
    fn commit_positions(&self, mut edits: Vec<Edit>, mut positions: Vec<(&Table, Position)>) -> Result<()> {
        self.sync_log_first()?;
        // One after the other: none overwrites one that is further.
        let _one = self.keeping_horizons.lock();
        positions.retain(|(table, position)| *position > table.version().gate.kept());
        edits.extend(positions.iter().map(|(table, position)| Edit::SetProperty {
            table: table.id,
            name: HORIZON_PROPERTY.into(),
            value: position.encode(),
        }));
        self.commit_manifest_in_turn(&edits)?;
        positions.into_iter().for_each(|(table, position)| table.version().gate.note_kept(position));
        Ok(())
    }

    /// Before a shutdown: nothing that left comes back with the next start, whatever its clock says.
    pub(crate) fn keep_horizons(&self) -> Result<()> {
        let tables = self.all_tables();
        let own = tables.iter().map(|table| &**table).filter(|table| !table.is_index());
        self.commit_with_horizons(Vec::new(), &own.collect::<Vec<_>>())
    }

    /// Moves the horizon of `part`, a ring of bytes or a tier of it, to where `find` says, and drops what is wholly behind it.
    /// Not with a maintenance lock held.
    pub(crate) fn push_horizon(
        &self,
        base: &Arc<Table>,
        part: &Arc<Table>,
        find: impl FnOnce() -> Result<Option<Position>>,
    ) -> Result<bool> {
        {
            // No TRUNCATE in between: the position would be one among rows that are not there any more.
            let _alone = self.workers.stand_aside(|| part.maintenance.lock_for_flush());
            self.check_writable()?;
            let Some(to) = find()? else { return Ok(false) };
            self.commit_positions(Vec::new(), vec![(part, to.clone())])?;
            part.ring.lock().push_to(to);
        }
        self.commit_nothing(base)?;
        self.expire(part)?;
        Ok(true)
    }
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
pub(crate) fn restore(gate: &Gate, write: &LoggedWrite<'_>) -> Option<()> {
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use std::sync::Arc;

    use crate::config::Config;
    use crate::cursor::Direction;
    use crate::engine::Engine;
    use crate::fs::sim::SimFs;
    use crate::own::OnDuplicate;
    use crate::schema::Schema;
    use crate::table::Table;

    /// (number, noise); a ring of bytes has no time.
    const SCHEMA: &str = r#"{"version": 1, "columns": [
        {"id": 0, "name": "number", "lane": {"int": {"width": 8}}, "nullable": false},
        {"id": 1, "name": "noise", "lane": {"int": {"width": 8}}, "nullable": true}],
        "key": [0], "chunk_length": 100"#;

    const RING_OF_BYTES: &str = r#""ring": {"max_bytes": 100000}}"#;
    const RING_OF_ROWS: &str = r#""time": {"column": 0, "unit": "s"}, "ring": {"max_rows": 1000}}"#;

    fn open(fs: &SimFs, ring: &str) -> (Arc<Engine>, Arc<Table>) {
        let mut config = Config::new("/rrd");
        (config.background, config.clock_micros) = (false, Some(i64::MAX / 2));
        config.tuning.bulk_min_bytes = 100;
        let engine = Engine::open(config, Arc::new(fs.clone())).unwrap();
        if engine.table("db/t").is_err() {
            let schema: Schema = serde_json::from_str(&format!("{SCHEMA}, {ring}")).unwrap();
            engine.create_table("db/t", schema).unwrap();
        }
        let table = engine.table("db/t").unwrap();
        (engine, table)
    }

    fn write(table: &Table, number: u64, row: &mut Vec<u8>) {
        let layout = table.layout();
        let mut writer = layout.writer(row);
        let noise = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        writer.set_int(0, number);
        writer.set_int(1, (noise ^ (noise >> 29)).wrapping_mul(noise));
        writer.finish();
    }

    fn insert(engine: &Arc<Engine>, table: &Arc<Table>, numbers: impl Iterator<Item = u64>) {
        let mut txn = engine.begin();
        for number in numbers {
            let mut row = Vec::new();
            write(table, number, &mut row);
            txn.insert(table, &row, OnDuplicate::Fail).unwrap();
        }
        txn.commit().unwrap();
        engine.flush_table(table).unwrap();
    }

    /// As one large statement, which goes past the log.
    fn load(engine: &Arc<Engine>, table: &Arc<Table>, numbers: std::ops::Range<u64>) {
        let mut txn = engine.begin();
        txn.begin_bulk(table);
        for number in numbers {
            let write = |row: &mut Vec<u8>| {
                write(table, number, row);
                Ok(())
            };
            assert!(txn.append(table, write).unwrap());
        }
        txn.end_bulk(table).unwrap();
        txn.commit().unwrap();
    }

    fn count(engine: &Arc<Engine>, table: &Arc<Table>) -> u64 {
        let mut cursor = engine.begin().cursor(table).unwrap();
        cursor.seek(None, true, Direction::Forward).unwrap();
        std::iter::from_fn(|| cursor.next_span(1000).unwrap()).map(|span| u64::from(span.rows)).sum()
    }

    /// The disk after a shutdown, or as a power cut leaves it.
    fn stop(fs: &SimFs, engine: Arc<Engine>, is_clean: bool) -> SimFs {
        if !is_clean {
            return fs.power_cut(1);
        }
        engine.close().unwrap();
        fs.clone()
    }

    /// Rows that had gone to make room were back after a start, until the next commit or flush.
    #[test]
    fn what_went_to_make_room_stays_away() {
        for is_clean in [true, false] {
            let fs = SimFs::new();
            let (engine, table) = open(&fs, RING_OF_BYTES);
            // Files with rows all over: only a merge takes from one what is gone.
            (0..6).for_each(|i| insert(&engine, &table, (i..6000).step_by(6)));
            drop(engine.make_room(&table, 60_000).unwrap());
            let rows = count(&engine, &table);
            assert!((100..5000).contains(&rows), "{rows} rows");
            drop(table);
            let (engine, table) = open(&stop(&fs, engine, is_clean), RING_OF_BYTES);
            assert_eq!(count(&engine, &table), rows, "clean: {is_clean}");
        }
    }

    /// Large statements leave no trace in the log: where they moved the horizon was forgotten, and what they pushed out came
    /// back when other rows had been deleted.
    #[test]
    fn what_a_large_statement_pushed_out_stays_away() {
        for (is_clean, is_deleted) in [(true, true), (false, true), (true, false), (false, false)] {
            let fs = SimFs::new();
            let (engine, table) = open(&fs, RING_OF_ROWS);
            load(&engine, &table, 0..1000);
            load(&engine, &table, 1000..1550);
            let mut rows = 1000;
            assert_eq!(count(&engine, &table), rows);
            if is_deleted {
                let mut txn = engine.begin();
                assert_eq!(txn.delete_times(&table, Some((1000, 1099))).unwrap(), Some(100));
                txn.commit().unwrap();
                rows -= 100;
            }
            drop(table);
            let (engine, table) = open(&stop(&fs, engine, is_clean), RING_OF_ROWS);
            assert_eq!(count(&engine, &table), rows, "clean: {is_clean}, deleted: {is_deleted}");
        }
    }
}
