//! DELETE of a span of time: whole chunks go as they are, only rows at the edges are deleted one by one.
//!
//! The whole table is locked, so that nobody else is about to change a row that goes. Chunks that lie in the span with all
//! of their segments are dropped by the commit's manifest edit; snapshots from before it keep seeing them. Until then the
//! segments are pinned: no merge may take them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Txn;
use crate::commit::DroppedSegments;
use crate::cursor::{Cursor, Direction};
use crate::error::Result;
use crate::limits;
use crate::lock::LockMode;
use crate::memtable::{Memtable, Versions, seen_by};
use crate::row::RowLayout;
use crate::segment::{SegmentId, SegmentMeta};
use crate::table::Table;
use crate::version::Version;

/// Times that go, both ends included, in units of the time lane. `None`: all rows.
pub type Times = Option<(u64, u64)>;

impl Txn {
    /// Deletes all rows with a time in `times`; returns how many. `None` when it cannot be done this way: the
    /// transaction has written before, the table has secondary indexes, or no time column for a span to refer to.
    pub fn delete_times(&mut self, table: &Arc<Table>, times: Times) -> Result<Option<u64>> {
        self.engine.check_writable()?;
        let has_time = table.schema().time.is_some();
        if self.has_written_to(table) || !table.indexes().is_empty() || (times.is_some() && !has_time) {
            return Ok(None);
        }
        self.lock_table(table, LockMode::Exclusive, self.lock_timeout)?;
        self.engine.flush_table_unless(table, &mut || (self.interrupted)())?;
        let (version, chunks) = self.pin_chunks(table, times)?;
        let snapshot = self.engine.take_snapshot();
        let fast = chunks_known_by_count(&table.layout(), &version, times, &chunks, snapshot.seq());
        let mut deleted: u64 = fast.iter().filter_map(|id| version.segments.get(id)).map(|s| s.meta().rows).sum();
        // The rest is walked: rows of pinned chunks are counted, others deleted.
        let mut rest = Version::clone(&version);
        rest.segments.retain(|s| !fast.contains(&s.meta().id) && overlaps(s.meta(), times));
        let layout = table.layout();
        let mut cursor = Cursor::new(Arc::new(rest), layout.clone(), snapshot.clone(), None);
        cursor.seek(None, true, Direction::Forward)?;
        let mut key = Vec::new();
        while let Some(span) = cursor.next_span(limits::GROUP_ROWS)? {
            self.check_interrupted()?;
            let goes_whole = span.group.segment().is_some_and(|s| chunks.contains(&s.meta().chunk));
            for n in 0..span.rows {
                key.clear();
                span.group.push_key(span.row(n), &mut key)?;
                if is_within(layout.time_of_key(&key), times) {
                    deleted += 1;
                    if !goes_whole {
                        self.delete(table, &key)?;
                    }
                }
            }
        }
        self.delete_hidden(table, &version, times, snapshot.seq())?;
        Ok(Some(deleted))
    }

    fn has_written_to(&self, table: &Arc<Table>) -> bool {
        let is_it = |other: &Arc<Table>| Arc::ptr_eq(other, table);
        self.drops.iter().any(|dropped| is_it(&dropped.table))
            || self.tables.iter().any(|t| is_it(&t.table) && (t.bulk.is_some() || !t.own.read().is_empty()))
    }

    /// Pins the chunks that go with all of their segments. Returns what the table consists of.
    fn pin_chunks(&mut self, table: &Arc<Table>, times: Times) -> Result<(Arc<Version>, BTreeSet<u64>)> {
        let _alone = table.maintenance.lock_unless(&mut || (self.interrupted)())?;
        let version = table.version();
        let metas = || version.segments.values().map(|s| s.meta());
        let stays = |m: &&SegmentMeta| times.is_some_and(|(from, to)| m.min_time < from || m.max_time > to);
        let staying: BTreeSet<u64> = metas().filter(stays).map(|m| m.chunk).collect();
        let chunks: BTreeSet<u64> = metas().map(|m| m.chunk).filter(|chunk| !staying.contains(chunk)).collect();
        let segments: Vec<SegmentId> = metas().filter(|m| chunks.contains(&m.chunk)).map(|m| m.id).collect();
        if !segments.is_empty() {
            table.pinned.lock().extend(&segments);
            self.drops.push(DroppedSegments { table: table.clone(), segments });
        }
        Ok((version, chunks))
    }

    /// Rows in memory that a newer bulk row of a dropped chunk hides must not come back.
    fn delete_hidden(&mut self, table: &Arc<Table>, version: &Version, times: Times, snapshot: u64) -> Result<()> {
        let layout = table.layout();
        for memtable in version.memtables() {
            let mut keys = Vec::new();
            {
                let entries = memtable.entries();
                let (mut walk, mut versions) = (entries.all(), Versions::new());
                while let Some(key) = walk.next(&mut versions) {
                    let is_seen = || seen_by(&versions, snapshot).is_some();
                    if is_within(layout.time_of_key(key.as_slice()), times) && is_seen() {
                        keys.push(key.to_key());
                    }
                }
            }
            keys.iter().try_for_each(|key| self.delete(table, key))?;
        }
        Ok(())
    }

    /// Lets merges have the segments again.
    pub(super) fn unpin(&mut self) {
        for dropped in std::mem::take(&mut self.drops) {
            let mut pinned = dropped.table.pinned.lock();
            dropped.segments.iter().for_each(|id| _ = pinned.remove(id));
        }
    }
}

/// Segments of pinned chunks whose rows need not be looked at to be counted: alone in their chunk, with one live
/// version of each row, and nothing newer in memory.
fn chunks_known_by_count(
    layout: &RowLayout,
    version: &Version,
    times: Times,
    chunks: &BTreeSet<u64>,
    snapshot: u64,
) -> BTreeSet<SegmentId> {
    let has_row = |memtable: &Arc<Memtable>| {
        let (entries, mut versions) = (memtable.entries(), Versions::new());
        let mut walk = entries.all();
        std::iter::from_fn(|| walk.next(&mut versions)).any(|key| is_within(layout.time_of_key(key.as_slice()), times))
    };
    if version.memtables().any(has_row) {
        return BTreeSet::new();
    }
    let metas = || version.segments.values().map(|s| s.meta());
    let horizon = version.gate.at(snapshot);
    let is_all_there = |m: &SegmentMeta| match (&horizon, layout.places()) {
        (Some(horizon), Some(places)) => places.is_all_there(layout, m, horizon),
        _ => true,
    };
    metas()
        .filter(|m| is_all_there(m))
        .filter(|m| chunks.contains(&m.chunk) && m.tombstones == 0 && !m.has_versions && m.max_seq <= snapshot)
        .filter(|m| metas().filter(|other| other.chunk == m.chunk).count() == 1)
        .map(|m| m.id)
        .collect()
}

fn overlaps(meta: &SegmentMeta, times: Times) -> bool {
    times.is_none_or(|(from, to)| meta.min_time <= to && from <= meta.max_time)
}

fn is_within(time: Option<u64>, times: Times) -> bool {
    times.is_none_or(|(from, to)| time.is_some_and(|time| (from..=to).contains(&time)))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use crate::compaction::choose::choose;
    use crate::fs::sim::SimFs;
    use crate::{Config, Engine, Error, OnDuplicate, Schema, Table};
    use std::sync::Arc;

    /// (series, time), in chunks of 100.
    const SCHEMA: &str = r#"{"version": 1, "columns": [
        {"id": 0, "name": "series", "lane": {"int": {"width": 4}}, "nullable": false},
        {"id": 1, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false}],
        "key": [0, 1], "time": {"column": 1, "unit": "s"}, "chunk_length": 100}"#;

    /// Three series of 150 rows, one segment for each and chunk.
    fn filled() -> (Arc<Engine>, Arc<Table>) {
        let mut config = Config::new("/data/rrd");
        config.background = false;
        let engine = Engine::open(config, Arc::new(SimFs::new())).unwrap();
        let schema: Schema = serde_json::from_str(SCHEMA).unwrap();
        engine.create_table("db/t", schema).unwrap();
        let table = engine.table("db/t").unwrap();
        for series in 0..3 {
            let mut txn = engine.begin();
            for time in 0..150 {
                let mut row = Vec::new();
                let layout = table.layout();
                let mut writer = layout.writer(&mut row);
                writer.set_int(0, series);
                writer.set_int(1, time);
                writer.finish();
                txn.insert(&table, &row, OnDuplicate::Fail).unwrap();
            }
            txn.commit().unwrap();
            engine.flush_table(&table).unwrap();
        }
        (engine, table)
    }

    #[test]
    fn a_delete_of_whole_chunks_is_not_prepared_and_takes_nothing_then() {
        let (engine, table) = filled();
        let mut txn = engine.begin();
        assert_eq!(txn.delete_times(&table, Some((0, 120))).unwrap(), Some(3 * 121));
        assert!(matches!(txn.prepare(b"x"), Err(Error::InvalidInput(message)) if message.contains("'db/t'")));
        txn.rollback();
        assert_eq!(table.stats().rows, 3 * 150);
        assert!(engine.prepared_xids().is_empty());
        // Such a delete that drops no chunk as a whole is rows like any others.
        assert_eq!(txn.delete_times(&table, Some((10, 20))).unwrap(), Some(3 * 11));
        txn.prepare(b"y").unwrap();
        txn.commit().unwrap();
        assert_eq!(engine.begin().delete_times(&table, None).unwrap(), Some(3 * 139));
    }

    #[test]
    fn a_merge_planned_before_the_delete_does_not_take_its_segments() {
        let (engine, table) = filled();
        let plans = choose(table.version().segments.values().map(|s| s.meta()), true, true, u64::MAX, false);
        assert!(!plans.is_empty());
        let mut txn = engine.begin();
        assert_eq!(txn.delete_times(&table, Some((0, 120))).unwrap(), Some(3 * 121));
        for plan in &plans {
            engine.run_merges(&table, std::slice::from_ref(plan), None, &mut |_| true).unwrap();
        }
        txn.commit().unwrap();
        assert_eq!(table.stats().rows, 3 * 29);
    }
}
