//! Stub of the engine's interface; being written.
use std::sync::Arc;
use crate::config::{Config, FlushLog};
use crate::error::Result;
use crate::fs::Fs;
use crate::schema::Schema;
use crate::table::Table;
use crate::txn::Txn;

/// All tables of a data folder.
pub struct Engine {}

/// Counters since the engine was opened, for status variables: (name, value).
pub type Counters = Vec<(&'static str, u64)>;

impl Engine {
    /// Opens (or creates) the data folder, replays the log, starts the background threads.
    pub fn open(config: Config, fs: Arc<dyn Fs>) -> Result<Arc<Engine>> { todo!() }
    /// Makes everything durable and stops the threads.
    pub fn close(&self) -> Result<()> { todo!() }
    /// New table; durable when it returns.
    pub fn create_table(&self, name: &str, schema: Schema) -> Result<()> { todo!() }
    /// Removes a table.
    pub fn drop_table(&self, name: &str) -> Result<()> { todo!() }
    /// Renames a table.
    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> { todo!() }
    /// Removes all rows.
    pub fn truncate_table(&self, name: &str) -> Result<()> { todo!() }
    /// The table of a name.
    pub fn table(&self, name: &str) -> Result<Arc<Table>> { todo!() }
    /// Names of all tables.
    pub fn table_names(&self) -> Vec<String> { todo!() }
    /// A new transaction; it costs nothing until used.
    pub fn begin(self: &Arc<Self>) -> Txn { todo!() }
    /// Writes the memtables of one table to segments.
    pub fn flush_table(&self, table: &Table) -> Result<()> { todo!() }
    /// Merges all segments of a table (OPTIMIZE); `progress(done, total)` returns false to stop.
    pub fn optimize_table(&self, table: &Table, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> { todo!() }
    /// Reads and verifies everything of a table (CHECK TABLE); findings as text, empty when all is well.
    pub fn check_table(&self, table: &Table, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Vec<String>> { todo!() }
    /// `rrd_flush_log_at_trx_commit`.
    pub fn set_flush_log(&self, mode: FlushLog) { todo!() }
    /// `rrd_memtable_size`.
    pub fn set_memtable_bytes(&self, bytes: usize) { todo!() }
    /// `rrd_cache_size`.
    pub fn set_cache_bytes(&self, bytes: usize) { todo!() }
    /// Counters, for SHOW STATUS.
    pub fn counters(&self) -> Counters { todo!() }
    /// Why the engine is read-only, if it is.
    pub fn poisoned(&self) -> Option<String> { todo!() }
}
