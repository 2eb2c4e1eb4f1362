//! Reads a segment, block by block, through the cache.
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rrd_codec::{Bitmap, Column};

use super::index::SegmentIndex;
use super::meta::SegmentMeta;
use crate::cache::BlockCache;
use crate::error::Result;
use crate::fs::Fs;
use crate::manifest::edit::TableId;
use crate::row::RowLayout;

/// An open segment. Opening costs nothing: the file and its footer are read when first needed.
pub struct Segment {}

/// What a column of a segment costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSize {
    /// `ColumnDef::id`.
    pub column_id: u32,
    /// Bytes of its blocks, their headers included.
    pub bytes: u64,
    /// Codecs of some of its blocks.
    pub codecs: Vec<&'static str>,
}

impl Segment {
    /// The segment of `meta` in its table's folder.
    pub fn open(fs: Arc<dyn Fs>, dir: &Path, table: TableId, meta: SegmentMeta, cache: Arc<BlockCache>) -> Arc<Segment> {
        todo!("{:?} {dir:?} {table:?} {meta:?} {:?}", fs.exists(dir), cache.capacity())
    }
    /// As the manifest has it.
    pub fn meta(&self) -> &SegmentMeta { todo!() }
    /// Its file.
    pub fn path(&self) -> &PathBuf { todo!() }
    /// The decoded footer. Hold on to it for as long as a scan lasts.
    pub fn index(&self) -> Result<Arc<SegmentIndex>> { todo!() }
    /// The column at `position` of the schema of `layout`.
    pub fn column(&self, group: usize, position: usize, layout: &RowLayout) -> Result<Arc<Column>> { todo!("{group} {position} {layout:?}") }
    /// Offsets of the rows' sequence numbers to `SegmentMeta::base_seq`; `None` when all are 0.
    pub fn seqs(&self, group: usize) -> Result<Option<Arc<Vec<u64>>>> { todo!("{group}") }
    /// Which rows are tombstones; `None` when none is.
    pub fn tombstones(&self, group: usize) -> Result<Option<Arc<Bitmap>>> { todo!("{group}") }
    /// Reads and checks every byte. Findings as text, empty when all is well; `progress(bytes done, bytes)`
    /// returns false to stop ([`crate::Error::Interrupted`]).
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Vec<String>> { todo!("{}", progress(0, 0)) }
    /// Bytes and codecs of each column.
    pub fn column_sizes(&self) -> Result<Vec<ColumnSize>> { todo!() }
}
