//! The log record of a commit. Bytes are specified in `docs/format.md`, section "Commit records".
//!
//! `[kind 1][seq u64]` then the body: `[tables u32]`, each `[table u32][schema version u32][writes u32]`, each write
//! `[0 put | 1 delete][length u32][row bytes | sort key]`.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::manifest::edit::TableId;
use crate::own::OwnWrites;
use crate::row::RowLayout;

/// First byte of a commit record.
const COMMIT: u8 = 1;

/// One write of a commit.
#[derive(Debug, PartialEq, Eq)]
pub enum LoggedWrite<'a> {
    /// Row bytes.
    Put(&'a [u8]),
    /// Sort key.
    Delete(&'a [u8]),
}

/// The writes of a commit to one table.
#[derive(Debug, PartialEq, Eq)]
pub struct LoggedTable<'a> {
    /// The table.
    pub table: TableId,
    /// Version of the schema that row bytes follow.
    pub schema_version: u32,
    /// In key order.
    pub writes: Vec<LoggedWrite<'a>>,
}

/// The part of a record that needs the sequence number.
pub fn header(seq: u64) -> [u8; 9] {
    let mut out = [COMMIT; 9];
    out[1..].copy_from_slice(&seq.to_le_bytes());
    out
}

/// The body of a record.
pub fn encode(tables: &[(TableId, Arc<RowLayout>, Arc<RwLock<OwnWrites>>)]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&(tables.len() as u32).to_le_bytes());
    for (table, layout, own) in tables {
        let own = own.read();
        out.reserve(own.bytes.min(1 << 28));
        out.extend_from_slice(&table.0.to_le_bytes());
        out.extend_from_slice(&layout.schema().version.to_le_bytes());
        out.extend_from_slice(&(own.map.len() as u32).to_le_bytes());
        for (key, write) in &own.map {
            let (kind, bytes) = match &write.row {
                Some(row) => (0, &row[..]),
                None => (1, &key[..]),
            };
            out.push(kind);
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        }
    }
    out
}

/// Reads a record; `None` if it is not one (damage that a checksum missed, or a newer format).
pub fn decode(record: &[u8]) -> Option<(u64, Vec<LoggedTable<'_>>)> {
    let mut input = Input(record);
    if input.u8()? != COMMIT {
        return None;
    }
    let seq = input.u64()?;
    let mut tables = Vec::new();
    for _ in 0..input.u32()? {
        let table = TableId(input.u32()?);
        let schema_version = input.u32()?;
        let mut writes = Vec::new();
        for _ in 0..input.u32()? {
            let kind = input.u8()?;
            let len = input.u32()? as usize;
            let bytes = input.take(len)?;
            writes.push(match kind {
                0 => LoggedWrite::Put(bytes),
                1 => LoggedWrite::Delete(bytes),
                _ => return None,
            });
        }
        tables.push(LoggedTable { table, schema_version, writes });
    }
    input.0.is_empty().then_some((seq, tables))
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes)
    }
}
