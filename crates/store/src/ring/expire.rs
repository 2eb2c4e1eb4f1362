//! Gives back the space behind the horizon: by whole segments, and for tables of one chunk by a merge.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::error::Result;
use crate::horizon::Horizon;
use crate::limits;
use crate::manifest::edit::ChunkSpan;
use crate::manifest::edit::Edit;
use crate::segment::SegmentId;
use crate::table::Table;
use crate::version::Version;

use super::durable::floors_edit;

impl Engine {
    /// Whether a third of what is stored is behind the horizon, and no snapshot holds it: for tables that are one chunk,
    /// which only a merge makes smaller.
    pub(crate) fn is_mostly_gone(&self, table: &Table, version: &Version) -> bool {
        let Some(horizon) = version.gate.at(self.oldest_snapshot()) else { return false };
        if version.gate.position() != horizon.position {
            return false;
        }
        let schema = table.schema();
        let base = self.base_of_index(&schema);
        let base = base.as_deref().unwrap_or(table);
        let Some(live) = base.ring.lock().rows().or_else(|| (!base.is_same(table)).then(|| base.stats().rows)) else {
            return false;
        };
        let stored: u64 = version.segments.values().map(|s| s.meta().rows).sum();
        stored > limits::GROUP_ROWS as u64 && live.saturating_mul(3) < stored.saturating_mul(2)
    }

    /// Drops segments of a table and of its indexes that are wholly behind the horizon.
    pub(crate) fn expire(&self, table: &Table) -> Result<()> {
        let gate = table.version().gate.clone();
        let Some(horizon) = gate.at(self.visible_seq.load(Ordering::Acquire)) else { return Ok(()) };
        let indexes = table.indexes();
        let tables: Vec<&Table> = std::iter::once(table).chain(indexes.iter().map(|i| &*i.table)).collect();
        if tables.iter().all(|t| gone_segments(t, &horizon).is_empty()) {
            return Ok(());
        }
        if table.waits_for_refresh(&horizon) {
            // Tiers need rows until the flush that brings them up to date.
            self.freeze(table);
            self.workers.ask_flush(table.id);
        }
        let visible = self.visible_seq.load(Ordering::Acquire);
        let (of_rows, gone) = table.space_horizon(Some(horizon.clone()), None, false);
        let horizon_of = |t: &Table| of_rows.as_ref().filter(|_| t.id == table.id).unwrap_or(&horizon).clone();
        let _alone: Vec<_> = tables.iter().map(|t| t.maintenance.lock()).collect();
        self.check_writable()?;
        let mut edits = Vec::from_iter(floors_edit(table));
        let (mut dropped, mut closed) = (Vec::new(), Vec::new());
        for t in &tables {
            let segments = gone_segments(t, &horizon_of(t));
            edits.extend(segments.iter().map(|&segment| Edit::RemoveSegment { table: t.id, segment }));
            let chunks = gone_chunks(t, &segments, &horizon_of(t));
            edits.extend(chunks.iter().map(|&start| Edit::RemoveChunk { table: t.id, start }));
            dropped.push(segments);
            closed.push(chunks);
        }
        edits.extend(table.gone_edits(&gone));
        self.commit_with_horizons(edits, &[table])?;
        for ((t, chunks), segments) in tables.iter().zip(closed).zip(&dropped) {
            let mut map = t.chunks.lock();
            // A flush may have come to one meanwhile.
            if !map.are_kept() {
                let used = used_chunks(t, segments);
                chunks.iter().filter(|start| !used.contains(start)).for_each(|start| map.remove(*start));
            }
        }
        table.raise_gone(&gone);
        // Snapshots that compute buckets from the rows may see further back than the horizon.
        let seq = if table.tiers().is_empty() { gate.last_move() } else { visible };
        for (t, segments) in tables.iter().zip(&dropped) {
            t.install(|version| version.drop_segments(segments, seq));
            self.forget_dropped(t);
        }
        Ok(())
    }
}

/// Segments that are wholly behind the horizon, and that nobody is about to drop.
fn gone_segments(table: &Table, horizon: &Horizon) -> Vec<SegmentId> {
    let layout = table.layout();
    let version = table.version();
    let Some(places) = layout.places() else { return Vec::new() };
    let pinned = table.pinned_segments();
    let metas = version.segments.values().map(|s| s.meta());
    metas.filter(|m| places.is_gone(&layout, m, horizon) && !pinned.contains(&m.id)).map(|m| m.id).collect()
}

/// Chunks behind the horizon in which nothing is left once these segments are dropped. None while somebody writes segments,
/// which may be in them.
fn gone_chunks(table: &Table, dropped: &[SegmentId], horizon: &Horizon) -> Vec<u64> {
    let chunks = table.chunks.lock();
    if chunks.are_kept() || table.layout().schema().time.is_none() {
        return Vec::new();
    }
    let used = used_chunks(table, dropped);
    let is_gone = |span: &&ChunkSpan| span.end <= horizon.position.time && !used.contains(&span.start);
    chunks.spans().values().filter(is_gone).map(|span| span.start).collect()
}

/// Chunks with segments beside these.
fn used_chunks(table: &Table, but: &[SegmentId]) -> BTreeSet<u64> {
    let version = table.version();
    version.segments.values().map(|s| s.meta()).filter(|m| !but.contains(&m.id)).map(|m| m.chunk).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use std::sync::Arc;

    use super::*;
    use crate::config::Config;
    use crate::fs::sim::SimFs;
    use crate::own::OnDuplicate;
    use crate::schema::Schema;

    const SCHEMA: &str = r#"{"version": 1, "columns": [
        {"id": 1, "name": "sensor", "lane": {"int": {"width": 2}}, "nullable": false, "number": {"integer": {"bias": 0}}},
        {"id": 2, "name": "ts", "lane": {"int": {"width": 8}}, "nullable": false, "number": {"integer": {"bias": 0}}}],
        "key": [0, 1], "time": {"column": 1, "unit": "s"}, "chunk_length": 10, "ring": {"retention": 100000000}}"#;

    fn filled(engine: &Arc<Engine>, times: std::ops::Range<u64>) -> Arc<Table> {
        let table = engine.table("db/t").unwrap();
        let layout = table.layout();
        let mut txn = engine.begin();
        for time in times {
            let mut row = Vec::new();
            let mut writer = layout.writer(&mut row);
            writer.set_int(0, 1);
            writer.set_int(1, time);
            writer.finish();
            txn.insert(&table, &row, OnDuplicate::Fail).unwrap();
        }
        txn.commit().unwrap();
        engine.flush_table(&table).unwrap();
        table
    }

    fn chunks(table: &Table) -> Vec<u64> {
        table.chunks.lock().spans().keys().copied().collect()
    }

    /// A flush of a ring with tiers failed for ever: one had written buckets to a chunk that the horizon closed meanwhile, the
    /// manifest had it and the table did not, and the next flush opened another one over it.
    #[test]
    fn chunks_are_not_forgotten_while_somebody_writes_to_them() {
        let mut config = Config::new("/rrd");
        (config.background, config.clock_micros) = (false, Some(i64::MAX / 2));
        let engine = Engine::open(config, Arc::new(SimFs::new())).unwrap();
        engine.create_table("db/t", serde_json::from_str::<Schema>(SCHEMA).unwrap()).unwrap();
        let table = filled(&engine, 0..20);
        assert_eq!(chunks(&table), [0, 10]);
        // Somebody writes to the first one, which is behind the horizon soon.
        let kept = table.chunks.lock().keep();
        filled(&engine, 200..220);
        engine.expire(&table).unwrap();
        assert_eq!(table.version().segments.values().count(), 2, "the segments are gone");
        assert_eq!(chunks(&table), [0, 10, 200, 210]);
        // Whoever clones what keeps them keeps them too.
        let clone = kept.clone();
        drop(kept);
        filled(&engine, 400..410);
        engine.expire(&table).unwrap();
        assert_eq!(chunks(&table), [0, 10, 200, 210, 400]);
        drop(clone);
        filled(&engine, 600..610);
        engine.expire(&table).unwrap();
        assert_eq!(chunks(&table), [600]);
    }
}
