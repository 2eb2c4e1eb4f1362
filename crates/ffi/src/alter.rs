//! ALTER TABLE: what the server's new definition of a table means for the engine's schema.
//!
//! Columns that were there before keep their ids, whatever their new names and places; new ones get ids that were
//! never used and the value that the rows from before hold. Whether stored rows can stay as they are is decided here:
//! if not, the answer is `RRD_NEEDS_COPY` with a reason, and the server copies the table.

use std::sync::Arc;

use rrd_store::alter::{Alteration, check_instant, is_same_index};
use rrd_store::index_build::BuiltIndex;
use rrd_store::schema::{ColumnDef, IndexDef, Initial, Schema, TimeColumn, TimeUnit};
use rrd_store::tier::{EndingHistory, TierChanges};
use rrd_store::{Engine, Error, RowLayout, Table};

use crate::abi;
use crate::definition::{Definition, Field};
use crate::field::{Codec, Value};
use crate::image::{IndexSortKeys, KeyPart, Order};
use crate::info_time::time_text;
use crate::record::{IndexFormat, RecordFormat};
use crate::status::{Failure, Outcome};
use crate::table::TableHandle;
use crate::time_guess;

/// A change of a table that is under way; nothing of it is seen by others until it is committed.
pub struct Alter {
    engine: Arc<Engine>,
    table: Arc<Table>,
    schema: Arc<Schema>,
    definition: Definition,
    definition_id: Vec<u8>,
    auto_increment: u64,
    built: Vec<BuiltIndex>,
    /// The row whose value occurs twice, in the new schema.
    duplicate: Vec<u8>,
    tiers: Option<TierChanges>,
    /// Rows that were there before something was built in a ring of bytes.
    rows_before: Option<u64>,
}

/// What is gone because of a change.
#[derive(Clone, Debug, Default)]
pub struct Fallen {
    /// How many rows.
    pub rows: u64,
    /// Whether none is left.
    pub is_all: bool,
    /// Texts that tell of tiers whose history ends.
    pub history: Vec<String>,
}

/// What the server says beside the new definition.
pub struct Request<'a> {
    /// For each field of the new definition its number in the old one, or `u32::MAX` for a new column.
    pub old_numbers: &'a [u32],
    /// A record of the new definition, with the values that new columns get in rows that are there.
    pub record: &'a [u8],
    /// The server's id of the new definition.
    pub definition_id: &'a [u8],
    /// `AUTO_INCREMENT=n`; 0 if not given.
    pub auto_increment: u64,
}

impl Alter {
    /// Works out the new schema.
    ///
    /// # Safety
    /// The rule `records` of `abi.rs` for the blobs in the request's record.
    pub unsafe fn new(handle: &TableHandle, definition: Definition, request: &Request<'_>) -> Outcome<Alter> {
        if request.old_numbers.len() != definition.fields.len() {
            return Err(Failure::internal("internal error: an ALTER does not say where each column comes from"));
        }
        // SAFETY: the caller's request.
        let schema = unsafe { altered_schema(handle.format(), &definition, request)? };
        if time_guess::goes_by_time_otherwise(&handle.table().schema(), &schema) {
            definition.check_guess(&schema)?;
            time_guess::check_unit(handle.table(), &schema)?;
            time_guess::check_rows(&mut handle.engine().begin(), handle.table(), &schema)?;
        }
        Ok(Alter {
            engine: handle.engine().clone(),
            table: handle.table().clone(),
            schema: Arc::new(schema),
            definition,
            definition_id: request.definition_id.to_vec(),
            auto_increment: request.auto_increment,
            built: Vec::new(),
            duplicate: Vec::new(),
            tiers: None,
            rows_before: None,
        })
    }

    /// How many things have to be built from the rows: each index, and all tiers together.
    pub fn builds(&self) -> usize {
        self.new_indexes().count() + usize::from(self.builds_tiers())
    }

    fn builds_tiers(&self) -> bool {
        self.engine.needs_tiers(&self.table, &self.schema)
    }

    fn new_indexes(&self) -> impl Iterator<Item = (usize, IndexDef)> {
        let old = self.table.schema();
        let defs = self.schema.indexes.clone().into_iter().enumerate();
        defs.filter(move |(_, def)| !old.indexes.iter().any(|was| was.id == def.id))
    }

    /// Builds the new indexes and tiers; `progress(done, total)` returns false to stop.
    pub fn build(&mut self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Outcome<()> {
        if self.table.schema().ring.max_bytes.is_some() {
            self.rows_before = Some(self.engine.rows_there(&self.table)?);
        }
        let rows = self.table.stats().rows;
        let total = rows * self.builds() as u64;
        let mut done = 0;
        for (place, def) in self.new_indexes().collect::<Vec<_>>() {
            let sort_keys = Arc::new(IndexSortKeys::new(self.definition.indexes[place].parts.clone()));
            let mut step = |rows| {
                done += rows;
                progress(done.min(total), total)
            };
            let built = self.engine.build_index(&self.table, &self.schema, &def, sort_keys, &mut step);
            let built = built.map_err(|error| self.keep_duplicate(error, place))?;
            self.built.push(built);
        }
        if self.builds_tiers() {
            let before = total - rows;
            let part = |done: u64, of: u64| (rows as f64 * done as f64 / of.max(1) as f64) as u64;
            let mut step = |done, of| progress(before + part(done, of).min(rows), total);
            self.tiers = Some(self.engine.build_tiers(&self.table, &self.schema, &mut step)?);
        }
        Ok(())
    }

    /// A value that occurs twice: the server words the error, from the row.
    fn keep_duplicate(&mut self, error: Error, place: usize) -> Failure {
        match error {
            Error::Duplicate { row, existing, .. } => {
                self.duplicate = row;
                Error::Duplicate { index: place as u32 + 1, row: Vec::new(), existing }.into()
            }
            error => error.into(),
        }
    }

    /// Writes the row that [`Alter::build`] refused into a record of the new definition. Blob pointers lead into the
    /// change itself.
    pub fn unpack_duplicate(&self, record: &mut [u8]) -> Outcome<()> {
        let layout = Arc::new(RowLayout::new(self.schema.clone()));
        if !layout.check(&self.duplicate) || record.len() != self.definition.default_record.len() {
            return Err(Failure::internal("internal error: an ALTER found no duplicate"));
        }
        let format = RecordFormat::bind(&self.definition, layout)?;
        format.unpack_row(format.plans(), &self.duplicate, record);
        Ok(())
    }

    /// Bytes of a record of the new definition.
    pub fn record_bytes(&self) -> usize {
        self.definition.default_record.len()
    }

    /// Makes changes of several tables (the partitions of one) visible and durable, all or none. Returns what is gone
    /// because of it. It ends, with nothing changed, once `stop` says so while it waits for others.
    pub fn commit(alters: Vec<Alter>, stop: &mut dyn FnMut() -> bool) -> Outcome<Fallen> {
        let Some(engine) = alters.first().map(|alter| alter.engine.clone()) else { return Ok(Fallen::default()) };
        let has_new_rule = |a: &Alter| a.table.schema().ring != a.schema.ring;
        // What is built in a ring of bytes takes the place of rows.
        let may_lose = |a: &&Alter| has_new_rule(a) || a.rows_before.is_some();
        let counted: Vec<_> = alters.iter().filter(may_lose).map(|a| (a.table.clone(), has_new_rule(a))).collect();
        let mut before = 0;
        for alter in alters.iter().filter(may_lose) {
            before += match alter.rows_before {
                Some(rows) => rows,
                None => engine.rows_there(&alter.table)?,
            };
        }
        let ending = |a: &Alter| {
            let schema = a.table.schema();
            let history = engine.ending_history(&a.table, &a.schema);
            history.iter().map(|ending| history_text(ending, &schema)).collect::<Vec<_>>()
        };
        let history = alters.iter().flat_map(ending).collect();
        let counters: Vec<_> = alters.iter().map(|a| (a.table.clone(), a.auto_increment)).collect();
        let change = |alter: Alter| Alteration {
            table: alter.table,
            schema: Schema::clone(&alter.schema),
            definition: alter.definition_id,
            built: alter.built,
            tiers: alter.tiers,
        };
        engine.alter_tables_unless(alters.into_iter().map(change).collect(), stop)?;
        for (table, next) in counters.iter().filter(|(_, next)| *next > 0) {
            engine.set_auto_increment(table, *next)?;
        }
        for (table, _) in counted.iter().filter(|(_, is_new_rule)| *is_new_rule) {
            engine.settle_ring(table, true)?;
        }
        let left = rows_of(&engine, &counted)?;
        Ok(Fallen { rows: before.saturating_sub(left), is_all: left == 0, history })
    }
}

fn history_text(ending: &EndingHistory, schema: &Schema) -> String {
    let name = ending.tier.rsplit('/').next().unwrap_or_default();
    let (first, until) = (time_text(schema, ending.first), time_text(schema, ending.until));
    format!(
        "tier '{name}' is gone with its buckets from {first} to {until}: the rows of that time have left the table, so no other tier can \
         be computed for it"
    )
}

fn rows_of(engine: &Engine, tables: &[(Arc<Table>, bool)]) -> Outcome<u64> {
    tables.iter().try_fold(0, |rows, (table, _)| Ok(rows + engine.rows_there(table)?))
}

fn needs_copy(reason: impl Into<String>) -> Failure {
    Failure::Explained(abi::RRD_NEEDS_COPY, reason.into())
}

/// # Safety
/// As for [`Alter::new`].
unsafe fn altered_schema(format: &RecordFormat, definition: &Definition, request: &Request<'_>) -> Outcome<Schema> {
    let old = format.layout().schema();
    let mut schema = definition.new_schema()?;
    let mut next = old.next_column_id();
    for (i, field) in definition.fields.iter().enumerate() {
        let column = &mut schema.columns[i];
        match format.plans().iter().find(|plan| plan.number == request.old_numbers[i]) {
            Some(plan) => keep(column, &old.columns[usize::from(plan.column)], plan.codec(), field)?,
            None if request.old_numbers[i] != u32::MAX => {
                return Err(needs_copy(format!("column '{}' is stored from now on", field.name)));
            }
            None => {
                column.id = next;
                next += 1;
                // SAFETY: the caller's record.
                column.initial = Some(unsafe { initial(field, request.record)? });
            }
        }
    }
    keep_key(format, definition, request, old, &mut schema)?;
    keep_indexes(format, definition, request, &mut schema);
    keep_tiers(old, &mut schema);
    let unit = |schema: &Schema| schema.time.map(|time| time.unit);
    if unit(old) != unit(&schema) && schema.tiers.iter().any(|tier| old.tiers.iter().any(|was| was.id == tier.id)) {
        return Err(needs_copy("with TIME_UNIT the buckets of tiers change"));
    }
    keep_order(old, &mut schema);
    schema.next_column = next;
    let id_of = |schema: &Schema| schema.auto_increment.map(|a| schema.columns[usize::from(a.column)].id);
    if id_of(old) != id_of(&schema) {
        return Err(needs_copy("the AUTO_INCREMENT column changes"));
    }
    check_instant(old, &schema).map_err(|error| match error {
        Error::InvalidInput(reason) => needs_copy(reason),
        error => error.into(),
    })?;
    Ok(schema)
}

/// A table without a time column stays parted, or not, as it was when it was made.
fn keep_order(old: &Schema, schema: &mut Schema) {
    let has_no_time = |schema: &Schema| schema.time.is_none_or(|time| time.unit == TimeUnit::Order);
    if has_no_time(old) && has_no_time(schema) {
        schema.time = old.time.and_then(|time| {
            let id = old.columns[usize::from(time.column)].id;
            let column = schema.columns.iter().position(|column| column.id == id)? as u16;
            Some(TimeColumn { column, ..time })
        });
    }
}

/// A column that was there before.
fn keep(column: &mut ColumnDef, was: &ColumnDef, codec: Codec, field: &Field) -> Outcome<()> {
    let reason = match (codec, field.codec) {
        _ if was.nullable && !column.nullable => Some("NULL is no longer allowed"),
        (a, b) if a == b => None,
        (Codec::Var { max: a, .. }, Codec::Var { max: b, .. }) if a <= b => None,
        (Codec::Blob { length_bytes: a }, Codec::Blob { length_bytes: b }) if a <= b => None,
        (Codec::Fixed { length: a, pad: p, .. }, Codec::Fixed { length: b, pad: q, .. }) if a <= b && p == q => None,
        _ => Some("its type changes"),
    };
    column.id = was.id;
    column.initial.clone_from(&was.initial);
    reason.map_or(Ok(()), |why| Err(needs_copy(format!("column '{}': {why}", field.name))))
}

/// The clustering key must stay what it is; its hidden lanes, and the row number, keep their ids.
fn keep_key(
    format: &RecordFormat,
    definition: &Definition,
    request: &Request<'_>,
    old: &Schema,
    schema: &mut Schema,
) -> Outcome<()> {
    let changed = || needs_copy("the clustering key changes");
    if old.key.len() != schema.key.len() || definition.key.len() != format.key().len() {
        return Err(changed());
    }
    for (new, was) in definition.key.iter().zip(format.key()) {
        let old_number = format.plans().get(was.field).map(|plan| plan.number);
        if old_number != request.old_numbers.get(new.field).copied() || !is_sorted_alike(new, was) {
            return Err(changed());
        }
    }
    for (&at, &was) in schema.key.iter().zip(&old.key) {
        let (column, was) = (&mut schema.columns[usize::from(at)], &old.columns[usize::from(was)]);
        if column.hidden != was.hidden {
            return Err(changed());
        }
        if column.hidden {
            column.id = was.id;
        }
        // Columns have their old ids by now.
        if let Some(field) = column.sort_key_of().map(|field| field as usize) {
            let id = schema.columns[field].id;
            schema.columns[usize::from(at)].options = vec![ColumnDef::sort_key_option(id)];
        }
    }
    Ok(())
}

/// Indexes whose entries stay the same keep their ids, whatever their names; the others get new ones and are built.
fn keep_indexes(format: &RecordFormat, definition: &Definition, request: &Request<'_>, schema: &mut Schema) {
    let old = format.layout().schema();
    let mut left: Vec<&IndexFormat> = format.indexes().iter().collect();
    let mut next = old.next_index_id();
    let mut ids = Vec::new();
    for (def, new) in schema.indexes.iter().zip(&definition.indexes) {
        let is_same = |was: &IndexFormat| {
            is_same_index((old, &old.indexes[was.number]), (schema, def))
                && new.parts.iter().zip(&was.parts).all(|(a, b)| is_sorted_alike(a, b))
                && new.parts.iter().zip(&was.parts).all(|(a, b)| {
                    format.plans().get(b.field).map(|plan| plan.number) == request.old_numbers.get(a.field).copied()
                })
        };
        let named = left.iter().position(|was| was.name == new.name && is_same(was));
        ids.push(match named.or_else(|| left.iter().position(|was| is_same(was))) {
            Some(at) => old.indexes[left.swap_remove(at).number].id,
            None => {
                next += 1;
                next - 1
            }
        });
    }
    schema.indexes.iter_mut().zip(ids).for_each(|(def, id)| def.id = id);
    schema.next_index = next;
}

/// Tiers whose names stay keep their numbers; the others get new ones and are built.
fn keep_tiers(old: &Schema, schema: &mut Schema) {
    let mut next = old.tiers.iter().map(|tier| tier.id + 1).max().unwrap_or(1);
    for tier in &mut schema.tiers {
        tier.id = match old.tiers.iter().find(|was| was.name == tier.name) {
            Some(was) => was.id,
            None => {
                next += 1;
                next - 1
            }
        };
    }
}

fn is_sorted_alike(a: &KeyPart, b: &KeyPart) -> bool {
    let order = match (a.order, b.order) {
        (Order::Lane, Order::Lane) | (Order::Float, Order::Float) => true,
        (
            Order::Text { collation: a, max_chars: m, is_padded: p },
            Order::Text { collation: b, max_chars: n, is_padded: q },
        ) => std::ptr::eq(a.handle, b.handle) && m == n && p == q,
        _ => false,
    };
    order && a.is_descending == b.is_descending
}

/// The value of a new column in the rows that are there.
///
/// # Safety
/// The rule `records` of `abi.rs` for the blobs in the record.
unsafe fn initial(field: &Field, record: &[u8]) -> Outcome<Initial> {
    let (at, null_at) = (field.offset as usize, field.null_offset as usize);
    if record.len() < at + field.codec.record_bytes() || record.len() <= null_at {
        return Err(Failure::internal("internal error: a field lies outside its record"));
    }
    if field.null_mask != 0 && record[null_at] & field.null_mask != 0 {
        return Ok(Initial::Null);
    }
    // SAFETY: the caller's record; the value is copied here.
    Ok(match unsafe { field.codec.read(&record[at..]) } {
        Value::Int(bits) | Value::F64(bits) => Initial::Bits(bits),
        Value::F32(bits) => Initial::Bits(u64::from(bits)),
        Value::Bytes(bytes) => Initial::Bytes(bytes.to_vec()),
    })
}
