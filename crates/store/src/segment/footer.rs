//! Footers as bytes: a [`SegmentIndex`] written and read back, as `docs/internals/format.md` lays it out.
//!
//! Reading trusts nothing, although the checksum held: counts are bounded by the bytes that the blocks before
//! the footer take, lengths must add up, keys must ascend. Bytes that pass give an index whose accessors
//! cannot fail.

use rrd_codec::Effort;

use super::fields::{Fields, push_array, push_array_u32, push_varint};
use super::format::{BLOCK_HEADER_BYTES, Damage, HEADER_BYTES, KIND_COLUMN, lane_byte, lane_of_byte};
use super::index::{Blocks, ColumnIndex, Groups, Keys, NO_SUM, NOT_EXACT, SegmentColumn, SegmentIndex, SegmentSchema};
use crate::limits;
use crate::schema::Lane;

const SEALED: u8 = 1;
const NULLABLE: u8 = 0x80;

impl SegmentIndex {
    /// The footer's bytes.
    pub(super) fn to_bytes(&self, effort: Effort) -> Vec<u8> {
        let mut out = vec![if self.sealed { SEALED } else { 0 }];
        push_varint(&mut out, self.chunk);
        push_varint(&mut out, self.base_seq);
        push_schema(&mut out, &self.schema);
        push_groups(&mut out, &self.groups, effort);
        for (column, index) in self.schema.columns.iter().zip(&self.columns) {
            push_column(&mut out, column.lane, index, effort);
        }
        out
    }

    /// Reads a footer that starts at `footer_offset` of its file.
    pub(super) fn from_bytes(bytes: &[u8], footer_offset: u64) -> Result<SegmentIndex, Damage> {
        let mut fields = Fields::new(bytes);
        let sealed = match fields.byte()? {
            0 => false,
            SEALED => true,
            _ => return Err(fields.damage("unknown flags")),
        };
        let chunk = fields.varint()?;
        let base_seq = fields.varint()?;
        let schema = read_schema(&mut fields)?;
        let block_bytes = footer_offset.saturating_sub(HEADER_BYTES as u64);
        let most_groups = block_bytes / (schema.columns.len() as u64 * (BLOCK_HEADER_BYTES as u64 + 1));
        let groups = read_groups(&mut fields, usize::try_from(most_groups).unwrap_or(usize::MAX))?;
        let columns =
            schema.columns.iter().map(|c| read_column(&mut fields, c.lane, &groups)).collect::<Result<_, _>>()?;
        fields.finish()?;
        let mut index = SegmentIndex { chunk, base_seq, sealed, schema, groups, columns };
        match index.place_blocks() {
            Some(end) if end == footer_offset => Ok(index),
            _ => Err(Damage::new(0, "the blocks' lengths do not add up to the footer's offset")),
        }
    }

    /// Derives the blocks' offsets from their lengths; where the last one ends.
    fn place_blocks(&mut self) -> Option<u64> {
        let mut at = HEADER_BYTES as u64;
        let mut place = |blocks: &mut Blocks, group: usize| -> Option<()> {
            blocks.offset.push(at);
            if blocks.length[group] > 0 {
                at = at.checked_add(u64::from(blocks.length[group]) + BLOCK_HEADER_BYTES as u64)?;
            }
            Some(())
        };
        for group in 0..self.groups.rows.len() {
            for column in &mut self.columns {
                place(&mut column.blocks, group)?;
            }
            place(&mut self.groups.seq_blocks, group)?;
            place(&mut self.groups.kind_blocks, group)?;
        }
        Some(at)
    }
}

fn push_schema(out: &mut Vec<u8>, schema: &SegmentSchema) {
    push_varint(out, schema.columns.len() as u64);
    for column in &schema.columns {
        push_varint(out, u64::from(column.id));
        out.push(lane_byte(column.lane) | if column.nullable { NULLABLE } else { 0 });
    }
    push_varint(out, schema.key.len() as u64);
    for &k in &schema.key {
        push_varint(out, u64::from(k));
    }
    push_varint(out, schema.time.map_or(0, |t| u64::from(t) + 1));
}

fn read_schema(fields: &mut Fields<'_>) -> Result<SegmentSchema, Damage> {
    let count = fields.count(limits::MAX_COLUMNS, "number of columns")?;
    let mut columns = Vec::new();
    for _ in 0..count {
        let id = fields.count(KIND_COLUMN as usize - 1, "column id")? as u32;
        let byte = fields.byte()?;
        let lane = lane_of_byte(byte & !NULLABLE).ok_or_else(|| fields.damage("unknown lane"))?;
        columns.push(SegmentColumn { id, lane, nullable: byte & NULLABLE != 0 });
    }
    let parts = fields.count(count, "number of key columns")?;
    if parts == 0 {
        return Err(fields.damage("there is no key column"));
    }
    let mut key = Vec::new();
    for _ in 0..parts {
        let position = fields.count(count - 1, "position of a key column")?;
        if matches!(columns[position].lane, Lane::F32 | Lane::F64) {
            return Err(fields.damage("a key column is a float"));
        }
        key.push(position as u16);
    }
    let time = match fields.count(count, "position of the time column")? {
        0 => None,
        n if matches!(columns[n - 1].lane, Lane::Int { .. }) => Some(n as u16 - 1),
        _ => return Err(fields.damage("the time column is not an integer")),
    };
    let schema = SegmentSchema::new(columns, key, time);
    match schema.ids_are_unique() {
        true => Ok(schema),
        false => Err(fields.damage("a column id is there twice")),
    }
}

fn push_groups(out: &mut Vec<u8>, groups: &Groups, effort: Effort) {
    push_varint(out, groups.rows.len() as u64);
    push_array_u32(out, &groups.rows, effort);
    push_array_u32(out, &groups.seq_blocks.length, effort);
    push_array(out, groups.max_seq.iter().copied(), effort);
    push_array_u32(out, &groups.kind_blocks.length, effort);
    push_array_u32(out, &groups.tombstones, effort);
    push_array(out, groups.has_versions.iter().map(|&v| u64::from(v)), effort);
    let mut keys = Vec::new();
    push_keys(&mut keys, &groups.keys, 2 * groups.rows.len());
    push_varint(out, keys.len() as u64);
    out.extend_from_slice(&keys);
}

fn read_groups(fields: &mut Fields<'_>, most: usize) -> Result<Groups, Damage> {
    let count = fields.count(most, "number of groups")?;
    let rows = fields.array_u32(count, rrd_codec::MAX_ROWS as u32, "rows")?;
    let seq_lengths = fields.array_u32(count, u32::MAX, "length")?;
    let max_seq = fields.array(count, u64::MAX, "sequence number")?;
    let kind_lengths = fields.array_u32(count, u32::MAX, "length")?;
    let tombstones = fields.array_u32(count, rrd_codec::MAX_ROWS as u32, "tombstones")?;
    let has_versions = fields.array(count, 1, "versions")?.into_iter().map(|v| v == 1).collect();
    if rows.contains(&0) || rows.iter().zip(&tombstones).any(|(r, t)| t > r) {
        return Err(fields.damage("a group has no rows or more tombstones than rows"));
    }
    let presence_agrees =
        |lengths: &[u32], some: &dyn Fn(usize) -> bool| (0..count).all(|g| (lengths[g] > 0) == some(g));
    if !presence_agrees(&seq_lengths, &|g| max_seq[g] > 0) || !presence_agrees(&kind_lengths, &|g| tombstones[g] > 0) {
        return Err(
            fields.damage("a group's counts and its blocks of sequence numbers or row kinds contradict each other")
        );
    }
    let key_bytes = fields.nested()?;
    let keys = read_keys(key_bytes, 2 * count).map_err(|d| fields.damage(d.what))?;
    let first_row = std::iter::once(0)
        .chain(rows.iter().scan(0u64, |sum, &r| {
            *sum += u64::from(r);
            Some(*sum)
        }))
        .collect();
    let blocks = |length| Blocks { offset: Vec::with_capacity(count), length };
    let (seq_blocks, kind_blocks) = (blocks(seq_lengths), blocks(kind_lengths));
    Ok(Groups { rows, first_row, seq_blocks, max_seq, kind_blocks, tombstones, has_versions, keys })
}

fn push_keys(out: &mut Vec<u8>, keys: &Keys, count: usize) {
    let mut before: &[u8] = &[];
    for i in 0..count {
        let key = keys.get(i);
        let shared = before.iter().zip(key).take_while(|(a, b)| a == b).count();
        push_varint(out, shared as u64);
        push_varint(out, (key.len() - shared) as u64);
        out.extend_from_slice(&key[shared..]);
        before = key;
    }
}

fn read_keys(bytes: &[u8], count: usize) -> Result<Keys, Damage> {
    let mut fields = Fields::new(bytes);
    let mut keys = Keys::default();
    for i in 0..count {
        let start = keys.data.len();
        let before = start - keys.last().len();
        let shared = fields.count(start - before, "shared bytes of a key")?;
        let further = fields.nested()?;
        if start + shared + further.len() > limits::FOOTER_KEY_BYTES {
            return Err(fields.damage(format!("the keys are over the limit of {}", limits::FOOTER_KEY_BYTES)));
        }
        keys.data.extend_from_within(before..before + shared);
        keys.data.extend_from_slice(further);
        if i > 0 && keys.data[start..] < keys.data[before..start] {
            return Err(fields.damage("the groups' keys do not ascend"));
        }
        keys.end();
    }
    fields.finish()?;
    Ok(keys)
}

fn push_column(out: &mut Vec<u8>, lane: Lane, index: &ColumnIndex, effort: Effort) {
    push_array_u32(out, &index.blocks.length, effort);
    push_array_u32(out, &index.nulls, effort);
    if matches!(lane, Lane::F32 | Lane::F64) {
        push_array(out, index.flags.iter().map(|&v| u64::from(v)), effort);
    }
    push_array(out, index.min.iter().copied(), effort);
    push_array(out, index.max.iter().copied(), effort);
    if lane != Lane::Bytes {
        push_array(out, index.sum_1.iter().copied(), effort);
        push_array(out, index.sum_2.iter().copied(), effort);
    }
}

fn read_column(fields: &mut Fields<'_>, lane: Lane, groups: &Groups) -> Result<ColumnIndex, Damage> {
    let count = groups.rows.len();
    let length = fields.array_u32(count, u32::MAX, "length")?;
    let nulls = fields.array_u32(count, rrd_codec::MAX_ROWS as u32, "nulls")?;
    if length.contains(&0) || nulls.iter().zip(&groups.rows).any(|(n, r)| n > r) {
        return Err(fields.damage("a block is empty or has more nulls than rows"));
    }
    let flags = match lane {
        Lane::F32 | Lane::F64 => fields.array(count, u64::from(NOT_EXACT | NO_SUM), "flags")?,
        _ => Vec::new(),
    };
    let min = fields.array(count, u64::MAX, "min")?;
    let max = fields.array(count, u64::MAX, "max")?;
    if min.iter().zip(&max).any(|(min, max)| min > max) {
        return Err(fields.damage("a zone map's min is above its max"));
    }
    let (sum_1, sum_2) = match lane {
        Lane::Bytes => (Vec::new(), Vec::new()),
        _ => (fields.array(count, u64::MAX, "sum")?, fields.array(count, u64::MAX, "sum")?),
    };
    let flags = flags.into_iter().map(|f| f as u8).collect();
    let blocks = Blocks { offset: Vec::with_capacity(count), length };
    Ok(ColumnIndex { blocks, nulls, min, max, sum_1, sum_2, flags })
}
