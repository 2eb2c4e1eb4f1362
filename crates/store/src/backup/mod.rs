//! An online backup: a copy of the engine's folder, as of one moment, while writes go on.
//!
//! [`Engine::begin_backup`] fixes the moment. It waits for the commits that are under way and lets none begin while it
//! notes what there is: the manifest's state, the segments (held, so that no merge takes their files away) and how far
//! the log goes. So the backup ends with a commit: every one that was acknowledged before is in it, none is in part.
//! [`Backup::finish`] then takes its time: segments never change, so they are linked, or copied where they cannot be;
//! of the log the bytes up to the noted end are copied. Everything is made in `<folder>.partial`, which gets its name
//! when all of it is durable: a folder with the name that was asked for is a whole backup.
//!
//! What is made opens like a folder after a clean shutdown: the manifest as one snapshot, the log, and the note that
//! says where both end, so that a backup which lost files on its way is noticed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fs::{FolderId, Fs};
use crate::live::LiveSegment;
use crate::log_record;
use crate::manifest::edit::{Edit, State, TableId};
use crate::segment::SegmentId;
use crate::wal::{HeldFile, Lsn};

pub(crate) mod definitions;

#[cfg(test)]
mod tests;

/// Bytes copied at a time; KILL is looked for in between.
const COPY_BYTES: usize = 1 << 20;

/// How often, a millisecond apart, the start of a backup looks whether a flush or merge that has changed the manifest
/// has changed its table too.
const SETTLE_TRIES: u32 = 5000;

/// A backup whose moment is fixed and whose files are to be made. Dropped unfinished, it leaves nothing.
pub struct Backup {
    engine: Arc<Engine>,
    /// What it will be called.
    target: PathBuf,
    /// What it is called until it is whole.
    partial: PathBuf,
    /// The folder that goes when this is dropped; `None` once the backup is whole.
    made: Option<(PathBuf, FolderId)>,
    moment: Moment,
    report: BackupReport,
}

/// What a backup came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// Tables in it.
    pub tables: u64,
    /// Definition files of the server in it.
    pub definitions: u64,
    /// Sequence number of the last commit in it.
    pub last_seq: u64,
    /// Segments in it.
    pub segments: u64,
    /// Bytes of segments that share their disk space with the engine's own.
    pub linked_bytes: u64,
    /// Bytes of segments that were copied.
    pub copied_bytes: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
}

/// Segments whose files stay.
type HeldSegments = BTreeMap<(TableId, SegmentId), Arc<LiveSegment>>;

/// What there was at the moment of a backup. The engine keeps the files for it.
struct Moment {
    engine: Arc<Engine>,
    state: State,
    segments: Vec<(TableId, Arc<LiveSegment>)>,
    log: Vec<HeldFile>,
    log_end: Lsn,
    /// Ids of transactions that are prepared and about to be committed.
    undecided: Vec<Vec<u8>>,
    last_seq: u64,
}

impl Drop for Moment {
    fn drop(&mut self) {
        self.engine.wal.release();
    }
}

impl Engine {
    /// Fixes the moment of a backup to the folder `target`, which must not exist, and copies the server's definitions of
    /// its tables. No table may be made, renamed or dropped meanwhile: the server's locks see to that. A prepared
    /// transaction whose id `is_being_committed` was not acknowledged yet: the backup has it rolled back, so that a
    /// server which starts on it need not know what became of it. Others stay prepared.
    pub fn begin_backup(self: &Arc<Self>, target: &Path, is_being_committed: &dyn Fn(&[u8]) -> bool) -> Result<Backup> {
        self.check_writable()?;
        // Acknowledged commits that a full disk kept out of the log are in segments after that.
        self.checkpoint()?;
        let moment = self.backup_moment(is_being_committed)?;
        let (partial, id) = self.make_partial(target)?;
        let report = BackupReport {
            tables: moment.state.tables.values().filter(|t| !t.schema.is_part()).count() as u64,
            last_seq: moment.last_seq,
            segments: moment.segments.len() as u64,
            ..BackupReport::default()
        };
        let mut backup = Backup {
            engine: self.clone(),
            made: Some((partial.clone(), id)),
            target: target.into(),
            partial,
            moment,
            report,
        };
        backup.begin()?;
        Ok(backup)
    }

    /// Makes the folder in which a backup to `target` is made.
    fn make_partial(&self, target: &Path) -> Result<(PathBuf, FolderId)> {
        let partial = check_target(&*self.fs, target)?;
        self.pause_points.pass("a backup makes its folder");
        let id = self.fs.make_dir(&partial)?;
        Ok((partial, id))
    }

    fn backup_moment(self: &Arc<Self>, is_being_committed: &dyn Fn(&[u8]) -> bool) -> Result<Moment> {
        let _alone = self.commit_gate.write();
        // Before the sync: what is decided later has its record in the log behind it, or none in the backup.
        let undecided = self.prepared_xids().into_iter().filter(|xid| is_being_committed(xid)).collect();
        self.sync_log()?;
        if self.wal.refusals() > self.refusals_kept.load(Ordering::Acquire) {
            return Err(Error::InvalidInput("the log met a full disk meanwhile; try the backup again".into()));
        }
        let (mut state, mut segments) = self.settled_segments()?;
        leave_out_transient(&mut state)?;
        segments.retain(|(table, _), _| state.tables.contains_key(table));
        let segments = segments.into_iter().map(|((table, _), segment)| (table, segment)).collect();
        let last_seq = self.commit_queue.lock().next_seq - 1;
        let (log, log_end) = self.wal.hold();
        Ok(Moment { engine: self.clone(), state, segments, log, log_end, undecided, last_seq })
    }

    /// The manifest's state, with a hold on each segment that it names and on those of transactions that are prepared or
    /// have their place in the order of commits.
    fn settled_segments(&self) -> Result<(State, HeldSegments)> {
        for _ in 0..SETTLE_TRIES {
            // From the queue to the tables to the manifest: whatever moves on in between is held already.
            let mut held = self.segments_of_queue();
            let tables: Vec<_> = self.all_tables().iter().map(|t| (t.id, t.version())).collect();
            let state = self.manifest.state();
            let mut found = 0;
            for (id, version) in &tables {
                let Some(known) = state.tables.get(id) else { continue };
                for (segment, file) in version.segments.iter().filter(|(id, _)| known.segments.contains_key(id)) {
                    held.insert((*id, *segment), file.clone());
                    found += 1;
                }
            }
            if found == state.tables.values().map(|t| t.segments.len()).sum::<usize>() {
                return Ok((state, held));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(Error::InvalidInput("flushes or merges do not come to an end; try the backup again".into()))
    }

    fn segments_of_queue(&self) -> HeldSegments {
        let queue = self.commit_queue.lock();
        let prepared = queue.all_prepared().flat_map(|p| &p.tables);
        let mut held = HeldSegments::new();
        for t in prepared.chain(queue.pending.iter().flat_map(|p| &p.tables)) {
            let own = t.own.read();
            held.extend(own.private.iter().map(|p| ((t.table.id, p.segment.meta().id), p.segment.clone())));
        }
        held
    }
}

/// Takes temporary tables, and those of an unfinished ALTER TABLE, out of the state.
fn leave_out_transient(state: &mut State) -> Result<()> {
    let transient = state.tables.iter().filter(|(_, t)| definitions::is_transient(&t.name));
    let edits: Vec<Edit> = transient.map(|(&table, _)| Edit::DropTable { table }).collect();
    state.apply_all(&edits).map(drop)
}

/// Checks that the backup can be put there; the name that it has until it is whole.
fn check_target(fs: &dyn Fs, target: &Path) -> Result<PathBuf> {
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
        return Err(Error::InvalidInput(format!("'{}' is no folder that could be made", target.display())));
    };
    let mut partial = name.to_os_string();
    partial.push(".partial");
    let partial = target.with_file_name(partial);
    if !fs.exists(parent) {
        let what = format!("the folder '{}', in which the backup would be made, does not exist", parent.display());
        return Err(Error::InvalidInput(what));
    }
    if fs.exists(target) {
        return Err(Error::InvalidInput(format!("'{}' exists; a backup needs a new folder", target.display())));
    }
    if fs.exists(&partial) {
        let what = format!(
            "'{}' exists: another backup is being made there, or a stopped server left an unfinished one; \
             remove it or choose another folder",
            partial.display()
        );
        return Err(Error::InvalidInput(what));
    }
    Ok(partial)
}

impl Backup {
    /// Makes the folders and copies the definitions.
    fn begin(&mut self) -> Result<()> {
        let fs = &*self.engine.fs;
        let folder = self.folder()?;
        for new in [folder.clone(), folder.join("log")] {
            fs.make_dir(&new)?;
        }
        for id in self.moment.state.tables.keys() {
            fs.make_dir(&folder.join(id.dir_name()))?;
        }
        let names = self.moment.state.tables.values().filter(|t| !t.schema.is_part()).map(|t| t.name.as_str());
        if let Some(server) = self.engine.dir.parent() {
            self.report.definitions = definitions::copy(fs, server, &self.partial, names)?;
        }
        Ok(())
    }

    /// Makes the backup whole. `progress(bytes done, bytes)` returns false to stop ([`Error::Interrupted`]).
    pub fn finish(mut self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<BackupReport> {
        self.make(progress)?;
        self.made = None;
        Ok(self.report)
    }

    fn make(&mut self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        let fs = self.engine.fs.clone();
        let folder = self.folder()?;
        let log: u64 = self.moment.log.iter().map(|file| file.bytes).sum();
        let total = log + self.moment.segments.iter().map(|(_, s)| s.meta().bytes).sum::<u64>();
        let mut steps = Steps { progress, done: 0, total };
        self.segments(&folder, &mut steps)?;
        let log_end = self.log(&folder.join("log"), &mut steps)?;
        crate::manifest::write_elsewhere(&*fs, &folder, &self.moment.state)?;
        crate::shutdown::write_note(&*fs, &folder, log_end)?;
        fs.sync_dir(&self.partial)?;
        // All of it must be durable before it is called a backup.
        fs.rename(&self.partial, &self.target)?;
        if let Some((made, _)) = &mut self.made {
            made.clone_from(&self.target);
        }
        match self.target.parent() {
            Some(parent) => fs.sync_dir(parent),
            None => Ok(()),
        }
    }

    fn segments(&mut self, folder: &Path, steps: &mut Steps<'_>) -> Result<()> {
        let fs = &*self.engine.fs;
        for (table, segment) in &self.moment.segments {
            let bytes = segment.meta().bytes;
            let to = folder.join(table.dir_name()).join(segment.meta().id.file_name());
            match fs.hard_link(segment.path(), &to) {
                Ok(()) => {
                    self.report.linked_bytes += bytes;
                    steps.step(bytes)?;
                }
                Err(error) if cannot_be_linked(&error) => {
                    copy_file(fs, segment.path(), &to, bytes, &[], steps)?;
                    self.report.copied_bytes += bytes;
                }
                Err(error) => return Err(error),
            }
        }
        self.moment.state.tables.keys().try_for_each(|id| fs.sync_dir(&folder.join(id.dir_name())))
    }

    /// Copies the log to `folder`; where it ends there.
    fn log(&mut self, folder: &Path, steps: &mut Steps<'_>) -> Result<Lsn> {
        let fs = &*self.engine.fs;
        let moment = &self.moment;
        let decisions: Vec<_> = moment.undecided.iter().map(|xid| log_record::rollback_prepared(xid)).collect();
        // What is prepared was logged by this run of the engine, so the newest file is of this run too.
        let (tail, log_end) = self.engine.wal.encode_behind(moment.log_end, &decisions);
        for (number, file) in moment.log.iter().enumerate() {
            let (from, to) = (self.engine.dir.join("log").join(&file.name), folder.join(&file.name));
            let tail: &[u8] = if number + 1 == moment.log.len() { &tail } else { &[] };
            copy_file(fs, &from, &to, file.bytes, tail, steps)?;
            self.report.log_bytes += file.bytes;
        }
        fs.sync_dir(folder)?;
        Ok(log_end)
    }

    /// The engine's folder within the backup.
    fn folder(&self) -> Result<PathBuf> {
        match self.engine.dir.file_name() {
            Some(name) => Ok(self.partial.join(name)),
            None => Err(Error::InvalidInput(format!("'{}' cannot be backed up", self.engine.dir.display()))),
        }
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        if let Some((made, id)) = &self.made
            && let Err(error) = self.engine.fs.remove_tree(made, *id)
        {
            tracing::warn!(%error, "could not remove an unfinished backup");
        }
    }
}

/// Whether a link was refused because of where it leads, not because something is wrong.
fn cannot_be_linked(error: &Error) -> bool {
    let Error::Io { source, .. } = error else { return false };
    let reasons = [libc::EXDEV, libc::EPERM, libc::EMLINK, libc::EOPNOTSUPP, libc::ENOSYS];
    source.raw_os_error().is_some_and(|errno| reasons.contains(&errno))
}

/// Tells how far the work is.
struct Steps<'a> {
    progress: &'a mut dyn FnMut(u64, u64) -> bool,
    done: u64,
    total: u64,
}

impl Steps<'_> {
    fn step(&mut self, bytes: u64) -> Result<()> {
        self.done += bytes;
        if (self.progress)(self.done, self.total) { Ok(()) } else { Err(Error::Interrupted) }
    }
}

/// Copies the first `bytes` of a file, appends `tail` and makes it durable.
fn copy_file(fs: &dyn Fs, from: &Path, to: &Path, bytes: u64, tail: &[u8], steps: &mut Steps<'_>) -> Result<()> {
    let source = fs.open(from)?;
    let mut copy = fs.create(to)?;
    let mut buffer = vec![0; COPY_BYTES.min(bytes as usize)];
    let mut at = 0;
    while at < bytes {
        let now = buffer.len().min((bytes - at) as usize);
        source.read_at(at, &mut buffer[..now])?;
        copy.write(&buffer[..now])?;
        at += now as u64;
        steps.step(now as u64)?;
    }
    copy.write(tail)?;
    copy.sync()
}
