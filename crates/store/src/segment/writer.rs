//! Writes a segment front to back.
use std::path::Path;
use std::sync::Arc;

use rrd_codec::{Bitmap, Column, Effort};

use super::meta::{SegmentId, SegmentMeta};
use crate::error::Result;
use crate::fs::Fs;
use crate::manifest::edit::TableId;
use crate::row::RowLayout;

/// A segment being written. Dropping it leaves the unfinished file; see [`SegmentWriter::abandon`].
pub struct SegmentWriter {}

impl SegmentWriter {
    /// Starts the file of segment `id` in its table's folder, under its final name.
    pub fn create(fs: &Arc<dyn Fs>, dir: &Path, id: SegmentId, table: TableId, layout: Arc<RowLayout>, effort: Effort) -> Result<SegmentWriter> {
        todo!("{} {id:?} {table:?} {layout:?} {effort:?}", fs.exists(dir))
    }
    /// Adds a group of 1 to `GROUP_ROWS` rows: all columns in schema order. `seqs` are offsets to the
    /// `base_seq` that `finish` is told; `None`: all 0.
    pub fn push_group(&mut self, columns: &[Column], seqs: Option<&[u64]>, tombstones: Option<&Bitmap>) -> Result<()> {
        todo!("{columns:?} {seqs:?} {tombstones:?}")
    }
    /// Adds a group from rows in row format.
    pub fn push_rows(&mut self, rows: &[&[u8]], seqs: Option<&[u64]>, tombstones: Option<&Bitmap>) -> Result<()> {
        todo!("{rows:?} {seqs:?} {tombstones:?}")
    }
    /// Rows so far.
    pub fn rows(&self) -> u64 { todo!() }
    /// Bytes so far.
    pub fn bytes(&self) -> u64 { todo!() }
    /// Writes the footer and makes the file durable; its name is durable once the caller synced the folder.
    pub fn finish(self, chunk: u64, base_seq: u64, sealed: bool) -> Result<SegmentMeta> { todo!("{chunk} {base_seq} {sealed}") }
    /// Removes the unfinished file.
    pub fn abandon(self) -> Result<()> { todo!() }
}
