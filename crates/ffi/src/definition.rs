//! A table's description, as the handler passes it, to the store's schema.
//!
//! The stored SQL columns come first, in record order; behind them one hidden lane for each key part that needs
//! one, in key order; a table without a usable key gets a hidden row number instead. The time column is the one
//! that `TIME_COLUMN` names, else the last key column if it is TIMESTAMP or DATETIME, or an integer (not
//! AUTO_INCREMENT) behind another key column.

use std::sync::Arc;

use rrd_store::schema::{AutoIncrement, ColumnDef, IndexColumn, IndexDef, Lane, Number, Schema, TimeColumn, TimeUnit};

use crate::abi::{self, RrdCollation, RrdField, RrdKeyPart, RrdOption, RrdTableDefinition, RrdText, RrdTimeKind};
use crate::field::Codec;
use crate::guard::slice;
use crate::image::{KeyPart, Order};
use crate::options::{self, Duration, Pair, TableOptions};
use crate::status::{Failure, Outcome};
use crate::tiers;

/// A table's description, read and checked.
pub struct Definition {
    /// Its stored fields.
    pub fields: Vec<Field>,
    /// The key to cluster on; empty for none.
    pub key: Vec<KeyPart>,
    /// The other keys, in the server's order.
    pub indexes: Vec<IndexDefinition>,
    /// A record of default values.
    pub default_record: Vec<u8>,
    /// Options of the table.
    pub options: Vec<Pair>,
}

/// A secondary index.
pub struct IndexDefinition {
    /// SQL name.
    pub name: String,
    /// UNIQUE.
    pub unique: bool,
    /// Its parts.
    pub parts: Vec<KeyPart>,
}

/// One stored field.
pub struct Field {
    /// SQL name.
    pub name: String,
    /// How it lies in a record.
    pub codec: Codec,
    /// Its number in the server's table.
    pub number: u32,
    /// Offset of the value in a record.
    pub offset: u32,
    /// Offset of the byte with its null bit.
    pub null_offset: u32,
    /// The null bit; 0 for NOT NULL.
    pub null_mask: u8,
    /// What it may serve as on the time axis.
    pub time_kind: RrdTimeKind,
    /// Fraction digits of a temporal type or a DECIMAL.
    pub fraction_digits: u8,
    /// AUTO_INCREMENT.
    pub is_auto_increment: bool,
    /// Digits of a DECIMAL; 0 for any other type.
    pub decimal_precision: u8,
    /// For texts and byte strings.
    pub collation: RrdCollation,
    /// As CREATE TABLE has it.
    pub sql_type: String,
    /// Options of the column.
    pub options: Vec<Pair>,
}

impl Definition {
    /// Reads the other side's description.
    ///
    /// # Safety
    /// The rule `arrays` of `abi.rs` for what it points to.
    pub unsafe fn read(raw: &RrdTableDefinition<'_>) -> Outcome<Definition> {
        // SAFETY: rule `arrays`: there are `field_count` fields.
        let raw_fields = unsafe { slice(raw.fields, raw.field_count)? };
        // SAFETY: rule `arrays`: there are `key_part_count` parts.
        let raw_parts = unsafe { slice(raw.key_parts, raw.key_part_count)? };
        let mut fields = Vec::with_capacity(raw_fields.len());
        for field in raw_fields {
            // SAFETY: rule `arrays` for the options of the field.
            fields.push(unsafe { read_field(field, raw.record_bytes)? });
        }
        let key = raw_parts.iter().map(|part| read_part(raw_fields, part)).collect::<Outcome<Vec<_>>>()?;
        let mut indexes = Vec::new();
        // SAFETY: rule `arrays`: there are `index_count` indexes.
        for index in unsafe { slice(raw.indexes, raw.index_count)? } {
            // SAFETY: rule `arrays`: the index has `part_count` parts.
            let parts = unsafe { slice(index.parts, index.part_count)? };
            indexes.push(IndexDefinition {
                name: read_text(index.name),
                unique: index.is_unique != 0,
                parts: parts.iter().map(|part| read_part(raw_fields, part)).collect::<Outcome<Vec<_>>>()?,
            });
        }
        // SAFETY: rule `arrays`: there are `option_count` options.
        let options = unsafe { read_options(raw.options, raw.option_count)? };
        // SAFETY: rule `arrays`: the default record has `record_bytes` bytes.
        let default_record = unsafe { slice(raw.default_record, raw.record_bytes)? }.to_vec();
        Ok(Definition { fields, key, indexes, default_record, options })
    }

    /// The schema of a new table with this description.
    pub fn new_schema(&self) -> Outcome<Schema> {
        let table_options = options::table_options(&self.options)?;
        let column_options = self.fields.iter().map(|field| options::column_options(&field.name, &field.options));
        let column_options = column_options.collect::<Outcome<Vec<_>>>()?;
        let mut columns: Vec<ColumnDef> = self.fields.iter().enumerate().map(|(i, f)| f.column(i)).collect();
        let key = self.key_columns(&mut columns);
        let row_number = match self.key.is_empty() {
            true => Some(add_hidden(&mut columns, Lane::Int { width: 8 }, None)),
            false => None,
        };
        let time = self.time_column(&table_options)?;
        let mut schema = Schema {
            version: 1,
            key: row_number.map_or(key, |number| vec![number]),
            chunk_length: chunk_length(&table_options, time)?,
            indexes: self.indexes.iter().zip(1..).map(|(index, id)| index.def(id)).collect(),
            auto_increment: self.auto_increment(),
            index_of: None,
            columns,
            time,
            row_number,
            compression: table_options.compression,
            options: self.options.clone(),
            next_column: 0,
            next_index: 0,
            ring: Default::default(),
            tiers: Vec::new(),
            tier_of: None,
            step: None,
            xff: None,
        };
        tiers::apply(&mut schema, &table_options, &column_options, &|at| self.key.iter().any(|part| part.field == at))?;
        if !schema.tiers.is_empty() {
            self.check_series()?;
        }
        schema.time = schema.time.or_else(|| self.order_of_ring(&schema));
        schema.validate()?;
        Ok(schema)
    }

    /// A tier's key is made of the same columns, with nothing but their types to go by.
    fn check_series(&self) -> Outcome<()> {
        let is_prefix = |part: &KeyPart| {
            let max_chars = if let Order::Text { max_chars, .. } = part.order { max_chars } else { 0 };
            max_chars > 0 && !matches!(part.codec, Codec::Fixed { .. })
        };
        match self.key.iter().find(|part| is_prefix(part) || part.is_descending) {
            Some(part) => Err(Failure::invalid(format!(
                "a table with tiers cannot have a prefix or a descending column in its primary key: write column '{}' \
                 there without length and DESC",
                self.fields[part.field].name
            ))),
            None => Ok(()),
        }
    }

    /// A ring without a time column is parted by its first key column, if that is a number.
    fn order_of_ring(&self, schema: &Schema) -> Option<TimeColumn> {
        let column = *schema.key.first()?;
        let is_number = matches!(schema.columns[usize::from(column)].lane, Lane::Int { .. });
        let ascends = self.key.first().is_none_or(|part| !part.is_descending);
        let bias = self.fields.get(usize::from(column)).map_or(0, |field| field.codec.bias());
        let is_ring = schema.ring.max_rows.is_some() || schema.ring.max_bytes.is_some();
        (is_ring && is_number && ascends).then_some(TimeColumn { column, unit: TimeUnit::Order, bias })
    }

    /// What a record has where this field is NULL: the bytes of its default, or zeros where that is a pointer.
    pub fn bytes_under_null(&self, field: &Field) -> Arc<[u8]> {
        let length = field.codec.record_bytes();
        let at = field.offset as usize;
        match self.default_record.get(at..at + length) {
            Some(bytes) if !matches!(field.codec, Codec::Blob { .. }) => bytes.into(),
            _ => vec![0; length].into(),
        }
    }

    fn auto_increment(&self) -> Option<AutoIncrement> {
        let position = self.fields.iter().position(|field| field.is_auto_increment)?;
        Some(AutoIncrement { column: position as u16, bias: self.fields[position].codec.bias() })
    }

    /// Where each key part lies among the columns; adds the hidden lanes.
    fn key_columns(&self, columns: &mut Vec<ColumnDef>) -> Vec<u16> {
        self.key
            .iter()
            .map(|part| match part.sort_lane() {
                Some(lane) => add_hidden(columns, lane, Some(part.field)),
                None => part.field as u16,
            })
            .collect()
    }

    fn time_column(&self, table_options: &TableOptions) -> Outcome<Option<TimeColumn>> {
        let Some(position) = self.time_position(table_options.time_column.as_deref())? else {
            return match table_options.time_unit {
                None => Ok(None),
                Some(_) => Err(Failure::invalid("option TIME_UNIT needs a time column; name it with TIME_COLUMN='ts'")),
            };
        };
        let field = &self.fields[self.key[position].field];
        let fraction_digits = field.fraction_digits;
        let unit = match (field.time_kind, table_options.time_unit) {
            (abi::RRD_TIME_INTEGER, unit) => unit.unwrap_or(TimeUnit::S),
            (_, Some(_)) => {
                return Err(Failure::invalid(format!(
                    "option TIME_UNIT is for integer time columns; '{}' knows its unit",
                    field.name
                )));
            }
            (abi::RRD_TIME_TIMESTAMP, None) => TimeUnit::Timestamp { fraction_digits },
            (_, None) => TimeUnit::Datetime { fraction_digits },
        };
        Ok(Some(TimeColumn { column: self.key[position].field as u16, unit, bias: field.codec.bias() }))
    }

    /// The key part that is the time, if there is one.
    fn time_position(&self, named: Option<&str>) -> Outcome<Option<usize>> {
        let Some(name) = named else {
            return Ok(self.key.len().checked_sub(1).filter(|last| self.is_time_by_default(*last)));
        };
        let bad = |why: &str| Err(Failure::invalid(format!("option TIME_COLUMN='{name}': {why}")));
        let Some(field) = self.fields.iter().position(|f| f.name.eq_ignore_ascii_case(name)) else {
            return bad("the table has no such stored column");
        };
        let Some(position) = self.key.iter().position(|part| part.field == field) else {
            return bad("the time column must be part of the primary key, as in PRIMARY KEY (sensor_id, ts)");
        };
        if self.key[position].is_descending {
            return bad("the time column must be ascending in the primary key");
        }
        match self.fields[field].time_kind {
            abi::RRD_TIME_NONE => bad("the time column must be TIMESTAMP, DATETIME or an integer"),
            abi::RRD_TIME_OLD_FORMAT => bad("this temporal format of old servers cannot be a time column"),
            _ => Ok(Some(position)),
        }
    }

    fn is_time_by_default(&self, position: usize) -> bool {
        let field = &self.fields[self.key[position].field];
        match field.time_kind {
            _ if self.key[position].is_descending => false,
            abi::RRD_TIME_TIMESTAMP | abi::RRD_TIME_DATETIME => true,
            abi::RRD_TIME_INTEGER => position > 0 && !field.is_auto_increment,
            _ => false,
        }
    }
}

impl IndexDefinition {
    /// What the store keeps of it. Fields have the same positions in a new schema.
    pub fn def(&self, id: u32) -> IndexDef {
        let column = |part: &KeyPart| IndexColumn {
            column: part.field as u16,
            sort_lane: part.sort_lane(),
            nulls_last: part.is_descending,
        };
        IndexDef { id, name: self.name.clone(), unique: self.unique, columns: self.parts.iter().map(column).collect() }
    }
}

impl Field {
    fn column(&self, position: usize) -> ColumnDef {
        ColumnDef {
            id: position as u32,
            name: self.name.clone(),
            lane: self.codec.lane(),
            nullable: self.null_mask != 0,
            hidden: false,
            options: self.options.clone(),
            initial: None,
            source: None,
            number: self.number_type(),
            sql_type: self.sql_type.clone(),
        }
    }

    /// What sums of it need to know; nothing for floats, and for what is not a number.
    fn number_type(&self) -> Option<Number> {
        match (self.time_kind, self.decimal_precision) {
            (abi::RRD_TIME_INTEGER, _) => Some(Number::Integer { bias: self.codec.bias() }),
            (_, 0) => None,
            (_, precision) => Some(Number::Decimal { precision, scale: self.fraction_digits }),
        }
    }
}

/// A hidden lane; `sorts` is the column whose sort key it is.
fn add_hidden(columns: &mut Vec<ColumnDef>, lane: Lane, sorts: Option<usize>) -> u16 {
    let position = columns.len();
    columns.push(ColumnDef {
        id: position as u32,
        name: String::new(),
        lane,
        nullable: false,
        hidden: true,
        options: sorts.map(|field| ColumnDef::sort_key_option(field as u32)).into_iter().collect(),
        initial: None,
        source: None,
        number: None,
        sql_type: String::new(),
    });
    position as u16
}

/// The length of a chunk in units of the time lane. A packed DATETIME is not linear in time (its months have 32
/// days and its days 32 hours); chunks only decide which file a row is in, so the nearest length does.
fn chunk_length(table_options: &TableOptions, time: Option<TimeColumn>) -> Outcome<Option<u64>> {
    let Some(chunk) = table_options.chunk else { return Ok(None) };
    let Some(time) = time else {
        return Err(Failure::invalid("option CHUNK needs a time column; name it with TIME_COLUMN='ts'"));
    };
    let length = match time.unit {
        TimeUnit::S => seconds_times(chunk, 1),
        TimeUnit::Ms => seconds_times(chunk, 1_000),
        TimeUnit::Us | TimeUnit::Order => seconds_times(chunk, 1_000_000),
        TimeUnit::Ns => seconds_times(chunk, 1_000_000_000),
        TimeUnit::Timestamp { fraction_digits } => seconds_times(chunk, fraction_step(fraction_digits)),
        TimeUnit::Datetime { fraction_digits } => {
            datetime_length(chunk).and_then(|length| length.checked_mul(fraction_step(fraction_digits)))
        }
    };
    match length {
        Some(length) => Ok(Some(length)),
        None => Err(Failure::invalid("option CHUNK is too long for the time column; write for example CHUNK='1 DAY'")),
    }
}

fn seconds_times(duration: Duration, per_second: u64) -> Option<u64> {
    duration.seconds()?.checked_mul(per_second)
}

/// What one second counts in a packed value with these fraction digits.
fn fraction_step(digits: u8) -> u64 {
    1 << (8 * u32::from(digits.min(6).div_ceil(2)))
}

fn datetime_length(duration: Duration) -> Option<u64> {
    let seconds = duration.seconds()?;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (hours, minutes) = (rest / 3600, rest % 3600 / 60);
    let (months, days) = (days / 31, days % 31);
    let length = (months << 22) + (days << 17) + (hours << 12) + (minutes << 6) + rest % 60;
    Some(length)
}

/// # Safety
/// The rule `arrays` for the options that it points to.
unsafe fn read_field(raw: &RrdField<'_>, record_bytes: usize) -> Outcome<Field> {
    let codec = Codec::of(raw)?;
    let end = raw.offset as usize + codec.record_bytes();
    if end > record_bytes || raw.null_offset as usize >= record_bytes {
        return Err(Failure::internal("internal error: a field lies outside its record"));
    }
    let (name, sql_type) = (read_text(raw.name), read_text(raw.sql_type));
    // SAFETY: rule `arrays`: there are `option_count` options.
    let options = unsafe { read_options(raw.options, raw.option_count)? };
    Ok(Field {
        name,
        codec,
        number: raw.number,
        offset: raw.offset,
        null_offset: raw.null_offset,
        null_mask: raw.null_mask,
        time_kind: raw.time_kind,
        fraction_digits: raw.fraction_digits,
        is_auto_increment: raw.is_auto_increment != 0,
        decimal_precision: raw.decimal_precision,
        collation: raw.collation,
        sql_type,
        options,
    })
}

fn read_part(fields: &[RrdField<'_>], part: &RrdKeyPart) -> Outcome<KeyPart> {
    let field = fields.get(part.field as usize);
    let field = field.ok_or_else(|| Failure::internal("internal error: a key part names no field"))?;
    let part = KeyPart::new(field, part)?;
    if let Order::Text { collation, .. } = part.order
        && usize::from(collation.levels).min(abi::RRD_MAX_LEVELS) == 0
        && !collation.handle.is_null()
    {
        return Err(Failure::internal("internal error: a collation without levels"));
    }
    if let Order::Text { collation, .. } = part.order
        && collation.weights.is_none()
        && !collation.handle.is_null()
    {
        // All texts would be equal.
        return Err(Failure::internal("internal error: a collation without weights"));
    }
    Ok(part)
}

/// # Safety
/// The rule `arrays`: there are `count` options.
unsafe fn read_options(options: *const RrdOption<'_>, count: usize) -> Outcome<Vec<Pair>> {
    // SAFETY: the caller has as many options.
    let options = unsafe { slice(options, count)? };
    Ok(options.iter().map(|option| (read_text(option.name), read_text(option.value))).collect())
}

/// A text of the other side.
pub fn read_text(text: RrdText<'_>) -> String {
    String::from_utf8_lossy(text.bytes().unwrap_or_default()).into_owned()
}
