//! The check of bulk rows: was one of their keys committed by somebody else meanwhile? Made at the end of the statement,
//! and again at the commit for what came since.
//!
//! Both sides may be large. What is new is what commits in the queue, memtables and segments gained since the
//! check snapshot; segments whose keys or times lie apart cost nothing, the rest is walked side by side.

use std::ops::Bound;
use std::sync::Arc;

use crate::commit::{CommitQueue, QueuedWrites, Resolve, committed_since};
use crate::cursor::Direction;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::group::RowGroup;
use crate::limits;
use crate::live::LiveSegment;
use crate::memtable::Versions;
use crate::merge::{Event, Merge};
use crate::own::{OnDuplicate, PrivateSegment};
use crate::source::{Input, Source};
use crate::txn::{Txn, TxnTable};
use crate::version::Version;

impl Engine {
    /// Checks the private segments of a write set against what was committed after `since`.
    pub(crate) fn check_private(
        &self,
        queue: &CommitQueue,
        txn: &Txn,
        t: &TxnTable,
        since: u64,
        resolve: Resolve,
    ) -> Result<()> {
        let privates = t.own.read().private.clone();
        let expecting = privates.iter().filter(|p| match p.expects_absent {
            // Index entries of a row that is replaced unseen would stay.
            Some(OnDuplicate::Replace) => resolve == Resolve::Openly || t.has_entries(),
            mode => mode.is_some(),
        });
        let expecting: Vec<&PrivateSegment> = expecting.collect();
        if expecting.is_empty() {
            return Ok(());
        }
        for private in &expecting {
            for writes in queue.writes_to(&t.table) {
                self.check_against_queued(txn, t, private, &writes)?;
            }
            let since = since.max(private.checked_up_to);
            self.check_against_committed(txn, t, private, since, &|key| {
                committed_since(queue, &t.table, &t.layout, key, since)
            })?;
        }
        Ok(())
    }

    /// Checks the segments that a bulk statement has just written against what was committed after `since`. What is in the
    /// queue is left to the commit.
    pub(crate) fn check_written(&self, txn: &Txn, t: &TxnTable, written: &[PrivateSegment], since: u64) -> Result<()> {
        let is_live = |key: &[u8]| Ok(t.table.find(key, since)?.is_some_and(|found| found.row.is_some()));
        written.iter().try_for_each(|private| self.check_against_committed(txn, t, private, since, &is_live))
    }

    /// Compares a private segment with segments and memtables; a key that was there may be gone again.
    fn check_against_committed(
        &self,
        txn: &Txn,
        t: &TxnTable,
        private: &PrivateSegment,
        since: u64,
        is_live: &dyn Fn(&[u8]) -> Result<bool>,
    ) -> Result<()> {
        // One version: a flush moves rows from one to the next.
        let version = t.table.version();
        check_against_memory(txn, t, &version, private, since)?;
        let recent = version.segments.values().filter(|s| s.meta().max_seq > since);
        for segment in recent.filter(|s| may_share_keys(s, &private.segment)) {
            if let Some((group, row)) = first_common_key(t, private, segment, is_live)? {
                return Err(conflict(txn, t, private, &group, row));
            }
        }
        Ok(())
    }

    fn check_against_queued(
        &self,
        txn: &Txn,
        t: &TxnTable,
        private: &PrivateSegment,
        writes: &QueuedWrites,
    ) -> Result<()> {
        let mut found = writes.keys.iter().try_for_each(|key| check_key(txn, t, private, key));
        for segment in writes.segments.iter().filter(|s| may_share_keys(s, &private.segment)) {
            if found.is_ok()
                && let Some((group, row)) = first_common_key(t, private, segment, &|_| Ok(true))?
            {
                found = Err(conflict(txn, t, private, &group, row));
            }
        }
        match (found, writes.undecided) {
            (Err(Error::Duplicate { .. } | Error::Conflict), Some(decision)) => Err(Error::Undecided { decision }),
            (found, _) => found,
        }
    }
}

/// Looks each key that memtables gained up in a private segment.
fn check_against_memory(
    txn: &Txn,
    t: &TxnTable,
    version: &Version,
    private: &PrivateSegment,
    since: u64,
) -> Result<()> {
    let meta = private.segment.meta();
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for memtable in version.memtables() {
        let entries = memtable.entries();
        let mut walk = entries.walk(Bound::Included(meta.first_key.as_slice()), Direction::Forward);
        let mut versions = Versions::new();
        while let Some(key) = walk.next(&mut versions).filter(|key| key.as_slice() <= meta.last_key.as_slice()) {
            if versions.first().is_some_and(|v| v.seq > since && v.row.is_some()) {
                keys.push(key.as_slice().to_vec());
            }
        }
    }
    keys.iter().try_for_each(|key| check_key(txn, t, private, key))
}

/// Whether a key that others wrote is in the private segment.
fn check_key(txn: &Txn, t: &TxnTable, private: &PrivateSegment, key: &[u8]) -> Result<()> {
    let found = crate::table::find_in_segment(&private.segment, 0, &t.layout, key)?;
    let Some(found) = found else { return Ok(()) };
    // A row that was inserted and deleted again: the one that is there now is another one's.
    let Some(row) = found.row.filter(|_| private.expects_absent == Some(OnDuplicate::Fail)) else {
        return Err(Error::Conflict);
    };
    let mut bytes = Vec::new();
    row.push_to(&mut bytes)?;
    Err(txn.duplicate_in(t, &bytes, key))
}

fn may_share_keys(a: &LiveSegment, b: &LiveSegment) -> bool {
    let (a, b) = (a.meta(), b.meta());
    a.first_key <= b.last_key && b.first_key <= a.last_key && a.min_time <= b.max_time && b.min_time <= a.max_time
}

fn conflict(txn: &Txn, t: &TxnTable, private: &PrivateSegment, group: &RowGroup, row: usize) -> Error {
    if private.expects_absent != Some(OnDuplicate::Fail) || group.is_tombstone(row) {
        return Error::Conflict;
    }
    let (mut bytes, mut key) = (Vec::new(), Vec::new());
    match group.push_row(row, &mut bytes).and_then(|()| group.push_key(row, &mut key)) {
        Ok(()) => txn.duplicate_in(t, &bytes, &key),
        Err(error) => error,
    }
}

/// The first row of the private segment, or deleted row, whose key is in the other one too, and live now.
fn first_common_key(
    t: &TxnTable,
    private: &PrivateSegment,
    other: &Arc<LiveSegment>,
    is_live: &dyn Fn(&[u8]) -> Result<bool>,
) -> Result<Option<(Arc<RowGroup>, usize)>> {
    let low = private.segment.meta().first_key.clone().max(other.meta().first_key.clone());
    let high = private.segment.meta().last_key.clone().min(other.meta().last_key.clone());
    let source = |segment: &Arc<LiveSegment>, base_seq| {
        let input = Input::Segment { segment: segment.clone(), base_seq };
        (Source::new(input, t.layout.clone(), u64::MAX, Direction::Forward, Some(low.clone()), true), Some(low.clone()))
    };
    // Sequence numbers tell the two apart: 1 is the private one.
    let mut merge =
        Merge::new(Direction::Forward, u64::MAX, None, vec![source(&private.segment, 1), source(other, 2)])?;
    let mut key = Vec::new();
    while let Some(event) = merge.next(limits::GROUP_ROWS)? {
        match event {
            Event::Run { group, first, .. } => {
                key.clear();
                group.push_key(first, &mut key)?;
            }
            Event::Versions(versions) => {
                let mine = versions.iter().find(|v| v.seq == 1);
                key.clear();
                versions[0].group.push_key(versions[0].row, &mut key)?;
                if let Some(mine) = mine
                    && versions.len() > 1
                    && is_live(&key)?
                {
                    return Ok(Some((mine.group.clone(), mine.row)));
                }
            }
        }
        if key > high {
            break;
        }
    }
    Ok(None)
}
