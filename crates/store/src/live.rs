//! A segment together with what becomes of its file.
//!
//! Scans hold segments by `Arc`. A merge (or a rollback) marks the ones it made useless; the file goes when the last
//! scan lets go of it.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cache::BlockCache;
use crate::fs::Fs;
use crate::manifest::edit::TableId;
use crate::segment::{Segment, SegmentMeta};

/// A segment whose file is removed with the last reference, once it is obsolete.
pub struct LiveSegment {
    segment: Arc<Segment>,
    fs: Arc<dyn Fs>,
    cache: Arc<BlockCache>,
    obsolete: AtomicBool,
}

impl LiveSegment {
    /// A segment that the manifest names.
    pub fn open(
        fs: &Arc<dyn Fs>,
        cache: &Arc<BlockCache>,
        dir: &Path,
        table: TableId,
        meta: SegmentMeta,
    ) -> Arc<LiveSegment> {
        let segment = Segment::open(fs.clone(), dir, table, meta, cache.clone());
        Arc::new(LiveSegment { segment, fs: fs.clone(), cache: cache.clone(), obsolete: AtomicBool::new(false) })
    }

    /// The manifest no longer names it, or never did.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// The manifest names it after all.
    pub fn keep(&self) {
        self.obsolete.store(false, Ordering::Release);
    }
}

impl Deref for LiveSegment {
    type Target = Segment;
    fn deref(&self) -> &Segment {
        &self.segment
    }
}

impl Drop for LiveSegment {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            self.cache.evict_segment(self.segment.meta().id);
            // A file that stays is removed at the next start: the manifest does not name it.
            if let Err(error) = self.fs.remove(self.segment.path()) {
                tracing::warn!(%error, "could not remove a segment that is no longer used");
            }
        }
    }
}
