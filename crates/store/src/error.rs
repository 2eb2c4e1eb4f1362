//! What can go wrong in the store, one variant for each thing that a caller can do about it.
//!
//! Callers match on the variant, never on the text. The text is for the person who reads the server's
//! error log: it names the file or table, says what is wrong and, where there is one, the way out.

use std::io;
use std::path::{Path, PathBuf};

/// The store's result.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system refused an operation.
    #[error("cannot {op} '{}': {source}", path.display())]
    Io {
        /// The operation, as a verb: "read", "write", "sync", "rename", ...
        op: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// Bytes on disk are not what was written.
    #[error("file '{}' is damaged at byte {offset}: {what}", path.display())]
    Corruption {
        /// The damaged file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What does not hold.
        what: String,
    },
    /// A file of a format that this build does not know.
    #[error("file '{}' has format version {found}, this engine reads version {supported}: use the version of the engine that wrote it", path.display())]
    Incompatible {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version that this build reads.
        supported: u32,
    },
    /// The caller asked for something that makes no sense; nothing was changed.
    #[error("{0}")]
    InvalidInput(String),
    /// A limit of `limits.rs` was passed.
    #[error("{what} is over the limit of {limit}")]
    LimitExceeded {
        /// What is too large or too many.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// A row with this key exists (SQL error 1062).
    #[error("duplicate key in index {index}")]
    Duplicate {
        /// 0 is the clustering key, n the n-th secondary index.
        index: u32,
        /// The refused row, in row format.
        row: Vec<u8>,
        /// Clustering sort key of the row that is in the way.
        existing: Vec<u8>,
    },
    /// Another transaction changed the row first, or waits for this one (SQL error 1213).
    #[error("the row was changed by another transaction; try the transaction again")]
    Conflict,
    /// A prepared transaction is in the way, and it is not known yet what becomes of it. Nothing was changed: wait with
    /// [`crate::Txn::wait_decided`] and try again.
    #[error("a prepared transaction is in the way")]
    Undecided {
        /// What to wait for.
        decision: u64,
    },
    /// A commit on its way deletes a row that is in the way, and the disk may yet refuse it. Stays within the store.
    #[error("a delete that is not decided is in the way")]
    Pending {
        /// Its sequence number.
        seq: u64,
    },
    /// A prepared transaction has writes to a table whose definition, name or rows as a whole were to change, and was not
    /// decided in time (SQL error 1205).
    #[error(
        "table '{table}' has rows of a prepared transaction, which was not decided within the lock wait time-out: XA RECOVER \
         shows it; XA COMMIT or XA ROLLBACK it, then try again"
    )]
    Prepared {
        /// The table's name.
        table: String,
    },
    /// A row lock was not to be had in time (SQL error 1205).
    #[error("lock wait time-out")]
    LockTimeout,
    /// The row locks of all transactions take as much memory as they may (SQL error 1206).
    #[error(
        "the row locks of all transactions take {limit} bytes, which is all that rrd_lock_memory_size allows, and the table \
         cannot be locked as a whole: others work on it. Change fewer rows in one transaction, or raise the limit"
    )]
    LockMemory {
        /// The limit in bytes.
        limit: u64,
    },
    /// The system has no more memory; the statement is to be undone.
    #[error(
        "out of memory: the system has no {bytes} bytes for {what}. Change fewer rows in one statement, or lower \
         rrd_memtable_size or rrd_cache_size"
    )]
    OutOfMemory {
        /// What the memory is for.
        what: &'static str,
        /// How many bytes were asked for.
        bytes: u64,
    },
    /// The statement was killed.
    #[error("interrupted")]
    Interrupted,
    /// Another process has the data folder open.
    #[error("'{}' is in use by another server", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// Rows, or entries of an index, were to be written that take more than `MAX_BYTES` leaves.
    #[error("{rows} rows take {bytes} bytes, more than MAX_BYTES leaves")]
    NoRoom {
        /// How many, with those that were written before them.
        rows: u64,
        /// What all of them take.
        bytes: u64,
    },
    /// The snapshot is older than the table, or than the index: see `Table::readable_from`.
    #[error("table '{name}' was created, altered or emptied after this transaction began: try the transaction again")]
    DefinitionChanged {
        /// Its name.
        name: String,
    },
    /// No such table.
    #[error("table '{name}' is not known to the engine")]
    NoSuchTable {
        /// Its name.
        name: String,
    },
    /// The name is taken.
    #[error("table '{name}' exists already")]
    TableExists {
        /// Its name.
        name: String,
    },
    /// Read-only mode after an earlier failure.
    #[error("the engine is in read-only mode after an error: {reason}. Fix its cause, then restart the server")]
    Poisoned {
        /// The earlier failure.
        reason: String,
    },
}

impl Error {
    /// An I/O error with its context; made for `map_err`.
    pub fn io(op: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
        let path = path.to_path_buf();
        move |source| Error::Io { op, path, source }
    }

    /// A corruption error.
    pub fn corrupt(path: &Path, offset: u64, what: impl Into<String>) -> Error {
        Error::Corruption { path: path.to_path_buf(), offset, what: what.into() }
    }

    /// True when the disk (or quota) is full.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Error::Io { source, .. } => {
                matches!(source.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
                    || source.kind() == io::ErrorKind::StorageFull
            }
            _ => false,
        }
    }
}
