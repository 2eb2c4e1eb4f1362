//! A segment's footer, decoded: where each block is and what is known of it.
//!
//! The writer fills one group by group and `footer` turns it into bytes and back. Kept as one array for each
//! figure, since a scan looks at one column of many groups. Invariants, checked when a footer is read: groups
//! are not empty, keys ascend, each column has one entry for each group.

use rrd_codec::Column;

use super::zone::{Sum, ZoneMap};
use crate::key;
use crate::schema::{Lane, Schema};

/// The decoded footer of a segment.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentIndex {
    pub(super) chunk: u64,
    pub(super) base_seq: u64,
    pub(super) sealed: bool,
    pub(super) schema: SegmentSchema,
    pub(super) groups: Groups,
    /// In the order of `schema.columns`.
    pub(super) columns: Vec<ColumnIndex>,
}

/// What a segment says of its columns by itself, whatever ALTER TABLE did since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentSchema {
    /// Columns in the order of the blocks.
    pub columns: Vec<SegmentColumn>,
    /// Positions of the clustering key's parts.
    pub key: Vec<u16>,
    /// Position of the time column.
    pub time: Option<u16>,
    /// (id, position), ascending.
    by_id: Vec<(u32, u16)>,
}

/// One column of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentColumn {
    /// `ColumnDef::id`.
    pub id: u32,
    /// How its values are held.
    pub lane: Lane,
    /// Whether the schema allowed NULL.
    pub nullable: bool,
}

/// Figures of all groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Groups {
    pub rows: Vec<u32>,
    /// Rows of the groups before each one, and of all at the end.
    pub first_row: Vec<u64>,
    pub seq_blocks: Blocks,
    pub max_seq: Vec<u64>,
    pub kind_blocks: Blocks,
    pub tombstones: Vec<u32>,
    pub has_versions: Vec<bool>,
    pub keys: Keys,
}

/// First and last key of each group, one behind the other.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Keys {
    pub data: Vec<u8>,
    /// Where each key starts, and the end of the last.
    pub offsets: Vec<u32>,
}

/// The blocks of one lane.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Blocks {
    /// Of the block header.
    pub offset: Vec<u64>,
    /// Of the payload; 0: there is no block.
    pub length: Vec<u32>,
}

/// What is known of the blocks of one column.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ColumnIndex {
    pub blocks: Blocks,
    pub nulls: Vec<u32>,
    pub min: Vec<u64>,
    pub max: Vec<u64>,
    /// Low 64 bits of an integer sum, or the bits of a float sum's high part.
    pub sum_1: Vec<u64>,
    /// High 64 bits, or the bits of the low part.
    pub sum_2: Vec<u64>,
    /// `NOT_EXACT` and `NO_SUM`, for floats.
    pub flags: Vec<u8>,
}

/// The range and the sum of a float block are not answers.
pub(super) const NOT_EXACT: u8 = 1;
/// A float block's sum is not finite.
pub(super) const NO_SUM: u8 = 2;

/// One group of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupIndex<'a> {
    /// Rows in it.
    pub rows: u32,
    /// Rows of the segment before it.
    pub first_row: u64,
    /// Sort key of its first row.
    pub first_key: &'a [u8],
    /// Sort key of its last row.
    pub last_key: &'a [u8],
    /// Tombstones among its rows.
    pub tombstones: u32,
    /// Largest offset to `SegmentMeta::base_seq` among its rows.
    pub max_seq_offset: u64,
    /// Whether some key of it occurs more than once in the segment.
    pub has_versions: bool,
}

impl SegmentIndex {
    /// An index without groups.
    pub(super) fn new(schema: SegmentSchema) -> SegmentIndex {
        let columns = vec![ColumnIndex::default(); schema.columns.len()];
        let groups = Groups { first_row: vec![0], ..Groups::default() };
        SegmentIndex { chunk: 0, base_seq: 0, sealed: false, schema, groups, columns }
    }

    /// How many groups.
    pub fn group_count(&self) -> usize {
        self.groups.rows.len()
    }

    /// Rows of all groups.
    pub fn rows(&self) -> u64 {
        self.groups.first_row.last().copied().unwrap_or(0)
    }

    /// Group `i`. Panics behind the last one.
    pub fn group(&self, i: usize) -> GroupIndex<'_> {
        let g = &self.groups;
        GroupIndex {
            rows: g.rows[i],
            first_row: g.first_row[i],
            first_key: g.keys.get(2 * i),
            last_key: g.keys.get(2 * i + 1),
            tombstones: g.tombstones[i],
            max_seq_offset: g.max_seq[i],
            has_versions: g.has_versions[i],
        }
    }

    /// The first group whose last key is >= `key`; `group_count()` if there is none.
    pub fn find_group(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.group_count());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.groups.keys.get(2 * middle + 1) < key {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// The segment's own columns.
    pub fn schema(&self) -> &SegmentSchema {
        &self.schema
    }

    /// What is known of a block; `None` if the segment does not have the column (`ColumnDef::id`).
    pub fn zone(&self, group: usize, column_id: u32) -> Option<ZoneMap> {
        let position = self.schema.position(column_id)?;
        Some(self.columns[position].zone(group, self.groups.rows[group], self.schema.columns[position].lane))
    }

    /// Smallest and largest time; zeros without a time column.
    pub fn time_range(&self) -> (u64, u64) {
        let Some(time) = self.schema.time else {
            return (0, 0);
        };
        let column = &self.columns[usize::from(time)];
        (column.min.iter().min().copied().unwrap_or(0), column.max.iter().max().copied().unwrap_or(0))
    }

    /// Whether some key occurs more than once.
    pub fn has_versions(&self) -> bool {
        self.groups.has_versions.contains(&true)
    }

    /// Tombstones of all groups.
    pub fn tombstones(&self) -> u64 {
        self.groups.tombstones.iter().map(|&t| u64::from(t)).sum()
    }

    /// Largest offset to `SegmentMeta::base_seq`.
    pub fn max_seq_offset(&self) -> u64 {
        self.groups.max_seq.iter().max().copied().unwrap_or(0)
    }

    /// Bytes in memory, for the cache.
    pub(crate) fn memory_bytes(&self) -> usize {
        let g = &self.groups;
        let groups = g.rows.capacity() * 4 + g.first_row.capacity() * 8 + g.max_seq.capacity() * 8;
        let kinds = g.tombstones.capacity() * 4 + g.has_versions.capacity();
        let keys = g.keys.data.capacity() + g.keys.offsets.capacity() * 4;
        let blocks = g.seq_blocks.memory_bytes() + g.kind_blocks.memory_bytes();
        let columns: usize = self.columns.iter().map(ColumnIndex::memory_bytes).sum();
        size_of::<SegmentIndex>() + groups + kinds + keys + blocks + columns + self.schema.memory_bytes()
    }
}

impl SegmentSchema {
    /// Of a table's schema.
    pub(super) fn of(schema: &Schema) -> SegmentSchema {
        let columns =
            schema.columns.iter().map(|c| SegmentColumn { id: c.id, lane: c.lane, nullable: c.nullable }).collect();
        SegmentSchema::new(columns, schema.key.clone(), schema.time.map(|t| t.column))
    }

    pub(super) fn new(columns: Vec<SegmentColumn>, key: Vec<u16>, time: Option<u16>) -> SegmentSchema {
        let mut by_id: Vec<_> = columns.iter().enumerate().map(|(i, c)| (c.id, i as u16)).collect();
        by_id.sort_unstable();
        SegmentSchema { columns, key, time, by_id }
    }

    /// Whether each id is there once.
    pub(super) fn ids_are_unique(&self) -> bool {
        self.by_id.windows(2).all(|w| w[0].0 != w[1].0)
    }

    /// Where the column of an id is.
    pub fn position(&self, column_id: u32) -> Option<usize> {
        let i = self.by_id.binary_search_by_key(&column_id, |&(id, _)| id).ok()?;
        Some(usize::from(self.by_id[i].1))
    }

    /// Appends the sort key of row `i`; `columns` gives key columns by position.
    pub(super) fn push_key<'c>(&self, column: impl Fn(usize) -> &'c Column, i: usize, out: &mut Vec<u8>) {
        use rrd_codec::Values;
        for &k in &self.key {
            let k = usize::from(k);
            match (&column(k).values, self.columns[k].lane) {
                (Values::Int(v), Lane::Int { width }) => key::push_int(out, v[i], width),
                (Values::Bytes(b), _) => key::push_bytes(out, b.get(i)),
                _ => debug_assert!(false, "key lane and column kind differ"),
            }
        }
    }

    fn memory_bytes(&self) -> usize {
        self.columns.capacity() * size_of::<SegmentColumn>() + self.key.capacity() * 2 + self.by_id.capacity() * 8
    }
}

impl Default for Keys {
    fn default() -> Keys {
        Keys { data: Vec::new(), offsets: vec![0] }
    }
}

impl Keys {
    pub(super) fn get(&self, i: usize) -> &[u8] {
        &self.data[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }

    /// The key pushed last; empty if there is none.
    pub(super) fn last(&self) -> &[u8] {
        match self.offsets.len() {
            0 | 1 => &[],
            n => self.get(n - 2),
        }
    }

    /// Ends a key that was appended to `data`.
    pub(super) fn end(&mut self) {
        self.offsets.push(self.data.len() as u32);
    }
}

impl Blocks {
    pub(super) fn push(&mut self, offset: u64, length: u32) {
        self.offset.push(offset);
        self.length.push(length);
    }

    fn memory_bytes(&self) -> usize {
        self.offset.capacity() * 8 + self.length.capacity() * 4
    }
}

impl ColumnIndex {
    /// Adds what is known of the next block.
    pub(super) fn push(&mut self, offset: u64, length: u32, zone: &ZoneMap) {
        self.blocks.push(offset, length);
        self.nulls.push(zone.nulls);
        let (min, max) = zone.range.unwrap_or((0, 0));
        self.min.push(min);
        self.max.push(max);
        let (sum_1, sum_2) = match zone.sum {
            Sum::None => (0, 0),
            Sum::Int(sum) => (sum as u64, (sum >> 64) as u64),
            Sum::Float { hi, lo } => (hi.to_bits(), lo.to_bits()),
        };
        self.sum_1.push(sum_1);
        self.sum_2.push(sum_2);
        let no_sum = if zone.sum == Sum::None { NO_SUM } else { 0 };
        self.flags.push(if zone.exact { no_sum } else { NOT_EXACT | no_sum });
    }

    fn zone(&self, group: usize, rows: u32, lane: Lane) -> ZoneMap {
        let nulls = self.nulls[group];
        let range = (nulls < rows).then(|| (self.min[group], self.max[group]));
        let (sum, exact) = match lane {
            Lane::Int { .. } => (Sum::Int(u128::from(self.sum_2[group]) << 64 | u128::from(self.sum_1[group])), true),
            Lane::Bytes => (Sum::None, false),
            Lane::F32 | Lane::F64 => {
                let flags = self.flags[group];
                let sum = match flags & NO_SUM {
                    0 => Sum::Float { hi: f64::from_bits(self.sum_1[group]), lo: f64::from_bits(self.sum_2[group]) },
                    _ => Sum::None,
                };
                (sum, flags & NOT_EXACT == 0)
            }
        };
        ZoneMap { rows, nulls, range, exact, sum }
    }

    fn memory_bytes(&self) -> usize {
        let words = self.min.capacity() + self.max.capacity() + self.sum_1.capacity() + self.sum_2.capacity();
        size_of::<ColumnIndex>()
            + self.blocks.memory_bytes()
            + words * 8
            + self.nulls.capacity() * 4
            + self.flags.capacity()
    }
}
