//! The log records of commits. Bytes are specified in `docs/internals/format.md`, section "Commit records".
//!
//! `[kind 5][seq]` then the body: `[tables]`, each `[table][schema version][writes]`, each write `[0 put | 1 delete | 2 horizon |
//! 3 floors | 4 rows | 6 rows that others lean on][length][row bytes | sort key | position | floors | columns of many rows]`;
//! all numbers are varints. A prepared transaction has two records: `[kind 6]`, then XID, body and manifest edits of its
//! segments, each behind its length; then `[kind 3][first seq u64][seq u64][XID]` or `[kind 4][XID]`.
//!
//! Many short rows are written column by column, as in segments: a commit with readings of many series takes a fifth of
//! the bytes then. Rows that others lean on may be differences to those of an earlier record, see `log_base.rs`.

use std::sync::Arc;

use parking_lot::RwLock;
use rrd_codec::Column;

use crate::horizon::Position;
use crate::log_base;
use crate::manifest::edit::TableId;
use crate::memtable::Key;
use crate::own::OwnWrites;
use crate::ring::encode_floors;
use crate::row::RowLayout;
use crate::segment::{push_varint, take_varint};

/// First byte of the record that commits a prepared transaction.
const COMMIT_PREPARED: u8 = 3;
/// First byte of the record that forgets a prepared transaction.
const ROLLBACK_PREPARED: u8 = 4;
/// First byte of a commit record.
const COMMIT: u8 = 5;
/// First byte of a prepare record.
const PREPARE: u8 = 6;

/// First byte of a write: row bytes.
const PUT: u8 = 0;
/// The same: the sort key of a row that goes.
const DELETE: u8 = 1;
/// The same: where the horizon was.
const HORIZON: u8 = 2;
/// The same: where floors of series were.
const FLOORS: u8 = 3;
/// The same: many rows.
const ROWS: u8 = 4;
/// The same: many rows that others lean on.
const KEPT: u8 = 6;
/// Behind the writes to a table.
const END: u8 = 7;

/// Fewer rows than this are written as they are: blocks have a length and a head each.
const FEWEST_ROWS: usize = 16;

/// So are rows that are longer than this on average: they are texts, for which a commit should not wait.
const LONGEST_ROWS: usize = 256;

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
    [xid, body, edits].into_iter().for_each(|part| push_bytes(&mut out, part));
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
    /// Many rows; see [`for_each_row`].
    Rows(&'a [u8]),
    /// Many rows that others lean on; see [`log_base::decode`].
    Kept(&'a [u8]),
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
    /// Each key once.
    pub writes: Vec<LoggedWrite<'a>>,
}

/// The part of a record that needs the sequence number.
pub fn header(seq: u64) -> Vec<u8> {
    let mut out = vec![COMMIT];
    push_varint(&mut out, seq);
    out
}

/// The body of a record that leans on nothing but itself.
pub fn encode(tables: &[Part]) -> Vec<u8> {
    encode_kept(tables, &mut |_, _| None).0
}

/// Writes rows of the part with a number so that others may lean on them.
type Keep<'a> = dyn FnMut(usize, &[&[u8]]) -> Option<Vec<u8>> + 'a;

/// The body of a record. `keep` is asked for the rows of each part as others may lean on them; given back is where those begin.
pub fn encode_kept(tables: &[Part], keep: &mut Keep<'_>) -> (Vec<u8>, Vec<usize>) {
    let mut out = Vec::new();
    let mut kept = Vec::new();
    push_varint(&mut out, tables.len() as u64);
    for (number, Part { table, layout, own, horizon, floors }) in tables.iter().enumerate() {
        let own = own.read();
        push_varint(&mut out, u64::from(table.0));
        push_varint(&mut out, u64::from(layout.schema().version));
        let horizon = horizon.as_ref().map(|position| (HORIZON, position.encode()));
        let floors = (!floors.is_empty()).then(|| (FLOORS, encode_floors(floors)));
        let push = |out: &mut Vec<u8>, kind, bytes: &[u8]| {
            out.push(kind);
            push_bytes(out, bytes);
        };
        for (kind, bytes) in [horizon, floors].into_iter().flatten() {
            push(&mut out, kind, &bytes);
        }
        let in_batches: usize = own.batches.iter().map(|batch| batch.rows.len()).sum();
        let mut rows: Vec<&[u8]> = Vec::with_capacity(own.map.len() + in_batches);
        rows.extend(own.map.values().filter_map(|write| write.row.as_deref()));
        own.batches.iter().for_each(|batch| rows.extend(batch.rows.rows()));
        if rows.len() >= FEWEST_ROWS && rows.iter().map(|row| row.len()).sum::<usize>() <= LONGEST_ROWS * rows.len() {
            match keep(number, &rows) {
                Some(rows) => {
                    push(&mut out, KEPT, &rows);
                    kept.push(out.len() - rows.len());
                }
                None => {
                    rows.chunks(rrd_codec::MAX_ROWS).for_each(|rows| push(&mut out, ROWS, &encode_rows(layout, rows)));
                }
            }
        } else {
            rows.iter().for_each(|row| push(&mut out, PUT, row));
        }
        let deleted = own.map.iter().filter(|(_, write)| write.row.is_none());
        deleted.for_each(|(key, _)| push(&mut out, DELETE, key));
        out.push(END);
    }
    (out, kept)
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn encode_rows(layout: &RowLayout, rows: &[&[u8]]) -> Vec<u8> {
    let mut out = (rows.len() as u32).to_le_bytes().to_vec();
    let mut block = Vec::new();
    let mut encoders = layout.take_log_encoders();
    for (column, encoder) in layout.gather_all(rows).iter().zip(&mut encoders) {
        block.clear();
        encoder.encode(column, &mut block);
        out.extend_from_slice(&(block.len() as u32).to_le_bytes());
        out.extend_from_slice(&block);
    }
    layout.give_log_encoders_back(encoders);
    out
}

/// Calls `take` for each row of [`LoggedWrite::Rows`]; `None` if they make no sense for this layout.
pub fn for_each_row(rows: &[u8], layout: &RowLayout, take: &mut dyn FnMut(&[u8])) -> Option<()> {
    let mut input = Input(rows);
    let count = usize::try_from(input.u32()?).ok()?;
    let mut columns: Vec<Column> = Vec::new();
    for def in &layout.schema().columns {
        let column = rrd_codec::decode(input.block()?, def.lane.kind(), count).ok()?;
        log_base::fits(def, &column).then(|| columns.push(column))?;
    }
    input.0.is_empty().then_some(())?;
    log_base::for_each_row(&columns, layout, take);
    Some(())
}

/// Reads a record; `None` if it is not one (damage that a checksum missed, or a newer format).
pub fn decode(record: &[u8]) -> Option<Record<'_>> {
    let mut input = Input(record);
    let record = match input.u8()? {
        COMMIT => {
            let seq = input.varint()?;
            return Some(Record::Commit { seq, tables: decode_body(input.0)? });
        }
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
    for _ in 0..input.number()? {
        let table = TableId(input.number()?);
        let schema_version = input.number()?;
        let mut writes = Vec::new();
        loop {
            let kind = input.u8()?;
            if kind == END {
                break;
            }
            let bytes = input.bytes()?;
            writes.push(match kind {
                PUT => LoggedWrite::Put(bytes),
                DELETE => LoggedWrite::Delete(bytes),
                HORIZON => LoggedWrite::Horizon(bytes),
                FLOORS => LoggedWrite::Floors(bytes),
                ROWS => LoggedWrite::Rows(bytes),
                KEPT => LoggedWrite::Kept(bytes),
                _ => return None,
            });
        }
        tables.push(LoggedTable { table, schema_version, writes });
    }
    input.0.is_empty().then_some(tables)
}

/// Bytes that are read from the front.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// A varint.
    pub fn varint(&mut self) -> Option<u64> {
        take_varint(&mut self.0)
    }

    /// A varint below 2^32.
    pub fn number(&mut self) -> Option<u32> {
        self.varint()?.try_into().ok()
    }

    /// Bytes after their length, a varint.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.number()? as usize;
        self.take(len)
    }

    /// A block after its length in 4 bytes.
    fn block(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    /// One byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    /// Four.
    pub fn u32(&mut self) -> Option<u32> {
        self.take(4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
    }

    /// Eight.
    pub fn u64(&mut self) -> Option<u64> {
        self.take(8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own::OwnWrite;
    use crate::schema::{ColumnDef, Lane, Schema};
    use proptest::prelude::*;

    fn layout() -> Arc<RowLayout> {
        let lanes = [Lane::Int { width: 4 }, Lane::Int { width: 2 }, Lane::F64, Lane::F32, Lane::Bytes];
        let column = |(id, lane): (u32, Lane)| ColumnDef::plain(id, lane, id >= 2);
        Arc::new(RowLayout::new(Arc::new(Schema {
            version: 3,
            ..Schema::plain((0..).zip(lanes).map(column).collect(), vec![0, 1], None)
        })))
    }

    type Cells = (u32, u16, Option<f64>, Option<f32>, Option<Vec<u8>>);

    fn row_of(layout: &RowLayout, (a, b, c, d, e): &Cells) -> Vec<u8> {
        let mut row = Vec::new();
        let mut writer = layout.writer(&mut row);
        writer.set_int(0, u64::from(*a));
        writer.set_int(1, u64::from(*b));
        match c {
            Some(value) => writer.set_f64_bits(2, value.to_bits()),
            None => writer.set_null(2),
        }
        match d {
            Some(value) => writer.set_f32_bits(3, value.to_bits()),
            None => writer.set_null(3),
        }
        match e {
            Some(value) => writer.push_bytes(4, value),
            None => writer.set_null(4),
        }
        writer.finish();
        row
    }

    /// The worked example of docs/internals/format.md.
    #[test]
    fn the_documented_record_reads() {
        let row = b"\x08\x07\0\0\x80\x03\0\0\0\0\0\0\0\0\x80\x35\x40\x03\0\0\0a\0b";
        let tables = vec![LoggedTable { table: TableId(5), schema_version: 1, writes: vec![LoggedWrite::Put(row)] }];
        let record = [b"\x05\x09\x01\x05\x01\0\x18", row.as_slice(), b"\x07"].concat();
        assert_eq!(record.len(), 32);
        match decode(&record) {
            Some(Record::Commit { seq, tables: found }) => assert_eq!((seq, &found), (9, &tables)),
            _ => panic!("{record:?}"),
        }
        let prepare = prepare(b"xid", b"body", b"edits");
        assert!(matches!(decode(&prepare), Some(Record::Prepare { xid: b"xid", body: b"body", edits: b"edits" })));
    }

    type Bytes = Vec<Vec<u8>>;

    /// Rows, and keys of deletes, of a body with one table.
    fn read(body: &[u8], layout: &RowLayout) -> Option<(Bytes, Bytes)> {
        let (mut rows, mut deletes) = (Vec::new(), Vec::new());
        for write in decode_body(body)?.first()?.writes.iter() {
            match write {
                LoggedWrite::Put(row) => rows.push(row.to_vec()),
                LoggedWrite::Rows(many) => for_each_row(many, layout, &mut |row| rows.push(row.to_vec()))?,
                LoggedWrite::Delete(key) => deletes.push(key.to_vec()),
                LoggedWrite::Kept(..) | LoggedWrite::Horizon(_) | LoggedWrite::Floors(_) => return None,
            }
        }
        Some((rows, deletes))
    }

    proptest! {
        #[test]
        fn rows_and_deletes_come_back_and_no_bytes_panic(
            cells in prop::collection::vec(
                (
                    0u32..50,
                    any::<u16>(),
                    prop::option::weighted(0.8, prop_oneof![any::<f64>(), (0i32..17_000).prop_map(|v| f64::from(v) / 100.0)]),
                    prop::option::of(any::<f32>()),
                    prop::option::of(prop::collection::vec(0u8..3, 0..4)),
                ),
                0..80,
            ),
            deletes in prop::collection::vec((50u32..60, any::<u16>()), 0..5),
            (at, flip) in (any::<prop::sample::Index>(), 1u8..),
        ) {
            let layout = layout();
            let mut own = OwnWrites::default();
            for cell in &cells {
                let row = row_of(&layout, cell);
                let mut key = Key::new();
                layout.push_key(&row, &mut key);
                own.put(key, OwnWrite { row: Some(row.into()), expects_absent: None });
            }
            for (a, b) in deletes {
                let mut key = Key::new();
                layout.push_key(&row_of(&layout, &(a, b, None, None, None)), &mut key);
                own.put(key, OwnWrite { row: None, expects_absent: None });
            }
            let rows: Bytes = own.map.values().filter_map(|w| w.row.as_deref()).map(<[u8]>::to_vec).collect();
            let keys: Bytes = own.map.iter().filter(|(_, w)| w.row.is_none()).map(|(k, _)| k.to_vec()).collect();
            let part = Part {
                table: TableId(5),
                layout: layout.clone(),
                own: Arc::new(RwLock::new(own)),
                horizon: None,
                floors: Vec::new(),
            };
            let mut body = encode(&[part]);
            prop_assert_eq!(read(&body, &layout), Some((rows, keys)));
            for len in 0..body.len() {
                prop_assert_eq!(read(&body[..len], &layout), None, "a prefix of {} bytes", len);
            }
            // Whatever it reads as, the checksum of its frame has to find it; here it must not panic.
            let at = at.index(body.len());
            body[at] ^= flip;
            read(&body, &layout);
        }
    }

    #[test]
    fn readings_of_many_series_take_few_bytes() {
        let layout = layout();
        let mut own = OwnWrites::default();
        for series in 0..1000u32 {
            let reading = f64::from(series * 7919 % 17_000) / 100.0;
            let row = row_of(&layout, &(series, 7, Some(reading), Some(1.0), None));
            let mut key = Key::new();
            layout.push_key(&row, &mut key);
            own.put(key, OwnWrite { row: Some(row.into()), expects_absent: None });
        }
        let own = Arc::new(RwLock::new(own));
        let part = Part { table: TableId(5), layout, own, horizon: None, floors: Vec::new() };
        let bytes = encode(&[part]).len();
        assert!(bytes < 3000, "{bytes} bytes for a thousand readings of two digits behind the point");
    }
}
