//! Row versions side by side in memory: a block group of a segment, or rows copied out of a memtable.
//!
//! Columns are decoded (or gathered) when first asked for and then kept, so a scan pays only for what it reads. Who looks at
//! few rows of a segment reads them from the compact form of a column, of which the cache holds several times as many rows.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use rrd_codec::{Bitmap, Column, Kind, Pieces, Values};

use crate::cursor::Direction;
use crate::error::Result;
use crate::key;
use crate::live::LiveSegment;
use crate::memtable::RowCollector;
use crate::row::RowLayout;
use crate::schema::Lane;
use crate::segment::{Compact, SegmentIndex};

/// Sequence numbers from here on are a transaction's own uncommitted writes: it always sees them.
pub const OWN_SEQ: u64 = 1 << 63;

/// Rows that lie side by side in memory, as columns that are decoded when first asked for.
pub struct RowGroup {
    layout: Arc<RowLayout>,
    rows: usize,
    columns: Vec<Lookup>,
    source: Source,
    base_seq: u64,
    seqs: Option<Arc<Vec<u64>>>,
    tombstones: Option<Arc<Bitmap>>,
    has_versions: bool,
    max_seq: u64,
}

/// A column, as far as somebody asked for it.
#[derive(Default)]
struct Lookup {
    whole: OnceLock<Arc<Column>>,
    compact: OnceLock<Compact>,
    /// Rows that were looked at one by one.
    looks: AtomicU32,
}

/// Rows that are looked at one by one before the column is decoded as a whole: more than searches for a key need, few beside
/// those of a group.
const FEW_LOOKS: u32 = 256;

/// Some rows of a column.
#[derive(Clone)]
pub struct Part {
    held: Held,
    /// The row of the group that the column begins with.
    pub first: usize,
}

/// Rows that were decoded for one reader take no count of others, which would be half of what few rows cost.
#[derive(Clone)]
enum Held {
    Alone(Column),
    WithOthers(Arc<Column>),
}

impl Part {
    /// They, and perhaps others.
    #[inline]
    pub fn column(&self) -> &Column {
        match &self.held {
            Held::Alone(column) => column,
            Held::WithOthers(column) => column,
        }
    }
}

/// A value in a row.
#[derive(Clone, Copy)]
pub enum Cell<'a> {
    /// NULL.
    Null,
    /// An integer.
    Int(u64),
    /// The bits of a float.
    F32(u32),
    /// The bits of a double.
    F64(u64),
    /// A byte string.
    Bytes(&'a [u8]),
}

enum Source {
    Rows(RowCollector),
    Segment { segment: Arc<LiveSegment>, group: usize },
}

impl RowGroup {
    /// Rows that were copied out of a memtable or write set.
    pub fn from_rows(layout: Arc<RowLayout>, mut rows: RowCollector) -> Arc<RowGroup> {
        let count = rows.rows();
        let tombstones = rows.tombstones.contains(&true).then(|| {
            let mut bitmap = Bitmap::new(count);
            rows.tombstones.iter().enumerate().filter(|(_, t)| **t).for_each(|(i, _)| bitmap.set(i));
            Arc::new(bitmap)
        });
        let seqs = std::mem::take(&mut rows.seqs);
        Arc::new(RowGroup {
            columns: empty_columns(&layout),
            layout,
            rows: count,
            max_seq: seqs.iter().copied().max().unwrap_or(0),
            base_seq: 0,
            seqs: Some(Arc::new(seqs)),
            tombstones,
            has_versions: false,
            source: Source::Rows(rows),
        })
    }

    /// A group of a segment, whose footer the caller has at hand. `base_seq` stands in for the segment's own while that is not
    /// committed.
    pub fn from_segment(
        layout: Arc<RowLayout>,
        (segment, index): (Arc<LiveSegment>, &SegmentIndex),
        group: usize,
        base_seq: u64,
    ) -> Result<Arc<RowGroup>> {
        let entry = index.group(group);
        let tombstones = if entry.tombstones > 0 { segment.tombstones(group)? } else { None };
        let seqs = if entry.max_seq_offset > 0 { segment.seqs(group)? } else { None };
        Ok(Arc::new(RowGroup {
            columns: empty_columns(&layout),
            layout,
            rows: entry.rows as usize,
            base_seq,
            max_seq: base_seq + entry.max_seq_offset,
            seqs,
            tombstones,
            has_versions: entry.has_versions,
            source: Source::Segment { segment, group },
        }))
    }

    /// Rows in it.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The segment that it is a part of.
    pub fn segment(&self) -> Option<&Arc<LiveSegment>> {
        self.place().map(|(segment, _)| segment)
    }

    /// The segment that it is a part of, and its number there.
    pub(crate) fn place(&self) -> Option<(&Arc<LiveSegment>, usize)> {
        match &self.source {
            Source::Rows(_) => None,
            Source::Segment { segment, group } => Some((segment, *group)),
        }
    }

    /// Layout that column positions refer to.
    pub fn layout(&self) -> &Arc<RowLayout> {
        &self.layout
    }

    /// A column by position; decoded on first use.
    pub fn column(&self, position: usize) -> Result<&Arc<Column>> {
        let lookup = &self.columns[position];
        if let Some(column) = lookup.whole.get() {
            return Ok(column);
        }
        let column = match (&self.source, lookup.compact.get()) {
            (Source::Rows(rows), _) => Arc::new(self.layout.gather(position, (0..self.rows).map(|i| rows.row(i)))),
            (_, Some(Compact::Column(column))) => column.clone(),
            (Source::Segment { segment, group }, _) => segment.column(*group, position, &self.layout)?,
        };
        Ok(lookup.whole.get_or_init(|| column))
    }

    /// Some rows of a column: they alone where that is cheaper.
    pub fn part(&self, position: usize, rows: Range<usize>) -> Result<Part> {
        let is_short = rows.len() * 8 <= self.rows;
        if is_short
            && let Some(compact) = self.compact(position)?
            && let Some(part) = compact.part(rows.clone())
        {
            return Ok(Part { held: Held::Alone(part), first: rows.start });
        }
        Ok(Part { held: Held::WithOthers(self.column(position)?.clone()), first: 0 })
    }

    /// A column in its compact form, unless it is there row by row.
    fn compact(&self, position: usize) -> Result<Option<&Compact>> {
        let lookup = &self.columns[position];
        let Source::Segment { segment, group } = &self.source else { return Ok(None) };
        if lookup.whole.get().is_some() {
            return Ok(None);
        }
        if let Some(compact) = lookup.compact.get() {
            return Ok(Some(compact));
        }
        let compact = segment.compact(*group, position, &self.layout)?;
        Ok(Some(lookup.compact.get_or_init(|| compact)))
    }

    /// How many columns the sort key has.
    pub fn key_parts(&self) -> usize {
        self.layout.schema().key.len()
    }

    /// A part of the sort key, if it is an integer whose column is known as lines, and its width.
    pub fn key_lines(&self, part: usize) -> Result<Option<(&Pieces, u8)>> {
        let schema = self.layout.schema();
        let Some(position) = schema.key.get(part).map(|&k| usize::from(k)) else { return Ok(None) };
        let Lane::Int { width } = schema.columns[position].lane else { return Ok(None) };
        Ok(self.compact(position)?.and_then(|compact| match compact {
            Compact::Lines(lines) => Some((&**lines, width)),
            _ => None,
        }))
    }

    /// The value of a column in row `i`. Cheap for few rows, and not dear for many.
    pub fn cell(&self, position: usize, i: usize) -> Result<Cell<'_>> {
        let lookup = &self.columns[position];
        let looks = lookup.looks.load(Ordering::Relaxed);
        if looks < FEW_LOOKS
            && let Some(compact) = self.compact(position)?
        {
            lookup.looks.store(looks + 1, Ordering::Relaxed);
            return Ok(match compact {
                Compact::Lines(lines) => Cell::Int(lines.get(i)),
                Compact::Narrow(narrow) if narrow.is_null(i) => Cell::Null,
                Compact::Narrow(narrow) => match narrow.kind() {
                    Kind::F32 => Cell::F32(narrow.bits(i) as u32),
                    Kind::F64 => Cell::F64(narrow.bits(i)),
                    _ => Cell::Int(narrow.bits(i)),
                },
                Compact::Column(column) => cell_of(column, i),
            });
        }
        self.column(position).map(|column| cell_of(column, i))
    }

    /// Appends the sort key of row `i`.
    pub fn push_key(&self, i: usize, out: &mut Vec<u8>) -> Result<()> {
        if let Source::Rows(rows) = &self.source {
            self.layout.push_key(rows.row(i), out);
            return Ok(());
        }
        for &k in &self.layout.schema().key {
            self.push_key_part(usize::from(k), i, out)?;
        }
        Ok(())
    }

    /// Appends the part of a sort key that a column of row `i` is.
    pub fn push_key_part(&self, position: usize, i: usize, out: &mut impl key::KeyBuffer) -> Result<()> {
        match (self.cell(position, i)?, self.layout.schema().columns[position].lane) {
            (Cell::Int(value), Lane::Int { width }) => key::push_int(out, value, width),
            (Cell::Bytes(bytes), _) => key::push_bytes(out, bytes),
            // Only tombstones have such.
            (Cell::Null, Lane::Int { width }) => key::push_int(out, 0, width),
            (Cell::Null, Lane::Bytes) => key::push_bytes(out, &[]),
            _ => debug_assert!(false, "key lane and column kind differ"),
        }
        Ok(())
    }

    /// Appends row `i` in row format.
    pub fn push_row(&self, i: usize, out: &mut Vec<u8>) -> Result<()> {
        if let Source::Rows(rows) = &self.source {
            out.extend_from_slice(rows.row(i));
            return Ok(());
        }
        let start = out.len();
        let mut writer = self.layout.writer(out);
        for c in 0..self.columns.len() {
            match self.cell(c, i) {
                Ok(Cell::Null) => writer.set_null(c),
                Ok(Cell::Int(value)) => writer.set_int(c, value),
                Ok(Cell::F32(bits)) => writer.set_f32_bits(c, bits),
                Ok(Cell::F64(bits)) => writer.set_f64_bits(c, bits),
                Ok(Cell::Bytes(bytes)) => writer.push_bytes(c, bytes),
                Err(error) => {
                    out.truncate(start);
                    return Err(error);
                }
            }
        }
        writer.finish();
        Ok(())
    }

    /// Sequence number of row `i`.
    pub fn seq(&self, i: usize) -> u64 {
        self.base_seq + self.seqs.as_ref().map_or(0, |s| s[i])
    }

    /// Whether row `i` is a tombstone.
    pub fn is_tombstone(&self, i: usize) -> bool {
        self.tombstones.as_ref().is_some_and(|t| t.get(i))
    }

    /// Whether every row is a live row that `snapshot` sees, with no other version in the same source.
    pub fn is_plain(&self, snapshot: u64) -> bool {
        self.tombstones.is_none() && !self.has_versions && (self.max_seq <= snapshot || self.base_seq >= OWN_SEQ)
    }
}

fn empty_columns(layout: &RowLayout) -> Vec<Lookup> {
    (0..layout.schema().columns.len()).map(|_| Lookup::default()).collect()
}

fn cell_of(column: &Column, i: usize) -> Cell<'_> {
    if column.is_null(i) {
        return Cell::Null;
    }
    match &column.values {
        Values::Int(v) => Cell::Int(v[i]),
        Values::F32(v) => Cell::F32(v[i]),
        Values::F64(v) => Cell::F64(v[i]),
        Values::Bytes(b) => Cell::Bytes(b.get(i)),
    }
}

/// A run of rows of one group, to be read from `first` on, upwards or (`Backward`) downwards.
#[derive(Clone)]
pub struct Span {
    /// The group.
    pub group: Arc<RowGroup>,
    /// First row to read.
    pub first: u32,
    /// How many.
    pub rows: u32,
    /// Which way.
    pub direction: Direction,
}

impl Span {
    /// Row number in the group of the `n`-th row to read.
    pub fn row(&self, n: u32) -> usize {
        match self.direction {
            Direction::Forward => (self.first + n) as usize,
            Direction::Backward => (self.first - n) as usize,
        }
    }
}
