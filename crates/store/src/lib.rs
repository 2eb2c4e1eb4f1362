//! The store of the RRD engine: tables of rows in clustering order, a log, memtables, immutable segments.
//!
//! On a row's way: `Txn::insert` -> commit -> log -> memtable -> flush -> segments -> merge; and back:
//! `Txn::cursor` -> merge of {own writes, memtables, segments} -> spans of decoded columns.
//! See `docs/architecture.md`.

pub mod cache;
pub mod config;
pub mod cursor;
pub mod engine;
pub mod error;
pub mod fs;
pub mod key;
pub mod limits;
pub mod manifest;
pub mod row;
pub mod schema;
pub mod segment;
pub mod table;
pub mod txn;
pub mod wal;

pub use config::{Config, FlushLog};
pub use cursor::{Cursor, Direction, RowGroup, Span};
pub use engine::Engine;
pub use error::{Error, Result};
pub use row::RowLayout;
pub use schema::Schema;
pub use table::{Table, TableStats};
pub use txn::{Isolation, Txn};
