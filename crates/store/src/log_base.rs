//! Rows in the log as differences to those of an earlier commit that wrote to the same series.
//!
//! Who polls devices writes the same series again and again in commits of the same make-up. What such a commit wrote last is
//! kept for each table as long as its memtable is, and the next record with the same series holds differences: a walk
//! takes half of the bits. Bytes are specified in `docs/internals/format.md`, section "Rows that others lean on".
//!
//! What is kept is a function of the log alone: a record says what it leans on, and whether all others are forgotten with
//! it. Nothing leans on a record that is not with the operating system, because a full disk may still refuse it; and
//! whoever leans on an older record keeps the log from the beginning of the chain on (`start`).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use rrd_codec::{Column, Values};

use crate::log_record::Input;
use crate::row::RowLayout;
use crate::schema::{ColumnDef, Lane};
use crate::segment::push_varint;
use crate::wal::Lsn;

/// More rows of a commit are not kept: they are many enough to be packed well without.
const MOST_ROWS: usize = 4096;

/// Rows that are kept of a table.
const ROWS_KEPT: usize = 1 << 17;

/// Flag of a record with which all others are forgotten.
const FORGET: u8 = 1;

/// How a column is written.
const PLAIN: u8 = 0;
const SAME: u8 = 1;
const DIFFERENCES: u8 = 2;
const DECIMALS: u8 = 3;

/// Rows of a record that others may lean on.
#[derive(Clone)]
pub struct Base {
    /// Number of its commit.
    pub seq: u64,
    /// Where its record ends.
    pub end: Lsn,
    /// What it leans on itself begins here, or it does.
    pub start: u64,
    schema_version: u32,
    columns: Arc<Vec<Column>>,
}

/// The newest such rows of each group of series of a table.
#[derive(Default)]
pub struct Bases {
    by_group: HashMap<u64, Base>,
    group_of: HashMap<u64, u64>,
    rows: usize,
}

/// Rows that a commit is about to write so that others may lean on them.
pub struct Kept {
    group: u64,
    /// What they lean on, and where that begins.
    on: Option<(u64, u64)>,
    schema_version: u32,
    columns: Arc<Vec<Column>>,
}

impl Bases {
    /// The newest rows of the series that `kept` writes to, if those are the same in the same order.
    fn find(&self, kept: &Kept, layout: &RowLayout) -> Option<&Base> {
        let base = self.by_group.get(&kept.group).filter(|base| base.schema_version == kept.schema_version)?;
        let is_same = series_columns(layout).all(|c| base.columns[c] == kept.columns[c]);
        (is_same && base.columns[0].rows() == kept.columns[0].rows()).then_some(base)
    }

    /// Whether what some rows lean on is still the newest of its group.
    pub fn still_has(&self, kept: &Kept) -> bool {
        kept.on.is_none_or(|(seq, _)| self.by_group.get(&kept.group).is_some_and(|base| base.seq == seq))
    }

    /// Whether all others are forgotten with these rows.
    pub fn forgets_with(&self, kept: &Kept) -> bool {
        self.by_group.is_empty() || self.rows + kept.columns[0].rows() > ROWS_KEPT
    }

    /// Keeps rows that are in the log now.
    pub fn keep(&mut self, kept: Kept, forgets: bool, seq: u64, end: Lsn, start: u64) {
        if forgets {
            self.forget();
        }
        let start = kept.on.map_or(start, |(_, start)| start);
        let base = Base { seq, end, start, schema_version: kept.schema_version, columns: kept.columns };
        self.rows += base.columns[0].rows();
        self.group_of.insert(seq, kept.group);
        if let Some(before) = self.by_group.insert(kept.group, base) {
            self.rows -= before.columns[0].rows();
            self.group_of.remove(&before.seq);
        }
    }

    /// Nothing leans on what was before.
    pub fn forget(&mut self) {
        *self = Bases::default();
    }
}

impl Kept {
    /// Where the log has to be kept from, for what the rows lean on.
    pub fn start(&self) -> Option<u64> {
        self.on.map(|(_, start)| start)
    }
}

/// Writes rows that others may lean on; `None` if nobody will. `may_lean` says whether one may lean on rows that are kept.
pub fn encode(
    rows: &[&[u8]],
    layout: &RowLayout,
    bases: &parking_lot::Mutex<Bases>,
    may_lean: impl Fn(&Base) -> bool,
) -> Option<(Vec<u8>, Kept)> {
    if rows.len() > MOST_ROWS || series_columns(layout).next().is_none() || goes_on_in_series(rows, layout) {
        return None;
    }
    let columns = layout.gather_all(rows);
    let schema_version = layout.schema().version;
    let mut kept = Kept { group: group_of(&columns, layout), on: None, schema_version, columns: Arc::new(columns) };
    let base = bases.lock().find(&kept, layout).cloned().filter(may_lean);
    kept.on = base.as_ref().map(|base| (base.seq, base.start));
    let mut out = vec![0];
    push_varint(&mut out, rows.len() as u64);
    push_varint(&mut out, base.as_ref().map_or(0, |base| base.seq));
    let mut encoders = layout.take_log_encoders();
    let mut block = Vec::new();
    for (c, (column, encoder)) in kept.columns.iter().zip(&mut encoders).enumerate() {
        let differences = base.as_ref().and_then(|base| differences(column, &base.columns[c]));
        block.clear();
        match differences {
            Some(Differences::None) => {
                out.push(SAME);
                continue;
            }
            Some(Differences::Of { exponent, values }) => {
                match exponent {
                    None => out.push(DIFFERENCES),
                    Some(exponent) => out.extend_from_slice(&[DECIMALS, exponent]),
                }
                encoder.encode_differences(&values, &mut block);
            }
            None => {
                out.push(PLAIN);
                encoder.encode(column, &mut block);
            }
        }
        push_varint(&mut out, block.len() as u64);
        out.extend_from_slice(&block);
    }
    layout.give_log_encoders_back(encoders);
    Some((out, kept))
}

/// Says in what [`encode`] wrote that all others are forgotten with it.
pub fn set_forgets(encoded: &mut [u8]) {
    if let Some(flags) = encoded.first_mut() {
        *flags |= FORGET;
    }
}

/// Reads what [`encode`] wrote for commit `seq`, whose record ends at `end`, and keeps it. Gives the columns and where the
/// log has to be kept from; `None` if the bytes make no sense, or what they lean on is not there.
pub fn decode(
    bytes: &[u8],
    layout: &RowLayout,
    bases: &mut Bases,
    (seq, end): (u64, Lsn),
) -> Option<(Arc<Vec<Column>>, u64)> {
    let mut input = Input(bytes);
    let flags = input.u8()?;
    let rows = usize::try_from(input.number()?).ok()?;
    let on = input.varint()?;
    if flags & !FORGET != 0 || rows == 0 || rows > MOST_ROWS {
        return None;
    }
    let base = match on {
        0 => None,
        on => Some(bases.by_group.get(bases.group_of.get(&on)?)?),
    };
    let schema_version = layout.schema().version;
    if base.is_some_and(|base| base.columns[0].rows() != rows || base.schema_version != schema_version) {
        return None;
    }
    let mut columns = Vec::with_capacity(layout.schema().columns.len());
    for (c, def) in layout.schema().columns.iter().enumerate() {
        let before = base.map(|base| &base.columns[c]);
        let column = decode_column(&mut input, def, before, rows)?;
        columns.push(column);
    }
    input.0.is_empty().then_some(())?;
    let on = base.map(|base| (base.seq, base.start));
    let kept = Kept { group: group_of(&columns, layout), on, schema_version, columns: Arc::new(columns) };
    let columns = kept.columns.clone();
    // A little before its end is within the record.
    let start = kept.start().unwrap_or(end.0.saturating_sub(1));
    bases.keep(kept, flags & FORGET != 0, seq, end, start);
    Some((columns, start))
}

fn decode_column(input: &mut Input<'_>, def: &ColumnDef, before: Option<&Column>, rows: usize) -> Option<Column> {
    let column = match input.u8()? {
        PLAIN => rrd_codec::decode(input.bytes()?, def.lane.kind(), rows).ok()?,
        SAME => before?.clone(),
        DIFFERENCES => {
            let Values::Int(before) = without_nulls(before?)? else { return None };
            let sums = before.iter().zip(numbers(input.bytes()?, rows)?).map(|(v, d)| v.wrapping_add(unzigzag(d)));
            Column { values: Values::Int(sums.collect()), nulls: None }
        }
        DECIMALS => {
            let power = power(input.u8()?)?;
            let Values::F64(before) = without_nulls(before?)? else { return None };
            let float = |(v, d): (&u64, u64)| {
                let digits = digits(*v, power)?.wrapping_add(unzigzag(d) as i64);
                (digits.unsigned_abs() < LARGEST).then(|| (digits as f64 / power).to_bits())
            };
            let floats: Option<Vec<u64>> = before.iter().zip(numbers(input.bytes()?, rows)?).map(float).collect();
            Column { values: Values::F64(floats?), nulls: None }
        }
        _ => return None,
    };
    fits(def, &column).then_some(column)
}

/// Whether values are some of a column.
pub fn fits(def: &ColumnDef, column: &Column) -> bool {
    let is_narrow = match (&column.values, def.lane) {
        (Values::Int(values), Lane::Int { width }) if width < 8 => values.iter().all(|v| v >> (8 * width) == 0),
        _ => true,
    };
    is_narrow && (def.nullable || column.nulls.is_none())
}

/// Rows of decoded columns, one after the other.
pub fn for_each_row(columns: &[Column], layout: &RowLayout, take: &mut dyn FnMut(&[u8])) {
    let mut row = Vec::new();
    for i in 0..columns.first().map_or(0, Column::rows) {
        row.clear();
        layout.push_row_of_columns(|c| &columns[c], i, &mut row);
        take(&row);
    }
}

fn numbers(block: &[u8], rows: usize) -> Option<Vec<u64>> {
    match rrd_codec::decode(block, rrd_codec::Kind::Int, rows).ok()? {
        Column { values: Values::Int(values), nulls: None } => Some(values),
        _ => None,
    }
}

fn without_nulls(column: &Column) -> Option<&Values> {
    column.nulls.is_none().then_some(&column.values)
}

/// The columns that say of which series a row is: those of the key but for the time.
fn series_columns(layout: &RowLayout) -> impl Iterator<Item = usize> {
    let schema = layout.schema();
    let time = schema.time.as_ref().map(|time| time.column as usize);
    schema.key.iter().map(|&c| c as usize).filter(move |c| time.is_some_and(|time| time != *c))
}

/// Whether most rows have one of their own series right before them: then blocks hold differences to that one as it is, and
/// those to an earlier record would only be found to be no shorter.
fn goes_on_in_series(rows: &[&[u8]], layout: &RowLayout) -> bool {
    let series: Vec<Column> = series_columns(layout).map(|c| layout.gather(c, rows.iter().copied())).collect();
    let is_same = |column: &Column, i: usize| match &column.values {
        Values::Int(values) | Values::F64(values) => values[i - 1] == values[i],
        Values::F32(values) => values[i - 1] == values[i],
        Values::Bytes(values) => values.get(i - 1) == values.get(i),
    };
    let repeated = (1..rows.len()).filter(|&i| series.iter().all(|column| is_same(column, i))).count();
    2 * repeated >= rows.len()
}

fn group_of(columns: &[Column], layout: &RowLayout) -> u64 {
    let mut hasher = DefaultHasher::new();
    for c in series_columns(layout) {
        match &columns[c].values {
            Values::Int(values) | Values::F64(values) => values.hash(&mut hasher),
            Values::F32(values) => values.hash(&mut hasher),
            Values::Bytes(values) => (0..values.len()).for_each(|i| values.get(i).hash(&mut hasher)),
        }
    }
    hasher.finish()
}

/// How a column differs from that of an earlier record.
enum Differences {
    None,
    /// Zigzagged, of numbers or of the digits of decimals.
    Of {
        exponent: Option<u8>,
        values: Vec<u64>,
    },
}

/// The differences of a column; `None` if it takes less room as it is.
fn differences(now: &Column, before: &Column) -> Option<Differences> {
    if now == before {
        return Some(Differences::None);
    }
    match (without_nulls(now)?, without_nulls(before)?) {
        (Values::Int(now), Values::Int(before)) => {
            let pairs = now.iter().zip(before).map(|(now, before)| (*now as i64, *before as i64));
            worth_while(pairs, None)
        }
        (Values::F64(now), Values::F64(before)) => {
            let (exponent, now, before) = common_digits(now, before)?;
            worth_while(now.into_iter().zip(before), Some(exponent))
        }
        _ => None,
    }
}

/// Differences of pairs, if they are shorter than what packs the first of each.
fn worth_while(pairs: impl ExactSizeIterator<Item = (i64, i64)>, exponent: Option<u8>) -> Option<Differences> {
    let bits = |value: u64| u64::from(u64::BITS - value.leading_zeros());
    let mut values = Vec::with_capacity(pairs.len());
    let (mut low, mut high, mut sum) = (i64::MAX, i64::MIN, 0);
    for (now, before) in pairs {
        (low, high) = (low.min(now), high.max(now));
        let value = zigzag(now.wrapping_sub(before) as u64);
        sum += bits(value);
        values.push(value);
    }
    let range = bits(high.wrapping_sub(low) as u64);
    let is_constant = values.windows(2).all(|pair| pair[0] == pair[1]);
    // The patches of a few long ones pay for packing the others in about as many bits as most of them have.
    let mean = sum / values.len().max(1) as u64;
    (range > 0 && (is_constant || mean + 2 < range)).then_some(Differences::Of { exponent, values })
}

/// The lowest power of ten that makes integers of all floats, and those integers.
fn common_digits(now: &[u64], before: &[u64]) -> Option<(u8, Vec<i64>, Vec<i64>)> {
    let (lowest, of_now) = lowest_digits(now, 0)?;
    let (exponent, of_before) = lowest_digits(before, lowest)?;
    let of_now = if exponent == lowest { of_now } else { all_digits(now, power(exponent)?)? };
    Some((exponent, of_now, of_before))
}

/// The lowest exponent, from one on, that makes integers of all floats, and those integers.
fn lowest_digits(floats: &[u64], mut exponent: u8) -> Option<(u8, Vec<i64>)> {
    loop {
        if let Some(digits) = all_digits(floats, power(exponent)?) {
            return Some((exponent, digits));
        }
        exponent += 1;
    }
}

/// Powers of ten that floats of readings are multiples of, upside down. All are exact.
fn power(exponent: u8) -> Option<f64> {
    const POWERS: [f64; 10] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
    POWERS.get(usize::from(exponent)).copied()
}

/// Digits are below this: 2^51. Floats of them, and of sums of two, are exact.
const LARGEST: u64 = 1 << 51;

/// Adding it rounds a double to an integer, in the low bits: 1.5 * 2^52.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// Floats whose digits are made at once: more are in vain where the first are none.
const AT_ONCE: usize = 64;

/// The digits of decimal fractions that give them back bit by bit; `None` if one does not.
fn all_digits(floats: &[u64], power: f64) -> Option<Vec<i64>> {
    let mut digits = Vec::with_capacity(floats.len());
    for some in floats.chunks(AT_ONCE) {
        // No branch within the loop, so that several go at a time.
        let mut wrong = 0;
        digits.extend(some.iter().map(|&float| {
            let (digits, wrong_bits) = split(float, power);
            wrong |= wrong_bits;
            digits
        }));
        if wrong != 0 {
            return None;
        }
    }
    Some(digits)
}

/// The digits of a decimal fraction that give it back bit by bit.
fn digits(float: u64, power: f64) -> Option<i64> {
    let (digits, wrong) = split(float, power);
    (wrong == 0).then_some(digits)
}

/// The digits of a float, and bits that say that they do not give it back.
#[inline(always)]
fn split(float: u64, power: f64) -> (i64, u64) {
    let sum = f64::from_bits(float) * power + ROUND;
    let rounded = sum - ROUND;
    // The top bit is set from LARGEST on, and of what is no number.
    let size = rounded.abs().to_bits() + ((1 << 63) - (LARGEST as f64).to_bits());
    let differs = (rounded / power).to_bits() ^ float;
    ((sum.to_bits() as i64).wrapping_sub(ROUND.to_bits() as i64), differs | (size >> 63))
}

fn zigzag(value: u64) -> u64 {
    value << 1 ^ ((value as i64) >> 63) as u64
}

fn unzigzag(value: u64) -> u64 {
    value >> 1 ^ (value & 1).wrapping_neg()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::schema::Schema;
    use parking_lot::Mutex;
    use proptest::prelude::*;

    fn layout() -> RowLayout {
        let columns = [
            (Lane::Int { width: 4 }, false),
            (Lane::Int { width: 4 }, false),
            (Lane::F64, true),
            (Lane::Int { width: 8 }, true),
            (Lane::F32, false),
            (Lane::Bytes, true),
        ];
        let columns = (0..).zip(columns).map(|(id, (lane, nullable))| ColumnDef::plain(id, lane, nullable)).collect();
        RowLayout::new(Arc::new(Schema::plain(columns, vec![1, 0], Some(0))))
    }

    type Cells = (Option<f64>, Option<u64>, Option<Vec<u8>>);

    fn rows_of(layout: &RowLayout, time: u64, cells: &[Cells]) -> Vec<Vec<u8>> {
        let row = |(series, (a, b, d)): (u64, &Cells)| {
            let mut row = Vec::new();
            let mut writer = layout.writer(&mut row);
            writer.set_int(0, time);
            writer.set_int(1, series);
            match a {
                Some(a) => writer.set_f64_bits(2, a.to_bits()),
                None => writer.set_null(2),
            }
            match b {
                Some(b) => writer.set_int(3, *b),
                None => writer.set_null(3),
            }
            writer.set_f32_bits(4, 1.5f32.to_bits());
            match d {
                Some(d) => writer.push_bytes(5, d),
                None => writer.set_null(5),
            }
            writer.finish();
            row
        };
        (0..).zip(cells).map(row).collect()
    }

    fn cells() -> impl Strategy<Value = Cells> {
        let decimal = || (0i32..17_000).prop_map(|v| f64::from(v) / 100.0);
        let odd = prop_oneof![
            Just(-0.0),
            Just(f64::NAN),
            Just(f64::INFINITY),
            Just(2_251_799_813_685_247.5),
            Just(-2_251_799_813_685_248.0),
            Just(0.1 + 0.2),
            any::<f64>()
        ];
        let a = prop_oneof![60 => decimal(), 1 => odd];
        let b = prop_oneof![20 => 0u64..1000, 1 => any::<u64>()];
        (
            prop::option::weighted(0.98, a),
            prop::option::weighted(0.98, b),
            prop::option::weighted(0.9, prop::collection::vec(0u8..3, 0..3)),
        )
    }

    proptest! {
        #[test]
        fn rows_come_back_from_differences_and_no_bytes_panic(
            polls in (1usize..40).prop_flat_map(|n| prop::collection::vec(prop::collection::vec(cells(), n), 1..5)),
            (at, flip) in (any::<prop::sample::Index>(), 1u8..),
        ) {
            let layout = layout();
            let bases = Mutex::new(Bases::default());
            let mut replayed = Bases::default();
            for (seq, cells) in (1u64..).zip(&polls) {
                let rows = rows_of(&layout, 1000 + seq * 60, cells);
                let slices: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
                let (mut bytes, kept) = encode(&slices, &layout, &bases, |_| true).unwrap();
                prop_assert_eq!(kept.start(), (seq > 1).then_some(100));
                let forgets = bases.lock().forgets_with(&kept);
                prop_assert_eq!(forgets, seq == 1);
                if forgets {
                    set_forgets(&mut bytes);
                }
                prop_assert!(bases.lock().still_has(&kept));
                bases.lock().keep(kept, forgets, seq, Lsn(seq * 100 + 1), seq * 100);
                let mut damaged = bytes.clone();
                let at = at.index(damaged.len());
                damaged[at] ^= flip;
                let again = || {
                    let mut again = Bases::default();
                    again.by_group.clone_from(&replayed.by_group);
                    again.group_of.clone_from(&replayed.group_of);
                    again.rows = replayed.rows;
                    again
                };
                decode(&damaged, &layout, &mut again(), (seq, Lsn(seq * 100 + 1)));
                for len in 0..bytes.len() {
                    prop_assert!(decode(&bytes[..len], &layout, &mut again(), (seq, Lsn(1))).is_none());
                }
                let (columns, start) = decode(&bytes, &layout, &mut replayed, (seq, Lsn(seq * 100 + 1))).unwrap();
                prop_assert_eq!(start, 100);
                let mut found = Vec::new();
                for_each_row(&columns, &layout, &mut |row| found.push(row.to_vec()));
                prop_assert_eq!(found, rows);
            }
        }
    }

    #[test]
    fn rows_of_few_series_are_not_kept() {
        let layout = layout();
        let bases = Mutex::new(Bases::default());
        let is_kept = |rows: &[Vec<u8>]| {
            let slices: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
            encode(&slices, &layout, &bases, |_| true).is_some()
        };
        let of_one: Vec<Vec<u8>> =
            (0..20).flat_map(|time| rows_of(&layout, time, &[(Some(1.5), None, None)])).collect();
        let of_each = rows_of(&layout, 0, &vec![(Some(1.5), None, None); 20]);
        let mixed = |ones: usize| [&of_one[..ones], &of_each[10..]].concat();
        assert_eq!((is_kept(&of_one), is_kept(&of_each)), (false, true));
        assert_eq!((is_kept(&mixed(10)), is_kept(&mixed(20))), (true, false));
    }

    #[test]
    fn nothing_leans_on_what_may_not_be_there() {
        let layout = layout();
        let bases = Mutex::new(Bases::default());
        let poll = |seq: u64, may: bool| {
            let rows = rows_of(&layout, seq, &vec![(Some(1.5), Some(seq), None); 20]);
            let slices: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
            encode(&slices, &layout, &bases, |_| may).unwrap()
        };
        let (first, kept) = poll(1, true);
        bases.lock().keep(kept, true, 1, Lsn(10), 0);
        assert!(
            decode(&poll(2, true).0, &layout, &mut Bases::default(), (2, Lsn(20))).is_none(),
            "its base is missing"
        );
        assert!(decode(&poll(2, false).0, &layout, &mut Bases::default(), (2, Lsn(20))).is_some());
        let (_, leaning) = poll(2, true);
        let (_, faster) = poll(3, true);
        bases.lock().keep(faster, false, 2, Lsn(20), 10);
        assert!(!bases.lock().still_has(&leaning), "another one was faster");
        bases.lock().forget();
        assert!(!bases.lock().still_has(&leaning));
        assert_eq!(poll(4, true).1.start(), None);
        assert!(decode(&first, &layout, &mut Bases::default(), (1, Lsn(10))).is_some());
    }
}
