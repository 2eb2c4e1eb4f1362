//! Edits and states to bytes; [`super::decode`] is the way back, `docs/internals/format-log.md` the layout.
//!
//! Everything is little-endian and of fixed width; byte strings and texts have a 4-byte length in front. A
//! schema is JSON, so that a person can read it in a damaged manifest.

use super::edit::{ChunkSpan, Edit, State, TableId, TableState};
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::segment::meta::SegmentMeta;

/// A list of edits that take effect together.
pub fn edits(edits: &[Edit]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    put_count(&mut out, edits.len());
    for one in edits {
        edit(&mut out, one)?;
    }
    Ok(out)
}

/// A whole state.
pub fn state(state: &State) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    put_u32(&mut out, state.next_table);
    put_u64(&mut out, state.next_segment);
    put_u64(&mut out, state.next_seq);
    put_count(&mut out, state.tables.len());
    for (id, one) in &state.tables {
        put_u32(&mut out, id.0);
        table(&mut out, one)?;
    }
    Ok(out)
}

fn edit(out: &mut Vec<u8>, edit: &Edit) -> Result<()> {
    match edit {
        Edit::CreateTable { table, name, schema } => {
            put_kind(out, 1, *table);
            put_bytes(out, name.as_bytes());
            put_schema(out, schema)?;
        }
        Edit::DropTable { table } => put_kind(out, 2, *table),
        Edit::RenameTable { table, name } => {
            put_kind(out, 3, *table);
            put_bytes(out, name.as_bytes());
        }
        Edit::SetSchema { table, schema } => {
            put_kind(out, 4, *table);
            put_schema(out, schema)?;
        }
        Edit::Truncate { table, flushed_seq } => put_kind_u64(out, 5, *table, *flushed_seq),
        Edit::AddChunk { table, span } => {
            put_kind(out, 6, *table);
            put_span(out, *span);
        }
        Edit::AddSegment { table, meta } => {
            put_kind(out, 7, *table);
            put_segment(out, meta);
        }
        Edit::RemoveChunk { table, start } => put_kind_u64(out, 13, *table, *start),
        Edit::RemoveSegment { table, segment } => put_kind_u64(out, 8, *table, segment.0),
        Edit::Flushed { table, seq } => put_kind_u64(out, 9, *table, *seq),
        Edit::NextSeq { seq } => {
            out.push(10);
            put_u64(out, *seq);
        }
        Edit::NextRowNumber { table, next } => put_kind_u64(out, 11, *table, *next),
        Edit::SetProperty { table, name, value } => {
            put_kind(out, 12, *table);
            put_bytes(out, name.as_bytes());
            put_bytes(out, value);
        }
    }
    Ok(())
}

fn table(out: &mut Vec<u8>, table: &TableState) -> Result<()> {
    put_bytes(out, table.name.as_bytes());
    put_schema(out, &table.schema)?;
    put_count(out, table.old_schemas.len());
    for schema in table.old_schemas.values() {
        put_schema(out, schema)?;
    }
    put_count(out, table.chunks.len());
    for span in table.chunks.values() {
        put_span(out, *span);
    }
    put_count(out, table.segments.len());
    for meta in table.segments.values() {
        put_segment(out, meta);
    }
    put_u64(out, table.flushed_seq);
    put_u64(out, table.next_row_number);
    put_count(out, table.properties.len());
    for (name, value) in &table.properties {
        put_bytes(out, name.as_bytes());
        put_bytes(out, value);
    }
    Ok(())
}

fn put_segment(out: &mut Vec<u8>, meta: &SegmentMeta) {
    put_u64(out, meta.id.0);
    put_u64(out, meta.chunk);
    put_u32(out, meta.schema_version);
    put_u64(out, meta.rows);
    put_u64(out, meta.tombstones);
    put_u64(out, meta.bytes);
    put_u64(out, meta.min_time);
    put_u64(out, meta.max_time);
    put_u64(out, meta.base_seq);
    put_u64(out, meta.max_seq);
    out.push(u8::from(meta.has_versions) | u8::from(meta.sealed) << 1);
    put_bytes(out, &meta.first_key);
    put_bytes(out, &meta.last_key);
}

fn put_schema(out: &mut Vec<u8>, schema: &Schema) -> Result<()> {
    let json = serde_json::to_vec(schema).map_err(|e| Error::InvalidInput(format!("schema: {e}")))?;
    put_bytes(out, &json);
    Ok(())
}

fn put_span(out: &mut Vec<u8>, span: ChunkSpan) {
    put_u64(out, span.start);
    put_u64(out, span.end);
}

fn put_kind(out: &mut Vec<u8>, kind: u8, table: TableId) {
    out.push(kind);
    put_u32(out, table.0);
}

fn put_kind_u64(out: &mut Vec<u8>, kind: u8, table: TableId, value: u64) {
    put_kind(out, kind, table);
    put_u64(out, value);
}

/// Lengths fit: whoever writes the record refuses it far below 4 GiB.
fn put_count(out: &mut Vec<u8>, count: usize) {
    put_u32(out, count as u32);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}
