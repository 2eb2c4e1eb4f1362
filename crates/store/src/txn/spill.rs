//! Large transactions: write sets move to private segments, in a way that can still be rolled back.

use super::{Txn, Undo};
use crate::error::Result;
use crate::memtable::Key;
use crate::own::OnDuplicate;
use crate::own::{OwnBatch, OwnWrite, PrivateSegment};
use crate::write_out::{OutRow, OutRows};

impl Txn {
    /// Before a commit: there is no way back.
    pub(crate) fn forget_savepoints(&mut self) {
        self.savepoints.clear();
        self.undo.clear();
    }

    /// Rows that were inserted and deleted again never were, unless somebody was told of them.
    pub(crate) fn forget_undone(&mut self) {
        for t in &self.tables {
            let mut own = t.own.write();
            if own.private.is_empty() {
                own.map.retain(|_, w| w.row.is_some() || w.expects_absent.is_none());
            }
        }
    }

    /// Before a commit: the rows of all statements go together.
    pub(crate) fn join_batches(&mut self) {
        self.tables.iter().for_each(|t| t.own.write().join_batches());
    }

    /// Adds the rows of a statement to a write set that takes batches; they are new.
    pub(super) fn add_batch(&mut self, t: usize, batch: OwnBatch) -> Result<()> {
        if !self.savepoints.is_empty() {
            self.undo.push(Undo::Batch { table: t, rows: batch.rows.clone() });
        }
        let bytes = {
            let mut own = self.tables[t].own.write();
            own.add_batch(batch);
            own.bytes
        };
        if bytes > self.engine.tuning.txn_spill_bytes { self.spill(t) } else { self.check_not_doomed() }
    }

    pub(super) fn add_private(&mut self, t: usize, segments: Vec<PrivateSegment>) {
        if segments.is_empty() {
            return;
        }
        let mut own = self.tables[t].own.write();
        if !self.savepoints.is_empty() {
            self.undo.push(Undo::Private { table: t, count: own.private.len() });
        }
        own.private.extend(segments);
        own.generation += 1;
    }

    /// Moves the write set of a table to private segments, one part for each open savepoint, so that each can
    /// still be rolled back.
    pub(crate) fn spill(&mut self, t: usize) -> Result<()> {
        let result = self.spill_parts(t);
        self.doomed |= result.is_err();
        result
    }

    pub(super) fn spill_parts(&mut self, t: usize) -> Result<()> {
        // Rows in segments are not asked any more.
        self.tables[t].tell_newest(0);
        self.undo_batches_by_row(t);
        let mut map = {
            let mut own = self.tables[t].own.write();
            own.settle();
            std::mem::take(&mut own.map)
        };
        if map.is_empty() {
            return Ok(());
        }
        // Newest part first: what was written after each savepoint, then the state before it is restored.
        let mut parts: Vec<std::collections::BTreeMap<Key, OwnWrite>> = Vec::new();
        let mut kept: Vec<Vec<Undo>> = Vec::new();
        for savepoint in self.savepoints.iter().rev() {
            let mut part = std::collections::BTreeMap::new();
            let mut others = Vec::new();
            for undo in self.undo.drain(savepoint.undo_len..).rev() {
                match undo {
                    Undo::Write { table, key, previous } if table == t => {
                        let now = map.remove(&key);
                        if let (Some(now), false) = (now, part.contains_key(&key)) {
                            part.insert(key.clone(), now);
                        }
                        if let Some(previous) = previous {
                            map.insert(key, previous);
                        }
                    }
                    other => others.push(other),
                }
            }
            others.reverse();
            parts.push(part);
            kept.push(others);
        }
        // Oldest first again: segments in order of age, markers where the writes were.
        let base = self.write_part(t, map)?;
        self.tables[t].own.write().private.extend(base);
        for (savepoint, (part, others)) in parts.into_iter().zip(kept).rev().enumerate() {
            self.savepoints[savepoint].undo_len = self.undo.len();
            let count = self.tables[t].own.read().private.len();
            let written = self.write_part(t, part)?;
            // Markers of other private segments of this table have lower counts and so are undone after this one.
            self.undo.extend(others);
            if !written.is_empty() {
                self.undo.push(Undo::Private { table: t, count });
                self.tables[t].own.write().private.extend(written);
            }
        }
        let mut own = self.tables[t].own.write();
        own.bytes = 0;
        own.generation += 1;
        Ok(())
    }

    /// Says of each row of a table's batches for itself how to undo it.
    fn undo_batches_by_row(&mut self, t: usize) {
        if !self.undo.iter().any(|undo| matches!(undo, Undo::Batch { table, .. } if *table == t)) {
            return;
        }
        let mut places = Vec::with_capacity(self.undo.len() + 1);
        for undo in std::mem::take(&mut self.undo) {
            places.push(self.undo.len());
            match undo {
                Undo::Batch { table, rows } if table == t => {
                    let key = |i| Key::from_slice(&rows.key(i));
                    self.undo.extend((0..rows.len()).map(|i| Undo::Write { table, key: key(i), previous: None }));
                }
                other => self.undo.push(other),
            }
        }
        places.push(self.undo.len());
        self.savepoints.iter_mut().for_each(|savepoint| savepoint.undo_len = places[savepoint.undo_len]);
    }

    /// Writes a part of a write set to private segments: updates and inserts apart, as they are checked differently.
    pub(super) fn write_part(
        &self,
        t: usize,
        part: std::collections::BTreeMap<Key, OwnWrite>,
    ) -> Result<Vec<PrivateSegment>> {
        let entry = &self.tables[t];
        let mut written = Vec::new();
        let modes = [
            None,
            Some(OnDuplicate::Fail),
            Some(OnDuplicate::Ignore),
            Some(OnDuplicate::Replace),
            Some(OnDuplicate::Update),
        ];
        for mode in modes {
            let mut tombstone_rows = Vec::new();
            let mut places = Vec::new();
            for (key, write) in part.iter().filter(|(_, w)| w.expects_absent == mode) {
                if write.row.is_none() {
                    places.push(tombstone_rows.len());
                    entry.layout.push_key_row(key, &mut tombstone_rows);
                }
            }
            places.push(tombstone_rows.len());
            let mut tombstones = places.windows(2).map(|w| &tombstone_rows[w[0]..w[1]]);
            let mut rows: OutRows<'_> = part
                .values()
                .filter(|w| w.expects_absent == mode)
                .filter_map(|w| match &w.row {
                    Some(row) => Some(OutRow { row, seq: 0, tombstone: false }),
                    None => tombstones.next().map(|row| OutRow { row, seq: 0, tombstone: true }),
                })
                .collect();
            if !rows.is_empty() {
                let (table, layout) = (&entry.table, &entry.layout);
                let room = |rows: &mut OutRows<'_>, takes| self.engine.make_room_for_rows(table, rows.len(), takes);
                written.extend(self.engine.write_private_in_ring(table, layout, &mut rows, mode, room)?);
            }
        }
        Ok(written)
    }

    /// Spills every table, so that a commit with private segments is one manifest edit.
    pub(crate) fn spill_all(&mut self) -> Result<()> {
        (0..self.tables.len()).try_for_each(|t| self.spill(t))
    }
}
