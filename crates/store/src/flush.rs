//! From memtables to segments: freezing, flushing, and letting go of the log.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rrd_codec::Effort;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fs::space::Room;
use crate::live::LiveSegment;
use crate::manifest::edit::Edit;
use crate::memtable::{Memtable, VersionRef, Versions};
use crate::ring::{WRITE_TRIES, floors_edit};
use crate::schema::Compression;
use crate::segment::SegmentMeta;
use crate::table::Table;
use crate::wal::Lsn;
use crate::write_out::{OutRow, OutRows};

/// When memtables are over half of what they may have, at least this part of it is set aside at once.
const MEMTABLE_PARTS: usize = 8;

/// This part of the memtables' limit is for tables with little in memory. A table whose flushes are slow fills the rest only, so
/// that commits to others go on.
const RESERVED_PART: usize = 8;

/// A table has little in memory up to this part of the limit.
const LITTLE_PART: usize = 16;

impl Engine {
    /// Sets the active memtable of a table aside, unless it is empty.
    pub(crate) fn freeze(&self, table: &Table) {
        // No commit is half applied while its turn is taken.
        let _turn = self.apply_turn.lock();
        if !table.version().active.needs_flush() {
            return;
        }
        if table.version().active.touched().is_some_and(|touched| touched.builds().next().is_some()) {
            // What is built anew must be newer than what the last flush brought, though nothing was committed since.
            let mut queue = self.commit_queue.lock();
            if !queue.pending.is_empty() {
                return self.workers.ask_flush(table.id);
            }
            self.visible_seq.store(queue.next_seq, Ordering::Release);
            queue.next_seq += 1;
        }
        let complete_up_to = self.visible_seq.load(Ordering::Acquire);
        let layout = table.layout();
        {
            // What comes next would keep the log of this memtable from being removed.
            let _queue = self.commit_queue.lock();
            table.log_bases.lock().forget();
        }
        table.install(|version| {
            let full = std::mem::replace(&mut version.active, Arc::new(Memtable::new(layout)));
            let bytes = full.bytes() as i64;
            self.memory.active.fetch_sub(bytes, Ordering::Relaxed);
            self.memory.frozen.fetch_add(bytes, Ordering::Relaxed);
            version.frozen.push((full, complete_up_to));
        });
    }

    /// Writes all frozen memtables of a table to segments, oldest first. [`Error::Interrupted`] once `stop` says so, which is asked
    /// between two memtables and while others are waited for.
    pub(crate) fn flush_frozen(&self, table: &Arc<Table>, stop: &mut dyn FnMut() -> bool) -> Result<()> {
        // What was not written is tried again in the background: commits may wait for its memory, and nobody else asks for it.
        match self.try_flush_frozen(table, stop) {
            // Whoever drops or empties it asks again, should that fail; what a shutdown leaves is in the log.
            Err(Error::Interrupted) if self.gives_up(table) => Ok(()),
            result => result.inspect_err(|_| self.workers.ask_flush_later(table.id)),
        }
    }

    /// Whether what writes files of a table is not wanted any more: it is about to be dropped or emptied, or the engine ends.
    pub(crate) fn gives_up(&self, table: &Table) -> bool {
        table.going.load(Ordering::Acquire) > 0 || self.workers.are_stopping()
    }

    fn try_flush_frozen(&self, table: &Arc<Table>, stop: &mut dyn FnMut() -> bool) -> Result<()> {
        let (mut takes, mut tries) = (None, 0);
        let mut stop = || self.gives_up(table) || stop();
        let mut is_first = true;
        loop {
            if self.gives_up(table) || (!std::mem::take(&mut is_first) && stop()) {
                return Err(Error::Interrupted);
            }
            let ring = self.space_of_ring(table)?;
            let turn = ring.as_ref().map(|space| self.workers.stand_aside(|| space.take_turn(&mut stop)));
            let _turn = turn.transpose()?;
            // Only now: no room is to be made for what somebody else has flushed meanwhile.
            let Some((oldest, _)) = table.version().frozen.first().cloned() else { return Ok(()) };
            let room = self.make_room_for_flush(table, &oldest, takes.take())?;
            let _alone = self.workers.stand_aside(|| table.maintenance.lock_for_flush_unless(&mut stop))?;
            // Somebody else may have flushed it meanwhile.
            let frozen = table.version().frozen.first().cloned().filter(|(memtable, _)| Arc::ptr_eq(memtable, &oldest));
            if let Some((memtable, complete_up_to)) = frozen {
                // What does not fit though all was done for it, because a snapshot sees it, is written all the same.
                room.iter().filter(|_| tries >= WRITE_TRIES).for_each(|room| room.lift());
                takes = self.flush_memtable(table, &memtable, complete_up_to, room.as_ref())?;
            }
            tries = if takes.is_some() { tries + 1 } else { 0 };
        }
    }

    /// The same for a caller that holds the table's maintenance lock.
    pub(crate) fn flush_all_frozen(&self, table: &Table) -> Result<()> {
        loop {
            let oldest = table.version().frozen.first().cloned();
            let Some((memtable, complete_up_to)) = oldest else { return Ok(()) };
            let flushed = self.flush_memtable(table, &memtable, complete_up_to, None);
            flushed.inspect_err(|_| self.workers.ask_flush_later(table.id))?;
        }
    }

    /// Writes a memtable to segments. Returns how many bytes it takes if that is more than there is room for in a ring of
    /// bytes: then nothing was done.
    fn flush_memtable(
        &self,
        table: &Table,
        memtable: &Arc<Memtable>,
        complete_up_to: u64,
        room: Option<&Arc<Room>>,
    ) -> Result<Option<u64>> {
        self.check_writable()?;
        let _job = self.activity.begin("flush", table.name(), memtable.len() as u64);
        let snapshots = self.open_snapshots();
        let layout = memtable.layout();
        let entries = memtable.entries();
        let horizon = table.version().gate.at(snapshots.first().copied().unwrap_or(0));
        // A snapshot from before its last commit does not see what the flush brings into the tiers.
        let is_seen = snapshots.first().is_none_or(|oldest| *oldest >= complete_up_to);
        let (horizon, gone) = table.space_horizon(horizon, Some(memtable).filter(|_| is_seen), true);
        // Mostly all of it is newer than what goes.
        let horizon = horizon.filter(|horizon| horizon.may_hide_from(memtable.oldest()));
        let is_gone = |key: &[u8], newest: Option<&VersionRef<'_>>| match (&horizon, layout.places(), newest) {
            (Some(horizon), Some(places), Some(newest)) => places.is_row_bytes_gone(layout, key, newest.row, horizon),
            _ => false,
        };
        let mut alive: Vec<VersionRef<'_>> = Vec::with_capacity(entries.len());
        let mut tombstone_rows = Vec::new();
        let mut tombstone_places = Vec::new();
        let (mut walk, mut versions) = (entries.all(), Versions::new());
        while let Some(key) = walk.next(&mut versions) {
            if is_gone(key.as_slice(), versions.first()) {
                continue;
            }
            for version in kept(&versions, &snapshots) {
                if version.row.is_none() {
                    tombstone_places.push(tombstone_rows.len());
                    layout.push_key_row(key.as_slice(), &mut tombstone_rows);
                }
                alive.push(version);
            }
        }
        tombstone_places.push(tombstone_rows.len());
        let mut tombstones = tombstone_places.windows(2).map(|w| &tombstone_rows[w[0]..w[1]]);
        let rows: OutRows<'_> = alive
            .into_iter()
            .filter_map(|v| {
                let row = v.row.or_else(|| tombstones.next());
                row.map(|row| OutRow { row, seq: v.seq, tombstone: v.row.is_none() })
            })
            .collect();
        let effort = match layout.schema().compression {
            Compression::Small if memtable.is_worth_effort() => Effort::Small,
            _ => Effort::Fast,
        };
        let _chunks = table.chunks.lock().keep();
        let metas = self.write_segments(table, layout, &rows, effort, room)?;
        let mut edits = table.edits_for(&metas);
        edits.push(Edit::Flushed { table: table.id, seq: complete_up_to });
        let tiers = table.tiers();
        let with_horizons: Vec<&Table> = match table.is_index() {
            true => Vec::new(),
            false => std::iter::once(table).chain(tiers.iter().map(|tier| &*tier.table)).collect(),
        };
        edits.extend(with_horizons.iter().filter_map(|table| floors_edit(table)));
        let refreshed = match self.refresh_tiers(table, memtable, complete_up_to, room) {
            Ok(refreshed) => refreshed,
            Err(error) => {
                self.remove_refused(table, &metas);
                return Err(error);
            }
        };
        if let Some(room) = room.filter(|room| room.is_over()) {
            self.remove_refused(table, &metas);
            self.remove_refreshed(&refreshed);
            return Ok(Some(room.wanted()));
        }
        let written = metas.iter().map(|m| m.bytes).sum::<u64>() + refreshed.bytes();
        edits.extend(refreshed.edits(table));
        edits.extend(table.gone_edits(&gone));
        if let Err(error) = self.commit_with_horizons(edits, &with_horizons) {
            self.remove_refused(table, &metas);
            self.remove_refreshed(&refreshed);
            return Err(error);
        }
        refreshed.install(self, table, memtable);
        table.raise_gone(&gone);
        table.install(|version| {
            version.frozen.retain(|(m, _)| !Arc::ptr_eq(m, memtable));
            let open =
                |meta: &SegmentMeta| LiveSegment::open(&self.fs, &self.cache, &table.dir, table.id, meta.clone());
            version.segments.extend(metas.iter().map(open));
        });
        table.flushed_seq.store(complete_up_to, Ordering::Release);
        self.memory.frozen.fetch_sub(memtable.bytes() as i64, Ordering::Relaxed);
        self.activity.note_flush(&metas);
        self.note_flushed(table, memtable.len(), written);
        self.workers.note_flush(table);
        Ok(None)
    }

    /// Removes log files that no memtable needs.
    pub(crate) fn trim_log(&self) -> Result<()> {
        if self.wal.bytes() > self.log_limit() {
            match self.log_prepared_again(self.log_limit() / 2) {
                // The old records do for now.
                Err(error) if error.is_disk_full() => {}
                logged => logged.inspect_err(|error| self.poison_unless_full(error))?,
            }
        }
        let keep_from = {
            let _turn = self.apply_turn.lock();
            let mut queue = self.commit_queue.lock();
            // Not always the first: what leans on an older record needs the log from there on.
            let mut keep = queue.pending.iter().map(|p| p.start_lsn).min().unwrap_or_else(|| self.wal.position());
            keep = keep.min(Engine::prepared_start(&queue));
            self.in_memory.lock().retain(|_, table| {
                let first = table.version().memtables().map(|m| m.first_lsn()).min().unwrap_or(u64::MAX);
                keep = keep.min(Lsn(first));
                first != u64::MAX
            });
            queue.log_kept_from = keep.max(queue.log_kept_from);
            keep
        };
        self.wal.truncate(keep_from)
    }

    /// After a commit: freezes the largest memtables when all together are over half of what they may have, and those
    /// with the oldest commits when the log grew too long.
    pub(crate) fn after_commit(&self) {
        let limit = self.memory.limit.load(Ordering::Relaxed);
        let log_limit = self.log_limit();
        let is_half_full = || self.memory.active.load(Ordering::Relaxed).max(0) as usize > limit / 2;
        let is_log_long = || self.wal.bytes() > log_limit;
        if !is_half_full() && !is_log_long() {
            return;
        }
        let Some(_alone) = self.freezing.try_lock() else { return };
        if is_half_full() {
            self.freeze_largest(limit / MEMTABLE_PARTS);
        } else if is_log_long() {
            // What is younger than the oldest quarter does not hold up the log's files. Were it frozen as well, each
            // commit would set a memtable aside until the flushes are done.
            self.freeze_older_than(Lsn(self.wal.position().0.saturating_sub(log_limit / 4 * 3)));
        }
    }

    /// Bytes of the log from which on what keeps its oldest files is written elsewhere.
    fn log_limit(&self) -> u64 {
        (2 * self.memory.limit.load(Ordering::Relaxed) as u64).max(self.tuning.log_bytes)
    }

    /// Freezes memtables, the largest first, until `bytes` are set aside: with many small tables one after the other
    /// would be a look through all of them at each commit.
    fn freeze_largest(&self, bytes: usize) {
        let mut tables: Vec<_> = self.tables_in_memory().into_iter().map(|t| (t.version().active.bytes(), t)).collect();
        tables.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let mut frozen = 0;
        for (size, table) in tables {
            if frozen > 0 && frozen + size > bytes {
                break;
            }
            self.freeze(&table);
            self.workers.ask_flush(table.id);
            frozen += size;
        }
    }

    fn freeze_older_than(&self, lsn: Lsn) {
        for table in self.tables_in_memory() {
            if Lsn(table.version().active.first_lsn()) < lsn {
                self.freeze(&table);
                self.workers.ask_flush(table.id);
            }
        }
    }

    /// Tables with rows in memtables.
    pub(crate) fn tables_in_memory(&self) -> Vec<Arc<Table>> {
        self.in_memory.lock().values().cloned().collect()
    }

    /// Waits until the memtables have room for a commit. `has_little` says whether its tables have no more than so many bytes in
    /// memory. A failing flush ends the wait with its error, `interrupted` and the engine's end with [`Error::Interrupted`].
    pub(crate) fn wait_for_memory(
        &self,
        has_little: &dyn Fn(usize) -> bool,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<()> {
        let has_room = || {
            let limit = self.memory.limit.load(Ordering::Relaxed);
            let total = self.memory.total();
            total <= limit - limit / RESERVED_PART || (total <= limit && has_little(limit / LITTLE_PART))
        };
        while !has_room() {
            self.pause_points.pass("a commit waits for memory");
            if interrupted() || self.workers.are_stopping() {
                return Err(Error::Interrupted);
            }
            if !self.workers.is_background() {
                return self.flush_all();
            }
            if self.memory.frozen.load(Ordering::Relaxed) <= 0 {
                self.after_commit();
            }
            if let Some(error) = self.workers.wait_for_flush(&|| !has_room(), interrupted) {
                let source = std::io::Error::new(
                    std::io::ErrorKind::StorageFull,
                    format!("memtables are full and a flush failed: {error}"),
                );
                return Err(Error::Io { op: "write memtables to", path: self.dir.clone(), source });
            }
        }
        Ok(())
    }
}

/// The versions of a key, newest first, that some snapshot sees.
fn kept<'a>(versions: &[VersionRef<'a>], snapshots: &[u64]) -> impl Iterator<Item = VersionRef<'a>> {
    let mut newer = u64::MAX;
    versions.iter().copied().filter(move |v| {
        let needed = is_needed(v.seq, newer, snapshots);
        newer = v.seq;
        needed
    })
}

/// Whether a version is what some snapshot (or the future) sees: it is the newest, or a snapshot lies between it
/// and the next newer one. `newer` is `u64::MAX` for the newest.
pub(crate) fn is_needed(seq: u64, newer: u64, snapshots: &[u64]) -> bool {
    newer == u64::MAX || snapshots.iter().any(|&s| seq <= s && s < newer)
}
