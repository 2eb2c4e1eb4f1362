//! An open table: its current version, chunks, newest readings and figures.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::auto_increment::{Series, Taken};
use crate::batch::Batch;
use crate::chunk::ChunkMap;
use crate::cursor::{Cursor, Direction};
use crate::error::Result;
use crate::group::{OWN_SEQ, RowGroup};
use crate::horizon::Gate;
use crate::index::Index;
use crate::key;
use crate::limits;
use crate::live::LiveSegment;
use crate::log_base::Bases;
use crate::maintenance::Maintenance;
use crate::manifest::edit::{Edit, TableId};
use crate::memtable::{KeyRef, RowCollector, Versions};
use crate::newest::{Newest, Place, Short};
use crate::ring::RingState;
use crate::row::RowLayout;
use crate::schema::{Lane, Schema};
use crate::segment::{SegmentId, SegmentMeta};
use crate::snapshot::Snapshot;
use crate::source::{Input, Source, rows_before};
use crate::tier::{Dependents, Tier, Touched};
use crate::version::Version;

/// An open table.
pub struct Table {
    pub(crate) id: TableId,
    pub(crate) dir: PathBuf,
    pub(crate) name: RwLock<String>,
    /// See `Engine::definition_id`.
    pub(crate) definition: RwLock<Vec<u8>>,
    pub(crate) layout: RwLock<Arc<RowLayout>>,
    pub(crate) version: RwLock<Arc<Version>>,
    /// The gate of all its versions; of an index see `Version::gate`.
    pub(crate) gate: Arc<Gate>,
    pub(crate) chunks: Mutex<ChunkMap>,
    pub(crate) newest: Mutex<Newest>,
    pub(crate) next_row_number: AtomicU64,
    /// The next AUTO_INCREMENT value, as SQL sees it.
    pub(crate) next_auto: AtomicU64,
    pub(crate) indexes: RwLock<Arc<[Arc<Index>]>>,
    pub(crate) tiers: RwLock<Arc<[Arc<Tier>]>>,
    /// What flushes up to a sequence number brought into the tiers, for snapshots from before.
    pub(crate) refreshed: Mutex<Vec<(u64, Arc<Touched>)>>,
    /// Who is computed from its rows.
    pub(crate) dependents: RwLock<Dependents>,
    /// Buckets of those that begin before this time are not computed again: rows may be gone.
    pub(crate) gone_until: AtomicU64,
    /// The newest time of a table with tiers that the retention of tiers has counted from.
    pub(crate) newest_seen: AtomicU64,
    /// Snapshots of an earlier era cannot read the table: it was created, emptied or (an index) built since.
    pub(crate) readable_from: AtomicU64,
    /// Sequence number of the newest commit that wrote to the table, applied or not.
    pub(crate) last_commit_seq: AtomicU64,
    /// The same without those that only moved its horizon.
    pub(crate) last_rows_seq: AtomicU64,
    /// When rows of it were last committed since the start, in microseconds since the epoch; 0: not yet.
    pub(crate) written_at: AtomicI64,
    /// What records of the log may lean on. Changed only by whoever holds the commit queue, or at the start.
    pub(crate) log_bases: Mutex<Bases>,
    /// Commits up to here are in segments, or were truncated.
    pub(crate) flushed_seq: AtomicU64,
    /// Held by whoever flushes, merges, truncates or drops.
    pub(crate) maintenance: Maintenance,
    /// How many are about to drop or empty it: what writes its files gives up.
    pub(crate) going: AtomicUsize,
    /// Segments that a transaction is about to drop: merges leave them alone.
    pub(crate) pinned: Mutex<BTreeSet<SegmentId>>,
    /// What the ring knows of the rows. Taken while commits are applied, or none can be.
    pub(crate) ring: Mutex<RingState>,
    /// Held by whoever looks through its files for the ring.
    pub(crate) ring_look: Mutex<()>,
    /// Held by whoever moves the horizon to free bytes.
    pub(crate) making_room: Mutex<()>,
    /// Rows that fell behind the floors of their series since the start.
    pub(crate) fallen_rows: AtomicU64,
    /// How many of them had when it was last looked where they are; of an index those of its table.
    pub(crate) fallen_seen: Mutex<Option<u64>>,
    /// Rows of the last flush, the bytes that it wrote, and the most that a row took of late, if that is known. Of a table in a
    /// ring of bytes.
    pub(crate) last_flush: Mutex<Option<(u64, u64, f64)>>,
    /// Of a tier in a ring of bytes: buckets before this time had to go, whoever needs them.
    pub(crate) pushed_until: AtomicU64,
    /// The manifest no longer has it, or is about to. Changed while no commit is applied.
    pub(crate) dropped: AtomicBool,
    /// Rows that were not stored because they are behind the horizon, since the start.
    pub(crate) refused_rows: AtomicU64,
}

/// What the optimizer and SHOW TABLE STATUS ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Rows (an estimate: versions and tombstones that are not merged yet count).
    pub rows: u64,
    /// Bytes on disk.
    pub data_bytes: u64,
    /// Bytes of secondary indexes on disk.
    pub index_bytes: u64,
    /// Bytes in memtables.
    pub memtable_bytes: u64,
    /// Number of segments.
    pub segments: u64,
    /// Mean bytes of a row on disk.
    pub mean_row_bytes: u64,
    /// The next row number of a table without a key.
    pub next_row_number: u64,
    /// When rows of it were last committed since the start, in microseconds since the epoch; 0: not yet.
    pub written_at: i64,
}

/// The newest version of a row that a look-up found.
pub(crate) struct Found {
    pub seq: u64,
    /// `None`: a tombstone.
    pub row: Option<FoundRow>,
}

/// Where the row is.
pub(crate) enum FoundRow {
    Bytes(Box<[u8]>),
    Group(Arc<RowGroup>, usize),
}

impl FoundRow {
    /// Appends it in row format.
    pub fn push_to(&self, out: &mut Vec<u8>) -> Result<()> {
        match self {
            FoundRow::Bytes(bytes) => out.extend_from_slice(bytes),
            FoundRow::Group(group, row) => group.push_row(*row, out)?,
        }
        Ok(())
    }
}

/// The AUTO_INCREMENT value of a row; negative ones do not count.
pub(crate) fn auto_increment_of(layout: &RowLayout, row: &[u8]) -> Option<u64> {
    let auto = layout.schema().auto_increment?;
    let column = usize::from(auto.column);
    let bits = layout.view(row).int(column);
    // Cast from a float negative values are 0, of a signed integer they wrap to huge ones.
    let value = match layout.schema().columns[column].lane {
        Lane::F32 => f32::from_bits(bits as u32) as u64,
        Lane::F64 => f64::from_bits(bits) as u64,
        _ => bits.wrapping_sub(auto.bias),
    };
    (value <= i64::MAX as u64 || auto.bias == 0).then_some(value)
}

impl Table {
    /// Its name, `database/table`.
    pub fn name(&self) -> String {
        self.name.read().clone()
    }

    /// Its current schema.
    pub fn schema(&self) -> Arc<Schema> {
        self.layout.read().schema().clone()
    }

    /// The layout of its rows.
    pub fn layout(&self) -> Arc<RowLayout> {
        self.layout.read().clone()
    }

    /// Figures.
    pub fn stats(&self) -> TableStats {
        let version = self.version();
        let (mut stored, mut tombstones, mut bytes) = (0, 0, 0);
        for segment in version.segments.values() {
            let meta = segment.meta();
            stored += meta.rows;
            tombstones += meta.tombstones;
            bytes += meta.bytes;
        }
        let in_memory: i64 = version.memtables().map(|m| m.rows_added()).sum();
        let rows = stored.saturating_add_signed(in_memory).saturating_sub(2 * tombstones);
        TableStats {
            // Rows older than the horizon count as long as they are stored.
            rows: rows.min(self.schema().ring.max_rows.unwrap_or(u64::MAX)),
            data_bytes: bytes,
            index_bytes: self.indexes().iter().map(|i| i.table.stats().data_bytes).sum(),
            memtable_bytes: version.memtable_bytes() as u64,
            segments: version.segments.len() as u64,
            mean_row_bytes: bytes.checked_div(stored).unwrap_or(0),
            next_row_number: self.next_row_number.load(Ordering::Relaxed),
            written_at: self.written_at.load(Ordering::Relaxed),
        }
    }

    /// Estimated rows with `low <= key < high`; `None` is open.
    pub fn estimate_rows(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> u64 {
        let version = self.version();
        let layout = self.layout();
        let times = match (low, high) {
            (Some(low), Some(high)) => crate::cursor::times_between(&layout, low, high),
            _ => None,
        };
        let (from, to) = times.unwrap_or((0, u64::MAX));
        let mut segments = version.segments.between(from, to);
        segments.retain(|segment| {
            let meta = segment.meta();
            low.is_none_or(|k| k <= meta.last_key.as_slice()) && high.is_none_or(|k| k > meta.first_key.as_slice())
        });
        // Of many segments some are looked at: the query may need few of the others.
        let step = segments.len().div_ceil(limits::ESTIMATE_SEGMENTS).max(1);
        let (mut seen, mut of_seen) = (0, 0);
        for segment in segments.iter().step_by(step) {
            let rows = segment.meta().rows;
            seen += rows;
            // A damaged footer is the scan's to report.
            of_seen += rows_between(segment, &layout, low, high).unwrap_or(rows);
        }
        let all: u64 = segments.iter().map(|segment| segment.meta().rows).sum();
        let rows = if step == 1 { of_seen } else { (of_seen as f64 * (all as f64 / seen.max(1) as f64)) as u64 };
        rows + version.memtables().map(|m| count_between(m, low, high)).sum::<u64>()
    }

    /// The secondary indexes.
    pub fn indexes(&self) -> Arc<[Arc<Index>]> {
        self.indexes.read().clone()
    }

    /// The next AUTO_INCREMENT value.
    pub fn next_auto_increment(&self) -> u64 {
        self.next_auto.load(Ordering::Relaxed)
    }

    /// Takes `count` AUTO_INCREMENT values of `series`, none below `least`: the first of them, and what the counter is to
    /// be then. The first may lie beyond the largest value, and is not taken then.
    pub fn take_auto_increment(&self, least: u64, series: Series, count: u64) -> Taken {
        let mut taken = Taken { first: 0, next: None };
        // An update that returns `None` leaves the counter as it is.
        let _ = self.next_auto.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            taken = series.take(next, least, count);
            Some(taken.next?.max(next))
        });
        taken
    }

    /// Lets the counter go on behind `value`, with the next value of the series.
    pub fn raise_auto_increment(&self, value: u64, series: Series) {
        self.next_auto.fetch_max(series.behind(value, 1), Ordering::Relaxed);
    }

    /// Notes the AUTO_INCREMENT value of a row.
    pub(crate) fn note_auto_increment(&self, layout: &RowLayout, row: &[u8]) {
        if let Some(value) = auto_increment_of(layout, row) {
            self.next_auto.fetch_max(value.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// Whether it holds the entries of an index of another table.
    pub(crate) fn is_index(&self) -> bool {
        self.layout.read().schema().index_of.is_some()
    }

    /// Whether a row with this sort key is gone, or would be.
    pub fn is_behind_horizon(&self, key: &[u8]) -> bool {
        let layout = self.layout();
        if !self.gate.may_hide(layout.time_of_key(key).unwrap_or(0)) {
            return false;
        }
        match (self.gate.latest(), layout.places()) {
            (Some(horizon), Some(places)) => places.is_key_gone(&layout, key, &horizon),
            _ => false,
        }
    }

    /// Whether a row of this time (0 without a time column) may be gone, or would be.
    #[inline]
    pub(crate) fn may_be_gone(&self, time: u64) -> bool {
        self.gate.may_hide(time)
    }

    /// Whether it was dropped: commits leave it alone.
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Whether it is the same as another.
    pub(crate) fn is_same(&self, other: &Table) -> bool {
        self.id == other.id
    }

    /// Whether it belongs to another table: as an index, or as a tier.
    pub(crate) fn is_part(&self) -> bool {
        self.layout.read().schema().is_part()
    }

    /// Itself and the tables of its indexes and tiers.
    pub(crate) fn with_parts(self: &Arc<Self>) -> Vec<Arc<Table>> {
        let (indexes, tiers) = (self.indexes(), self.tiers());
        let parts = indexes.iter().map(|i| &i.table).chain(tiers.iter().map(|t| &t.table));
        std::iter::once(self).chain(parts).cloned().collect()
    }

    /// The version of `key` that a snapshot sees, as a row of a group.
    pub(crate) fn find_at(
        version: &Version,
        layout: &Arc<RowLayout>,
        key: &[u8],
        snapshot: u64,
    ) -> Result<Option<(Arc<RowGroup>, usize)>> {
        let mut rows = RowCollector::default();
        let mut best = None;
        for memtable in version.memtables() {
            let seq = memtable.get(key, snapshot, |v| v.seq);
            if seq > best {
                best = seq;
                rows = RowCollector::default();
                memtable.get(key, snapshot, |v| rows.push(layout, key, v.seq, v.row));
            }
        }
        let mut found = (rows.rows() > 0).then(|| (RowGroup::from_rows(layout.clone(), rows), 0));
        let time = layout.time_of_key(key).unwrap_or(0);
        for segment in version.segments_at(snapshot, (time, time)) {
            let meta = segment.meta();
            if best.is_some_and(|b| b >= meta.max_seq) {
                continue;
            }
            if let Some((group, row)) = segment_row_at(segment, meta.base_seq, layout, key, snapshot)?
                && best.is_none_or(|b| group.seq(row) > b)
            {
                best = Some(group.seq(row));
                found = Some((group, row));
            }
        }
        let found = found.filter(|(group, row)| !group.is_tombstone(*row));
        match (found, version.gate.at(snapshot), layout.places()) {
            (Some((group, row)), Some(horizon), Some(places)) => {
                Ok((!places.is_row_gone(&group, row, &horizon)?).then_some((group, row)))
            }
            (found, ..) => Ok(found),
        }
    }

    /// A new row number, for tables without a key (`Schema::row_number`).
    pub fn take_row_number(&self) -> u64 {
        self.next_row_number.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn version(&self) -> Arc<Version> {
        self.version.read().clone()
    }

    /// Segments that no merge may touch: a transaction is about to drop them, or they are not in the tiers yet.
    pub(crate) fn pinned_segments(&self) -> BTreeSet<SegmentId> {
        let mut pinned = self.pinned.lock().clone();
        for memtable in self.version().memtables() {
            if let Some(touched) = memtable.touched() {
                pinned.extend(touched.segment_ids());
            }
        }
        pinned
    }

    /// Chunks that no merge may touch.
    pub(crate) fn pinned_chunks(&self) -> BTreeSet<u64> {
        let pinned = self.pinned_segments();
        if pinned.is_empty() {
            return BTreeSet::new();
        }
        let version = self.version();
        pinned.iter().filter_map(|id| version.segments.get(id)).map(|s| s.meta().chunk).collect()
    }

    /// Installs a changed version.
    pub(crate) fn install(&self, change: impl FnOnce(&mut Version)) {
        let mut current = self.version.write();
        let mut next = Version::clone(&current);
        change(&mut next);
        *current = Arc::new(next);
    }

    /// The newest version of `key` among those newer than `after`, whoever may see it.
    pub(crate) fn find(&self, key: &[u8], after: u64) -> Result<Option<Found>> {
        let version = self.version();
        let layout = self.layout();
        let mut best: Option<Found> = None;
        for memtable in version.memtables() {
            let found = memtable
                .get(key, u64::MAX, |v| Found { seq: v.seq, row: v.row.map(|row| FoundRow::Bytes(row.into())) });
            best = newer(best, found, after);
        }
        let time = layout.time_of_key(key).unwrap_or(0);
        for segment in version.segments.between(time, time) {
            let meta = segment.meta();
            let worthwhile = meta.max_seq > after.max(best.as_ref().map_or(0, |f| f.seq))
                || (meta.max_seq == 0 && after == 0 && best.is_none());
            if worthwhile {
                best = newer(best, find_in_segment(segment, meta.base_seq, &layout, key)?, after);
            }
        }
        match best {
            Some(found) if found.row.is_some() && is_gone(&version, &layout, key, &found)? => Ok(None),
            best => Ok(best),
        }
    }

    /// Whether `key` is certainly behind the newest row of its series, so that it cannot exist. Looks the series
    /// up on first use. Returns the series' newest rest of the key through `seen` when known.
    pub(crate) fn newest_of(&self, layout: &Arc<RowLayout>, series: &[u8], mut seen: impl FnMut(&[u8])) -> Result<()> {
        let look_up = {
            let mut newest = self.newest.lock();
            if newest.get(series, &mut seen).is_some() {
                return Ok(());
            }
            newest.begin_look_up(series)
        };
        // Without the lock, for which every commit to the table would wait, and so every commit.
        let found = self.look_up_newest(layout, series);
        let rest = found.as_ref().ok().map(|key| key.get(series.len()..).unwrap_or(&[]));
        self.newest.lock().end_look_up(&look_up, rest);
        rest.into_iter().for_each(seen);
        found.map(|_| ())
    }

    /// The newest key of a series; empty if it has no row.
    fn look_up_newest(&self, layout: &Arc<RowLayout>, series: &[u8]) -> Result<Vec<u8>> {
        let end = key::prefix_end(series);
        let mut cursor = Cursor::new(self.version(), layout.clone(), Snapshot::latest(), None);
        cursor.set_bounds(Some(series), end.as_deref());
        cursor.seek(end.as_deref(), false, Direction::Backward)?;
        let mut found = Vec::new();
        if let Some(span) = cursor.next_span(1)? {
            span.group.push_key(span.row(0), &mut found)?;
        }
        Ok(found)
    }

    /// Whether a key is known to be behind all rows of its series that were applied. Looks nothing up.
    pub(crate) fn is_behind_newest(&self, layout: &RowLayout, key: &[u8]) -> bool {
        let (series, rest) = key.split_at(layout.series_len(key));
        self.newest.lock().get(series, |newest| rest > newest).unwrap_or(false)
    }

    /// The same for a key with short parts, whose series may lie at a place.
    #[inline]
    pub(crate) fn is_short_behind_newest(&self, (series, rest): (Short, Short), place: &mut Place) -> bool {
        self.newest.lock().is_behind(series, rest, place)
    }

    /// [`Table::is_behind_newest`] for each row of a batch.
    pub(crate) fn are_behind_newest(&self, layout: &RowLayout, rows: &Batch) -> bool {
        let newest = self.newest.lock();
        let series_len = layout.series_len(&rows.key(0));
        let mut place = Place::default();
        rows.series(series_len).all(|places| {
            let (series, rest) = rows.halves(places.start, series_len);
            newest.is_behind(series, rest, &mut place)
        })
    }

    /// The edits that make these segments, and the chunks that they lie in, part of the table. Those are in use: the horizon
    /// may have gone over them while the segments were written.
    pub(crate) fn edits_for(&self, metas: &[SegmentMeta]) -> Vec<Edit> {
        if metas.is_empty() {
            // The commit queue may be held, and whoever joins chunks holds the map over a sync.
            return self.counter_edits();
        }
        let chunks = self.chunks.lock();
        let mut edits = Vec::new();
        let mut named = std::collections::BTreeSet::new();
        for meta in metas {
            if let Some(&span) = chunks.spans().get(&meta.chunk)
                && named.insert(meta.chunk)
            {
                edits.push(Edit::AddChunk { table: self.id, span });
            }
        }
        edits.extend(metas.iter().map(|meta| Edit::AddSegment { table: self.id, meta: meta.clone() }));
        edits.extend(self.counter_edits());
        edits
    }
}

/// Name of the manifest property that holds the next AUTO_INCREMENT value.
pub(crate) const AUTO_INCREMENT_PROPERTY: &str = "auto_increment";

/// The number that a manifest property holds; 0 if it makes no sense.
pub(crate) fn number_of(value: &[u8]) -> u64 {
    value.try_into().map_or(0, u64::from_le_bytes)
}

/// Name of the manifest property that holds the sequence number of the last TRUNCATE.
pub(crate) const TRUNCATED_PROPERTY: &str = "truncated_seq";

impl Table {
    /// Notes the numbers that a row from the log has taken.
    pub(crate) fn note_numbers(&self, layout: &RowLayout, row: &[u8]) {
        if let Some(number) = layout.schema().row_number {
            let taken = layout.view(row).int(usize::from(number));
            self.next_row_number.fetch_max(taken.saturating_add(1), Ordering::Relaxed);
        }
        self.note_auto_increment(layout, row);
    }

    /// Notes the numbers that rows in segments have taken, from an edit that came with them.
    pub(crate) fn note_counter(&self, edit: &Edit) {
        match edit {
            Edit::NextRowNumber { next, .. } => {
                self.next_row_number.fetch_max(*next, Ordering::Relaxed);
            }
            Edit::SetProperty { name, value, .. } if name == AUTO_INCREMENT_PROPERTY => {
                self.next_auto.fetch_max(number_of(value), Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// Row number and AUTO_INCREMENT, to be recorded with whatever makes log records unnecessary.
    pub(crate) fn counter_edits(&self) -> Vec<Edit> {
        let schema = self.schema();
        let mut edits = Vec::new();
        if schema.row_number.is_some() {
            edits.push(Edit::NextRowNumber { table: self.id, next: self.next_row_number.load(Ordering::Relaxed) });
        }
        if schema.auto_increment.is_some() {
            let value = self.next_auto_increment().to_le_bytes().to_vec();
            edits.push(Edit::SetProperty { table: self.id, name: AUTO_INCREMENT_PROPERTY.into(), value });
        }
        edits
    }
}

/// Whether a row, or an entry of an index, is behind the horizon of now.
fn is_gone(version: &Version, layout: &Arc<RowLayout>, key: &[u8], found: &Found) -> Result<bool> {
    let (Some(horizon), Some(places)) = (version.gate.latest(), layout.places()) else { return Ok(false) };
    if layout.schema().index_of.is_none() {
        return Ok(places.is_key_gone(layout, key, &horizon));
    }
    match &found.row {
        Some(FoundRow::Group(group, row)) => places.is_row_gone(group, *row, &horizon),
        Some(FoundRow::Bytes(bytes)) => {
            let mut rows = RowCollector::default();
            rows.push(layout, key, found.seq, Some(bytes));
            places.is_row_gone(&RowGroup::from_rows(layout.clone(), rows), 0, &horizon)
        }
        None => Ok(false),
    }
}

fn newer(best: Option<Found>, found: Option<Found>, after: u64) -> Option<Found> {
    match (best, found) {
        (best, Some(f)) if f.seq <= after && after > 0 => best,
        (Some(b), Some(f)) if f.seq < b.seq => Some(b),
        (best, None) => best,
        (_, found) => found,
    }
}

/// The newest version of `key` in a segment that a snapshot sees.
pub(crate) fn segment_row_at(
    segment: &Arc<LiveSegment>,
    base_seq: u64,
    layout: &Arc<RowLayout>,
    key: &[u8],
    snapshot: u64,
) -> Result<Option<(Arc<RowGroup>, usize)>> {
    let input = Input::Segment { segment: segment.clone(), base_seq };
    let meta = segment.meta();
    if key < meta.first_key.as_slice() || key > meta.last_key.as_slice() {
        return Ok(None);
    }
    let mut source = Source::new(input, layout.clone(), snapshot, Direction::Forward, Some(key.to_vec()), true);
    source.load()?;
    let mut there = Vec::with_capacity(key.len());
    while let Some((group, row)) = source.current() {
        there.clear();
        group.push_key(row, &mut there)?;
        if there != key {
            break;
        }
        let seq = group.seq(row);
        if seq <= snapshot || seq >= OWN_SEQ {
            return Ok(Some((group.clone(), row)));
        }
        source.advance(1)?;
    }
    Ok(None)
}

/// The newest version of `key` in a segment.
pub(crate) fn find_in_segment(
    segment: &Arc<LiveSegment>,
    base_seq: u64,
    layout: &Arc<RowLayout>,
    key: &[u8],
) -> Result<Option<Found>> {
    let meta = segment.meta();
    if key < meta.first_key.as_slice() || key > meta.last_key.as_slice() {
        return Ok(None);
    }
    let index = segment.index()?;
    let number = index.find_group(key);
    if number >= index.group_count() || index.group(number).first_key > key {
        return Ok(None);
    }
    let group = RowGroup::from_segment(layout.clone(), (segment.clone(), &index), number, base_seq)?;
    let row = rows_before(&group, key, false)?;
    if row >= group.rows() {
        return Ok(None);
    }
    let mut there = Vec::with_capacity(key.len());
    group.push_key(row, &mut there)?;
    if there != key {
        return Ok(None);
    }
    let seq = group.seq(row);
    let live = !group.is_tombstone(row);
    Ok(Some(Found { seq, row: live.then_some(FoundRow::Group(group, row)) }))
}

fn rows_between(
    segment: &Arc<LiveSegment>,
    layout: &Arc<RowLayout>,
    low: Option<&[u8]>,
    high: Option<&[u8]>,
) -> Result<u64> {
    let index = segment.index()?;
    // Exact: the key columns of the groups at both ends are what the query reads next.
    let mut opened: Option<(usize, Arc<RowGroup>)> = None;
    let mut rows_below = |key: &[u8]| -> Result<u64> {
        let number = index.find_group(key);
        if number >= index.group_count() {
            return Ok(index.rows());
        }
        let group = index.group(number);
        if key <= group.first_key {
            return Ok(group.first_row);
        }
        let rows = match opened.take() {
            // Mostly both ends are in the same group.
            Some((of, rows)) if of == number => rows,
            _ => RowGroup::from_segment(layout.clone(), (segment.clone(), &index), number, 0)?,
        };
        let before = rows_before(&rows, key, false)?;
        opened = Some((number, rows));
        Ok(group.first_row + before as u64)
    };
    let from = low.map_or(Ok(0), &mut rows_below)?;
    let to = high.map_or(Ok(index.rows()), &mut rows_below)?;
    Ok(to.saturating_sub(from))
}

/// Which share of the keys from `first` to `last` is below `key`, if they lie evenly.
fn share_below(first: &[u8], last: &[u8], key: &[u8]) -> f64 {
    if key <= first {
        return 0.0;
    }
    let shared = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let number = |bytes: &[u8]| {
        (0..8).fold(0u64, |n, i| (n << 8) | u64::from(bytes.get(shared + i).copied().unwrap_or(0))) as f64
    };
    let (low, high) = (number(first), number(last));
    if high > low { ((number(key) - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 }
}

/// Counts keys of a memtable within bounds, but not beyond a number that says "many".
fn count_between(memtable: &crate::memtable::Memtable, low: Option<&[u8]>, high: Option<&[u8]>) -> u64 {
    const MANY: usize = 10_000;
    let entries = memtable.entries();
    if low.is_none() && high.is_none() {
        return entries.len() as u64;
    }
    if let (Some(low), Some(high)) = (low, high)
        && low >= high
    {
        return 0;
    }
    let mut walk = entries.walk(low.map_or(Bound::Unbounded, Bound::Included), Direction::Forward);
    let mut versions = Versions::new();
    let is_within = |key: KeyRef<'_>| high.is_none_or(|high| key.as_slice() < high);
    let counted = (0..MANY).take_while(|_| walk.next(&mut versions).is_some_and(is_within)).count();
    if counted < MANY {
        return counted as u64;
    }
    let (Some(first), Some(last)) = (entries.end(Direction::Forward), entries.end(Direction::Backward)) else {
        return 0;
    };
    let below = |key: Option<&[u8]>, open: f64| key.map_or(open, |key| share_below(&first, &last, key));
    let share = below(high, 1.0) - below(low, 0.0);
    ((entries.len() as f64 * share) as u64).max(MANY as u64)
}
