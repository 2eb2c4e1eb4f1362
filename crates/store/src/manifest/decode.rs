//! Bytes to edits and states, the way back of [`super::encode`].
//!
//! Any bytes give a value or a text that says what is wrong, never a panic, and nothing is allocated for a
//! count before as many elements were really there.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::edit::{ChunkSpan, Edit, State, TableId};
use crate::error::Error;
use crate::schema::Schema;
use crate::segment::meta::{SegmentId, SegmentMeta};

/// What is wrong with the bytes.
pub type Wrong = String;

type Decoded<T> = Result<T, Wrong>;

/// A list of edits.
pub fn edits(bytes: &[u8]) -> Decoded<Vec<Edit>> {
    let mut input = Input { rest: bytes };
    let count = input.u32()?;
    let mut edits = Vec::new();
    for _ in 0..count {
        edits.push(edit(&mut input)?);
    }
    input.finish(edits)
}

/// A whole state.
pub fn state(bytes: &[u8]) -> Decoded<State> {
    let mut input = Input { rest: bytes };
    let mut state =
        State { next_table: input.u32()?, next_segment: input.u64()?, next_seq: input.u64()?, ..State::default() };
    for _ in 0..input.u32()? {
        let id = input.table()?;
        table(&mut input, &mut state, id)?;
    }
    input.finish(state)
}

fn edit(input: &mut Input<'_>) -> Decoded<Edit> {
    let kind = input.u8()?;
    if kind == 10 {
        return Ok(Edit::NextSeq { seq: input.u64()? });
    }
    let table = input.table()?;
    Ok(match kind {
        1 => Edit::CreateTable { table, name: input.text()?, schema: input.schema()? },
        2 => Edit::DropTable { table },
        3 => Edit::RenameTable { table, name: input.text()? },
        4 => Edit::SetSchema { table, schema: input.schema()? },
        5 => Edit::Truncate { table, flushed_seq: input.u64()? },
        6 => Edit::AddChunk { table, span: input.span()? },
        7 => Edit::AddSegment { table, meta: input.segment()? },
        8 => Edit::RemoveSegment { table, segment: SegmentId(input.u64()?) },
        9 => Edit::Flushed { table, seq: input.u64()? },
        11 => Edit::NextRowNumber { table, next: input.u64()? },
        12 => Edit::SetProperty { table, name: input.text()?, value: input.bytes()?.to_vec() },
        13 => Edit::RemoveChunk { table, start: input.u64()? },
        _ => return Err(format!("unknown kind of edit {kind}")),
    })
}

/// Reads a table into a state that has those before it. What edits would not have made is refused.
fn table(input: &mut Input<'_>, state: &mut State, id: TableId) -> Decoded<()> {
    let (name, schema) = (input.text()?, input.schema()?);
    let wrong = |error: Error| format!("table '{name}': {error}");
    let apply = |state: &mut State, edit: Edit| state.apply_fitted(&edit).map(drop).map_err(wrong);
    apply(state, Edit::CreateTable { table: id, name: name.clone(), schema })?;
    let mut old_schemas = BTreeMap::new();
    for _ in 0..input.u32()? {
        let schema = input.schema()?;
        schema.validate().map_err(wrong)?;
        old_schemas.insert(schema.version, schema);
    }
    if let Some(table) = state.tables.get_mut(&id) {
        table.old_schemas = old_schemas;
    }
    for _ in 0..input.u32()? {
        apply(state, Edit::AddChunk { table: id, span: input.span()? })?;
    }
    for _ in 0..input.u32()? {
        let mut meta = input.segment()?;
        if let Some(table) = state.tables.get(&id) {
            meta.chunk = table.chunk_for(&meta);
        }
        state.restore_segment(id, &meta).map_err(wrong)?;
    }
    apply(state, Edit::Flushed { table: id, seq: input.u64()? })?;
    apply(state, Edit::NextRowNumber { table: id, next: input.u64()? })?;
    for _ in 0..input.u32()? {
        apply(state, Edit::SetProperty { table: id, name: input.text()?, value: input.bytes()?.to_vec() })?;
    }
    Ok(())
}

/// Bytes that are still to be read.
struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Decoded<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err("the record ends too early".into());
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn u8(&mut self) -> Decoded<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Decoded<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Decoded<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn bytes(&mut self) -> Decoded<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    fn text(&mut self) -> Decoded<String> {
        let text = std::str::from_utf8(self.bytes()?).map_err(|_| "a text is not UTF-8")?;
        Ok(text.to_owned())
    }

    fn table(&mut self) -> Decoded<TableId> {
        Ok(TableId(self.u32()?))
    }

    fn schema(&mut self) -> Decoded<Arc<Schema>> {
        let schema = serde_json::from_slice(self.bytes()?).map_err(|e| format!("schema: {e}"))?;
        Ok(Arc::new(schema))
    }

    fn span(&mut self) -> Decoded<ChunkSpan> {
        Ok(ChunkSpan { start: self.u64()?, end: self.u64()? })
    }

    fn segment(&mut self) -> Decoded<SegmentMeta> {
        // The fields are read in the order in which they are named here.
        let mut meta = SegmentMeta {
            id: SegmentId(self.u64()?),
            chunk: self.u64()?,
            schema_version: self.u32()?,
            rows: self.u64()?,
            tombstones: self.u64()?,
            bytes: self.u64()?,
            min_time: self.u64()?,
            max_time: self.u64()?,
            base_seq: self.u64()?,
            max_seq: self.u64()?,
            has_versions: false,
            sealed: false,
            first_key: Vec::new(),
            last_key: Vec::new(),
        };
        let flags = self.u8()?;
        if flags > 3 {
            return Err(format!("unknown flags {flags:#x} of segment {}", meta.id.0));
        }
        meta.has_versions = flags & 1 != 0;
        meta.sealed = flags & 2 != 0;
        meta.first_key = self.bytes()?.to_vec();
        meta.last_key = self.bytes()?.to_vec();
        Ok(meta)
    }

    fn finish<T>(self, value: T) -> Decoded<T> {
        if self.rest.is_empty() { Ok(value) } else { Err("the record goes on behind its end".into()) }
    }
}
