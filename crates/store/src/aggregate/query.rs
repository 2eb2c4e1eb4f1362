//! What an aggregate query is, and what its answer looks like.
//!
//! All in terms of lanes, as rows and segments hold them: integers in unsigned order (a signed SQL integer is biased),
//! floats as [`order_f64`](crate::segment::zone::order_f64) or `order_f32` map them where an order matters, byte
//! strings as they are. What SQL makes of a value (types, collations, overflow) is the caller's business.

pub use crate::tier::Wide;

/// One query over one table.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Only rows with `low <= sort key < high`; `None` is open.
    pub low: Option<Vec<u8>>,
    /// See `low`.
    pub high: Option<Vec<u8>>,
    /// All must hold.
    pub conditions: Vec<Condition>,
    /// What rows are grouped by. Without, all rows are one group, which there is even of no rows.
    pub groups: Vec<Group>,
    /// What is wanted of each group.
    pub aggregates: Vec<Aggregate>,
    /// Threads that work on it at most, the caller's included; 0 counts as 1. The answer does not depend on it.
    pub threads: usize,
}

/// A condition on a column (position in the table's schema). For NULL none holds but `Null`, negated or not.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// Between two values in the lane's order, both included; not for byte strings.
    Range {
        /// Position of the column.
        column: usize,
        /// The least value.
        low: u64,
        /// The largest value.
        high: u64,
        /// It holds for values outside.
        negated: bool,
    },
    /// One of some values (ascending, in the lane's order); not for byte strings.
    In {
        /// Position of the column.
        column: usize,
        /// The values.
        values: Vec<u64>,
        /// It holds for all others.
        negated: bool,
    },
    /// One of some byte strings, byte by byte.
    Bytes {
        /// Position of the column.
        column: usize,
        /// The values, ascending.
        values: Vec<Vec<u8>>,
        /// It holds for all others.
        negated: bool,
    },
    /// NULL.
    Null {
        /// Position of the column.
        column: usize,
        /// It holds for all that is not NULL.
        negated: bool,
    },
    /// One of these holds at least; of none never.
    Any(Vec<Condition>),
    /// All of these hold.
    All(Vec<Condition>),
}

/// What rows are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The value of a column, byte by byte or number by number (so 0.0 and -0.0 are two). NULL is a group of its own.
    Column(usize),
    /// Spans of an integer column, counted from `origin`: (value - origin) / width, rounded down. NULL is a group of
    /// its own.
    Bucket {
        /// Position of the column, of an integer lane.
        column: usize,
        /// Where bucket 0 begins; values may lie before.
        origin: u64,
        /// How many values a bucket has, at least 1.
        width: u64,
        /// Rounded towards zero instead: bucket 0 reaches from `origin` to both sides, as SQL's DIV has it.
        towards_zero: bool,
    },
}

/// What is wanted of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// Rows: [`Value::Count`].
    Count,
    /// Rows whose column is not NULL: [`Value::Count`].
    CountOf(usize),
    /// The sum of a column: [`Value::SumInt`], [`Value::SumDecimal`] (the column's `number` is a DECIMAL) or
    /// [`Value::SumFloat`]; NULL when all are NULL. Not for other byte strings.
    Sum(usize),
    /// The smallest value of a column (of byte strings: byte by byte), as the column holds it; NULL when all are NULL.
    Min(usize),
    /// The largest.
    Max(usize),
    /// The value of a column in the group's first row in key order.
    First(usize),
}

/// One value of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// NULL.
    Null,
    /// A value of an integer lane.
    Int(u64),
    /// The bits of a float.
    F32(u32),
    /// The bits of a double.
    F64(u64),
    /// A byte string.
    Bytes(Vec<u8>),
    /// The number of a [`Group::Bucket`].
    Bucket(i128),
    /// A number of rows.
    Count(u64),
    /// The sum of lane values, unsigned (a bias is in it `count` times), and of how many.
    SumInt {
        /// The sum.
        sum: u128,
        /// How many were not NULL.
        count: u64,
    },
    /// The sum of DECIMALs times 10^scale, and of how many.
    SumDecimal {
        /// The sum.
        sum: Wide,
        /// How many were not NULL.
        count: u64,
    },
    /// The sum of floats is `hi + lo`, `hi` being the rounded sum; and of how many.
    SumFloat {
        /// The rounded sum; not finite if it is too large, or a term is not.
        hi: f64,
        /// What rounding lost; NaN if the sum depends on the order of its terms, see [`Answer::depends_on_order`].
        lo: f64,
        /// How many were not NULL.
        count: u64,
    },
}

/// The rows of an answer: the values of the groups, then those of the aggregates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    width: usize,
    rows: usize,
    values: Vec<Value>,
}

impl Answer {
    /// Rows of `width` values each, one behind the other. Only an answer without columns has to be told its rows.
    pub(super) fn new(width: usize, rows: usize, values: Vec<Value>) -> Answer {
        debug_assert_eq!(values.len(), width * rows, "whole rows");
        Answer { width, rows, values }
    }

    /// How many groups.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Row `i`: the values of `Query::groups`, then those of `Query::aggregates`. Panics behind the last one.
    pub fn row(&self, i: usize) -> &[Value] {
        &self.values[i * self.width..(i + 1) * self.width]
    }

    /// Whether a sum of floats may have overflowed on the way, and so depends on the order in which its terms are added:
    /// [`Txn::aggregate_in_order`](crate::Txn::aggregate_in_order) adds them one after the other.
    pub fn depends_on_order(&self) -> bool {
        self.values.iter().any(|value| matches!(value, Value::SumFloat { lo, .. } if lo.is_nan()))
    }

    /// The values of all rows, one row behind the other.
    pub fn into_values(self) -> Vec<Value> {
        self.values
    }

    /// All rows.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[Value]> {
        (0..self.rows).map(|i| self.row(i))
    }
}

impl Query {
    /// The columns that it reads, ascending.
    pub fn columns(&self) -> Vec<usize> {
        let of_groups = self.groups.iter().map(Group::column);
        let of_conditions = self.conditions.iter().flat_map(Condition::columns);
        let of_aggregates = self.aggregates.iter().filter_map(Aggregate::column);
        let mut columns: Vec<usize> = of_groups.chain(of_conditions).chain(of_aggregates).collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }
}

impl Condition {
    /// The columns that it asks about.
    pub fn columns(&self) -> Vec<usize> {
        match self {
            Condition::Any(parts) | Condition::All(parts) => parts.iter().flat_map(Condition::columns).collect(),
            one => one.column().into_iter().collect(),
        }
    }

    /// The same about other columns; `None` if one of them has no place.
    pub(super) fn moved(&self, place: &dyn Fn(usize) -> Option<usize>) -> Option<Condition> {
        let all = |parts: &[Condition]| parts.iter().map(|part| part.moved(place)).collect::<Option<Vec<_>>>();
        let mut moved = self.clone();
        match &mut moved {
            Condition::Any(parts) | Condition::All(parts) => *parts = all(parts)?,
            Condition::Range { column, .. }
            | Condition::In { column, .. }
            | Condition::Bytes { column, .. }
            | Condition::Null { column, .. } => *column = place(*column)?,
        }
        Some(moved)
    }

    /// The column that it asks about, if it is one comparison.
    pub fn column(&self) -> Option<usize> {
        match self {
            Condition::Range { column, .. }
            | Condition::In { column, .. }
            | Condition::Bytes { column, .. }
            | Condition::Null { column, .. } => Some(*column),
            Condition::Any(_) | Condition::All(_) => None,
        }
    }
}

impl Group {
    /// The column that it is made of.
    pub fn column(&self) -> usize {
        match self {
            Group::Column(column) | Group::Bucket { column, .. } => *column,
        }
    }
}

impl Aggregate {
    /// The column that it is made of.
    pub fn column(&self) -> Option<usize> {
        match self {
            Aggregate::Count => None,
            Aggregate::CountOf(column)
            | Aggregate::Sum(column)
            | Aggregate::Min(column)
            | Aggregate::Max(column)
            | Aggregate::First(column) => Some(*column),
        }
    }
}
