//! What REPAIR TABLE saves of a damaged segment: every group whose blocks hold goes to a new one.
//!
//! With its footer a segment says where each block is; without, the blocks' own headers are followed, and behind a
//! damaged one the next whole block is looked for. A group needs its key, its sequence numbers and row kinds, and all
//! columns that may not be NULL; where another column is damaged its values become NULL. Whether a block that was not
//! found ever existed is judged with care: a group for which that is open is lost, since its rows might be old ones.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use rrd_codec::{Bitmap, Column, Kind, Values};

use super::format::{
    BLOCK_HEADER_BYTES, BlockHeader, HEADER_BYTES, KIND_COLUMN, KIND_LANE, SEQ_COLUMN, SEQ_LANE, check_block,
};
use super::index::{SegmentIndex, SegmentSchema};
use super::order;
use super::reader::{BlockPlace, Segment};
use super::writer::SegmentWriter;
use crate::error::{Error, Result};
use crate::fs::ReadFile;
use crate::limits;
use crate::row::RowLayout;
use crate::schema::Lane;

/// Bytes looked through at a time for the next whole block.
const SEARCH_BYTES: usize = 1 << 20;

/// What could not be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The damaged file.
    pub path: PathBuf,
    /// Why.
    pub what: String,
    /// Rows concerned: gone, or (with `column`) NULL in that column.
    pub rows: u64,
    /// Id of the column whose values are gone; `None`: the rows are.
    pub column: Option<u32>,
    /// The rows' sort keys are not below this.
    pub first_key: Vec<u8>,
    /// And not above this.
    pub last_key: Vec<u8>,
}

/// Where the blocks of a group are.
struct GroupPlaces {
    columns: Vec<Option<BlockPlace>>,
    seqs: Part,
    kinds: Part,
    /// First and last key, if the footer says so.
    keys: Option<(Vec<u8>, Vec<u8>)>,
}

/// A block that not every group has.
#[derive(Clone, Copy)]
enum Part {
    Absent,
    At(BlockPlace),
    /// Bytes that cannot be read may have held it.
    Unknown,
}

/// The rows of a group.
struct Saved {
    columns: Vec<Column>,
    seqs: Option<Vec<u64>>,
    kinds: Option<Bitmap>,
    /// Positions of columns that became NULL, and why.
    nulled: Vec<(usize, String)>,
}

impl Segment {
    /// Writes what can be saved to `out`, which has the layout of this segment's schema version; what cannot is told.
    /// `may_be_null` says for which columns (by position) a NULL stands for a value that is gone.
    pub(crate) fn salvage(
        &self,
        layout: &Arc<RowLayout>,
        may_be_null: &dyn Fn(usize) -> bool,
        out: &mut SegmentWriter,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Vec<Loss>> {
        let file = match self.file() {
            Ok(file) => file,
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(vec![self.loss("the file is missing", self.meta().rows)]);
            }
            Err(error) => return Err(error),
        };
        let schema = SegmentSchema::of(layout.schema());
        let mut losses = Vec::new();
        let groups = match self.read_index() {
            Ok(index) if index.schema == schema => self.places_of(&index)?,
            Err(error) if !is_damage(&error) => return Err(error),
            _ => self.walk(&*file, &schema, progress)?,
        };
        let mut rows = Salvaged { segment: self, schema: &schema, may_be_null, out, last_key: Vec::new() };
        let mut told = 0;
        for (number, places) in groups.iter().enumerate() {
            if !progress(number as u64 * self.meta().bytes / groups.len() as u64) {
                return Err(Error::Interrupted);
            }
            told += rows.group(&*file, places, &mut losses)?;
        }
        if self.meta().rows > told {
            losses.push(self.loss("their blocks cannot be found", self.meta().rows - told));
        }
        Ok(losses)
    }

    /// Rows of which no more is known than that they were in this segment.
    fn loss(&self, what: &str, rows: u64) -> Loss {
        let (first_key, last_key) = (self.meta().first_key.clone(), self.meta().last_key.clone());
        Loss { path: self.path().to_path_buf(), what: what.into(), rows, column: None, first_key, last_key }
    }

    fn places_of(&self, index: &SegmentIndex) -> Result<Vec<GroupPlaces>> {
        let part = |blocks: &super::index::Blocks, group: usize, column, lane| match blocks.length[group] {
            0 => Ok(Part::Absent),
            _ => self.place(index, blocks, group, column, lane).map(Part::At),
        };
        (0..index.group_count())
            .map(|group| {
                let places = index.columns.iter().zip(&index.schema.columns);
                let columns = places.map(|(c, own)| self.place(index, &c.blocks, group, own.id, own.lane).map(Some));
                let told = index.group(group);
                Ok(GroupPlaces {
                    columns: columns.collect::<Result<_>>()?,
                    seqs: part(&index.groups.seq_blocks, group, SEQ_COLUMN, SEQ_LANE)?,
                    kinds: part(&index.groups.kind_blocks, group, KIND_COLUMN, KIND_LANE)?,
                    keys: Some((told.first_key.to_vec(), told.last_key.to_vec())),
                })
            })
            .collect()
    }
}

/// The new segment while it is filled.
struct Salvaged<'a> {
    segment: &'a Segment,
    schema: &'a SegmentSchema,
    may_be_null: &'a dyn Fn(usize) -> bool,
    out: &'a mut SegmentWriter,
    /// Of the last row saved.
    last_key: Vec<u8>,
}

impl Salvaged<'_> {
    /// Saves a group if that can be done; how many rows it has, saved or not.
    fn group(&mut self, file: &dyn ReadFile, places: &GroupPlaces, losses: &mut Vec<Loss>) -> Result<u64> {
        let rows = places.columns.iter().flatten().map(|p| p.header.rows).max().unwrap_or(0);
        let (first, last, saved) = match self.read(file, places, rows as usize)? {
            Ok(saved) => {
                let key_of = |row| {
                    let mut key = Vec::new();
                    self.schema.push_key(|k| &saved.columns[k], row, &mut key);
                    key
                };
                (key_of(0), key_of(rows as usize - 1), Ok(saved))
            }
            Err(what) => {
                let keys = places.keys.clone();
                let (first, last) =
                    keys.unwrap_or_else(|| (self.last_key.clone(), self.segment.meta().last_key.clone()));
                (first, last, Err(what))
            }
        };
        let loss = |what: String, column| Loss {
            path: self.segment.path().to_path_buf(),
            what,
            rows: u64::from(rows),
            column,
            first_key: first.clone(),
            last_key: last.clone(),
        };
        match saved {
            Ok(saved) if first >= self.last_key => {
                losses.extend(
                    saved.nulled.iter().map(|(at, what)| loss(what.clone(), Some(self.schema.columns[*at].id))),
                );
                self.out.push_group(&saved.columns, saved.seqs.as_deref(), saved.kinds.as_ref())?;
                self.last_key = last;
            }
            Ok(_) => losses.push(loss("its rows are not behind those before them".into(), None)),
            Err(what) => losses.push(loss(what, None)),
        }
        Ok(u64::from(rows))
    }

    /// The rows of a group, or why they are lost.
    fn read(
        &self,
        file: &dyn ReadFile,
        places: &GroupPlaces,
        rows: usize,
    ) -> Result<std::result::Result<Saved, String>> {
        let mut columns = Vec::with_capacity(places.columns.len());
        let mut nulled = Vec::new();
        for (position, place) in places.columns.iter().enumerate() {
            let read = match place {
                Some(place) if place.header.rows as usize == rows => damage(self.segment.read_column(file, place))?,
                Some(_) => Err("the blocks of the group differ in their number of rows".into()),
                None => Err("the block cannot be found".into()),
            };
            let is_key = self.schema.key.contains(&(position as u16));
            let read = read.and_then(|column| match fits_lane(&column, self.schema.columns[position].lane) {
                true => Ok(column),
                false => Err("a value is too large for its column".into()),
            });
            match read {
                Ok(column) if is_key && column.null_count() > 0 => return Ok(Err("a key is NULL".into())),
                Ok(column) => columns.push(column),
                Err(what) if !is_key && (self.may_be_null)(position) => {
                    columns.push(nulls(self.schema.columns[position].lane.kind(), rows));
                    nulled.push((position, what));
                }
                Err(what) => return Ok(Err(what)),
            }
        }
        let seqs = match places.seqs {
            Part::Absent => Ok(None),
            Part::At(place) => damage(self.segment.read_ints(file, &place))?.map(Some),
            Part::Unknown => Err("its sequence numbers cannot be found".into()),
        };
        let kinds = match places.kinds {
            Part::Absent => Ok(None),
            Part::At(place) => damage(self.segment.read_kinds(file, &place))?.map(Some),
            Part::Unknown => Err("which of its rows are deleted cannot be found".into()),
        };
        let (seqs, kinds) = match (seqs, kinds) {
            (Ok(seqs), Ok(kinds)) => (seqs, kinds),
            (Err(what), _) | (_, Err(what)) => return Ok(Err(what)),
        };
        let most = self.segment.meta().max_seq.saturating_sub(self.segment.meta().base_seq);
        if seqs.iter().flatten().any(|&seq| seq > most) {
            return Ok(Err("its sequence numbers are not of this segment".into()));
        }
        let in_order = |seqs: Option<&[u64]>| {
            let key: Vec<&Column> = self.schema.key.iter().map(|&k| &columns[usize::from(k)]).collect();
            order::first_out_of_order(&key, seqs, rows).is_none()
        };
        let fits = |len: usize| len == rows;
        if !(1..=limits::GROUP_ROWS).contains(&rows)
            || !seqs.as_ref().is_none_or(|s| fits(s.len()))
            || !kinds.as_ref().is_none_or(|k| fits(k.len()))
            || !in_order(seqs.as_deref())
        {
            return Ok(Err("its rows are out of order".into()));
        }
        Ok(Ok(Saved { columns, seqs, kinds, nulled }))
    }
}

/// Whether values are some of their lane: keys of others would not be in the order of the rows.
fn fits_lane(column: &Column, lane: Lane) -> bool {
    match (&column.values, lane) {
        (Values::Int(values), Lane::Int { width: width @ 1..8 }) => {
            values.iter().all(|value| value >> (8 * width) == 0)
        }
        _ => true,
    }
}

/// A column of nothing but NULLs.
fn nulls(kind: Kind, rows: usize) -> Column {
    let mut column = Column::new(kind);
    (0..rows).for_each(|_| column.push_null());
    column
}

/// Tells what is wrong with bytes from what is wrong with the machine: only the first may be given up for lost.
fn damage<T>(read: Result<T>) -> Result<std::result::Result<T, String>> {
    match read {
        Ok(value) => Ok(Ok(value)),
        Err(error) if is_damage(&error) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

fn is_damage(error: &Error) -> bool {
    match error {
        Error::Corruption { .. } => true,
        Error::Io { source, .. } => {
            source.raw_os_error() == Some(libc::EIO) || source.kind() == ErrorKind::UnexpectedEof
        }
        _ => false,
    }
}

// -- without a footer -----------------------------------------------------------------------------------------------

/// A whole block that was found, and whether bytes before it could not be read.
struct Found {
    place: BlockPlace,
    after_gap: bool,
}

impl Segment {
    /// The groups as the blocks' own headers have them.
    fn walk(
        &self,
        file: &dyn ReadFile,
        schema: &SegmentSchema,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Vec<GroupPlaces>> {
        let mut blocks: Vec<Found> = Vec::new();
        let mut at = HEADER_BYTES as u64;
        while let Some(found) = self.next_block(file, schema, at, progress)? {
            at = found.place.offset + block_bytes(&found.place.header);
            blocks.push(found);
        }
        let mut groups: Vec<(u32, GroupPlaces)> = Vec::new();
        for (i, found) in blocks.iter().enumerate() {
            let header = &found.place.header;
            if groups.last().is_none_or(|(number, _)| *number != header.group) {
                let columns = vec![None; schema.columns.len()];
                let places = GroupPlaces { columns, seqs: Part::Absent, kinds: Part::Absent, keys: None };
                groups.push((header.group, places));
            }
            let Some((_, group)) = groups.last_mut() else { continue };
            match header.column {
                SEQ_COLUMN => group.seqs = Part::At(found.place),
                KIND_COLUMN => group.kinds = Part::At(found.place),
                id => schema.position(id).into_iter().for_each(|p| group.columns[p] = Some(found.place)),
            }
            // What stands between this block and the next, if that cannot be read, may have been of this group.
            let is_gap = match blocks.get(i + 1) {
                Some(next) => next.after_gap,
                None => self.may_have_lost_its_end(file, at),
            };
            let next = blocks.get(i + 1).filter(|next| next.place.header.group == header.group);
            if is_gap {
                mark_unknown(group, header.column, next.map(|n| n.place.header.column), self.meta());
            }
        }
        Ok(groups.into_iter().map(|(_, places)| places).collect())
    }

    /// Whether a block may have been behind the last one found, which ends at `at`.
    fn may_have_lost_its_end(&self, file: &dyn ReadFile, at: u64) -> bool {
        let mut flags = [0xff];
        // A footer begins with its flags, of which only the lowest bit may be set; a block does not.
        file.len() != self.meta().bytes || file.read_at(at, &mut flags).is_err() || flags[0] > 1
    }

    /// The first whole block at `from` or behind. `progress` is only asked whether to go on.
    fn next_block(
        &self,
        file: &dyn ReadFile,
        schema: &SegmentSchema,
        from: u64,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Found>> {
        let end = file.len();
        let mut at = from;
        let mut window = Vec::new();
        while at + (BLOCK_HEADER_BYTES as u64) <= end {
            window.resize(SEARCH_BYTES.min((end - at) as usize), 0);
            if damage(file.read_at(at, &mut window))?.is_err() {
                // A part of the disk that does not answer.
                at += window.len() as u64;
                continue;
            }
            let places = window.len() - BLOCK_HEADER_BYTES + 1;
            for skip in 0..places {
                let offset = at + skip as u64;
                let Some(header) = plausible(&window[skip..], schema, end - offset) else { continue };
                // Each may be large, and there may be many that are none.
                if !progress(0) {
                    return Err(Error::Interrupted);
                }
                if self.is_whole(file, offset, &header)? {
                    return Ok(Some(Found { place: BlockPlace { offset, header }, after_gap: offset != from }));
                }
            }
            at += places as u64;
            if !progress(0) {
                return Err(Error::Interrupted);
            }
        }
        Ok(None)
    }

    fn is_whole(&self, file: &dyn ReadFile, offset: u64, header: &BlockHeader) -> Result<bool> {
        let mut block = vec![0; block_bytes(header) as usize];
        let read = damage(file.read_at(offset, &mut block))?;
        Ok(read.is_ok() && check_block(self.meta().id, &block).is_ok())
    }
}

/// The header with which `bytes` begin, if it could be one of this segment's.
fn plausible(bytes: &[u8], schema: &SegmentSchema, left: u64) -> Option<BlockHeader> {
    let header = BlockHeader::from_bytes(bytes).ok()?;
    let lane = match header.column {
        SEQ_COLUMN => SEQ_LANE,
        KIND_COLUMN => KIND_LANE,
        id => schema.columns[schema.position(id)?].lane,
    };
    (header.lane == lane && block_bytes(&header) <= left).then_some(header)
}

fn block_bytes(header: &BlockHeader) -> u64 {
    BLOCK_HEADER_BYTES as u64 + u64::from(header.length)
}

/// Notes that sequence numbers or row kinds may have been in unreadable bytes behind the block of `column` and before
/// that of `next`, the next one of the group. They stand in this order, behind all other columns.
fn mark_unknown(group: &mut GroupPlaces, column: u32, next: Option<u32>, meta: &super::meta::SegmentMeta) {
    let place_of = |column| match column {
        SEQ_COLUMN => 1,
        KIND_COLUMN => 2,
        _ => 0,
    };
    let (from, to) = (place_of(column), next.map_or(3, place_of));
    if from < 1 && 1 < to && meta.max_seq > meta.base_seq {
        group.seqs = Part::Unknown;
    }
    if from < 2 && 2 < to && meta.tombstones > 0 {
        group.kinds = Part::Unknown;
    }
}
