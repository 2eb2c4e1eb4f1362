//! The store of the RRD engine: tables of rows in clustering order, a log, memtables, immutable segments.
//!
//! On a row's way: `Txn::insert` -> commit -> log -> memtable -> flush -> segments -> merge; and back:
//! `Txn::cursor` -> merge of {own writes, memtables, segments} -> spans of decoded columns.
//! See `docs/internals/architecture.md`.

pub mod aggregate;
pub mod alter;
pub mod auto_increment;
mod backup;
mod batch;
mod bulk;
pub mod cache;
mod check_private;
pub mod chunk;
mod commit;
pub mod compaction;
pub mod config;
pub mod cursor;
pub mod engine;
pub mod error;
mod flush;
mod folder;
pub mod fs;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod group;
pub mod horizon;
mod idle_memory;
pub mod index;
pub mod index_build;
pub mod key;
pub mod limits;
mod live;
pub mod lock;
mod log_base;
mod log_record;
mod maintenance;
pub mod manifest;
mod memory;
mod memtable;
mod merge;
mod newest;
mod ordered;
mod own;
pub mod pause;
mod prepare;
mod recovery;
mod repair;
pub mod report;
mod ring;
pub mod row;
pub mod schema;
pub mod segment;
mod shutdown;
mod snapshot;
mod source;
pub mod table;
pub mod tier;
pub mod time;
pub mod txn;
mod undecided;
mod version;
pub mod wal;
mod workers;
mod write_out;

pub use backup::{Backup, BackupReport};
pub use config::{Config, FlushLog};
pub use cursor::{Cursor, Direction, Part, RowGroup, Span};
pub use engine::Engine;
pub use error::{Error, Result};
pub use lock::LockMode;
pub use ordered::TextUse;
pub use repair::Repaired;
pub use row::RowLayout;
pub use schema::Schema;
pub use table::{Table, TableStats};
pub use txn::{Isolation, OnDuplicate, Txn};
