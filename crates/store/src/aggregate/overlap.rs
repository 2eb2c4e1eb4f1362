//! Rows that newer versions in other sources hide.
//!
//! Sources of one cluster that have times and keys in common are compared two by two: of the one with fewer rows in the
//! common times, each key is looked up in the other, and the older version is noted as hidden. Where nothing overlaps but
//! the time at which a segment ended and the next began, that is a few keys a series; everything else is then read
//! source by source, without a merge.

use std::cell::RefCell;
use std::rc::Rc;

use super::block::{Block, From};
use super::filter::pick;
use super::keys::Keys;
use super::query::Condition;
use super::ranges::Ranges;
use super::view::{Part, Source, View};
use crate::error::Result;

/// The rows of one source in a part.
pub struct PartSource<'v> {
    view: &'v View,
    froms: Vec<From>,
    times: (u64, u64),
    blocks: RefCell<Vec<Option<Rc<Block<'v>>>>>,
    /// Rows of each block that another source hides.
    hidden: RefCell<Vec<Vec<u32>>>,
}

impl<'v> PartSource<'v> {
    /// The blocks of a source that can have keys of a part.
    pub fn new(view: &'v View, source: &Source, part: &Part) -> Result<PartSource<'v>> {
        let mut froms = Vec::new();
        match source {
            Source::Segment { segment, base_seq } => {
                let index = segment.index()?;
                let first = part.low.as_ref().map_or(0, |low| index.find_group(low));
                for group in first..index.group_count() {
                    if part.high.as_ref().is_some_and(|high| index.group(group).first_key >= high.as_slice()) {
                        break;
                    }
                    let (segment, index) = (segment.clone(), index.clone());
                    froms.push(From::Segment { segment, index, group, base_seq: *base_seq });
                }
            }
            Source::Rows { groups, .. } => froms.extend(groups.iter().cloned().map(From::Rows)),
        }
        let count = froms.len();
        let (blocks, hidden) = (RefCell::new(vec![None; count]), RefCell::new(vec![Vec::new(); count]));
        let mut source = PartSource { view, froms, times: source.times(), blocks, hidden };
        if matches!(source.froms.first(), Some(From::Rows(_))) {
            source.keep_within(part)?;
        }
        Ok(source)
    }

    /// Leaves out groups in memory that lie outside the part.
    fn keep_within(&mut self, part: &Part) -> Result<()> {
        let mut kept = Vec::new();
        for from in std::mem::take(&mut self.froms) {
            let block = Block::new(self.view, from.clone());
            let is_behind = match &part.low {
                Some(low) => *block.key(block.rows() - 1)? < *low.as_slice(),
                None => false,
            };
            let is_before = match &part.high {
                Some(high) => *block.key(0)? >= *high.as_slice(),
                None => false,
            };
            if !is_behind && !is_before {
                kept.push(from);
            }
        }
        let count = kept.len();
        self.froms = kept;
        *self.blocks.get_mut() = vec![None; count];
        *self.hidden.get_mut() = vec![Vec::new(); count];
        Ok(())
    }

    /// How many blocks.
    pub fn len(&self) -> usize {
        self.froms.len()
    }

    /// A block; kept until [`PartSource::forget`].
    pub fn block(&self, i: usize) -> Rc<Block<'v>> {
        let mut blocks = self.blocks.borrow_mut();
        blocks[i].get_or_insert_with(|| Rc::new(Block::new(self.view, self.froms[i].clone()))).clone()
    }

    /// Lets go of a block that is done.
    pub fn forget(&self, i: usize) {
        self.blocks.borrow_mut()[i] = None;
    }

    /// The rows of a block that another source hides, ascending.
    pub fn take_hidden(&self, i: usize) -> Vec<u32> {
        let mut rows = std::mem::take(&mut self.hidden.borrow_mut()[i]);
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    fn hide(&self, block: usize, row: usize) {
        self.hidden.borrow_mut()[block].push(row as u32);
    }

    /// About how many of its rows have times between two, if they are spread evenly.
    fn rows_between(&self, (from, to): (u64, u64)) -> f64 {
        let rows: usize = (0..self.len()).map(|i| self.block(i).rows()).sum();
        let length = |from: u64, to: u64| (to - from) as f64 + 1.0;
        rows as f64 * length(from, to) / length(self.times.0, self.times.1)
    }

    /// The first place from `place` on whose key is not before that of a row of another source's block.
    fn seek(&self, (mut i, mut row): (usize, usize), keys: &Keys, key_row: usize) -> Result<(usize, usize)> {
        while i < self.len() {
            let block = self.block(i);
            if !block.is_read() && row == 0 {
                let skipped = self.blocks_before(&keys.get(key_row), i)?;
                if skipped > 0 {
                    i += skipped;
                    continue;
                }
            }
            row = block.keys()?.seek(row, keys, key_row);
            if row < block.rows() {
                break;
            }
            (i, row) = (i + 1, 0);
        }
        Ok((i, row))
    }

    /// Blocks from `from` on whose last key is before `key`.
    fn blocks_before(&self, key: &[u8], from: usize) -> Result<usize> {
        let (mut low, mut high) = (from, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.ends_before(middle, key)? { low = middle + 1 } else { high = middle }
        }
        Ok(low - from)
    }

    /// Whether all keys of a block are before a key.
    fn ends_before(&self, i: usize, key: &[u8]) -> Result<bool> {
        match &self.froms[i] {
            From::Segment { index, group, .. } => Ok(index.group(*group).last_key < key),
            From::Rows(rows) => Ok(*self.block(i).key(rows.rows() - 1)? < *key),
        }
    }

    /// Of the versions of a key that begin at a row of a block, the one that the snapshot sees.
    fn seen_version(&self, (mut block, mut row): (usize, usize)) -> Result<Option<(usize, usize)>> {
        loop {
            let rows = self.block(block);
            if let Some(found) = rows.seen_version(row)? {
                return Ok(Some((block, found)));
            }
            // They may go on in the next block.
            if block + 1 == self.len() {
                return Ok(None);
            }
            let (keys, last) = (rows.keys()?, rows.rows() - 1);
            if keys.compare(last, keys, row).is_ne() || self.block(block + 1).keys()?.compare(0, keys, last).is_ne() {
                return Ok(None);
            }
            (block, row) = (block + 1, 0);
        }
    }
}

/// Notes which rows of the sources of a part are hidden by others.
pub fn hide_old_versions(view: &View, sources: &[PartSource<'_>], part: &Part, times: (u64, u64)) -> Result<()> {
    for (i, a) in sources.iter().enumerate() {
        for b in &sources[i + 1..] {
            let common = (a.times.0.max(b.times.0).max(times.0), a.times.1.min(b.times.1).min(times.1));
            if common.0 > common.1 || a.len() == 0 || b.len() == 0 {
                continue;
            }
            match a.rows_between(common) <= b.rows_between(common) {
                true => hide_between(view, a, b, part, common)?,
                false => hide_between(view, b, a, part, common)?,
            }
        }
    }
    Ok(())
}

/// Finds the keys of `few` with one of the `common` times that are in `many` too. Both are walked in key order, and where
/// one has nothing for a while the other leaps: sources whose series alternate cost little.
fn hide_between(
    view: &View,
    few: &PartSource<'_>,
    many: &PartSource<'_>,
    part: &Part,
    common: (u64, u64),
) -> Result<()> {
    let time = view.layout.schema().time.map(|time| usize::from(time.column));
    let is_common = time.map(|column| Condition::Range { column, low: common.0, high: common.1, negated: false });
    let mut place = (0, 0);
    for i in 0..few.len() {
        if place.0 == many.len() {
            return Ok(());
        }
        if place != (0, 0) && few.ends_before(i, &many.block(place.0).key(place.1)?)? {
            continue;
        }
        let block = few.block(i);
        let start = part.low.as_deref().map_or(Ok(0), |low| block.rows_before(low))?;
        let end = part.high.as_deref().map_or(Ok(block.rows()), |high| block.rows_before(high))?;
        let mut ranges = Ranges::one(start, end);
        if let Some(condition) = &is_common {
            ranges = pick(condition, &*block, &ranges)?;
        }
        ranges = block.newest_versions(ranges)?;
        let keys = block.keys()?;
        let mut row = 0;
        for range in ranges.as_slice() {
            row = row.max(range.start as usize);
            while row < range.end as usize {
                place = many.seek(place, keys, row)?;
                if place.0 == many.len() {
                    return Ok(());
                }
                let others = many.block(place.0);
                if keys.compare(row, others.keys()?, place.1).is_ne() {
                    row = keys.seek(row + 1, others.keys()?, place.1);
                    continue;
                }
                if let Some((other, other_row)) = many.seen_version(place)? {
                    match block.seq(row)? > many.block(other).seq(other_row)? {
                        true => many.hide(other, other_row),
                        false => few.hide(i, row),
                    }
                }
                row += 1;
            }
        }
    }
    Ok(())
}
