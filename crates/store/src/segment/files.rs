//! The segment files that are open for reading: a bounded number, the longest unused closed first.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::meta::SegmentId;
use crate::error::Result;
use crate::fs::ReadFile;
use crate::limits;

/// Open files by segment.
#[derive(Default)]
pub(crate) struct OpenFiles {
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    files: HashMap<SegmentId, (Arc<dyn ReadFile>, u64)>,
    clock: u64,
}

impl OpenFiles {
    /// The file of a segment, opened by `open` unless it is.
    pub(crate) fn get(
        &self,
        id: SegmentId,
        open: impl FnOnce() -> Result<Arc<dyn ReadFile>>,
    ) -> Result<Arc<dyn ReadFile>> {
        if let Some(file) = self.open.lock().touch(id) {
            return Ok(file);
        }
        let file = open()?;
        self.open.lock().keep(id, Arc::clone(&file));
        Ok(file)
    }

    /// Forgets the file of a segment.
    pub(crate) fn close(&self, id: SegmentId) {
        self.open.lock().files.remove(&id);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.open.lock().files.len()
    }
}

impl Open {
    fn touch(&mut self, id: SegmentId) -> Option<Arc<dyn ReadFile>> {
        self.clock += 1;
        let (file, used) = self.files.get_mut(&id)?;
        *used = self.clock;
        Some(Arc::clone(file))
    }

    fn keep(&mut self, id: SegmentId, file: Arc<dyn ReadFile>) {
        if self.files.len() >= limits::OPEN_SEGMENT_FILES {
            let oldest = self.files.iter().min_by_key(|(_, (_, used))| *used).map(|(&id, _)| id);
            oldest.map(|id| self.files.remove(&id));
        }
        self.files.insert(id, (file, self.clock));
    }
}
