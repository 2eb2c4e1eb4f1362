//! Merges the sorted inputs of a table into one walk in key order.
//!
//! Where only one input has rows, whole runs of it pass at once; where several have versions of one key, the
//! versions are handed out together, newest first, and the caller decides (a scan takes what its snapshot sees, a
//! compaction keeps what some snapshot may still need).

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::cursor::Direction;
use crate::error::Result;
use crate::group::RowGroup;
use crate::source::Source;

/// What comes next in key order.
pub enum Event {
    /// `rows` rows of `group` from `first` on (in the walk's direction), each the only version of its key.
    Run {
        /// The rows.
        group: Arc<RowGroup>,
        /// First row in walking order.
        first: usize,
        /// How many.
        rows: usize,
    },
    /// All versions of one key, newest first.
    Versions(Vec<VersionRef>),
}

/// A version of a row.
pub struct VersionRef {
    /// Its sequence number.
    pub seq: u64,
    /// The group that holds it.
    pub group: Arc<RowGroup>,
    /// Its row there.
    pub row: usize,
}

impl VersionRef {
    /// Whether it says that the row is gone.
    pub fn is_tombstone(&self) -> bool {
        self.group.is_tombstone(self.row)
    }
}

/// The merge of some sources.
pub struct Merge {
    direction: Direction,
    snapshot: u64,
    sources: Vec<Source>,
    heap: BinaryHeap<Head>,
    /// Walk ends before this key (Forward: first key not wanted; Backward: keys below are not wanted).
    stop: Option<Vec<u8>>,
}

/// The next key of a source, or a bound on it while the source is pending.
struct Head {
    key: Vec<u8>,
    source: usize,
    direction: Direction,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap hands out its greatest element: that is the next in walking order.
        match self.direction {
            Direction::Forward => other.key.cmp(&self.key),
            Direction::Backward => self.key.cmp(&other.key),
        }
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Head {}

impl Merge {
    /// A merge that sees what `snapshot` sees of plain runs. Each source comes with a bound on its first key,
    /// or none if it has to be looked at first.
    pub fn new(
        direction: Direction,
        snapshot: u64,
        stop: Option<Vec<u8>>,
        sources: Vec<(Source, Option<Vec<u8>>)>,
    ) -> Result<Merge> {
        let mut merge =
            Merge { direction, snapshot, sources: Vec::with_capacity(sources.len()), heap: BinaryHeap::new(), stop };
        for (source, bound) in sources {
            let number = merge.sources.len();
            merge.sources.push(source);
            match bound {
                Some(key) => merge.heap.push(Head { key, source: number, direction }),
                None => {
                    merge.sources[number].load()?;
                    merge.push_head(number, Vec::new())?;
                }
            }
        }
        Ok(merge)
    }

    /// The next run (of at most `max_rows`) or key; `None` at the end.
    pub fn next(&mut self, max_rows: usize) -> Result<Option<Event>> {
        loop {
            let Some(head) = self.heap.pop() else { return Ok(None) };
            if self.is_beyond_stop(&head.key) {
                self.heap.clear();
                return Ok(None);
            }
            if self.sources[head.source].is_pending() {
                self.sources[head.source].load()?;
                self.push_head(head.source, head.key)?;
                continue;
            }
            match self.heap.peek() {
                Some(other) if other.key == head.key => {
                    if let Some(event) = self.versions(head)? {
                        return Ok(Some(event));
                    }
                }
                _ => return self.run_or_versions(head, max_rows),
            }
        }
    }

    fn is_beyond_stop(&self, key: &[u8]) -> bool {
        match (&self.stop, self.direction) {
            (None, _) => false,
            (Some(stop), Direction::Forward) => key >= stop.as_slice(),
            (Some(stop), Direction::Backward) => key < stop.as_slice(),
        }
    }

    fn push_head(&mut self, source: usize, mut key: Vec<u8>) -> Result<()> {
        if let Some((group, row)) = self.sources[source].current() {
            key.clear();
            group.push_key(row, &mut key)?;
            self.heap.push(Head { key, source, direction: self.direction });
        }
        Ok(())
    }

    fn run_or_versions(&mut self, head: Head, max_rows: usize) -> Result<Option<Event>> {
        let Some((group, first)) = self.sources[head.source].current() else { return Ok(None) };
        if !group.is_plain(self.snapshot) {
            return self.versions(head);
        }
        let group = group.clone();
        let most = self.sources[head.source].rows_left().min(max_rows.max(1));
        let rows = self.run_length(&group, first, most)?;
        self.sources[head.source].advance(rows)?;
        self.push_head(head.source, head.key)?;
        Ok(Some(Event::Run { group, first, rows }))
    }

    /// How many of `most` rows come before the next key of any other source, and before the stop.
    fn run_length(&self, group: &RowGroup, first: usize, most: usize) -> Result<usize> {
        let other = self.heap.peek().map(|h| h.key.as_slice());
        let limit = match (other, self.stop.as_deref(), self.direction) {
            (Some(a), Some(b), Direction::Forward) => Some((a.min(b), false)),
            (Some(a), Some(b), Direction::Backward) if a < b => Some((b, true)),
            (Some(a), _, _) => Some((a, false)),
            (None, Some(b), direction) => Some((b, direction == Direction::Backward)),
            (None, None, _) => None,
        };
        let Some((limit, inclusive)) = limit else { return Ok(most) };
        let mut scratch = Vec::with_capacity(limit.len() + 16);
        let mut within = |n: usize| -> Result<bool> {
            scratch.clear();
            match self.direction {
                Direction::Forward => group.push_key(first + n, &mut scratch)?,
                Direction::Backward => group.push_key(first - n, &mut scratch)?,
            }
            Ok(match self.direction {
                Direction::Forward => scratch.as_slice() < limit,
                Direction::Backward if inclusive => scratch.as_slice() >= limit,
                Direction::Backward => scratch.as_slice() > limit,
            })
        };
        // Row 0 is the head and so within. Gallop, then halve.
        let (mut low, mut high) = (1, 1);
        while high < most && within(high)? {
            low = high + 1;
            high = (high * 2).min(most);
        }
        if high >= most && low < most && within(most - 1)? {
            return Ok(most);
        }
        let mut high = high.min(most);
        while low < high {
            let mid = (low + high) / 2;
            if within(mid)? { low = mid + 1 } else { high = mid }
        }
        Ok(low)
    }

    /// All versions of the key of `head`. `None` when a pending source turned out to stand elsewhere: look again.
    fn versions(&mut self, head: Head) -> Result<Option<Event>> {
        let mut tied = vec![head];
        while self.heap.peek().is_some_and(|h| h.key == tied[0].key) {
            let Some(next) = self.heap.pop() else { break };
            if self.sources[next.source].is_pending() {
                self.sources[next.source].load()?;
                self.push_head(next.source, next.key)?;
            } else {
                tied.push(next);
            }
        }
        let mut versions = Vec::with_capacity(tied.len());
        for head in tied {
            self.take_versions(head, &mut versions)?;
        }
        versions.sort_by_key(|v| std::cmp::Reverse(v.seq));
        Ok(Some(Event::Versions(versions)))
    }

    /// Takes the rows with the key of `head` from its source.
    fn take_versions(&mut self, head: Head, versions: &mut Vec<VersionRef>) -> Result<()> {
        let source = &mut self.sources[head.source];
        let mut key = Vec::with_capacity(head.key.len());
        while let Some((group, row)) = source.current() {
            key.clear();
            group.push_key(row, &mut key)?;
            if key != head.key {
                break;
            }
            versions.push(VersionRef { seq: group.seq(row), group: group.clone(), row });
            source.advance(1)?;
        }
        self.push_head(head.source, key)
    }
}
