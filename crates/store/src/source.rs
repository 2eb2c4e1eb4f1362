//! One of the sorted inputs of a scan: a memtable, a write set or a segment.
//!
//! Until its first row is needed a source only knows a bound on its next key, so that a scan over a thousand
//! segments opens just those it walks into.

use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::cursor::Direction;
use crate::error::Result;
use crate::group::RowGroup;
use crate::key;
use crate::live::LiveSegment;
use crate::memtable::{Memtable, RowCollector};
use crate::own::OwnWrites;
use crate::row::RowLayout;
use crate::segment::SegmentIndex;

/// Rows copied out of a memtable at once: few at first (a point read needs one), then more.
const FIRST_BATCH: usize = 8;
const LAST_BATCH: usize = 2048;

/// Where the rows come from.
#[derive(Clone)]
pub enum Input {
    /// Uncommitted writes of the scan's own transaction.
    Own(Arc<RwLock<OwnWrites>>),
    /// Committed rows in memory.
    Memtable(Arc<Memtable>),
    /// Rows on disk. `base_seq` is the segment's own, or above `OWN_SEQ` for a transaction's private one.
    Segment {
        /// The segment.
        segment: Arc<LiveSegment>,
        /// Added to its rows' sequence offsets.
        base_seq: u64,
    },
}

/// A position in an input.
pub struct Source {
    input: Input,
    layout: Arc<RowLayout>,
    snapshot: u64,
    direction: Direction,
    state: State,
    batch_rows: usize,
    /// Rows from here on (Backward: before) are not wanted.
    stop: Option<Vec<u8>>,
}

enum State {
    /// Nothing is read yet; rows start at this key.
    Pending {
        from: Option<Vec<u8>>,
        inclusive: bool,
    },
    /// `next` is the row of `rows` that comes next.
    Loaded {
        rows: Arc<RowGroup>,
        next: usize,
        after: After,
    },
    Done,
}

/// How to go on behind the loaded rows.
enum After {
    Key(Vec<u8>),
    Group(usize),
    Nothing,
}

impl Source {
    /// A source that starts at `from` (`None`: at its end) in `direction`.
    pub fn new(
        input: Input,
        layout: Arc<RowLayout>,
        snapshot: u64,
        direction: Direction,
        from: Option<Vec<u8>>,
        inclusive: bool,
    ) -> Source {
        Source {
            input,
            layout,
            snapshot,
            direction,
            state: State::Pending { from, inclusive },
            batch_rows: FIRST_BATCH,
            stop: None,
        }
    }

    /// Rows from `stop` on (Backward: before it) need not come; `is_long`: that many are wanted is certain.
    pub fn until(mut self, stop: Option<Vec<u8>>, is_long: bool) -> Source {
        self.stop = stop;
        self.batch_rows = if is_long { LAST_BATCH } else { FIRST_BATCH };
        self
    }

    /// Whether nothing was read yet.
    pub fn is_pending(&self) -> bool {
        matches!(self.state, State::Pending { .. })
    }

    /// The loaded rows and the next one among them; `None` at the end.
    pub fn current(&self) -> Option<(&Arc<RowGroup>, usize)> {
        match &self.state {
            State::Loaded { rows, next, .. } => Some((rows, *next)),
            _ => None,
        }
    }

    /// Rows from the current one to the end of what is loaded.
    pub fn rows_left(&self) -> usize {
        match &self.state {
            State::Loaded { rows, next, .. } => match self.direction {
                Direction::Forward => rows.rows() - next,
                Direction::Backward => next + 1,
            },
            _ => 0,
        }
    }

    /// Reads the first rows.
    pub fn load(&mut self) -> Result<()> {
        let State::Pending { from, inclusive } = std::mem::replace(&mut self.state, State::Done) else { return Ok(()) };
        match self.input.clone() {
            Input::Segment { segment, base_seq } => self.seek_segment(&segment, base_seq, from.as_deref(), inclusive),
            _ => self.collect(from, inclusive),
        }
    }

    /// Steps over `rows` rows, which must not be more than `rows_left`.
    pub fn advance(&mut self, rows: usize) -> Result<()> {
        if rows < self.rows_left() {
            if let State::Loaded { next, .. } = &mut self.state {
                match self.direction {
                    Direction::Forward => *next += rows,
                    Direction::Backward => *next -= rows,
                }
            }
            return Ok(());
        }
        let State::Loaded { after, .. } = std::mem::replace(&mut self.state, State::Done) else { return Ok(()) };
        match (after, self.input.clone()) {
            (After::Key(key), _) => self.collect(Some(key), false),
            (After::Group(group), Input::Segment { segment, base_seq }) => {
                let index = segment.index()?;
                self.open_group((&segment, &index), base_seq, group, None)
            }
            _ => Ok(()),
        }
    }

    /// Copies the next rows out of a map in memory.
    fn collect(&mut self, from: Option<Vec<u8>>, inclusive: bool) -> Result<()> {
        let bound = match &from {
            None => Bound::Unbounded,
            Some(key) if inclusive => Bound::Included(key.as_slice()),
            Some(key) => Bound::Excluded(key.as_slice()),
        };
        let mut rows = RowCollector::default();
        let more = match &self.input {
            Input::Own(own) => own.read().collect(bound, self.direction, self.batch_rows, &self.layout, &mut rows),
            Input::Memtable(table) => {
                let until = (self.batch_rows, self.stop.as_deref());
                table.collect(bound, self.direction, self.snapshot, until, &mut rows)
            }
            Input::Segment { .. } => None,
        };
        self.batch_rows = (self.batch_rows * 4).min(LAST_BATCH);
        if rows.rows() == 0 {
            return match more {
                Some(key) => self.collect(Some(key.to_vec()), false),
                None => Ok(()),
            };
        }
        if self.direction == Direction::Backward {
            rows.reverse();
        }
        let rows = RowGroup::from_rows(self.layout.clone(), rows);
        let next = self.first_row(&rows);
        let after = more.map_or(After::Nothing, |key| After::Key(key.to_vec()));
        self.state = State::Loaded { rows, next, after };
        Ok(())
    }

    fn first_row(&self, rows: &RowGroup) -> usize {
        match self.direction {
            Direction::Forward => 0,
            Direction::Backward => rows.rows() - 1,
        }
    }

    fn seek_segment(
        &mut self,
        segment: &Arc<LiveSegment>,
        base_seq: u64,
        from: Option<&[u8]>,
        inclusive: bool,
    ) -> Result<()> {
        let index = segment.index()?;
        let count = index.group_count();
        if count == 0 {
            return Ok(());
        }
        let group = match (from, self.direction) {
            (None, Direction::Forward) => 0,
            (None, Direction::Backward) => count - 1,
            (Some(key), Direction::Forward) => index.find_group(key),
            (Some(key), Direction::Backward) => last_group_from(&index, key),
        };
        match group < count {
            true => self.open_group((segment, &index), base_seq, group, from.map(|key| (key, inclusive))),
            false => Ok(()),
        }
    }

    /// Loads a group and stands on its first row in walking order, or on the first at or behind a key.
    fn open_group(
        &mut self,
        (segment, index): (&Arc<LiveSegment>, &SegmentIndex),
        base_seq: u64,
        group: usize,
        at: Option<(&[u8], bool)>,
    ) -> Result<()> {
        let rows = RowGroup::from_segment(self.layout.clone(), (segment.clone(), index), group, base_seq)?;
        let count = index.group_count();
        let following = match self.direction {
            Direction::Forward => Some(group + 1).filter(|&g| g < count),
            Direction::Backward => group.checked_sub(1),
        };
        let next = match at {
            None => Some(self.first_row(&rows)),
            Some((key, inclusive)) => match self.direction {
                // Forward: the first row that is not before the key. Backward: the last that is not behind it.
                Direction::Forward => Some(rows_before(&rows, key, !inclusive)?).filter(|&r| r < rows.rows()),
                Direction::Backward => rows_before(&rows, key, inclusive)?.checked_sub(1),
            },
        };
        match (next, following) {
            (Some(next), following) => {
                self.state = State::Loaded { rows, next, after: following.map_or(After::Nothing, After::Group) };
                Ok(())
            }
            // Versions of the sought key may fill the group to its end: the next one is wholly behind.
            (None, Some(group)) => self.open_group((segment, index), base_seq, group, at),
            (None, None) => Ok(()),
        }
    }
}

/// The last group that may hold a row whose key is at most `key`.
fn last_group_from(index: &SegmentIndex, key: &[u8]) -> usize {
    let (mut low, mut high) = (0, index.group_count());
    while low < high {
        let mid = (low + high) / 2;
        if index.group(mid).first_key <= key { low = mid + 1 } else { high = mid }
    }
    low.checked_sub(1).unwrap_or(index.group_count())
}

/// How many rows of a sorted group have a key less than `key` (or equal, with `or_equal`).
pub fn rows_before(rows: &RowGroup, key: &[u8], or_equal: bool) -> Result<usize> {
    // Rows whose key begins as `key` does, as far as key columns are lines: numbers are compared sooner than keys are made.
    let (mut low, mut high, mut rest) = (0, rows.rows(), key);
    for part in 0.. {
        let Some((lines, width)) = rows.key_lines(part)? else { break };
        let Some((value, behind)) = key::split_int(rest, width) else { break };
        low = lines.partition_point(low..high, |other| other < value);
        rest = behind;
        let is_whole = part + 1 == rows.key_parts();
        if rest.is_empty() && !(is_whole && or_equal) {
            return Ok(low);
        }
        high = lines.partition_point(low..high, |other| other == value);
        if rest.is_empty() {
            return Ok(high);
        }
    }
    let mut scratch = Vec::new();
    while low < high {
        let mid = (low + high) / 2;
        scratch.clear();
        rows.push_key(mid, &mut scratch)?;
        let before = if or_equal { scratch.as_slice() <= key } else { scratch.as_slice() < key };
        if before { low = mid + 1 } else { high = mid }
    }
    Ok(low)
}
