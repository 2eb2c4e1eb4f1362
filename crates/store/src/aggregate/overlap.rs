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
use super::query::Condition;
use super::ranges::Ranges;
use super::view::{Part, Source, View};
use crate::error::Result;
use crate::memtable::Key;

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

    /// The first block that can hold a key, and the row of its first version there.
    fn find(&self, key: &[u8], from: usize) -> Result<Option<(usize, usize)>> {
        let mut i = from + self.blocks_before(key, from)?;
        while i < self.len() {
            let block = self.block(i);
            let row = block.rows_before(key)?;
            if row < block.rows() {
                return Ok((*block.key(row)? == *key).then_some((i, row)));
            }
            i += 1;
        }
        Ok(None)
    }

    /// Blocks from `from` on whose last key is before `key`.
    fn blocks_before(&self, key: &[u8], from: usize) -> Result<usize> {
        let (mut low, mut high) = (from, self.len());
        while low < high {
            let middle = (low + high) / 2;
            let is_before = match &self.froms[middle] {
                From::Segment { index, group, .. } => index.group(*group).last_key < key,
                From::Rows(rows) => {
                    let block = self.block(middle);
                    *block.key(rows.rows() - 1)? < *key
                }
            };
            if is_before { low = middle + 1 } else { high = middle }
        }
        Ok(low - from)
    }

    /// Of the versions of a key that begin at a row of a block, the one that the snapshot sees.
    fn seen_version(&self, key: &[u8], (mut block, mut row): (usize, usize)) -> Result<Option<(usize, usize)>> {
        loop {
            let rows = self.block(block);
            if let Some(found) = rows.seen_version(row, key)? {
                return Ok(Some((block, found)));
            }
            // They may go on in the next block.
            (block, row) = (block + 1, 0);
            let goes_on =
                *rows.key(rows.rows() - 1)? == *key && block < self.len() && *self.block(block).key(0)? == *key;
            if !goes_on {
                return Ok(None);
            }
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

/// Looks each key of `few` with one of the `common` times up in `many`.
fn hide_between(
    view: &View,
    few: &PartSource<'_>,
    many: &PartSource<'_>,
    part: &Part,
    common: (u64, u64),
) -> Result<()> {
    let time = view.layout.schema().time.map(|time| usize::from(time.column));
    let is_common = time.map(|column| Condition::Range { column, low: common.0, high: common.1, negated: false });
    let mut place = 0;
    for i in 0..few.len() {
        let block = few.block(i);
        let mut ranges = Ranges::one(0, block.rows());
        if let Some(condition) = &is_common {
            ranges = pick(condition, &*block, &ranges)?;
        }
        ranges = block.newest_versions(ranges)?;
        for range in ranges.as_slice() {
            for row in range.start as usize..range.end as usize {
                let key: Key = block.key(row)?;
                if part.low.as_ref().is_some_and(|low| *key < *low.as_slice())
                    || part.high.as_ref().is_some_and(|high| *key >= *high.as_slice())
                {
                    continue;
                }
                let Some(found) = many.find(&key, place)? else { continue };
                place = found.0;
                if let Some((other, other_row)) = many.seen_version(&key, found)? {
                    match block.seq(row)? > many.block(other).seq(other_row)? {
                        true => many.hide(other, other_row),
                        false => few.hide(i, row),
                    }
                }
            }
        }
    }
    Ok(())
}
