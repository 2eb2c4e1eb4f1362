//! Records of the server to rows of the store, and columns or rows back to records.
//!
//! A format is made once for each open table: a flat list with one entry a column, so that a row costs a loop
//! without calls through pointers. Only the columns that the statement asked for are written back.

use std::ops::Range;
use std::sync::Arc;

use rrd_codec::{Column, Values};
use rrd_store::index::Index;
use rrd_store::schema::{IndexColumn, Lane, Schema};
use rrd_store::{Direction, RowLayout, row::RowView};

use crate::abi::RrdCollation;
use crate::ahead::Records;
use crate::definition::{Definition, Field, IndexDefinition};
use crate::field::{Codec, Value};
use crate::image::{self, KeyPart, Order, Scratch};
use crate::key_text::{Clock, Shown};
use crate::status::{Failure, Outcome};

/// How one column travels.
#[derive(Clone, Debug)]
pub struct Plan {
    codec: Codec,
    offset: usize,
    null_offset: usize,
    null_mask: u8,
    /// The bytes under a NULL: the default value's, as InnoDB has it; the server compares them.
    null_bytes: Arc<[u8]>,
    /// The column does not hold the value but says whether it is NULL: by this number.
    null_when: Option<u64>,
    /// Position in the schema.
    pub column: u16,
    /// Number of the field in the server's table.
    pub number: u32,
}

/// How a table's records and keys become the store's rows and sort keys.
pub struct RecordFormat {
    layout: Arc<RowLayout>,
    plans: Vec<Plan>,
    /// Of the plans' fields.
    collations: Vec<RrdCollation>,
    /// What a row has just as the record has it, in as few pieces as there are.
    copies: Vec<Copied>,
    /// The other columns.
    packed: Vec<Plan>,
    key: Vec<KeyPart>,
    /// Key parts with a hidden lane, and the lane's position.
    hidden: Vec<(u16, KeyPart)>,
    /// The hidden row number's position.
    row_number: Option<u16>,
    record_bytes: usize,
    /// How the key's values are shown to people.
    shown: Vec<Shown>,
    indexes: Vec<IndexFormat>,
}

/// Bytes that are the same in a record and a row.
struct Copied {
    from: usize,
    to: usize,
    len: usize,
}

/// How key images of a secondary index become its sort keys.
pub struct IndexFormat {
    /// SQL name.
    pub name: String,
    /// Its number in the store.
    pub number: usize,
    /// Its parts.
    pub parts: Vec<KeyPart>,
    shown: Vec<Shown>,
}

impl RecordFormat {
    /// Brings the server's description and the engine's schema together; an error if they do not go together.
    pub fn bind(definition: &Definition, layout: Arc<RowLayout>) -> Outcome<RecordFormat> {
        let schema = layout.schema().clone();
        let plans = definition
            .fields
            .iter()
            .map(|field| {
                Ok(Plan {
                    null_bytes: definition.bytes_under_null(field),
                    null_when: None,
                    codec: field.codec,
                    offset: field.offset as usize,
                    null_offset: field.null_offset as usize,
                    null_mask: field.null_mask,
                    column: find_column(&schema, &field.name, field.codec.lane(), field.null_mask != 0)?,
                    number: field.number,
                })
            })
            .collect::<Outcome<Vec<Plan>>>()?;
        let visible = schema.columns.iter().filter(|c| !c.hidden).count();
        if visible != plans.len() {
            return Err(mismatch("the number of columns"));
        }
        let hidden = bind_key(definition, &schema, &plans)?;
        let shown = |part: &KeyPart| shown(&definition.fields[part.field], &plans[part.field], part);
        let indexes = definition.indexes.iter().map(|index| {
            let number = find_index(index, &schema, &plans)?;
            let shown = index.parts.iter().map(shown).collect();
            Ok(IndexFormat { name: index.name.clone(), number, parts: index.parts.clone(), shown })
        });
        let indexes = indexes.collect::<Outcome<Vec<IndexFormat>>>()?;
        if indexes.len() != schema.indexes.len() {
            return Err(mismatch("the number of keys"));
        }
        let shown = definition.key.iter().map(shown).collect();
        let (copies, packed) = split_plans(&plans, &layout);
        Ok(RecordFormat {
            indexes,
            copies,
            packed,
            key: definition.key.clone(),
            hidden,
            row_number: schema.row_number,
            record_bytes: definition.default_record.len(),
            shown,
            collations: definition.fields.iter().map(|field| field.collation).collect(),
            plans,
            layout,
        })
    }

    /// The key of a row, as an error message shows it; TIMESTAMPs as the clock does.
    pub fn key_text(&self, row: &[u8], clock: Clock<'_>) -> String {
        self.text_of(&self.shown, row, clock)
    }

    /// As [`RecordFormat::key_text`], for a secondary index.
    pub fn index_text(&self, index: &IndexFormat, row: &[u8], clock: Clock<'_>) -> String {
        self.text_of(&index.shown, row, clock)
    }

    fn text_of(&self, parts: &[Shown], row: &[u8], clock: Clock<'_>) -> String {
        let view = self.layout.view(row);
        let part = |shown: &Shown| match shown.is_bytes() {
            _ if view.is_null(usize::from(shown.column)) => "NULL".to_owned(),
            true => shown.bytes(view.bytes(usize::from(shown.column))),
            false => shown.int(view.int(usize::from(shown.column)), clock),
        };
        parts.iter().map(part).collect::<Vec<_>>().join("-")
    }

    /// The secondary index at a place in the server's order.
    pub fn index(&self, place: usize) -> Outcome<&IndexFormat> {
        self.indexes.get(place).ok_or_else(|| Failure::internal("internal error: no such key"))
    }

    /// The secondary indexes, in the server's order.
    pub fn indexes(&self) -> &[IndexFormat] {
        &self.indexes
    }

    /// All columns, for writing back.
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// The collation of the field that the plan at `place` is for.
    pub fn collation(&self, place: usize) -> &RrdCollation {
        &self.collations[place]
    }

    /// Parts of the clustering key whose sort key is a hidden column, and that column's position.
    pub fn hidden(&self) -> &[(u16, KeyPart)] {
        &self.hidden
    }

    /// The parts of the clustering key; empty if it is a row number.
    pub fn key(&self) -> &[KeyPart] {
        &self.key
    }

    /// Whether rows are known by a hidden number.
    pub fn has_row_number(&self) -> bool {
        self.row_number.is_some()
    }

    /// The layout of the rows.
    pub fn layout(&self) -> &Arc<RowLayout> {
        &self.layout
    }

    /// Bytes of a record.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// Appends the row of a record to `out`.
    ///
    /// # Safety
    /// The rule `records` of `abi.rs` for the blobs in it.
    #[inline]
    pub unsafe fn pack(
        &self,
        record: &[u8],
        row_number: u64,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> rrd_store::Result<()> {
        let mut writer = self.layout.try_writer(out)?;
        for copied in &self.copies {
            writer.copy_fixed(copied.to, &record[copied.from..][..copied.len]);
        }
        for plan in &self.packed {
            let column = usize::from(plan.column);
            if plan.null_mask != 0 && record[plan.null_offset] & plan.null_mask != 0 {
                writer.set_null(column);
                continue;
            }
            // SAFETY: the caller's record; the value is copied here.
            match unsafe { plan.codec.read(&record[plan.offset..]) } {
                Value::Int(value) => writer.set_int(column, value),
                Value::F32(bits) => writer.set_f32_bits(column, bits),
                Value::F64(bits) => writer.set_f64_bits(column, bits),
                Value::Bytes(bytes) => writer.try_push_bytes(column, bytes)?,
            }
        }
        for (column, part) in &self.hidden {
            // SAFETY: the caller's record; the value is copied, or made a sort key, here.
            let value = unsafe { part.codec.read(&record[part.offset..]) };
            match part.key_value(value, scratch) {
                Value::Bytes(bytes) => writer.try_push_bytes(usize::from(*column), bytes)?,
                Value::Int(value) | Value::F64(value) => writer.set_int(usize::from(*column), value),
                Value::F32(bits) => writer.set_int(usize::from(*column), u64::from(bits)),
            }
        }
        if let Some(column) = self.row_number {
            writer.set_int(usize::from(column), row_number);
        }
        writer.finish();
        Ok(())
    }

    /// Appends the sort key of a record; nothing for a table with row numbers.
    ///
    /// # Safety
    /// The rule `records` of `abi.rs` for the blobs in key fields.
    pub unsafe fn push_key(&self, record: &[u8], scratch: &mut Scratch, out: &mut Vec<u8>) {
        // SAFETY: the caller's record, and its key.
        unsafe { image::push_record(&self.key, record, scratch, out) }
    }

    /// Writes a row of the store into a record. Blob pointers lead into `row`.
    pub fn unpack_row(&self, plans: &[Plan], row: &[u8], record: &mut [u8]) {
        let view = self.layout.view(row);
        for plan in plans {
            plan.unpack_view(&view, record);
        }
    }
}

impl Plan {
    /// The lane value of a number in a record.
    pub fn int(&self, record: &[u8]) -> u64 {
        match self.codec.lane() {
            Lane::Int { .. } => match self.codec.read_in_place(&record[self.offset..]) {
                Value::Int(value) => value,
                _ => 0,
            },
            _ => 0,
        }
    }

    /// The same column from an entry of an index; `None` if those do not hold it as it stands. In an entry a NULL is told
    /// by a column of its own, which is looked at after the value.
    pub fn from_entry(&self, index: &Index) -> Option<Vec<Plan>> {
        let mut plans = vec![Plan { column: index.column_of(self.column)?, null_mask: 0, ..self.clone() }];
        if self.null_mask != 0 {
            let (column, null_when) = index.null_flag_of(self.column)?;
            plans.push(Plan { column, null_when: Some(null_when), ..self.clone() });
        }
        Some(plans)
    }

    /// How the value lies in a record.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Writes a number, or the bits of one, into a record.
    pub fn put_int(&self, value: u64, record: &mut [u8]) {
        self.set_null(false, record);
        self.codec.write_int(&mut record[self.offset..], value);
    }

    /// Writes a byte string into a record; a blob's pointer is to `value` itself.
    pub fn put_bytes(&self, value: &[u8], record: &mut [u8]) {
        self.set_null(false, record);
        self.codec.write_bytes(&mut record[self.offset..], value);
    }

    /// Writes NULL into a record.
    pub fn put_null(&self, record: &mut [u8]) {
        self.set_null(true, record);
    }

    /// Writes row `i` of `column` into a record. Blob pointers lead into the column.
    #[inline]
    pub fn unpack(&self, column: &Column, i: usize, record: &mut [u8]) {
        if self.null_mask != 0 && self.unpack_null(column, i, record) {
            return;
        }
        let at = &mut record[self.offset..];
        match &column.values {
            Values::Int(values) | Values::F64(values) => self.codec.write_int(at, values[i]),
            Values::F32(values) => self.codec.write_int(at, u64::from(values[i])),
            Values::Bytes(values) => self.codec.write_bytes(at, values.get(i)),
        }
    }

    /// Writes rows of `column` into records that lie one behind the other: those of `rows`, or the same from the last to the
    /// first.
    pub fn unpack_rows(&self, column: &Column, rows: Range<usize>, direction: Direction, records: &mut Records<'_>) {
        if self.null_mask != 0 && (column.nulls.is_some() || self.null_when.is_some()) {
            records.each(rows, direction, |record, i| self.unpack(column, i, record));
            return;
        }
        if self.null_mask != 0 {
            records.each(rows.clone(), direction, |record, _| record[self.null_offset] &= !self.null_mask);
        }
        let (at, codec) = (self.offset, self.codec);
        match (&column.values, codec) {
            (Values::F64(v), _) => records.put(at, &v[rows], direction, u64::to_le_bytes),
            (Values::Int(v), Codec::Integer { width: 8, flip }) => {
                records.put(at, &v[rows], direction, |v| (v ^ flip).to_le_bytes());
            }
            (Values::Int(v), Codec::Integer { width: 4, flip }) => {
                records.put(at, &v[rows], direction, |v| ((v ^ flip) as u32).to_le_bytes());
            }
            (Values::Int(v), _) => records.each(rows, direction, |record, i| codec.write_int(&mut record[at..], v[i])),
            (Values::F32(v), _) => records.put(at, &v[rows], direction, u32::to_le_bytes),
            (Values::Bytes(v), _) => {
                records.each(rows, direction, |record, i| codec.write_bytes(&mut record[at..], v.get(i)))
            }
        }
    }

    /// Whether nothing is left to write: the value is NULL, or the column only says that it is not.
    #[inline]
    fn unpack_null(&self, column: &Column, i: usize, record: &mut [u8]) -> bool {
        match (self.null_when, &column.values) {
            (Some(null_when), Values::Int(flags)) => {
                self.set_null(flags[i] == null_when, record);
                true
            }
            _ => self.set_null(column.is_null(i), record),
        }
    }

    fn unpack_view(&self, view: &RowView<'_>, record: &mut [u8]) {
        let column = usize::from(self.column);
        if self.null_mask != 0 && self.set_null(view.is_null(column), record) {
            return;
        }
        let at = &mut record[self.offset..];
        match self.codec.lane() {
            Lane::Bytes => self.codec.write_bytes(at, view.bytes(column)),
            _ => self.codec.write_int(at, view.int(column)),
        }
    }

    /// Sets or clears the null bit; a null value's bytes are set too, so that no old pointer stays in a record.
    #[inline]
    fn set_null(&self, is_null: bool, record: &mut [u8]) -> bool {
        let byte = &mut record[self.null_offset];
        match is_null {
            true => *byte |= self.null_mask,
            false => *byte &= !self.null_mask,
        }
        if is_null {
            record[self.offset..self.offset + self.null_bytes.len()].copy_from_slice(&self.null_bytes);
        }
        is_null
    }
}

/// Columns whose values a row has just as the record has them, neighbours together, and the others.
fn split_plans(plans: &[Plan], layout: &RowLayout) -> (Vec<Copied>, Vec<Plan>) {
    let mut copies: Vec<Copied> = Vec::new();
    let mut packed = Vec::new();
    for plan in plans {
        let is_same = plan.null_mask == 0 && plan.codec.is_lane_as_it_stands();
        let Some(to) = layout.fixed_offset(usize::from(plan.column)).filter(|_| is_same) else {
            packed.push(plan.clone());
            continue;
        };
        let (from, len) = (plan.offset, plan.codec.record_bytes());
        match copies.last_mut() {
            Some(last) if last.from + last.len == from && last.to + last.len == to => last.len += len,
            _ => copies.push(Copied { from, to, len }),
        }
    }
    (copies, packed)
}

fn find_column(schema: &Schema, name: &str, lane: Lane, nullable: bool) -> Outcome<u16> {
    let position = schema.columns.iter().position(|c| !c.hidden && c.name == name);
    let Some(position) = position else { return Err(mismatch(&format!("column '{name}'"))) };
    let column = &schema.columns[position];
    if column.lane != lane || column.nullable != nullable {
        return Err(mismatch(&format!("the type of column '{name}'")));
    }
    Ok(position as u16)
}

/// Checks the key against the schema's; gives the hidden lanes.
fn bind_key(definition: &Definition, schema: &Schema, plans: &[Plan]) -> Outcome<Vec<(u16, KeyPart)>> {
    if schema.row_number.is_some() {
        return if definition.key.is_empty() { Ok(Vec::new()) } else { Err(mismatch("the primary key")) };
    }
    if schema.key.len() != definition.key.len() {
        return Err(mismatch("the primary key"));
    }
    let mut hidden = Vec::new();
    for (part, &column) in definition.key.iter().zip(&schema.key) {
        let found = &schema.columns[usize::from(column)];
        match part.sort_lane() {
            Some(lane) if found.hidden && found.lane == lane => hidden.push((column, *part)),
            None if plans[part.field].column == column => {}
            _ => return Err(mismatch("the primary key")),
        }
    }
    Ok(hidden)
}

/// The number of an index in the schema.
fn find_index(index: &IndexDefinition, schema: &Schema, plans: &[Plan]) -> Outcome<usize> {
    let found = schema.indexes.iter().position(|def| def.name == index.name);
    let Some(number) = found else { return Err(mismatch(&format!("key '{}'", index.name))) };
    let wanted = index.def(schema.indexes[number].id);
    let columns = wanted.columns.iter().map(|c| IndexColumn { column: plans[usize::from(c.column)].column, ..*c });
    if wanted.unique != schema.indexes[number].unique || !columns.eq(schema.indexes[number].columns.iter().copied()) {
        return Err(mismatch(&format!("key '{}'", index.name)));
    }
    Ok(number)
}

fn shown(field: &Field, plan: &Plan, part: &KeyPart) -> Shown {
    let max_chars = match part.order {
        Order::Text { max_chars, .. } => max_chars as usize,
        _ => 0,
    };
    Shown::new(plan.column, field, max_chars)
}

fn mismatch(what: &str) -> Failure {
    Failure::definition_changed(format!("the server's definition of the table differs from the engine's in {what}"))
}
