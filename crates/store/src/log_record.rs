//! The log records of commits. Bytes are specified in `docs/format.md`, section "Commit records".
//!
//! `[kind 1][seq u64]` then the body: `[tables u32]`, each `[table u32][schema version u32][writes u32]`, each write
//! `[0 put | 1 delete | 2 horizon | 3 floors][length u32][row bytes | sort key | position |
//! floors]`. A prepared transaction has two records: `[kind 2]`, then XID,
//! body and manifest edits of its segments, each behind its length; then `[kind 3][first seq u64][seq u64][XID]` or
//! `[kind 4][XID]`.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::horizon::Position;
use crate::manifest::edit::TableId;
use crate::memtable::Key;
use crate::own::OwnWrites;
use crate::ring::encode_floors;
use crate::row::RowLayout;

/// First byte of a commit record.
const COMMIT: u8 = 1;
/// First byte of a prepare record.
const PREPARE: u8 = 2;
/// First byte of the record that commits a prepared transaction.
const COMMIT_PREPARED: u8 = 3;
/// First byte of the record that forgets a prepared transaction.
const ROLLBACK_PREPARED: u8 = 4;

/// A table's part of a commit, as the transaction has it.
#[derive(Clone)]
pub struct Part {
    /// The table.
    pub table: TableId,
    /// The layout of its rows.
    pub layout: Arc<RowLayout>,
    /// What is written.
    pub own: Arc<RwLock<OwnWrites>>,
    /// The position of its horizon before the commit, if it has one.
    pub horizon: Option<Position>,
    /// The floors of the series that it writes to: series and key.
    pub floors: Vec<(Key, Key)>,
}

/// A record of the log.
pub enum Record<'a> {
    /// A commit.
    Commit { seq: u64, tables: Vec<LoggedTable<'a>> },
    /// First phase of a commit: the body of a commit record, and edits for its segments.
    Prepare { xid: &'a [u8], body: &'a [u8], edits: &'a [u8] },
    /// Second phase: segments are numbered from `first_seq` on, rows have `seq`.
    CommitPrepared { first_seq: u64, seq: u64, xid: &'a [u8] },
    /// Second phase: it never was.
    RollbackPrepared { xid: &'a [u8] },
}

/// A prepare record.
pub fn prepare(xid: &[u8], body: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut out = vec![PREPARE];
    for part in [xid, body, edits] {
        out.extend_from_slice(&(part.len() as u32).to_le_bytes());
        out.extend_from_slice(part);
    }
    out
}

/// The record that commits a prepared transaction.
pub fn commit_prepared(first_seq: u64, seq: u64, xid: &[u8]) -> Vec<u8> {
    let mut out = vec![COMMIT_PREPARED];
    out.extend_from_slice(&first_seq.to_le_bytes());
    out.extend_from_slice(&seq.to_le_bytes());
    out.extend_from_slice(xid);
    out
}

/// The record that forgets a prepared transaction.
pub fn rollback_prepared(xid: &[u8]) -> Vec<u8> {
    [&[ROLLBACK_PREPARED], xid].concat()
}

/// One write of a commit.
#[derive(Debug, PartialEq, Eq)]
pub enum LoggedWrite<'a> {
    /// Row bytes.
    Put(&'a [u8]),
    /// Sort key.
    Delete(&'a [u8]),
    /// No write: where the horizon was. An encoded position.
    Horizon(&'a [u8]),
    /// No write: where floors of series were.
    Floors(&'a [u8]),
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
pub fn encode(tables: &[Part]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&(tables.len() as u32).to_le_bytes());
    for Part { table, layout, own, horizon, floors } in tables {
        let own = own.read();
        out.reserve(own.bytes.min(1 << 28));
        out.extend_from_slice(&table.0.to_le_bytes());
        out.extend_from_slice(&layout.schema().version.to_le_bytes());
        let horizon = horizon.as_ref().map(|position| (2, position.encode()));
        let floors = (!floors.is_empty()).then(|| (3, encode_floors(floors)));
        let extras = usize::from(horizon.is_some()) + usize::from(floors.is_some());
        out.extend_from_slice(&((own.map.len() + extras) as u32).to_le_bytes());
        for (kind, bytes) in [horizon, floors].into_iter().flatten() {
            out.push(kind);
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(&bytes);
        }
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
pub fn decode(record: &[u8]) -> Option<Record<'_>> {
    let mut input = Input(record);
    let record = match input.u8()? {
        COMMIT => return Some(Record::Commit { seq: input.u64()?, tables: decode_body(input.0)? }),
        PREPARE => Record::Prepare { xid: input.bytes()?, body: input.bytes()?, edits: input.bytes()? },
        COMMIT_PREPARED => {
            Record::CommitPrepared { first_seq: input.u64()?, seq: input.u64()?, xid: std::mem::take(&mut input.0) }
        }
        ROLLBACK_PREPARED => Record::RollbackPrepared { xid: std::mem::take(&mut input.0) },
        _ => return None,
    };
    input.0.is_empty().then_some(record)
}

/// Reads the body of a commit.
pub fn decode_body(body: &[u8]) -> Option<Vec<LoggedTable<'_>>> {
    let mut input = Input(body);
    let mut tables = Vec::new();
    for _ in 0..input.u32()? {
        let table = TableId(input.u32()?);
        let schema_version = input.u32()?;
        let mut writes = Vec::new();
        for _ in 0..input.u32()? {
            let kind = input.u8()?;
            let bytes = input.bytes()?;
            writes.push(match kind {
                0 => LoggedWrite::Put(bytes),
                1 => LoggedWrite::Delete(bytes),
                2 => LoggedWrite::Horizon(bytes),
                3 => LoggedWrite::Floors(bytes),
                _ => return None,
            });
        }
        tables.push(LoggedTable { table, schema_version, writes });
    }
    input.0.is_empty().then_some(tables)
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        self.take(len)
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
