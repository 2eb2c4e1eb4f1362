//! Reads a segment, block by block, through the cache.
//!
//! A [`Segment`] is a name until something is asked of it: the file is opened and the footer read at first use,
//! and both may be let go and come back later, so that thousands of segments cost little. Bytes from the disk
//! are trusted after their checksum and the footer's bounds held, never before.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rrd_codec::{Bitmap, Column, DecodeError, Kind, Narrow, Pieces, Values};

use super::format::{
    BLOCK_HEADER_BYTES, BlockHeader, Damage, FileHeader, HEADER_BYTES, KIND_COLUMN, KIND_LANE, SEQ_COLUMN, SEQ_LANE,
    TRAILER_BYTES, Trailer, VERSION, check_block,
};
use super::index::{Blocks, GroupIndex, SegmentIndex};
use super::meta::SegmentMeta;
use super::zone::ZoneMap;
use crate::cache::{BlockCache, BlockKey, Cached};
use crate::error::{Error, Result};
use crate::fs::{Fs, ReadFile};
use crate::manifest::edit::TableId;
use crate::row::RowLayout;
use crate::schema::{ColumnDef, Initial, Lane};

/// Bytes read at the end of a file in the hope that they hold the whole footer.
const TAIL_BYTES: u64 = 16 << 10;

/// Shortest file: header, trailer and one byte of footer.
const MIN_FILE_BYTES: u64 = (HEADER_BYTES + TRAILER_BYTES) as u64 + 1;

/// An open segment. Opening costs nothing: the file and its footer are read when first needed.
pub struct Segment {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    table: TableId,
    meta: SegmentMeta,
    cache: Arc<BlockCache>,
}

/// A column of a group, as it is cheapest to hold.
#[derive(Clone, Debug)]
pub enum Held {
    /// Integers without NULLs as the few straight lines that they lie on.
    Lines(Arc<Pieces>),
    /// Row by row.
    Column(Arc<Column>),
}

/// A column of a group as it takes least memory, for reads of single rows.
#[derive(Clone, Debug)]
pub enum Compact {
    /// Integers without NULLs as the few straight lines that they lie on.
    Lines(Arc<Pieces>),
    /// Numbers in as few bytes as they need.
    Narrow(Arc<Narrow>),
    /// Row by row.
    Column(Arc<Column>),
}

impl Compact {
    /// Some rows of it as a column of their own; `None` if the whole is one.
    pub fn part(&self, rows: Range<usize>) -> Option<Column> {
        match self {
            Compact::Lines(lines) => Some(Column { values: Values::Int(lines.values(rows)), nulls: None }),
            Compact::Narrow(narrow) => Some(narrow.column(rows)),
            Compact::Column(_) => None,
        }
    }

    fn rows(&self) -> usize {
        match self {
            Compact::Lines(lines) => lines.rows(),
            Compact::Narrow(narrow) => narrow.rows(),
            Compact::Column(column) => column.rows(),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Compact::Lines(_) => Kind::Int,
            Compact::Narrow(narrow) => narrow.kind(),
            Compact::Column(column) => column.kind(),
        }
    }

    fn cached(&self) -> Cached {
        match self {
            Compact::Lines(lines) => Cached::Lines(lines.clone()),
            Compact::Narrow(narrow) => Cached::Narrow(narrow.clone()),
            Compact::Column(column) => Cached::Column(column.clone()),
        }
    }
}

/// Which block, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockPlace {
    pub offset: u64,
    /// What its header must say.
    pub header: BlockHeader,
}

impl Segment {
    /// The segment of `meta` in its table's folder.
    pub fn open(
        fs: Arc<dyn Fs>,
        dir: &Path,
        table: TableId,
        meta: SegmentMeta,
        cache: Arc<BlockCache>,
    ) -> Arc<Segment> {
        Arc::new(Segment { fs, path: dir.join(meta.id.file_name()), table, meta, cache })
    }

    /// As the manifest has it.
    pub fn meta(&self) -> &SegmentMeta {
        &self.meta
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The decoded footer. Hold on to it for as long as a scan lasts.
    pub fn index(&self) -> Result<Arc<SegmentIndex>> {
        let key = BlockKey::footer(self.meta.id);
        if let Some(Cached::Footer(index)) = self.cache.get(key) {
            return Ok(index);
        }
        let index = Arc::new(self.read_index()?);
        self.cache.insert(key, Cached::Footer(Arc::clone(&index)));
        Ok(index)
    }

    /// The column at `position` of the schema of `layout`. A column that the segment does not have holds its initial
    /// value. Tombstones are NULL but for key columns.
    pub fn column(&self, group: usize, position: usize, layout: &RowLayout) -> Result<Arc<Column>> {
        self.whole_column(group, position, layout, false)
    }

    /// [`Segment::column`] as lines, if its block is made of such and was not read row by row before.
    pub fn held(&self, group: usize, position: usize, layout: &RowLayout) -> Result<Held> {
        let wanted = &layout.schema().columns[position];
        let whole = || self.whole_column(group, position, layout, true).map(Held::Column);
        if !matches!(wanted.lane, Lane::Int { .. }) {
            return whole();
        }
        let key = BlockKey { segment: self.meta.id, group: group as u32, column: wanted.id, compact: true };
        let column_key = BlockKey { compact: false, ..key };
        match self.cache.get(key) {
            Some(Cached::Lines(lines)) => return Ok(Held::Lines(lines)),
            Some(_) => return whole(),
            None => {}
        }
        if let Some(Cached::Column(column)) = self.cache.get(column_key) {
            return self.check_kind(column, wanted).map(Held::Column);
        }
        let Some((place, block)) = self.block_of(group, wanted)? else { return whole() };
        if matches!(place.header.lane, Lane::Int { .. })
            && let Some(lines) = self.decode(&place, rrd_codec::decode_pieces, &block)?
        {
            let lines = Arc::new(lines);
            self.cache.insert(key, Cached::Lines(Arc::clone(&lines)));
            return Ok(Held::Lines(lines));
        }
        let column = Arc::new(self.decode_column(&place, &block)?);
        self.cache.insert(column_key, Cached::Column(Arc::clone(&column)));
        self.check_kind(column, wanted).map(Held::Column)
    }

    /// [`Segment::column`] as it takes least memory, if it was not read row by row before.
    pub fn compact(&self, group: usize, position: usize, layout: &RowLayout) -> Result<Compact> {
        let wanted = &layout.schema().columns[position];
        let key = BlockKey { segment: self.meta.id, group: group as u32, column: wanted.id, compact: true };
        let column_key = BlockKey { compact: false, ..key };
        if let Some(compact) = self.cache.get(key).and_then(compact_of) {
            return self.check_compact(compact, wanted);
        }
        // Mostly there is none.
        if let Some(Cached::Column(column)) = self.cache.peek(column_key) {
            return self.check_kind(column, wanted).map(Compact::Column);
        }
        let Some((place, block)) = self.block_of(group, wanted)? else {
            return self.column(group, position, layout).map(Compact::Column);
        };
        let (kind, rows) = (place.header.lane.kind(), place.header.rows as usize);
        let decoded = self.decode(&place, |payload, rows| rrd_codec::decode_compact(payload, kind, rows), &block)?;
        let compact = match decoded {
            rrd_codec::Compact::Lines(lines) => Compact::Lines(Arc::new(lines)),
            rrd_codec::Compact::Narrow(narrow) => Compact::Narrow(Arc::new(narrow)),
            rrd_codec::Compact::Column(column) => Compact::Column(Arc::new(column)),
        };
        if compact.rows() != rows || compact.kind() != kind {
            return Err(self.wrong_rows(&place));
        }
        let key = if matches!(compact, Compact::Column(_)) { column_key } else { key };
        self.cache.insert(key, compact.cached());
        self.check_compact(compact, wanted)
    }

    /// A column row by row. `keep`: it is kept in the cache so, even if it is there in its compact form.
    fn whole_column(&self, group: usize, position: usize, layout: &RowLayout, keep: bool) -> Result<Arc<Column>> {
        let wanted = &layout.schema().columns[position];
        let key = BlockKey { segment: self.meta.id, group: group as u32, column: wanted.id, compact: false };
        if let Some(Cached::Column(column)) = self.cache.get(key) {
            return self.check_kind(column, wanted);
        }
        let compact = self.cache.peek(BlockKey { compact: true, ..key }).and_then(compact_of);
        if let Some(column) = compact.and_then(|compact| compact.part(0..compact.rows())) {
            let column = Arc::new(column);
            if keep {
                self.cache.insert(key, Cached::Column(Arc::clone(&column)));
            }
            return self.check_kind(column, wanted);
        }
        let Some((place, block)) = self.block_of(group, wanted)? else {
            let rows = self.group_of(&*self.index()?, group)?.rows;
            return Ok(Arc::new(missing_column(wanted, rows as usize)));
        };
        let column = Arc::new(self.decode_column(&place, &block)?);
        self.cache.insert(key, Cached::Column(Arc::clone(&column)));
        self.check_kind(column, wanted)
    }

    /// The block of a column, read from the disk; `None` if the segment does not have the column.
    fn block_of(&self, group: usize, wanted: &ColumnDef) -> Result<Option<(BlockPlace, Vec<u8>)>> {
        let index = self.index()?;
        let Some(own) = index.schema.position(wanted.id) else { return Ok(None) };
        let lane = index.schema.columns[own].lane;
        let place = self.place(&index, &index.columns[own].blocks, group, wanted.id, lane)?;
        let block = self.read_block(&*self.file()?, &place)?;
        Ok(Some((place, block)))
    }

    /// Offsets of the rows' sequence numbers to `SegmentMeta::base_seq`; `None` when all are 0.
    pub fn seqs(&self, group: usize) -> Result<Option<Arc<Vec<u64>>>> {
        let index = self.index()?;
        if self.group_of(&index, group)?.max_seq_offset == 0 {
            return Ok(None);
        }
        let key = BlockKey { segment: self.meta.id, group: group as u32, column: SEQ_COLUMN, compact: false };
        if let Some(Cached::Seqs(seqs)) = self.cache.get(key) {
            return Ok(Some(seqs));
        }
        let place = self.place(&index, &index.groups.seq_blocks, group, SEQ_COLUMN, SEQ_LANE)?;
        let seqs = Arc::new(self.read_ints(&*self.file()?, &place)?);
        if seqs.iter().any(|&seq| seq > index.group(group).max_seq_offset) {
            return Err(self.corrupt(place.offset, "a sequence number is larger than the footer says"));
        }
        self.cache.insert(key, Cached::Seqs(Arc::clone(&seqs)));
        Ok(Some(seqs))
    }

    /// Which rows are tombstones; `None` when none is.
    pub fn tombstones(&self, group: usize) -> Result<Option<Arc<Bitmap>>> {
        let index = self.index()?;
        if self.group_of(&index, group)?.tombstones == 0 {
            return Ok(None);
        }
        let key = BlockKey { segment: self.meta.id, group: group as u32, column: KIND_COLUMN, compact: false };
        if let Some(Cached::Tombstones(tombstones)) = self.cache.get(key) {
            return Ok(Some(tombstones));
        }
        let place = self.place(&index, &index.groups.kind_blocks, group, KIND_COLUMN, KIND_LANE)?;
        let tombstones = Arc::new(self.read_kinds(&*self.file()?, &place)?);
        self.cache.insert(key, Cached::Tombstones(Arc::clone(&tombstones)));
        Ok(Some(tombstones))
    }

    /// What is known of a block without reading it; `None` if the segment does not have the column.
    pub fn zone(&self, group: usize, position: usize, layout: &RowLayout) -> Result<Option<ZoneMap>> {
        let index = self.index()?;
        self.group_of(&index, group)?;
        Ok(index.zone(group, layout.schema().columns[position].id))
    }

    /// The file, opened if it is not.
    pub(super) fn file(&self) -> Result<Arc<dyn ReadFile>> {
        self.cache.files().get(self.meta.id, || self.fs.open(&self.path))
    }

    /// The file, opened for the caller alone.
    pub(super) fn open_file(&self) -> Result<Arc<dyn ReadFile>> {
        self.fs.open(&self.path)
    }

    pub(super) fn cache(&self) -> &BlockCache {
        &self.cache
    }

    /// Reads header, trailer and footer from the disk.
    pub(super) fn read_index(&self) -> Result<SegmentIndex> {
        self.read_index_of(&*self.file()?)
    }

    /// [`Segment::read_index`] of the open file.
    pub(super) fn read_index_of(&self, file: &dyn ReadFile) -> Result<SegmentIndex> {
        let bytes = file.len();
        if bytes != self.meta.bytes || bytes < MIN_FILE_BYTES {
            let what = format!("the file has {bytes} bytes, it was written with {}", self.meta.bytes);
            return Err(self.corrupt(bytes.min(self.meta.bytes), what));
        }
        self.check_header(file)?;
        let tail_bytes = TAIL_BYTES.min(bytes - HEADER_BYTES as u64);
        let tail_start = bytes - tail_bytes;
        let tail = self.read(file, tail_start, tail_bytes as usize)?;
        let trailer_at = bytes - TRAILER_BYTES as u64;
        let Some((before, trailer)) = tail.split_last_chunk::<TRAILER_BYTES>() else {
            return Err(self.corrupt(trailer_at, "the file is too short for a trailer"));
        };
        let trailer = Trailer::from_bytes(trailer, self.meta.id, bytes).map_err(|d| self.damaged(trailer_at, d))?;
        let start = trailer.footer_offset;
        let index = match start.checked_sub(tail_start) {
            Some(skip) => self.parse_footer(&before[skip as usize..], &trailer),
            None => self.parse_footer(&self.read(file, start, trailer.footer_length as usize)?, &trailer),
        }?;
        match index.max_seq_offset() <= self.meta.max_seq.saturating_sub(self.meta.base_seq) {
            true => Ok(index),
            false => Err(self.corrupt(start, "it has sequence numbers that the manifest does not know")),
        }
    }

    fn check_header(&self, file: &dyn ReadFile) -> Result<()> {
        let mut bytes = [0; HEADER_BYTES];
        file.read_at(0, &mut bytes)?;
        let header = FileHeader::from_bytes(&bytes).map_err(|d| self.damaged(0, d))?;
        if header.version > VERSION {
            return Err(Error::Incompatible { path: self.path.clone(), found: header.version, supported: VERSION });
        }
        let expected = FileHeader {
            version: VERSION,
            table: self.table.0,
            segment: self.meta.id,
            schema_version: self.meta.schema_version,
        };
        match header == expected {
            true => Ok(()),
            false => Err(self.corrupt(0, format!("the header belongs to another file: {header:?}, not {expected:?}"))),
        }
    }

    fn parse_footer(&self, footer: &[u8], trailer: &Trailer) -> Result<SegmentIndex> {
        if crc32fast::hash(footer) != trailer.footer_crc {
            return Err(self.corrupt(trailer.footer_offset, "checksum of the footer differs"));
        }
        SegmentIndex::from_bytes(footer, trailer.footer_offset).map_err(|d| self.damaged(trailer.footer_offset, d))
    }

    fn group_of<'i>(&self, index: &'i SegmentIndex, group: usize) -> Result<GroupIndex<'i>> {
        match group < index.group_count() {
            true => Ok(index.group(group)),
            false => Err(Error::InvalidInput(format!("segment '{}' has no group {group}", self.path.display()))),
        }
    }

    /// Where a block is and what its header must say.
    pub(super) fn place(
        &self,
        index: &SegmentIndex,
        blocks: &Blocks,
        group: usize,
        column: u32,
        lane: Lane,
    ) -> Result<BlockPlace> {
        let rows = self.group_of(index, group)?.rows;
        let header = BlockHeader { lane, rows, column, group: group as u32, length: blocks.length[group] };
        Ok(BlockPlace { offset: blocks.offset[group], header })
    }

    /// Reads a block from the disk and checks header and checksum.
    pub(super) fn read_block(&self, file: &dyn ReadFile, place: &BlockPlace) -> Result<Vec<u8>> {
        let block = self.read(file, place.offset, BLOCK_HEADER_BYTES + place.header.length as usize)?;
        check_block(self.meta.id, &block).map_err(|d| self.damaged(place.offset, d))?;
        let header = BlockHeader::from_bytes(&block).map_err(|d| self.damaged(place.offset, d))?;
        match header == place.header {
            true => Ok(block),
            false => {
                Err(self.corrupt(place.offset, format!("block header {header:?}, the footer says {:?}", place.header)))
            }
        }
    }

    /// Reads and decodes a block.
    pub(super) fn read_column(&self, file: &dyn ReadFile, place: &BlockPlace) -> Result<Column> {
        let block = self.read_block(file, place)?;
        self.decode_column(place, &block)
    }

    /// What `decode` makes of the payload of a block.
    fn decode<T>(
        &self,
        place: &BlockPlace,
        decode: impl FnOnce(&[u8], usize) -> std::result::Result<T, DecodeError>,
        block: &[u8],
    ) -> Result<T> {
        decode(&block[BLOCK_HEADER_BYTES..], place.header.rows as usize)
            .map_err(|e| self.corrupt(place.offset + BLOCK_HEADER_BYTES as u64, e.to_string()))
    }

    fn decode_column(&self, place: &BlockPlace, block: &[u8]) -> Result<Column> {
        let (kind, rows) = (place.header.lane.kind(), place.header.rows as usize);
        let column = self.decode(place, |payload, rows| rrd_codec::decode(payload, kind, rows), block)?;
        match column.rows() == rows && column.kind() == kind {
            true => Ok(column),
            false => Err(self.wrong_rows(place)),
        }
    }

    fn wrong_rows(&self, place: &BlockPlace) -> Error {
        self.corrupt(place.offset, "the block does not decode to the rows of its group")
    }

    pub(super) fn read_ints(&self, file: &dyn ReadFile, place: &BlockPlace) -> Result<Vec<u64>> {
        match self.read_column(file, place)? {
            Column { values: Values::Int(values), nulls: None } => Ok(values),
            _ => Err(self.corrupt(place.offset, "sequence numbers or row kinds must not be NULL")),
        }
    }

    pub(super) fn read_kinds(&self, file: &dyn ReadFile, place: &BlockPlace) -> Result<Bitmap> {
        let kinds = self.read_ints(file, place)?;
        if let Some(unknown) = kinds.iter().find(|&&k| k > 1) {
            return Err(self.corrupt(place.offset, format!("unknown row kind {unknown}")));
        }
        let words = kinds.chunks(64).map(|chunk| chunk.iter().rev().fold(0, |word, &k| word << 1 | k)).collect();
        Ok(Bitmap::from_words(words, kinds.len()))
    }

    fn read(&self, file: &dyn ReadFile, offset: u64, length: usize) -> Result<Vec<u8>> {
        // The length comes from the footer: ask for no more memory than the file can fill.
        if offset.checked_add(length as u64).is_none_or(|end| end > file.len()) {
            return Err(self.corrupt(offset, format!("{length} bytes are expected here, the file ends before")));
        }
        let mut bytes = vec![0; length];
        file.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    fn check_kind(&self, column: Arc<Column>, wanted: &ColumnDef) -> Result<Arc<Column>> {
        self.check_kinds(column.kind(), wanted).map(|()| column)
    }

    fn check_compact(&self, compact: Compact, wanted: &ColumnDef) -> Result<Compact> {
        self.check_kinds(compact.kind(), wanted).map(|()| compact)
    }

    fn check_kinds(&self, held: Kind, wanted: &ColumnDef) -> Result<()> {
        match held == wanted.lane.kind() {
            true => Ok(()),
            false => Err(self.corrupt(0, format!("column {} is held as another kind than the schema says", wanted.id))),
        }
    }

    pub(super) fn corrupt(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corrupt(&self.path, offset, what)
    }

    fn damaged(&self, base: u64, damage: Damage) -> Error {
        self.corrupt(base + damage.at as u64, damage.what)
    }
}

fn compact_of(cached: Cached) -> Option<Compact> {
    match cached {
        Cached::Lines(lines) => Some(Compact::Lines(lines)),
        Cached::Narrow(narrow) => Some(Compact::Narrow(narrow)),
        _ => None,
    }
}

/// What rows from before a column was added hold in it.
fn missing_column(wanted: &ColumnDef, rows: usize) -> Column {
    let initial = match &wanted.initial {
        Some(initial) => initial.clone(),
        None if wanted.nullable => Initial::Null,
        None if wanted.lane == Lane::Bytes => Initial::Bytes(Vec::new()),
        None => Initial::Bits(0),
    };
    let bits = if let Initial::Bits(bits) = initial { bits } else { 0 };
    let bytes = if let Initial::Bytes(bytes) = &initial { bytes.as_slice() } else { &[] };
    let values = match wanted.lane.kind() {
        Kind::Int => Values::Int(vec![bits; rows]),
        Kind::F32 => Values::F32(vec![bits as u32; rows]),
        Kind::F64 => Values::F64(vec![bits; rows]),
        Kind::Bytes => {
            let mut column = rrd_codec::BytesColumn::new();
            (0..rows).for_each(|_| column.push(bytes));
            Values::Bytes(column)
        }
    };
    Column { values, nulls: (initial == Initial::Null && rows > 0).then(|| Bitmap::full(rows)) }
}
