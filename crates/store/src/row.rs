//! Rows as bytes: what the handler writes, the memtable and the log keep.
//!
//! `[null bits] [fixed part: each lane at a constant offset] [bytes of the byte-string lanes]`. A byte-string
//! lane's slot in the fixed part is the end of its value, counted from the start of the variable part. All
//! numbers are little-endian. Every column is reached in constant time, which the columnar writers rely on.
//! The same layout is used in memory and in the log; `docs/internals/format.md` specifies it.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rrd_codec::{Effort, Encoder};

use crate::batch::{KeyBytes, PackedKey};
use crate::horizon::Places;
use crate::key;
use crate::memory;
use crate::newest::Short;
use crate::schema::{Lane, Schema};

mod columns;

/// Where each column of a schema lies in a row.
#[derive(Debug)]
pub struct RowLayout {
    schema: Arc<Schema>,
    slots: Vec<Slot>,
    null_bytes: usize,
    fixed_end: usize,
    /// Slots of byte-string lanes, in column order.
    vars: Vec<usize>,
    /// Length of a sort key when all its parts are integers.
    fixed_key_len: Option<usize>,
    /// [`RowLayout::series_len`] when those parts are integers.
    fixed_series_len: Option<usize>,
    int_key: Option<IntKey>,
    /// What encoded the last rows that were logged: the next ones are like them.
    log_encoders: Mutex<Vec<Encoder>>,
    /// Where the position of a row is; of the entries of an index it is known when that is linked to its table.
    places: OnceLock<Places>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    offset: usize,
    lane: Lane,
    /// Index among the byte-string lanes.
    var: usize,
}

impl RowLayout {
    /// The layout of `schema`.
    pub fn new(schema: Arc<Schema>) -> RowLayout {
        let null_bytes = schema.columns.len().div_ceil(8);
        let mut offset = null_bytes;
        let mut slots = Vec::with_capacity(schema.columns.len());
        let mut vars = Vec::new();
        for c in &schema.columns {
            slots.push(Slot { offset, lane: c.lane, var: vars.len() });
            if c.lane == Lane::Bytes {
                vars.push(offset);
            }
            offset += c.lane.fixed_width();
        }
        let fixed_len = |keys: &[u16]| {
            keys.iter()
                .map(|&k| match schema.columns[usize::from(k)].lane {
                    Lane::Int { width } => Some(usize::from(width)),
                    _ => None,
                })
                .sum()
        };
        let fixed_key_len = fixed_len(&schema.key);
        let series_parts =
            if schema.time.is_some() { schema.series_columns() } else { schema.key.len().saturating_sub(1) };
        let fixed_series_len = fixed_len(&schema.key[..series_parts]);
        let places = match schema.index_of {
            None => OnceLock::from(Places::of_rows(&schema)),
            Some(_) => OnceLock::new(),
        };
        let log_encoders = Mutex::default();
        let mut layout = RowLayout {
            schema,
            slots,
            null_bytes,
            fixed_end: offset,
            vars,
            fixed_key_len,
            fixed_series_len,
            int_key: None,
            log_encoders,
            places,
        };
        layout.int_key = layout.make_int_key();
        layout
    }

    /// The encoders of the log, one for each column: nobody has them until they are given back.
    pub(crate) fn take_log_encoders(&self) -> Vec<Encoder> {
        let encoders = std::mem::take(&mut *self.log_encoders.lock());
        match encoders.is_empty() {
            true => self.slots.iter().map(|_| Encoder::new(Effort::Fast)).collect(),
            false => encoders,
        }
    }

    /// Gives the encoders of the log back.
    pub(crate) fn give_log_encoders_back(&self, encoders: Vec<Encoder>) {
        *self.log_encoders.lock() = encoders;
    }

    /// Where rows have their position; `None` for entries of an index that is not linked yet.
    pub fn places(&self) -> Option<&Places> {
        self.places.get()
    }

    /// Says where entries have the position of their row.
    pub(crate) fn set_places(&self, places: Places) {
        // Whoever links the index says the same.
        let _ = self.places.set(places);
    }

    /// The schema it was made from.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Starts a row at the end of `out`. Byte-string lanes must be set in column order, each exactly once
    /// (or be null); integer lanes that are not set are zero.
    #[inline]
    pub fn try_writer<'a>(&'a self, out: &'a mut Vec<u8>) -> crate::Result<RowWriter<'a>> {
        memory::reserve(out, self.fixed_end, "a row")?;
        Ok(self.writer(out))
    }

    /// As [`RowLayout::try_writer`], for rows that there is room for.
    pub fn writer<'a>(&'a self, out: &'a mut Vec<u8>) -> RowWriter<'a> {
        let start = out.len();
        out.resize(start + self.fixed_end, 0);
        RowWriter { layout: self, out, start, next_var: 0 }
    }

    /// Where a number, or bits of a float, lies in each row; `None` for byte strings.
    pub fn fixed_offset(&self, column: usize) -> Option<usize> {
        let slot = self.slots[column];
        (slot.lane != Lane::Bytes).then_some(slot.offset)
    }

    /// A view of `row`. The bytes must come from this layout (or have passed [`RowLayout::check`]).
    #[inline]
    pub fn view<'a>(&'a self, row: &'a [u8]) -> RowView<'a> {
        RowView { layout: self, row }
    }

    /// Whether `row` has this layout: for bytes that were read from disk.
    pub fn check(&self, row: &[u8]) -> bool {
        if row.len() < self.fixed_end {
            return false;
        }
        let mut end = 0;
        for &slot in &self.vars {
            let e = read_u32(row, slot) as usize;
            if e < end || self.fixed_end + e > row.len() {
                return false;
            }
            end = e;
        }
        row.len() == self.fixed_end + end
    }

    /// Appends the sort key of the clustering key of `row`.
    #[inline]
    pub fn push_key(&self, row: &[u8], out: &mut impl key::KeyBuffer) {
        let view = self.view(row);
        for &k in &self.schema.key {
            let k = usize::from(k);
            match self.slots[k].lane {
                Lane::Int { width } => key::push_int(out, view.int(k), width),
                _ => key::push_bytes(out, view.bytes(k)),
            }
        }
    }

    /// Appends a row that has the key columns of `sort_key` and nothing else (NULL, zero or empty): the row of
    /// a tombstone. False, and nothing appended, if the bytes are not a sort key of this layout.
    pub fn push_key_row(&self, sort_key: &[u8], out: &mut Vec<u8>) -> bool {
        let mut parts: Vec<Option<KeyPart>> = vec![None; self.slots.len()];
        let mut at = 0;
        for &k in &self.schema.key {
            let k = usize::from(k);
            let Some((part, len)) = KeyPart::parse(&sort_key[at..], self.slots[k].lane) else { return false };
            parts[k] = Some(part);
            at += len;
        }
        if at != sort_key.len() {
            return false;
        }
        let mut writer = self.writer(out);
        for (c, part) in parts.into_iter().enumerate() {
            match part {
                Some(KeyPart::Int(v)) => writer.set_int(c, v),
                Some(KeyPart::Bytes(v)) => writer.push_bytes(c, &v),
                None if self.schema.columns[c].nullable => writer.set_null(c),
                None => {}
            }
        }
        writer.finish();
        true
    }

    /// Whether `sort_key` has this layout: for bytes that were read from disk.
    pub fn check_key(&self, sort_key: &[u8]) -> bool {
        self.push_key_row(sort_key, &mut Vec::new())
    }

    /// The time inside a sort key that is whole up to the time column; `None` if it ends before.
    pub fn time_of_key(&self, sort_key: &[u8]) -> Option<u64> {
        let time = self.schema.time?;
        let Lane::Int { width } = self.slots[usize::from(time.column)].lane else { return None };
        let start = self.series_of(sort_key)?.len();
        let bytes = sort_key.get(start..start + usize::from(width))?;
        Some(bytes.iter().fold(0, |v, &b| (v << 8) | u64::from(b)))
    }

    /// The series part of a sort key that is whole up to there; `None` without a time column, or if it is cut short.
    pub fn series_of<'k>(&self, sort_key: &'k [u8]) -> Option<&'k [u8]> {
        self.schema.time?;
        if let Some(len) = self.fixed_series_len {
            return sort_key.get(..len);
        }
        let len = self.parts_len(sort_key, self.schema.series_columns())?;
        sort_key.get(..len)
    }

    /// The smallest sort key of the series of `sort_key` at `time`.
    pub fn series_bound(&self, sort_key: &[u8], time: u64) -> Option<Vec<u8>> {
        let column = usize::from(self.schema.time?.column);
        let Lane::Int { width } = self.slots[column].lane else { return None };
        let mut bound = self.series_of(sort_key)?.to_vec();
        key::push_int(&mut bound, time, width);
        Some(bound)
    }

    /// Whether `key` lies in the series of `low` or is the first key behind it.
    pub fn starts_in_series_of(&self, low: &[u8], key: &[u8]) -> bool {
        match self.series_of(low) {
            Some(series) => key.starts_with(series) || key::prefix_end(series).is_some_and(|end| key == end),
            None => false,
        }
    }

    /// Length of the part of a whole sort key whose newest rest is remembered (newest.rs): the series, or without
    /// a time column all parts but the last.
    pub fn series_len(&self, sort_key: &[u8]) -> usize {
        if self.schema.time.is_some() {
            return self.series_of(sort_key).map_or(0, <[u8]>::len);
        }
        match self.fixed_series_len {
            Some(len) => len,
            None => self.parts_len(sort_key, self.schema.key.len() - 1).unwrap_or(0),
        }
    }

    /// Length of the leading `parts` parts of a sort key; `None` if it is cut short.
    pub fn parts_len(&self, sort_key: &[u8], parts: usize) -> Option<usize> {
        let mut len = 0;
        for &k in &self.schema.key[..parts] {
            len += match self.slots[usize::from(k)].lane {
                Lane::Int { width } => usize::from(width),
                _ => key::bytes_part_len(sort_key.get(len..)?)?,
            };
        }
        (len <= sort_key.len()).then_some(len)
    }

    /// Length of all sort keys, when they all have the same.
    pub fn fixed_key_len(&self) -> Option<usize> {
        self.fixed_key_len
    }

    /// Length of all rows, when they all have the same.
    #[inline]
    pub fn fixed_row_len(&self) -> Option<usize> {
        self.vars.is_empty().then_some(self.fixed_end)
    }

    /// How sort keys that are short integers are read from rows; `None` for any other key.
    pub(crate) fn int_key(&self) -> Option<&IntKey> {
        self.int_key.as_ref()
    }

    fn make_int_key(&self) -> Option<IntKey> {
        let (key_len, series_len) = (self.fixed_key_len?, self.fixed_series_len?);
        let most = size_of::<u64>();
        if series_len > most || key_len - series_len > most || key_len == 0 {
            return None;
        }
        let parts = |keys: &[u16]| keys.iter().map(|&k| self.slots[usize::from(k)]).collect();
        let (series, rest) = self.schema.key.split_at(self.series_parts());
        Some(IntKey { series: parts(series), rest: parts(rest), series_len, rest_len: key_len - series_len })
    }

    /// Leading parts of the key whose newest rest is remembered; see [`RowLayout::series_len`].
    fn series_parts(&self) -> usize {
        match self.schema.time {
            Some(_) => self.schema.series_columns(),
            None => self.schema.key.len().saturating_sub(1),
        }
    }

    /// The time of a row, as its lane holds it; 0 without a time column.
    #[inline]
    pub fn time(&self, row: &[u8]) -> u64 {
        match self.schema.time {
            Some(t) => self.view(row).int(usize::from(t.column)),
            None => 0,
        }
    }
}

/// Reads the two halves of a sort key from rows, as numbers in the same order.
#[derive(Debug)]
pub(crate) struct IntKey {
    series: Vec<Slot>,
    rest: Vec<Slot>,
    series_len: usize,
    rest_len: usize,
}

impl IntKey {
    /// The leading parts, without the last or the time and what follows.
    #[inline]
    pub fn series(&self, row: &[u8]) -> u64 {
        read_key(&self.series, row)
    }

    /// The other parts.
    #[inline]
    pub fn rest(&self, row: &[u8]) -> u64 {
        read_key(&self.rest, row)
    }

    /// Two halves of a sort key as what a table remembers.
    #[inline]
    pub fn short(&self, series: u64, rest: u64) -> (Short, Short) {
        (Short::of_number(series, self.series_len), Short::of_number(rest, self.rest_len))
    }

    /// The whole sort key of a row.
    #[inline]
    pub fn packed(&self, row: &[u8]) -> PackedKey {
        self.pack(self.series(row), self.rest(row))
    }

    /// The sort key with two halves.
    pub fn key(&self, series: u64, rest: u64) -> KeyBytes {
        KeyBytes::new(self.pack(series, rest), self.series_len + self.rest_len)
    }

    #[inline]
    fn pack(&self, series: u64, rest: u64) -> PackedKey {
        let rest_bits = 8 * self.rest_len as u32;
        let key = PackedKey::from(series) << rest_bits | PackedKey::from(rest);
        key << (PackedKey::BITS - 8 * self.series_len as u32 - rest_bits)
    }
}

#[inline]
fn read_key(parts: &[Slot], row: &[u8]) -> u64 {
    parts.iter().fold(0, |key: u64, part| {
        let Lane::Int { width } = part.lane else { return key };
        // A part of eight bytes is the only one.
        key.checked_shl(8 * u32::from(width)).unwrap_or(0) | read_int(row, part.offset, width)
    })
}

/// One part of a sort key, decoded.
#[derive(Clone)]
enum KeyPart {
    Int(u64),
    Bytes(Vec<u8>),
}

impl KeyPart {
    /// The part at the start of `bytes` and its length there.
    fn parse(bytes: &[u8], lane: Lane) -> Option<(KeyPart, usize)> {
        match lane {
            Lane::Int { width } => {
                let part = bytes.get(..usize::from(width))?;
                Some((KeyPart::Int(part.iter().fold(0, |v, &b| (v << 8) | u64::from(b))), part.len()))
            }
            _ => {
                let len = key::bytes_part_len(bytes)?;
                let mut value = Vec::with_capacity(len);
                let mut rest = &bytes[..len - 2];
                while let Some((&b, tail)) = rest.split_first() {
                    value.push(b);
                    rest = if b == 0 { tail.get(1..)? } else { tail };
                }
                Some((KeyPart::Bytes(value), len))
            }
        }
    }
}

/// Writes one row; see [`RowLayout::writer`].
pub struct RowWriter<'a> {
    layout: &'a RowLayout,
    out: &'a mut Vec<u8>,
    start: usize,
    /// The next byte-string lane whose end is to be written.
    next_var: usize,
}

impl RowWriter<'_> {
    /// Sets an integer lane; the value must fit its width.
    #[inline]
    pub fn set_int(&mut self, column: usize, value: u64) {
        let slot = self.layout.slots[column];
        let Lane::Int { width } = slot.lane else {
            debug_assert!(false, "not an integer lane");
            return;
        };
        let at = self.start + slot.offset;
        match width {
            8 => self.out[at..at + 8].copy_from_slice(&value.to_le_bytes()),
            4 => self.out[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes()),
            width => {
                let width = usize::from(width);
                self.out[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            }
        }
    }

    /// Sets an `F32` lane.
    #[inline]
    pub fn set_f32_bits(&mut self, column: usize, bits: u32) {
        let at = self.start + self.layout.slots[column].offset;
        self.out[at..at + 4].copy_from_slice(&bits.to_le_bytes());
    }

    /// Sets an `F64` lane.
    #[inline]
    pub fn set_f64_bits(&mut self, column: usize, bits: u64) {
        let at = self.start + self.layout.slots[column].offset;
        self.out[at..at + 8].copy_from_slice(&bits.to_le_bytes());
    }

    /// Sets lanes of fixed width that lie side by side, the first at an offset of [`RowLayout::fixed_offset`].
    #[inline]
    pub fn copy_fixed(&mut self, offset: usize, lanes: &[u8]) {
        let at = self.start + offset;
        self.out[at..at + lanes.len()].copy_from_slice(lanes);
    }

    /// Appends the value of a byte-string lane.
    pub fn push_bytes(&mut self, column: usize, value: &[u8]) {
        self.fill_ends_before(self.layout.slots[column].var);
        self.out.extend_from_slice(value);
        self.write_end();
    }

    /// As [`RowWriter::push_bytes`], unless there is no memory for the value.
    pub fn try_push_bytes(&mut self, column: usize, value: &[u8]) -> crate::Result<()> {
        memory::reserve(self.out, value.len(), "a row")?;
        self.push_bytes(column, value);
        Ok(())
    }

    /// Makes a column NULL.
    #[inline]
    pub fn set_null(&mut self, column: usize) {
        self.out[self.start + column / 8] |= 1 << (column % 8);
    }

    /// Ends the row; returns where it starts in the buffer.
    pub fn finish(mut self) -> usize {
        self.fill_ends_before(self.layout.vars.len());
        self.start
    }

    fn fill_ends_before(&mut self, var: usize) {
        while self.next_var < var {
            self.write_end();
        }
    }

    fn write_end(&mut self) {
        let at = self.start + self.layout.vars[self.next_var];
        let end = (self.out.len() - self.start - self.layout.fixed_end) as u32;
        self.out[at..at + 4].copy_from_slice(&end.to_le_bytes());
        self.next_var += 1;
    }
}

/// Reads one row.
#[derive(Clone, Copy)]
pub struct RowView<'a> {
    layout: &'a RowLayout,
    row: &'a [u8],
}

impl<'a> RowView<'a> {
    /// Whether the column is NULL.
    #[inline]
    pub fn is_null(&self, column: usize) -> bool {
        self.row[column / 8] & (1 << (column % 8)) != 0
    }

    /// An integer lane (or the bits of a float lane).
    #[inline]
    pub fn int(&self, column: usize) -> u64 {
        let slot = self.layout.slots[column];
        let width = match slot.lane {
            Lane::Int { width } => width,
            Lane::F32 | Lane::Bytes => 4,
            Lane::F64 => 8,
        };
        read_int(self.row, slot.offset, width)
    }

    /// A byte-string lane; empty when NULL.
    #[inline]
    pub fn bytes(&self, column: usize) -> &'a [u8] {
        let slot = self.layout.slots[column];
        let start = match slot.var {
            0 => 0,
            n => read_u32(self.row, self.layout.vars[n - 1]) as usize,
        };
        let end = read_u32(self.row, slot.offset) as usize;
        &self.row[self.layout.fixed_end + start..self.layout.fixed_end + end]
    }

    /// Bytes of the null bitmap at the start of the row.
    pub fn null_bytes(&self) -> &'a [u8] {
        &self.row[..self.layout.null_bytes]
    }
}

#[inline]
fn read_u32(row: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]])
}

/// Integers of the usual widths are read at one go: bytes that are put together in memory first take three times as long.
#[inline(always)]
fn read_int(row: &[u8], at: usize, width: u8) -> u64 {
    match width {
        8 => {
            let mut le = [0; 8];
            le.copy_from_slice(&row[at..at + 8]);
            u64::from_le_bytes(le)
        }
        4 => read_u32(row, at).into(),
        2 => u16::from_le_bytes([row[at], row[at + 1]]).into(),
        1 => row[at].into(),
        width => row[at..at + usize::from(width)].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)),
    }
}
