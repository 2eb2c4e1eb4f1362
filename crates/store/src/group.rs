//! Row versions side by side in memory: a block group of a segment, or rows copied out of a memtable.
//!
//! Columns are decoded (or gathered) when first asked for and then kept, so a scan pays only for what it reads.

use std::sync::{Arc, OnceLock};

use rrd_codec::{Bitmap, Column};

use crate::cursor::Direction;
use crate::error::Result;
use crate::live::LiveSegment;
use crate::memtable::RowCollector;
use crate::row::RowLayout;

/// Sequence numbers from here on are a transaction's own uncommitted writes: it always sees them.
pub const OWN_SEQ: u64 = 1 << 63;

/// Rows that lie side by side in memory, as columns that are decoded when first asked for.
pub struct RowGroup {
    layout: Arc<RowLayout>,
    rows: usize,
    columns: Vec<OnceLock<Arc<Column>>>,
    source: Source,
    base_seq: u64,
    seqs: Option<Arc<Vec<u64>>>,
    tombstones: Option<Arc<Bitmap>>,
    has_versions: bool,
    max_seq: u64,
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

    /// A group of a segment. `base_seq` stands in for the segment's own while that is not committed.
    pub fn from_segment(
        layout: Arc<RowLayout>,
        segment: Arc<LiveSegment>,
        group: usize,
        base_seq: u64,
    ) -> Result<Arc<RowGroup>> {
        let index = segment.index()?;
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
        let cell = &self.columns[position];
        if let Some(column) = cell.get() {
            return Ok(column);
        }
        let column = match &self.source {
            Source::Rows(rows) => Arc::new(self.layout.gather(position, (0..self.rows).map(|i| rows.row(i)))),
            Source::Segment { segment, group } => segment.column(*group, position, &self.layout)?,
        };
        Ok(cell.get_or_init(|| column))
    }

    /// Appends the sort key of row `i`.
    pub fn push_key(&self, i: usize, out: &mut Vec<u8>) -> Result<()> {
        if let Source::Rows(rows) = &self.source {
            self.layout.push_key(rows.row(i), out);
            return Ok(());
        }
        for &k in &self.layout.schema().key {
            let column = self.column(usize::from(k))?;
            self.layout.push_key_part(usize::from(k), column, i, out);
        }
        Ok(())
    }

    /// Appends row `i` in row format.
    pub fn push_row(&self, i: usize, out: &mut Vec<u8>) -> Result<()> {
        if let Source::Rows(rows) = &self.source {
            out.extend_from_slice(rows.row(i));
            return Ok(());
        }
        let mut columns = Vec::with_capacity(self.columns.len());
        for position in 0..self.columns.len() {
            columns.push(self.column(position)?);
        }
        self.layout.push_row_of_columns(|c| columns[c], i, out);
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

fn empty_columns(layout: &RowLayout) -> Vec<OnceLock<Arc<Column>>> {
    (0..layout.schema().columns.len()).map(|_| OnceLock::new()).collect()
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
