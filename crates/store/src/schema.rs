//! What a table looks like to the store: lanes, clustering key, time column, options.
//!
//! A lane is a column as the store sees it: fixed-width integers that compare unsigned in SQL order, float
//! bits, or byte strings. The SQL types are the handler's business; it maps each column to one lane and adds
//! hidden lanes where the key order is not the order of the value itself (collations, floats, row numbers).
//! Written into the manifest as JSON.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::limits;

/// How the store holds the values of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// Unsigned integer of `width` bytes (1 to 8) whose unsigned order is the SQL order.
    Int {
        /// Bytes in a row.
        width: u8,
    },
    /// Bits of a 4-byte float.
    F32,
    /// Bits of an 8-byte float.
    F64,
    /// Byte string; compared bytewise.
    Bytes,
}

impl Lane {
    /// The codec's kind for this lane.
    pub fn kind(self) -> rrd_codec::Kind {
        match self {
            Lane::Int { .. } => rrd_codec::Kind::Int,
            Lane::F32 => rrd_codec::Kind::F32,
            Lane::F64 => rrd_codec::Kind::F64,
            Lane::Bytes => rrd_codec::Kind::Bytes,
        }
    }

    /// Bytes in the fixed part of a row (byte strings hold a 4-byte end offset there).
    pub fn fixed_width(self) -> usize {
        match self {
            Lane::Int { width } => usize::from(width),
            Lane::F32 | Lane::Bytes => 4,
            Lane::F64 => 8,
        }
    }
}

/// One column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnDef {
    /// Never reused within a table; names the column in segments across ALTER TABLE.
    pub id: u32,
    /// SQL name; empty for hidden lanes.
    pub name: String,
    /// How values are held.
    pub lane: Lane,
    /// Whether NULL is allowed.
    pub nullable: bool,
    /// Not a SQL column: a sort key or the row number.
    #[serde(default)]
    pub hidden: bool,
    /// Column options as the user wrote them (`DST`, `HEARTBEAT`, ...).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<(String, String)>,
    /// Set for a column that ALTER TABLE added: what the rows from before hold in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<Initial>,
    /// How tiers consolidate it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<DataSource>,
    /// Set for the value of a number: what sums of it need to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<Number>,
    /// The SQL type as CREATE TABLE has it, character set included; for definitions that are made of this one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sql_type: String,
}

impl ColumnDef {
    /// A visible column without options, named `c` and its id.
    pub fn plain(id: u32, lane: Lane, nullable: bool) -> ColumnDef {
        ColumnDef {
            id,
            name: format!("c{id}"),
            lane,
            nullable,
            hidden: false,
            options: Vec::new(),
            initial: None,
            source: None,
            number: None,
            sql_type: String::new(),
        }
    }

    /// Of a hidden lane that is the sort key of another column: the id of that one.
    pub fn sort_key_of(&self) -> Option<u32> {
        let option = self.options.iter().find(|(name, _)| self.hidden && name == SORT_KEY_OF);
        option.and_then(|(_, id)| id.parse().ok())
    }

    /// What a hidden lane has among its options that is the sort key of the column with this id.
    pub fn sort_key_option(id: u32) -> (String, String) {
        (SORT_KEY_OF.into(), id.to_string())
    }
}

/// Name of the option of [`ColumnDef::sort_key_of`].
const SORT_KEY_OF: &str = "sort_key_of";

/// What kind of number a lane's values are; float lanes need not be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Number {
    /// The SQL value is lane value - `bias`, wrapping at the width.
    Integer {
        /// 0, or the sign bit of signed types.
        bias: u64,
    },
    /// MariaDB's packed DECIMAL, big-endian.
    Decimal {
        /// Digits in all.
        precision: u8,
        /// Digits behind the point.
        scale: u8,
    },
}

/// What rows from before a column was added hold in it. It stays as it is when the SQL default changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Initial {
    /// NULL.
    Null,
    /// The value of an integer lane, or the bits of a float lane.
    Bits(u64),
    /// The value of a byte string.
    Bytes(#[serde(with = "hex")] Vec<u8>),
}

/// Byte strings as hexadecimal digits.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&bytes.iter().map(|b| format!("{b:02x}")).collect::<String>())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let digits = String::deserialize(from)?;
        let pair = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|p| u8::from_str_radix(p, 16).ok());
        let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(pair).collect();
        bytes.filter(|_| digits.len() % 2 == 0).ok_or_else(|| D::Error::custom("not hexadecimal"))
    }
}

/// The unit of the time column's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeUnit {
    /// Integer seconds.
    S,
    /// Integer milliseconds.
    Ms,
    /// Integer microseconds.
    Us,
    /// Integer nanoseconds.
    Ns,
    /// Not a time: the first column of the clustering key of a ring without a time column. What is small in it leaves
    /// first, so it parts the table into chunks as a time does.
    Order,
    /// MariaDB's packed TIMESTAMP with `fraction_digits`.
    Timestamp {
        /// 0 to 6.
        fraction_digits: u8,
    },
    /// MariaDB's packed DATETIME with `fraction_digits`.
    Datetime {
        /// 0 to 6.
        fraction_digits: u8,
    },
}

/// The time column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeColumn {
    /// Position in `Schema::columns`.
    pub column: u16,
    /// What its integers mean.
    pub unit: TimeUnit,
    /// For signed SQL integers: the lane's bias (lane value = SQL value + bias, wrapping at the width).
    #[serde(default)]
    pub bias: u64,
}

/// How hard a sealed segment is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// `COMPRESSION='fast'`.
    Fast,
    /// `COMPRESSION='small'`.
    #[default]
    Small,
}

/// A secondary index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexDef {
    /// Never reused within a table.
    pub id: u32,
    /// SQL name.
    pub name: String,
    /// Whether two rows may not have the same values (NULLs are never the same).
    pub unique: bool,
    /// The indexed columns, in index order.
    pub columns: Vec<IndexColumn>,
}

/// One column of a secondary index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexColumn {
    /// Position in `Schema::columns`.
    pub column: u16,
    /// Set where the order of the lane is not the order of the index (collations, floats, prefixes, descending
    /// columns): the lane of a sort key that [`crate::index::SortKeys`] makes of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sort_lane: Option<Lane>,
    /// Whether NULLs come after all values, as in descending columns.
    #[serde(default)]
    pub nulls_last: bool,
}

impl IndexColumn {
    /// A column whose lane's order is the order of the index.
    pub fn plain(column: u16) -> IndexColumn {
        IndexColumn { column, sort_lane: None, nulls_last: false }
    }
}

/// The AUTO_INCREMENT column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoIncrement {
    /// Position in `Schema::columns`: a number.
    pub column: u16,
    /// Lane value minus SQL value, of an integer.
    pub bias: u64,
}

/// What bounds a table; whichever bites first. Changed by ALTER TABLE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ring {
    /// `RETENTION` in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<u64>,
    /// `MAX_ROWS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rows: Option<u64>,
    /// `SERIES_MAX_ROWS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series_max_rows: Option<u64>,
    /// `MAX_BYTES`: tables of indexes and tiers count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

impl Ring {
    /// Whether nothing bounds the table.
    pub fn is_unbounded(&self) -> bool {
        *self == Ring::default()
    }
}

/// The length of a tier's buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bucket {
    /// Microseconds; aligned to the epoch (weeks: to Mondays, see `offset`).
    Fixed {
        /// Length.
        length: u64,
        /// Start of some bucket, behind the epoch and less than `length`.
        #[serde(default)]
        offset: u64,
    },
    /// Calendar months in UTC, counted from January of year 0 (12: calendar years).
    Months {
        /// How many.
        count: u32,
    },
}

/// A tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierDef {
    /// Never reused within a table.
    pub id: u32,
    /// As the user wrote it: the tier of table `t` is table `t$30m`.
    pub name: String,
    /// Its buckets.
    pub bucket: Bucket,
    /// How long buckets are kept, in microseconds; `None` for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u64>,
}

/// Says that a table holds the buckets of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierOf {
    /// Number of the table whose tier it is.
    pub table: u32,
    /// `TierDef::id`.
    pub tier: u32,
}

/// What a column's readings are (`DST`); as rrdcreate(1) defines them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "rrdcreate(1) says what they are")]
pub enum SourceType {
    #[default]
    Gauge,
    Counter,
    Derive,
    Absolute,
    Dcounter,
    Dderive,
}

/// How a tier consolidates a column with data-source options; a column without any is aggregated as SQL does it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataSource {
    /// `DST`.
    pub kind: SourceType,
    /// `HEARTBEAT` in microseconds.
    pub heartbeat: u64,
    /// `DS_MIN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// `DS_MAX`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

/// Says that a table holds the entries of a secondary index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexOf {
    /// Number of the table that the index belongs to.
    pub table: u32,
    /// `IndexDef::id`.
    pub index: u32,
}

/// A table as the store knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schema {
    /// 1 at creation, one more after each change.
    pub version: u32,
    /// Columns in row order; hidden ones last.
    pub columns: Vec<ColumnDef>,
    /// The clustering key: positions in `columns`, in key order. None of them is nullable.
    pub key: Vec<u16>,
    /// The time column, one of `key`.
    pub time: Option<TimeColumn>,
    /// The hidden row number's position, when the table has no unique key to cluster on.
    #[serde(default)]
    pub row_number: Option<u16>,
    /// `COMPRESSION`.
    #[serde(default)]
    pub compression: Compression,
    /// Fixed length of a chunk in units of the time lane (`CHUNK`), else chosen by the store.
    #[serde(default)]
    pub chunk_length: Option<u64>,
    /// Secondary indexes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexDef>,
    /// The AUTO_INCREMENT column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_increment: Option<AutoIncrement>,
    /// Set for the table that holds the entries of an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_of: Option<IndexOf>,
    /// Table options as the user wrote them.
    #[serde(default)]
    pub options: Vec<(String, String)>,
    /// Columns that are added get ids from here on, if it is larger than every id in `columns`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub next_column: u32,
    /// Indexes that are added get ids from here on, if it is larger than every id in `indexes`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub next_index: u32,
    /// What bounds the table.
    #[serde(default, skip_serializing_if = "Ring::is_unbounded")]
    pub ring: Ring,
    /// The tiers (`ROLLUP`), by length of bucket.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<TierDef>,
    /// Set for the table that holds the buckets of a tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier_of: Option<TierOf>,
    /// `STEP` in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// `XFF`: the largest share of a bucket that may be unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xff: Option<f64>,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Schema {
    /// A new table without options; `time` is the position of a time column in seconds.
    pub fn plain(columns: Vec<ColumnDef>, key: Vec<u16>, time: Option<u16>) -> Schema {
        Schema {
            version: 1,
            columns,
            key,
            time: time.map(|column| TimeColumn { column, unit: TimeUnit::S, bias: 0 }),
            row_number: None,
            compression: Compression::Small,
            chunk_length: None,
            indexes: Vec::new(),
            auto_increment: None,
            index_of: None,
            options: Vec::new(),
            next_column: 0,
            next_index: 0,
            ring: Ring::default(),
            tiers: Vec::new(),
            tier_of: None,
            step: None,
            xff: None,
        }
    }

    /// Checks what the rest of the store relies on.
    pub fn validate(&self) -> Result<()> {
        let invalid = |what: &str| Err(Error::InvalidInput(format!("schema: {what}")));
        if self.columns.len() > limits::MAX_COLUMNS {
            return Err(Error::LimitExceeded {
                what: "the number of columns".into(),
                limit: limits::MAX_COLUMNS as u64,
            });
        }
        if self.columns.is_empty() || self.key.is_empty() {
            return invalid("a table needs a column and a clustering key");
        }
        for &k in &self.key {
            match self.columns.get(usize::from(k)) {
                None => return invalid("key column out of range"),
                Some(c) if c.nullable => return invalid("key column is nullable"),
                Some(c) if matches!(c.lane, Lane::F32 | Lane::F64) => return invalid("key column is a float lane"),
                Some(_) => {}
            }
        }
        for c in &self.columns {
            if let Lane::Int { width } = c.lane
                && !(1..=8).contains(&width)
            {
                return invalid("integer width is not 1 to 8");
            }
        }
        if let Some(t) = self.time {
            let int_lane = matches!(self.columns.get(usize::from(t.column)).map(|c| c.lane), Some(Lane::Int { .. }));
            if !int_lane || !self.key.contains(&t.column) {
                return invalid("the time column must be an integer lane of the key");
            }
        }
        for index in &self.indexes {
            let sortable = |c: &IndexColumn| {
                let lane = self.columns.get(usize::from(c.column)).map(|column| c.sort_lane.unwrap_or(column.lane));
                matches!(lane, Some(Lane::Int { .. } | Lane::Bytes))
            };
            if index.columns.is_empty() || !index.columns.iter().all(sortable) {
                return invalid("an index needs columns with a sortable lane");
            }
        }
        if let Some(a) = self.auto_increment
            && !self.columns.get(usize::from(a.column)).is_some_and(|c| c.lane != Lane::Bytes)
        {
            return invalid("the AUTO_INCREMENT column must be a number");
        }
        if let Some(r) = self.row_number
            && self.key != [r]
        {
            return invalid("a row number is the whole key");
        }
        crate::tier::validate_tiers(self)
    }

    /// Whether the table belongs to another one: as an index, or as a tier.
    pub fn is_part(&self) -> bool {
        self.part_of().is_some()
    }

    /// The number of the table that it is an index or a tier of.
    pub fn part_of(&self) -> Option<u32> {
        self.index_of.map(|of| of.table).or(self.tier_of.map(|of| of.table))
    }

    /// The id that the next column gets: no id is used twice in a table's life.
    pub fn next_column_id(&self) -> u32 {
        self.columns.iter().map(|c| c.id + 1).max().unwrap_or(0).max(self.next_column)
    }

    /// The id that the next index gets.
    pub fn next_index_id(&self) -> u32 {
        self.indexes.iter().map(|i| i.id + 1).max().unwrap_or(1).max(self.next_index)
    }

    /// How many leading key columns name the series (0 without a time column).
    pub fn series_columns(&self) -> usize {
        match self.time {
            Some(t) => self.key.iter().position(|&k| k == t.column).unwrap_or(0),
            None => 0,
        }
    }
}
