//! Writes a segment front to back: blocks group by group, then the footer.
//!
//! Used by flushes, bulk loads and merges. Groups go through a buffer into the file at once, in memory stays
//! only the index, which becomes the footer. The file bears its final name from the start: until a manifest
//! edit names it, it is rubbish that the next start removes. An error leaves the writer useless: abandon it.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rrd_codec::{Bitmap, Column, Effort, Encoder, Values};

use super::format::{
    BLOCK_HEADER_BYTES, BlockHeader, FileHeader, KIND_COLUMN, KIND_LANE, SEQ_COLUMN, SEQ_LANE, Trailer, VERSION,
};
use super::index::{SegmentIndex, SegmentSchema};
use super::meta::{SegmentId, SegmentMeta};
use super::order;
use super::zone::ZoneMap;
use crate::error::{Error, Result};
use crate::fs::space::Room;
use crate::fs::{Fs, WriteFile};
use crate::limits;
use crate::manifest::edit::TableId;
use crate::row::RowLayout;
use crate::schema::Lane;

/// Bytes that are collected before the file is written to.
const BUFFER_BYTES: usize = 1 << 20;

/// A segment being written. Dropping it leaves the unfinished file; see [`SegmentWriter::abandon`].
pub struct SegmentWriter {
    fs: Arc<dyn Fs>,
    file: Box<dyn WriteFile>,
    path: PathBuf,
    id: SegmentId,
    layout: Arc<RowLayout>,
    effort: Effort,
    /// One for each column.
    encoders: Vec<Encoder>,
    buffer: Vec<u8>,
    /// Bytes handed to the file.
    written: u64,
    index: SegmentIndex,
    /// Where bytes are bounded: what has no room is not written, and counted all the same.
    room: Option<Arc<Room>>,
}

impl SegmentWriter {
    /// Starts the file of segment `id` in its table's folder, under its final name.
    pub fn create(
        fs: &Arc<dyn Fs>,
        dir: &Path,
        id: SegmentId,
        table: TableId,
        layout: Arc<RowLayout>,
        effort: Effort,
    ) -> Result<SegmentWriter> {
        let path = dir.join(id.file_name());
        let file = fs.create(&path)?;
        let schema_version = layout.schema().version;
        let header = FileHeader { version: VERSION, table: table.0, segment: id, schema_version };
        let mut buffer = Vec::with_capacity(BUFFER_BYTES + BUFFER_BYTES / 4);
        buffer.extend_from_slice(&header.to_bytes());
        let index = SegmentIndex::new(SegmentSchema::of(layout.schema()));
        let encoders = layout.schema().columns.iter().map(|_| Encoder::new(effort)).collect();
        let (fs, written) = (Arc::clone(fs), 0);
        Ok(SegmentWriter { fs, file, path, id, layout, effort, encoders, buffer, written, index, room: None })
    }

    /// Writes no more than there is room for. Whoever gave it asks [`Room::is_over`] in the end: then the file is rubbish.
    pub fn within(mut self, room: Option<Arc<Room>>) -> SegmentWriter {
        self.room = room;
        self
    }

    /// Adds a group of at most `GROUP_ROWS` rows (none: nothing happens): all columns in schema order, rows in
    /// ascending order, behind those of the group before. `seqs` are offsets to the `base_seq` that `finish`
    /// is told; `None`: all 0. Rows of `tombstones` become NULL in all columns that are not of the key.
    pub fn push_group(&mut self, columns: &[Column], seqs: Option<&[u64]>, tombstones: Option<&Bitmap>) -> Result<()> {
        let Some(rows) = self.check_group(columns, seqs, tombstones)? else {
            return Ok(());
        };
        let group = self.index.groups.rows.len() as u32;
        self.note_keys(columns, seqs, rows)?;
        let dead = tombstones.filter(|t| t.count() > 0);
        for (position, column) in columns.iter().enumerate() {
            let column = match dead {
                Some(dead) if !self.index.schema.key.contains(&(position as u16)) => with_nulls(column, dead),
                _ => Cow::Borrowed(column),
            };
            let zone = ZoneMap::of(&column);
            let header = self.index.schema.columns[position];
            let (offset, length) = self.push_block(&column, header.lane, header.id, group, Some(position))?;
            self.index.columns[position].push(offset, length, &zone);
        }
        self.push_seqs(seqs, group)?;
        self.push_kinds(dead, rows, group)?;
        let first_row = self.index.rows() + rows as u64;
        self.index.groups.rows.push(rows as u32);
        self.index.groups.first_row.push(first_row);
        Ok(())
    }

    /// Adds a group from rows in row format.
    pub fn push_rows(&mut self, rows: &[&[u8]], seqs: Option<&[u64]>, tombstones: Option<&Bitmap>) -> Result<()> {
        let columns = self.layout.gather_all(rows);
        self.push_group(&columns, seqs, tombstones)
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.index.rows()
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Writes the footer and makes the file durable; its name is durable once the caller synced the folder.
    pub fn finish(self, chunk: u64, base_seq: u64, sealed: bool) -> Result<SegmentMeta> {
        let (meta, mut file) = self.finish_unsynced(chunk, base_seq, sealed)?;
        file.sync()?;
        Ok(meta)
    }

    /// Writes the footer; the file is durable once the caller synced it.
    pub fn finish_unsynced(
        mut self,
        chunk: u64,
        base_seq: u64,
        sealed: bool,
    ) -> Result<(SegmentMeta, Box<dyn WriteFile>)> {
        self.index.chunk = chunk;
        self.index.base_seq = base_seq;
        self.index.sealed = sealed;
        let footer = self.index.to_bytes(self.effort);
        let footer_length = u32::try_from(footer.len())
            .map_err(|_| Error::LimitExceeded { what: "a segment's footer".into(), limit: u64::from(u32::MAX) })?;
        let trailer = Trailer { footer_offset: self.bytes(), footer_length, footer_crc: crc32fast::hash(&footer) };
        self.buffer.extend_from_slice(&footer);
        self.buffer.extend_from_slice(&trailer.to_bytes(self.id));
        if let Err(error) = self.write_buffer() {
            if let Err(error) = self.abandon() {
                tracing::warn!(%error, "could not remove an unfinished segment");
            }
            return Err(error);
        }
        let schema_version = self.layout.schema().version;
        Ok((meta_of(&self.index, self.id, schema_version, self.written), self.file))
    }

    /// Removes the unfinished file.
    pub fn abandon(self) -> Result<()> {
        let SegmentWriter { fs, file, path, .. } = self;
        drop(file);
        fs.remove(&path)
    }

    /// Rows of the group, if there are any.
    fn check_group(
        &self,
        columns: &[Column],
        seqs: Option<&[u64]>,
        tombstones: Option<&Bitmap>,
    ) -> Result<Option<usize>> {
        let invalid = |what: &str| Err(Error::InvalidInput(format!("segment writer: {what}")));
        let own = &self.index.schema.columns;
        if columns.len() != own.len() {
            return invalid("not as many columns as the schema has");
        }
        let rows = columns[0].rows();
        if columns.iter().any(|c| c.rows() != rows || c.nulls.as_ref().is_some_and(|n| n.len() != rows)) {
            return invalid("columns of different lengths");
        }
        if seqs.is_some_and(|s| s.len() != rows) || tombstones.is_some_and(|t| t.len() != rows) {
            return invalid("not as many sequence numbers or row kinds as rows");
        }
        if columns.iter().zip(own).any(|(c, o)| c.kind() != o.lane.kind()) {
            return invalid("a column is not of its lane's kind");
        }
        if rows > limits::GROUP_ROWS {
            return Err(Error::LimitExceeded { what: "rows of a group".into(), limit: limits::GROUP_ROWS as u64 });
        }
        Ok(Some(rows).filter(|&rows| rows > 0))
    }

    /// Notes the group's first and last key, and whether keys repeat.
    fn note_keys(&mut self, columns: &[Column], seqs: Option<&[u64]>, rows: usize) -> Result<()> {
        let SegmentIndex { schema, groups, .. } = &mut self.index;
        let key: Vec<&Column> = schema.key.iter().map(|&k| &columns[usize::from(k)]).collect();
        // Rows of a segment whose checksums hold can be out of order all the same.
        if order::first_out_of_order(&key, seqs, rows).is_some() {
            return Err(Error::InvalidInput("segment: rows of a group out of order".into()));
        }
        let mut has_versions = order::has_equal_neighbours(&key, rows);
        let mut first = Vec::new();
        schema.push_key(|k| &columns[k], 0, &mut first);
        if let Some(before) = groups.has_versions.last_mut() {
            if groups.keys.last() > first.as_slice() {
                return Err(Error::InvalidInput("segment: groups out of order".into()));
            }
            if groups.keys.last() == first {
                *before = true;
                has_versions = true;
            }
        }
        groups.has_versions.push(has_versions);
        groups.keys.data.extend_from_slice(&first);
        groups.keys.end();
        schema.push_key(|k| &columns[k], rows - 1, &mut groups.keys.data);
        groups.keys.end();
        if groups.keys.data.len() > limits::FOOTER_KEY_BYTES {
            return Err(Error::LimitExceeded {
                what: "the key bytes of a segment's groups".into(),
                limit: limits::FOOTER_KEY_BYTES as u64,
            });
        }
        Ok(())
    }

    fn push_seqs(&mut self, seqs: Option<&[u64]>, group: u32) -> Result<()> {
        let max = seqs.and_then(|s| s.iter().max().copied()).unwrap_or(0);
        let (offset, length) = match seqs {
            Some(seqs) if max > 0 => {
                let column = Column { values: Values::Int(seqs.to_vec()), nulls: None };
                self.push_block(&column, SEQ_LANE, SEQ_COLUMN, group, None)?
            }
            _ => (self.bytes(), 0),
        };
        self.index.groups.seq_blocks.push(offset, length);
        self.index.groups.max_seq.push(max);
        Ok(())
    }

    fn push_kinds(&mut self, tombstones: Option<&Bitmap>, rows: usize, group: u32) -> Result<()> {
        let (offset, length) = match tombstones {
            Some(dead) => {
                let kinds = (0..rows).map(|i| u64::from(dead.get(i))).collect();
                self.push_block(
                    &Column { values: Values::Int(kinds), nulls: None },
                    KIND_LANE,
                    KIND_COLUMN,
                    group,
                    None,
                )?
            }
            None => (self.bytes(), 0),
        };
        self.index.groups.kind_blocks.push(offset, length);
        self.index.groups.tombstones.push(tombstones.map_or(0, |t| t.count() as u32));
        Ok(())
    }

    /// Encodes one block, of the column at a position in the schema or of none; where its header starts and the length of
    /// its payload.
    fn push_block(
        &mut self,
        column: &Column,
        lane: Lane,
        id: u32,
        group: u32,
        position: Option<usize>,
    ) -> Result<(u64, u32)> {
        let offset = self.bytes();
        let start = self.buffer.len();
        let payload = start + BLOCK_HEADER_BYTES;
        self.buffer.resize(payload, 0);
        match position {
            Some(position) => self.encoders[position].encode(column, &mut self.buffer),
            None => rrd_codec::encode(column, self.effort, &mut self.buffer),
        }
        let length = u32::try_from(self.buffer.len() - payload)
            .map_err(|_| Error::LimitExceeded { what: "a block of a segment".into(), limit: u64::from(u32::MAX) })?;
        let header = BlockHeader { lane, rows: column.rows() as u32, column: id, group, length };
        let header = header.to_bytes(self.id, &self.buffer[payload..]);
        self.buffer[start..payload].copy_from_slice(&header);
        if self.buffer.len() >= BUFFER_BYTES {
            self.write_buffer()?;
        }
        Ok((offset, length))
    }

    fn write_buffer(&mut self) -> Result<()> {
        let bytes = self.buffer.len() as u64;
        if self.room.as_ref().is_none_or(|room| room.claim(bytes)) {
            self.file.write(&self.buffer)?;
            self.room.iter().for_each(|room| room.written(bytes));
        }
        self.written += bytes;
        self.buffer.clear();
        // One block of long strings must not make every writer keep that much.
        self.buffer.shrink_to(2 * BUFFER_BYTES);
        Ok(())
    }
}

/// What the manifest keeps of a segment with this footer.
pub(super) fn meta_of(index: &SegmentIndex, id: SegmentId, schema_version: u32, bytes: u64) -> SegmentMeta {
    let groups = index.group_count();
    let (min_time, max_time) = index.time_range();
    let first_key = if groups > 0 { index.group(0).first_key } else { &[] };
    let last_key = if groups > 0 { index.group(groups - 1).last_key } else { &[] };
    SegmentMeta {
        id,
        chunk: index.chunk,
        schema_version,
        rows: index.rows(),
        tombstones: index.tombstones(),
        bytes,
        first_key: first_key.to_vec(),
        last_key: last_key.to_vec(),
        min_time,
        max_time,
        base_seq: index.base_seq,
        max_seq: index.base_seq.saturating_add(index.max_seq_offset()),
        has_versions: index.has_versions(),
        sealed: index.sealed,
    }
}

/// `column` with the rows of `dead` null.
fn with_nulls<'c>(column: &'c Column, dead: &Bitmap) -> Cow<'c, Column> {
    let nulls = match &column.nulls {
        Some(nulls) => {
            let words = nulls.words().iter().zip(dead.words()).map(|(n, d)| n | d).collect();
            Bitmap::from_words(words, dead.len())
        }
        None => dead.clone(),
    };
    Cow::Owned(Column { values: column.values.clone(), nulls: Some(nulls) })
}
