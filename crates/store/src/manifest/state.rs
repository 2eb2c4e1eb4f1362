//! What an edit does to the state: checked first, then done wholly or not at all.
//!
//! The same code runs when an edit is committed and when it is read back, so whatever the manifest accepted it
//! can also replay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::edit::{ChunkSpan, Edit, State, TableId, TableState};
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::segment::meta::{SegmentId, SegmentMeta};

/// What a list of edits changed, as it was before. A table can have tens of thousands of segments, so only edits that
/// change all of a table keep a copy of it.
pub struct Undo {
    next_table: u32,
    next_segment: u64,
    next_seq: u64,
    /// In the order of the edits.
    steps: Vec<(TableId, Before)>,
}

/// The part of a table that an edit changes.
enum Before {
    Table(Option<TableState>),
    Segment(SegmentId, Option<SegmentMeta>),
    Chunk(u64, Option<ChunkSpan>),
    Figures { flushed_seq: u64, next_row_number: u64 },
    Property(String, Option<Vec<u8>>),
}

impl State {
    /// Does one edit; [`Error::InvalidInput`] says why it makes no sense, and nothing is changed.
    pub fn apply(&mut self, edit: &Edit) -> Result<()> {
        match edit {
            Edit::CreateTable { table, name, schema } => self.create_table(*table, name, schema),
            Edit::DropTable { table } => {
                self.table(*table)?;
                self.set_table(*table, None);
                Ok(())
            }
            Edit::RenameTable { table, name } => {
                self.check_name(name, Some(*table))?;
                let before = std::mem::replace(&mut self.table(*table)?.name, name.clone());
                self.names.remove(&before);
                self.names.insert(name.clone(), *table);
                Ok(())
            }
            Edit::SetSchema { table, schema } => self.table(*table)?.set_schema(schema),
            Edit::Truncate { table, flushed_seq } => {
                let table = self.table(*table)?;
                table.segments.clear();
                table.chunks.clear();
                table.flushed_seq = table.flushed_seq.max(*flushed_seq);
                Ok(())
            }
            Edit::AddChunk { table, span } => self.table(*table)?.add_chunk(*span),
            Edit::RemoveChunk { table, start } => {
                self.table(*table)?.remove_chunk(*start);
                Ok(())
            }
            Edit::AddSegment { table, meta } => self.add_segment(*table, meta),
            Edit::RemoveSegment { table, segment } => self.table(*table)?.remove_segment(*segment),
            Edit::Flushed { table, seq } => {
                let table = self.table(*table)?;
                table.flushed_seq = table.flushed_seq.max(*seq);
                Ok(())
            }
            Edit::NextSeq { seq } => {
                self.next_seq = self.next_seq.max(*seq);
                Ok(())
            }
            Edit::NextRowNumber { table, next } => {
                let table = self.table(*table)?;
                table.next_row_number = table.next_row_number.max(*next);
                Ok(())
            }
            Edit::SetProperty { table, name, value } => {
                let properties = &mut self.table(*table)?.properties;
                match value.is_empty() {
                    true => properties.remove(name),
                    false => properties.insert(name.clone(), value.clone()),
                };
                Ok(())
            }
        }
    }

    /// Does all edits or, when one makes no sense, none.
    pub fn apply_all(&mut self, edits: &[Edit]) -> Result<Undo> {
        let mut undo = Undo {
            next_table: self.next_table,
            next_segment: self.next_segment,
            next_seq: self.next_seq,
            steps: Vec::new(),
        };
        for edit in edits {
            undo.steps.extend(self.before(edit));
            if let Err(e) = self.apply(edit) {
                self.revert(undo);
                return Err(e);
            }
        }
        Ok(undo)
    }

    /// What an edit is about to change.
    fn before(&self, edit: &Edit) -> Option<(TableId, Before)> {
        let id = edit.table()?;
        let table = self.tables.get(&id);
        let before = match (edit, table) {
            (Edit::AddChunk { span, .. }, Some(t)) => Before::Chunk(span.start, t.chunks.get(&span.start).copied()),
            (Edit::RemoveChunk { start, .. }, Some(t)) => Before::Chunk(*start, t.chunks.get(start).copied()),
            (Edit::AddSegment { meta, .. }, Some(t)) => Before::Segment(meta.id, t.segments.get(&meta.id).cloned()),
            (Edit::RemoveSegment { segment, .. }, Some(t)) => {
                Before::Segment(*segment, t.segments.get(segment).cloned())
            }
            (Edit::Flushed { .. } | Edit::NextRowNumber { .. }, Some(t)) => {
                Before::Figures { flushed_seq: t.flushed_seq, next_row_number: t.next_row_number }
            }
            (Edit::SetProperty { name, .. }, Some(t)) => {
                Before::Property(name.clone(), t.properties.get(name).cloned())
            }
            _ => Before::Table(table.cloned()),
        };
        Some((id, before))
    }

    /// Takes back what [`State::apply_all`] did last.
    pub fn revert(&mut self, undo: Undo) {
        self.next_table = undo.next_table;
        self.next_segment = undo.next_segment;
        self.next_seq = undo.next_seq;
        for (id, before) in undo.steps.into_iter().rev() {
            if let Before::Table(table) = before {
                self.set_table(id, table);
                continue;
            }
            let Some(table) = self.tables.get_mut(&id) else { continue };
            match before {
                Before::Table(_) => {}
                Before::Segment(segment, meta) => put_back(&mut table.segments, segment, meta),
                Before::Chunk(start, span) => put_back(&mut table.chunks, start, span),
                Before::Property(name, value) => put_back(&mut table.properties, name, value),
                Before::Figures { flushed_seq, next_row_number } => {
                    (table.flushed_seq, table.next_row_number) = (flushed_seq, next_row_number);
                }
            }
        }
    }

    fn create_table(&mut self, id: TableId, name: &str, schema: &Arc<Schema>) -> Result<()> {
        // Numbers are handed out once, but tables need not come in their order: ALTER TABLE takes one for a tier that it
        // builds for minutes.
        if self.tables.contains_key(&id) {
            return invalid(format!("there is a table with number {} already", id.0));
        }
        let Some(next_table) = id.0.checked_add(1) else {
            return invalid("there are no table numbers left");
        };
        self.check_name(name, None)?;
        schema.validate()?;
        let table = TableState {
            name: name.to_owned(),
            schema: schema.clone(),
            old_schemas: BTreeMap::new(),
            chunks: BTreeMap::new(),
            segments: BTreeMap::new(),
            flushed_seq: 0,
            next_row_number: 0,
            properties: BTreeMap::new(),
        };
        self.set_table(id, Some(table));
        self.next_table = self.next_table.max(next_table);
        Ok(())
    }

    fn add_segment(&mut self, id: TableId, meta: &SegmentMeta) -> Result<()> {
        let table = self.table(id)?;
        if table.schema.time.is_some() && !table.chunks.contains_key(&meta.chunk) {
            return invalid(format!("segment {} is of the unknown chunk {}", meta.id.0, meta.chunk));
        }
        self.restore_segment(id, meta)
    }

    /// Adds a segment that was there: a table that has got a time column since may not know its chunk.
    pub(super) fn restore_segment(&mut self, id: TableId, meta: &SegmentMeta) -> Result<()> {
        let Some(next_segment) = meta.id.0.checked_add(1) else {
            return invalid("there are no segment numbers left");
        };
        self.table(id)?.add_segment(meta)?;
        self.next_segment = self.next_segment.max(next_segment);
        Ok(())
    }

    /// The largest of all numbers that are counted up.
    pub(super) fn largest_number(&self) -> u64 {
        let of_table = |table: &TableState| {
            let of_segments = table.segments.values().map(|meta| meta.max_seq).max().unwrap_or(0);
            of_segments.max(table.flushed_seq).max(table.next_row_number)
        };
        let of_tables = self.tables.values().map(of_table).max().unwrap_or(0);
        of_tables.max(self.next_segment).max(self.next_seq)
    }

    /// Puts a table in the place of what bears its number, or takes that away.
    pub(super) fn set_table(&mut self, id: TableId, table: Option<TableState>) {
        let name = table.as_ref().map(|table| table.name.clone());
        let before = match table {
            Some(table) => self.tables.insert(id, table),
            None => self.tables.remove(&id),
        };
        before.map(|before| self.names.remove(&before.name));
        name.map(|name| self.names.insert(name, id));
    }

    fn table(&mut self, id: TableId) -> Result<&mut TableState> {
        match self.tables.get_mut(&id) {
            Some(table) => Ok(table),
            None => invalid(format!("there is no table with number {}", id.0)),
        }
    }

    /// A name stands for one table.
    fn check_name(&self, name: &str, except: Option<TableId>) -> Result<()> {
        let taken = self.names.get(name).is_some_and(|id| Some(*id) != except);
        if taken { Err(Error::TableExists { name: name.to_owned() }) } else { Ok(()) }
    }
}

impl TableState {
    fn set_schema(&mut self, schema: &Arc<Schema>) -> Result<()> {
        schema.validate()?;
        if schema.version <= self.schema.version {
            return invalid(format!("schema version {} does not follow {}", schema.version, self.schema.version));
        }
        let old = std::mem::replace(&mut self.schema, schema.clone());
        self.old_schemas.insert(old.version, old);
        let used: BTreeSet<u32> = self.segments.values().map(|s| s.schema_version).collect();
        self.old_schemas.retain(|version, _| used.contains(version));
        Ok(())
    }

    fn add_chunk(&mut self, span: ChunkSpan) -> Result<()> {
        if span.start >= span.end {
            return invalid(format!("the chunk from {} to {} is empty", span.start, span.end));
        }
        if self.chunks.get(&span.start) == Some(&span) {
            return Ok(()); // Named again with each of its segments.
        }
        // Chunks do not overlap, so only the last one that begins before this one's end can be in the way.
        let before = self.chunks.range(..span.end).next_back().map(|(_, chunk)| *chunk);
        if let Some(other) = before.filter(|other| other.end > span.start) {
            return invalid(format!(
                "chunks {} to {} and {} to {} overlap",
                span.start, span.end, other.start, other.end
            ));
        }
        self.chunks.insert(span.start, span);
        Ok(())
    }

    /// Not one that got a segment since it was looked at.
    fn remove_chunk(&mut self, start: u64) {
        if self.segments.values().all(|segment| segment.chunk != start) {
            self.chunks.remove(&start);
        }
    }

    fn add_segment(&mut self, meta: &SegmentMeta) -> Result<()> {
        let segment = meta.id.0;
        if self.segments.contains_key(&meta.id) {
            return invalid(format!("segment {segment} is in the table already"));
        }
        if meta.schema_version != self.schema.version && !self.old_schemas.contains_key(&meta.schema_version) {
            return invalid(format!("segment {segment} has the unknown schema version {}", meta.schema_version));
        }
        if meta.first_key > meta.last_key || meta.min_time > meta.max_time || meta.base_seq > meta.max_seq {
            return invalid(format!("the bounds of segment {segment} are upside down"));
        }
        self.segments.insert(meta.id, meta.clone());
        Ok(())
    }

    fn remove_segment(&mut self, segment: SegmentId) -> Result<()> {
        match self.segments.remove(&segment) {
            Some(_) => Ok(()),
            None => invalid(format!("segment {} is not in the table", segment.0)),
        }
    }
}

impl Edit {
    /// The table that it changes.
    pub(crate) fn table(&self) -> Option<TableId> {
        match self {
            Edit::NextSeq { .. } => None,
            Edit::CreateTable { table, .. }
            | Edit::DropTable { table }
            | Edit::RenameTable { table, .. }
            | Edit::SetSchema { table, .. }
            | Edit::Truncate { table, .. }
            | Edit::AddChunk { table, .. }
            | Edit::RemoveChunk { table, .. }
            | Edit::AddSegment { table, .. }
            | Edit::RemoveSegment { table, .. }
            | Edit::Flushed { table, .. }
            | Edit::NextRowNumber { table, .. }
            | Edit::SetProperty { table, .. } => Some(*table),
        }
    }
}

fn put_back<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, before: Option<V>) {
    match before {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}

fn invalid<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::InvalidInput(what.into()))
}
