//! A block of rows that an aggregate works on: a group of a segment, or rows copied out of memory.
//!
//! Columns are read when first asked for, as lines where their block is made of such. What is visible of the rows by
//! themselves (versions, tombstones, horizon) is found here; what other sources hide is found in `overlap`.

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use rrd_codec::Bitmap;
use smallvec::SmallVec;

use super::filter::Columns;
use super::groups::FirstRow;
use super::keys::Keys;
use super::query::Value;
use super::ranges::Ranges;
use super::strip::Rows;
use super::view::View;
use crate::cursor::Direction;
use crate::error::Result;
use crate::group::{OWN_SEQ, RowGroup};
use crate::live::LiveSegment;
use crate::memtable::Key;
use crate::schema::Lane;
use crate::segment::{Held, SegmentIndex, ZoneMap};

/// A block of rows in key order.
pub struct Block<'v> {
    view: &'v View,
    from: From,
    rows: usize,
    held: RefCell<SmallVec<[(usize, Held); 6]>>,
    keys: OnceCell<Keys>,
    group: OnceCell<Arc<RowGroup>>,
}

/// Where the rows are.
#[derive(Clone)]
pub enum From {
    /// A group of a segment; `base_seq` stands in for the segment's own while that is not committed.
    Segment { segment: Arc<LiveSegment>, index: Arc<SegmentIndex>, group: usize, base_seq: u64 },
    /// Rows in memory: of each key the version that the snapshot sees.
    Rows(Arc<RowGroup>),
}

impl<'v> Block<'v> {
    pub fn new(view: &'v View, from: From) -> Block<'v> {
        let rows = match &from {
            From::Segment { index, group, .. } => index.group(*group).rows as usize,
            From::Rows(rows) => rows.rows(),
        };
        Block { view, from, rows, held: RefCell::default(), keys: OnceCell::new(), group: OnceCell::new() }
    }

    /// Rows in it, visible or not.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How a column is held in rows.
    pub fn lane(&self, position: usize) -> Lane {
        self.view.layout.schema().columns[position].lane
    }
}

impl Columns for Block<'_> {
    fn held(&self, position: usize) -> Result<Held> {
        if let Some((_, held)) = self.held.borrow().iter().find(|(p, _)| *p == position) {
            return Ok(held.clone());
        }
        let held = match &self.from {
            From::Segment { segment, group, .. } => segment.held(*group, position, &self.view.layout)?,
            From::Rows(rows) => Held::Column(rows.column(position)?.clone()),
        };
        self.held.borrow_mut().push((position, held.clone()));
        Ok(held)
    }

    fn zone(&self, position: usize) -> Option<ZoneMap> {
        match &self.from {
            From::Segment { index, group, .. } => index.zone(*group, self.view.layout.schema().columns[position].id),
            From::Rows(_) => None,
        }
    }

    fn is_key(&self, position: usize) -> bool {
        self.view.layout.schema().key.contains(&(position as u16))
    }
}

impl Block<'_> {
    /// Whether all keys are certainly within `low <= key < high`.
    pub fn is_within(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> bool {
        match &self.from {
            From::Segment { index, group, .. } => {
                let group = index.group(*group);
                low.is_none_or(|low| low <= group.first_key) && high.is_none_or(|high| group.last_key < high)
            }
            From::Rows(_) => low.is_none() && high.is_none(),
        }
    }

    /// Whether the keys of the rows were read.
    pub fn is_read(&self) -> bool {
        self.keys.get().is_some()
    }

    /// The keys of the rows.
    pub fn keys(&self) -> Result<&Keys> {
        if let Some(keys) = self.keys.get() {
            return Ok(keys);
        }
        let keys = Keys::of(self, &self.view.layout.schema().key)?;
        Ok(self.keys.get_or_init(|| keys))
    }

    /// Sort key of a row.
    pub fn key(&self, row: usize) -> Result<Key> {
        Ok(self.keys()?.get(row))
    }

    /// How many rows come before a key.
    pub fn rows_before(&self, key: &[u8]) -> Result<usize> {
        let keys = self.keys()?;
        let (mut low, mut high) = (0, self.rows);
        while low < high {
            let middle = (low + high) / 2;
            if *keys.get(middle) < *key { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    /// Sequence number of a row; of rows in memory and own ones too.
    pub fn seq(&self, row: usize) -> Result<u64> {
        match &self.from {
            From::Segment { index, group, base_seq, .. } if index.group(*group).max_seq_offset == 0 => Ok(*base_seq),
            _ => Ok(self.group()?.seq(row)),
        }
    }

    /// Whether a version is one that the snapshot sees, if no newer one is.
    fn is_seen(&self, seq: u64) -> bool {
        seq <= self.view.snapshot.seq() || seq >= OWN_SEQ
    }

    /// The row that the snapshot sees of the key of `row`, which is the first of its versions in this block.
    pub fn seen_version(&self, row: usize) -> Result<Option<usize>> {
        let keys = self.keys()?;
        let mut at = row;
        while at < self.rows && keys.compare(at, keys, row).is_eq() {
            if self.is_seen(self.seq(at)?) {
                return Ok(Some(at));
            }
            at += 1;
        }
        Ok(None)
    }

    /// The rows as other code reads them.
    fn group(&self) -> Result<&Arc<RowGroup>> {
        if let Some(group) = self.group.get() {
            return Ok(group);
        }
        let group = match &self.from {
            From::Rows(rows) => rows.clone(),
            From::Segment { segment, group, base_seq, .. } => {
                let of = (segment.clone(), &*segment.index()?);
                RowGroup::from_segment(self.view.layout.clone(), of, *group, *base_seq)?
            }
        };
        Ok(self.group.get_or_init(|| group))
    }

    /// Of `ranges` the rows that are the newest version of their key that the snapshot sees in this source; they may be
    /// tombstones. Others are versions that are too new, or too old.
    pub fn newest_versions(&self, ranges: Ranges) -> Result<Ranges> {
        let From::Segment { index, group, base_seq, segment } = &self.from else { return Ok(ranges) };
        let entry = index.group(*group);
        let is_all_seen = base_seq + entry.max_seq_offset <= self.view.snapshot.seq() || *base_seq >= OWN_SEQ;
        if is_all_seen && !entry.has_versions {
            return Ok(ranges);
        }
        let mut bitmap = Bitmap::new(self.rows);
        // Whether an earlier row with the key of the row at hand was seen.
        let mut is_found = entry.has_versions && *group > 0 && self.is_seen_before(segment, *group, *base_seq)?;
        let keys = self.keys()?;
        for row in 0..self.rows {
            is_found &= entry.has_versions && (row == 0 || keys.compare(row, keys, row - 1).is_eq());
            if !is_found && self.is_seen(self.seq(row)?) {
                bitmap.set(row);
                is_found = true;
            }
        }
        Ok(ranges.within(&bitmap))
    }

    /// Whether a version of the first row's key at the end of the group before is seen: versions of one key can fill groups.
    fn is_seen_before(&self, segment: &Arc<LiveSegment>, group: usize, base_seq: u64) -> Result<bool> {
        let index = segment.index()?;
        let first = index.group(group).first_key;
        for group in (0..group).rev() {
            if index.group(group).last_key != first {
                return Ok(false);
            }
            let from = From::Segment { segment: segment.clone(), index: index.clone(), group, base_seq };
            let before = Block::new(self.view, from);
            for row in (0..before.rows).rev() {
                if *before.key(row)? != *first {
                    return Ok(false);
                }
                if self.is_seen(before.seq(row)?) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Of `ranges`, which are newest versions, the rows that are there: no tombstones, not behind the horizon.
    pub fn living(&self, mut ranges: Ranges) -> Result<Ranges> {
        let tombstones = match &self.from {
            From::Segment { index, group, .. } if index.group(*group).tombstones == 0 => false,
            From::Segment { .. } => true,
            From::Rows(rows) => (0..rows.rows()).any(|row| rows.is_tombstone(row)),
        };
        if tombstones {
            let group = self.group()?;
            ranges = ranges.filter(|row| !group.is_tombstone(row));
        }
        self.before_horizon(ranges)
    }

    fn before_horizon(&self, ranges: Ranges) -> Result<Ranges> {
        if self.is_all_there() {
            return Ok(ranges);
        }
        let (Some(horizon), Some(places)) = (&self.view.horizon, self.view.layout.places()) else { return Ok(ranges) };
        let group = self.group()?;
        let mut kept = Ranges::default();
        for range in ranges.as_slice() {
            let (mut row, end) = (range.start as usize, range.end as usize);
            while row < end {
                let (gone, there) = places.next_there(group, row, end - row, Direction::Forward, horizon)?;
                kept.push(row + gone, row + gone + there);
                row += gone + there;
            }
        }
        Ok(kept)
    }

    /// Whether no row is behind the horizon.
    fn is_all_there(&self) -> bool {
        let (Some(horizon), Some(places)) = (&self.view.horizon, self.view.layout.places()) else { return true };
        match &self.from {
            From::Segment { segment, base_seq, .. } => {
                *base_seq >= OWN_SEQ || places.is_all_there(&self.view.layout, segment.meta(), horizon)
            }
            From::Rows(_) => false,
        }
    }

    /// Whether each row is a live one that the snapshot sees, and nothing of this source hides it.
    pub fn is_plain(&self) -> bool {
        let From::Segment { index, group, base_seq, .. } = &self.from else { return false };
        let entry = index.group(*group);
        let is_seen = base_seq + entry.max_seq_offset <= self.view.snapshot.seq() || *base_seq >= OWN_SEQ;
        entry.tombstones == 0 && !entry.has_versions && is_seen && self.is_all_there()
    }
}

/// A row of a block that may be the first of its group.
pub struct BlockRow<'b, 'v> {
    pub block: &'b Block<'v>,
    pub row: usize,
}

impl FirstRow for BlockRow<'_, '_> {
    fn key(&self) -> Result<Key> {
        self.block.key(self.row)
    }

    fn value(&self, column: usize) -> Result<Value> {
        Ok(Rows::of(&self.block.held(column)?, false).value(self.row))
    }
}
