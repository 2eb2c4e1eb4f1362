//! Edits that were made for other chunks than there are now, made to fit.
//!
//! Chunks do not overlap, and edits that would make them are refused. But those that come from a disk may: earlier versions let a
//! TRUNCATE pass between the two phases of a commit, whose chunks then came back beside newer ones; and a person may have edited a
//! manifest. Refusing them would keep the engine from starting. So what overlaps becomes one chunk: the manifest decides on the chunk
//! of a segment, whatever its footer says, and a longer chunk is never wrong.

use super::edit::{ChunkSpan, Edit, State, TableId, TableState};
use crate::error::Result;
use crate::segment::SegmentMeta;

impl State {
    /// Does an edit that comes from a disk. Gives what was done instead, if it had to be made to fit.
    pub(crate) fn apply_fitted(&mut self, edit: &Edit) -> Result<Option<Vec<Edit>>> {
        let table = edit.table().and_then(|id| Some((id, self.tables.get(&id)?)));
        let Some(fitted) = table.and_then(|(id, table)| table.fit(id, edit)) else {
            return self.apply(edit).map(|()| None);
        };
        self.apply_all(&fitted)?;
        Ok(Some(fitted))
    }
}

impl TableState {
    /// The chunk of a segment: the one that it names, or that became a part of another one, which covers it.
    pub(super) fn chunk_for(&self, meta: &SegmentMeta) -> u64 {
        let before = self.chunks.range(..=meta.chunk).next_back().map(|(_, chunk)| *chunk);
        let covers = |chunk: &ChunkSpan| meta.chunk < chunk.end || chunk.end == u64::MAX;
        before.filter(covers).filter(|_| self.schema.time.is_some()).map_or(meta.chunk, |chunk| chunk.start)
    }

    /// What to do instead of an edit; `None` if it fits as it is, or makes no sense at all.
    fn fit(&self, id: TableId, edit: &Edit) -> Option<Vec<Edit>> {
        match edit {
            Edit::AddChunk { span, .. } if span.start < span.end => self.join_with(id, *span),
            Edit::AddSegment { table, meta } if self.chunk_for(meta) != meta.chunk => {
                let meta = SegmentMeta { chunk: self.chunk_for(meta), ..meta.clone() };
                Some(vec![Edit::AddSegment { table: *table, meta }])
            }
            _ => None,
        }
    }

    /// Edits that make one chunk of a span and those that overlap with it; `None` if there are no others.
    fn join_with(&self, table: TableId, span: ChunkSpan) -> Option<Vec<Edit>> {
        // Those that are there do not overlap with each other: the ends ascend as the starts do.
        let before = self.chunks.range(..span.end).rev().map(|(_, chunk)| *chunk);
        let joined: Vec<ChunkSpan> = before.take_while(|chunk| span.start < chunk.end).collect();
        if joined.is_empty() || joined == [span] {
            return None;
        }
        let all = joined
            .iter()
            .fold(span, |all, chunk| ChunkSpan { start: all.start.min(chunk.start), end: all.end.max(chunk.end) });
        if joined == [all] {
            return Some(Vec::new());
        }
        tracing::warn!(
            table = self.name,
            "chunks overlap: those from {} to {} become one, no row is lost",
            all.start,
            all.end
        );
        let moved: Vec<_> =
            self.segments.values().filter(|meta| joined.iter().any(|chunk| chunk.start == meta.chunk)).collect();
        let mut edits: Vec<Edit> = Vec::new();
        edits.extend(moved.iter().map(|meta| Edit::RemoveSegment { table, segment: meta.id }));
        edits.extend(joined.iter().map(|chunk| Edit::RemoveChunk { table, start: chunk.start }));
        edits.push(Edit::AddChunk { table, span: all });
        edits.extend(moved.into_iter().map(|meta| {
            let meta = SegmentMeta { chunk: all.start, ..meta.clone() };
            Edit::AddSegment { table, meta }
        }));
        Some(edits)
    }
}
