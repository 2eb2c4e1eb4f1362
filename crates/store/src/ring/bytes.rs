//! MAX_BYTES: room for what is about to be written, before it is written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::bulk::Written;
use crate::compaction::choose::Plan;
use crate::cursor::Cursor;
use crate::cursor::Direction;
use crate::engine::Engine;
use crate::error::Result;
use crate::horizon::Position;
use crate::limits;
use crate::manifest::edit::TableId;
use crate::memtable::{Key, Memtable};
use crate::own::PrivateSegment;
use crate::row::RowLayout;
use crate::snapshot::Snapshot;
use crate::table::Table;
use crate::time::TimeLane;
use crate::version::Version;

use super::rows::count_rows;

/// By how much the bytes of rows that are not encoded yet are overestimated.
const ESTIMATE_MARGIN: f64 = 1.3;

/// The same of what a flush writes, when it is known what the last ones took.
const FLUSH_MARGIN: f64 = 1.1;

/// Rows that a bucket of a tier is made of, at least in the mean.
const ROWS_OF_BUCKET: f64 = 4.0;

/// Rows of a segment that tells what a row takes.
const FRESH_ROWS: u64 = 256;

/// Bytes of a small segment beside its rows.
const SEGMENT_OVERHEAD: u64 = 4096;

/// The share of `MAX_BYTES` that one flush or bulk statement may fill.
const RING_SHARE: f64 = 0.9;

/// The share of `MAX_BYTES` that tiers may take; beyond that their oldest buckets go before rows do. Buckets that are kept for
/// ever would leave no room for rows else.
const TIER_SHARE: f64 = 0.5;

/// A memtable of a ring of bytes is flushed when it will take this part of the ring.
const PORTIONS_OF_RING: f64 = 32.0;

/// Room for bytes that are about to be written; given back when it is dropped: they are written then, or never will be.
pub(crate) struct Reserved {
    base: Arc<Table>,
    bytes: u64,
}

impl Reserved {
    fn new(base: Arc<Table>, bytes: u64) -> Reserved {
        base.reserved_bytes.fetch_add(bytes, Ordering::Relaxed);
        Reserved { base, bytes }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.base.reserved_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Engine {
    /// Bytes on disk that a row takes, as far as the table can tell.
    pub(crate) fn disk_bytes_per_row(&self, table: &Table) -> f64 {
        let version = table.version();
        let metas = version.segments.values().map(|s| s.meta());
        let (stored, bytes) = metas.fold((0, 0), |(rows, bytes), m| (rows + m.rows, bytes + m.bytes));
        if stored >= 1000 {
            return bytes as f64 / stored as f64;
        }
        let layout = table.layout();
        layout.schema().columns.iter().map(|c| c.lane.fixed_width() as f64).sum()
    }

    /// The most bytes that a row takes which is written now, in all likelihood: what is not sealed yet is larger than the
    /// mean, small segments more so.
    pub(super) fn fresh_bytes_per_row(&self, table: &Table) -> f64 {
        let version = table.version();
        let fresh = version.segments.values().map(|s| s.meta()).filter(|m| !m.sealed && m.rows >= FRESH_ROWS);
        let largest = fresh.map(|m| m.bytes as f64 / m.rows as f64).fold(0.0, f64::max);
        self.disk_bytes_per_row(table).max(largest) * ESTIMATE_MARGIN
    }

    /// Before `incoming` bytes are written for a table: moves the horizon and drops chunks until they fit into
    /// `MAX_BYTES`, and a little more. Not with a maintenance lock held.
    pub(crate) fn make_room(&self, table: &Arc<Table>, incoming: u64) -> Result<Option<Reserved>> {
        let base = match table.schema().part_of().map(|id| self.table_by_id(TableId(id))) {
            None => table.clone(),
            Some(Some(base)) => base,
            Some(None) => return Ok(None),
        };
        let Some(max_bytes) = base.schema().ring.max_bytes else { return Ok(None) };
        let _one = base.making_room.lock();
        let wanted = max_bytes.saturating_sub(incoming);
        let used = self.ring_bytes(&base);
        if used <= wanted {
            return Ok(Some(Reserved::new(base.clone(), incoming)));
        }
        self.make_room_in_tiers(&base, max_bytes, used - wanted)?;
        let used = self.ring_bytes(&base);
        if used > wanted
            && let Some(to) = self.position_that_frees(&base, used - wanted)?
        {
            base.ring.lock().push_to = Some(to);
            self.commit_nothing(&base)?;
            self.expire(&base)?;
        }
        let used = self.ring_bytes(&base);
        if used > wanted {
            tracing::warn!(
                table = base.name(),
                used,
                incoming,
                max_bytes,
                "MAX_BYTES leaves no room for what is written"
            );
        }
        Ok(Some(Reserved::new(base.clone(), incoming)))
    }

    /// Lets go the oldest buckets of tiers that have more than their share of a ring of bytes, until `bytes` are free.
    fn make_room_in_tiers(&self, base: &Arc<Table>, max_bytes: u64, bytes: u64) -> Result<()> {
        let tiers = base.tiers();
        let share = (max_bytes as f64 * TIER_SHARE) as u64;
        let taken = || tiers.iter().map(|tier| segment_bytes(&tier.table)).sum::<u64>();
        let end = taken().saturating_sub(bytes).max(share);
        for _ in 0..tiers.len() {
            let more = taken().saturating_sub(end);
            let Some(largest) = tiers.iter().map(|tier| &tier.table).max_by_key(|tier| segment_bytes(tier)) else {
                break;
            };
            let Some(to) = self.position_that_frees(largest, more)?.filter(|_| more > 0) else { break };
            largest.pushed_until.fetch_max(to.time, Ordering::Relaxed);
            largest.ring.lock().push_to = Some(to);
            self.commit_nothing(base)?;
            self.expire(largest)?;
        }
        Ok(())
    }

    /// Before a memtable of a table is written; `takes` are the bytes that it took, if that was tried and was too much.
    pub(crate) fn make_room_for_flush(
        &self,
        table: &Arc<Table>,
        frozen: &Memtable,
        takes: Option<u64>,
    ) -> Result<Option<Reserved>> {
        let layout = table.layout();
        let Some(max_bytes) = self.ring_of(table, layout.schema()).and_then(|ring| ring.max_bytes) else {
            return Ok(None);
        };
        let horizon = table.version().gate.position().time;
        let mut rows = frozen.len();
        if takes.is_some() {
            rows = 0;
            frozen.times(&mut |time| rows += usize::from(time >= horizon));
        }
        let row_bytes = match takes {
            Some(bytes) => bytes as f64 / rows.max(1) as f64,
            None => self.flush_bytes_per_row(table),
        };
        let fitting = (max_bytes as f64 * RING_SHARE / row_bytes) as usize;
        if rows > fitting && layout.schema().index_of.is_none() && TimeLane::of(layout.schema()).is_some() {
            // More than the whole ring: what is oldest is never written.
            let mut times = Vec::with_capacity(rows);
            frozen.times(&mut |time| times.extend(Some(time).filter(|time| *time >= horizon)));
            let place = times.len().saturating_sub(fitting.max(1));
            if let Some((_, &mut time, _)) = times.get_mut(place).is_some().then(|| times.select_nth_unstable(place)) {
                table.ring.lock().push_to = Some(Position { time, key: Key::new() });
                self.commit_nothing(table)?;
            }
        }
        let incoming = rows.min(fitting) as f64 * row_bytes;
        self.make_room(table, incoming as u64 + SEGMENT_OVERHEAD)
    }

    /// The most bytes that the next flush writes for a row, in all likelihood.
    fn flush_bytes_per_row(&self, table: &Table) -> f64 {
        let flushed = f64::from_bits(table.flushed_row_bytes.load(Ordering::Relaxed));
        if flushed > 0.0 {
            return flushed * FLUSH_MARGIN;
        }
        // The buckets of its rows are written too; a bucket has a few rows at least.
        let tiers = table.tiers();
        let buckets = tiers.iter().map(|t| self.fresh_bytes_per_row(&t.table) / ROWS_OF_BUCKET);
        self.fresh_bytes_per_row(table) + buckets.sum::<f64>()
    }

    /// What a flush wrote, that of a memtable of so many rows: the next one will be about the same.
    pub(crate) fn note_flushed(&self, table: &Table, rows: usize, bytes: u64) {
        if (rows as u64) < FRESH_ROWS {
            return;
        }
        let (now, before) =
            (bytes as f64 / rows as f64, f64::from_bits(table.flushed_row_bytes.load(Ordering::Relaxed)));
        // The largest of late: it forgets slowly.
        let largest = now.max(0.9 * before + 0.1 * now);
        table.flushed_row_bytes.store(largest.to_bits(), Ordering::Relaxed);
    }

    /// Whether what was written of a table fits into its ring of bytes, though it is more than was reserved.
    pub(crate) fn fits_in_ring(&self, written: u64, room: Option<&Reserved>) -> bool {
        let Some(room) = room.filter(|room| written > room.bytes) else { return true };
        let max_bytes = room.base.schema().ring.max_bytes.unwrap_or(u64::MAX);
        self.ring_bytes(&room.base).saturating_sub(room.bytes) + written <= max_bytes
    }

    /// Before a merge: it needs room for its result while its inputs are still there.
    pub(crate) fn make_room_for_merges(&self, table: &Table, plans: &[Plan]) -> Result<Option<Reserved>> {
        let Some(ring) = self.ring_of(table, &table.schema()) else { return Ok(None) };
        if ring.max_bytes.is_none() {
            return Ok(None);
        }
        let version = table.version();
        let bytes = plans.iter().map(|plan| plan.bytes_in(&version)).sum();
        self.table_by_id(table.id).map_or(Ok(None), |table| self.make_room(&table, bytes))
    }

    /// After buckets of a new tier were written that nothing refers to yet. Of what tiers may not take the oldest buckets go
    /// once it is linked in.
    pub(crate) fn make_room_for_tier(&self, table: &Arc<Table>, bytes: u64) -> Result<Option<Reserved>> {
        let share = table.schema().ring.max_bytes.map_or(0, |max_bytes| (max_bytes as f64 * TIER_SHARE) as u64);
        self.make_room(table, bytes.min(share))
    }

    /// Before a run of a bulk statement is written. When its own segments fill the ring, the oldest of them go.
    pub(crate) fn make_room_for_bulk(&self, table: &Arc<Table>, rows: u64, written: &mut Written) -> Result<()> {
        let Some(max_bytes) = table.schema().ring.max_bytes else { return Ok(()) };
        let entries: f64 = table.indexes().iter().map(|i| self.fresh_bytes_per_row(&i.table)).sum();
        let row_bytes = self.fresh_bytes_per_row(table) + entries;
        let run = (rows as f64 * row_bytes) as u64 + SEGMENT_OVERHEAD;
        let fitting = (max_bytes as f64 * RING_SHARE) as u64;
        while written.bytes() + run > fitting
            && let Some(end) = written.rows.iter().map(|p| p.segment.meta().max_time).min()
        {
            let leave = |segments: &mut Vec<PrivateSegment>| segments.retain(|p| p.segment.meta().max_time > end);
            leave(&mut written.rows);
            for (index, entries) in table.indexes().iter().zip(&mut written.entries) {
                if index.table.schema().time.is_some() {
                    leave(entries);
                }
            }
            written.passed = written.passed.max(end.checked_add(1));
        }
        // What is written already is reserved; this adds the run.
        written.reserved.extend(self.make_room(table, run)?);
        Ok(())
    }

    /// After a run of a bulk statement was written: makes up for what it took more than was thought.
    pub(crate) fn reserve_bulk(&self, table: &Arc<Table>, written: &mut Written) -> Result<()> {
        let reserved: u64 = written.reserved.iter().map(|room| room.bytes).sum();
        let more = written.bytes().saturating_sub(reserved);
        if table.schema().ring.max_bytes.is_some() && more > 0 {
            written.reserved.extend(self.make_room(table, more)?);
        }
        Ok(())
    }

    /// After a commit: a ring of bytes takes its rows in small portions.
    pub(crate) fn flush_rings_early<'a>(&self, tables: impl Iterator<Item = &'a Arc<Table>>) {
        for table in tables {
            let Some(max_bytes) = self.ring_of(table, &table.schema()).and_then(|ring| ring.max_bytes) else {
                continue;
            };
            let portion = max_bytes as f64 / PORTIONS_OF_RING;
            if table.version().active.len() as f64 * self.disk_bytes_per_row(table) > portion {
                self.freeze(table);
                self.workers.ask_flush(table.id);
            }
        }
    }

    /// Bytes on disk of a table, its indexes and tiers. What only open snapshots still need does not count.
    pub(crate) fn ring_bytes(&self, base: &Arc<Table>) -> u64 {
        base.with_parts().iter().map(|part| segment_bytes(part)).sum::<u64>()
            + base.reserved_bytes.load(Ordering::Relaxed)
    }

    /// How far the horizon has to move so that segments of `bytes` in all are behind it; `None` if no row is there.
    pub(super) fn position_that_frees(&self, base: &Arc<Table>, bytes: u64) -> Result<Option<Position>> {
        let version = base.version();
        let layout = base.layout();
        if layout.schema().time.is_none() {
            return position_of_share(&version, &layout, bytes as f64 / self.ring_bytes(base).max(1) as f64);
        }
        // Entries of indexes that know the time go with the rows.
        let mut ends: Vec<(u64, u64)> = Vec::new();
        for part in std::iter::once(base.clone()).chain(base.indexes().iter().map(|i| i.table.clone())) {
            if part.layout().schema().time.is_some() {
                push_ends(&part.version(), &mut ends);
            }
        }
        ends.sort_unstable();
        let mut freed = 0;
        for (index, &(end, of_segment)) in ends.iter().enumerate() {
            freed += of_segment;
            let is_last_of_time = ends.get(index + 1).is_none_or(|next| next.0 > end);
            if freed >= bytes && is_last_of_time {
                return Ok(Some(Position { time: end.saturating_add(1), key: Key::new() }));
            }
        }
        Ok(ends.last().map(|(end, _)| Position { time: end.saturating_add(1), key: Key::new() }))
    }
}

fn segment_bytes(table: &Table) -> u64 {
    table.version().segments.values().map(|s| s.meta().bytes).sum()
}

/// When segments end, and their bytes. Those of a chunk go together, so that no rows are left over that are behind the horizon
/// but not gone; in the newest chunk, which may be all there is, each goes by itself.
fn push_ends(version: &Version, ends: &mut Vec<(u64, u64)>) {
    let metas = || version.segments.values().map(|s| s.meta());
    let newest = metas().map(|m| m.chunk).max();
    let mut of_chunk: BTreeMap<u64, u64> = BTreeMap::new();
    for meta in metas().filter(|m| Some(m.chunk) != newest) {
        let end = of_chunk.entry(meta.chunk).or_default();
        *end = meta.max_time.max(*end);
    }
    ends.extend(metas().map(|m| (of_chunk.get(&m.chunk).copied().unwrap_or(m.max_time), m.bytes)));
}

/// The position behind about this share of the rows, in key order.
fn position_of_share(version: &Arc<Version>, layout: &Arc<RowLayout>, share: f64) -> Result<Option<Position>> {
    let wanted = (count_rows(version, layout)? as f64 * share).ceil() as u64;
    let mut cursor = Cursor::new(version.clone(), layout.clone(), Snapshot::latest(), None);
    cursor.seek(None, true, Direction::Forward)?;
    let mut rows = 0;
    while let Some(span) = cursor.next_span(limits::GROUP_ROWS)? {
        if rows + u64::from(span.rows) >= wanted {
            let mut key = Vec::new();
            span.group.push_key(span.row((wanted - rows).saturating_sub(1) as u32), &mut key)?;
            return Ok(Some(Position { time: 0, key: Key::from_slice(&key) }.next()));
        }
        rows += u64::from(span.rows);
    }
    Ok(None)
}
