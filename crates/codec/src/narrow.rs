//! Numbers in as few bytes as they need: columns that wait in memory for reads of single rows.
//!
//! Numbers of a block mostly lie near to each other, and decimal fractions are numbers: a byte, two or four from the
//! lowest one are enough, where a decoded column takes eight. Any row is found at once.

use std::ops::Range;

use crate::block::{self, split_nulls};
use crate::decimal::{Digits, Scale};
use crate::int::Sign;
use crate::reader::Reader;
use crate::{Bitmap, Column, DecodeError, Kind, MAX_ROWS, Pieces, Values, decimal, int, nulls, tag};

/// A block as it takes least memory, any row of it at hand.
#[derive(Clone, Debug, PartialEq)]
pub enum Compact {
    /// Integers without nulls as the few straight lines that they lie on.
    Lines(Pieces),
    /// Numbers near to each other.
    Narrow(Narrow),
    /// Neither.
    Column(Column),
}

/// Numbers as distances from the lowest one.
#[derive(Clone, Debug, PartialEq)]
pub struct Narrow {
    distances: Distances,
    lowest: u64,
    meaning: Meaning,
    /// Rows that hold something else, ascending, with its bits.
    patches: Vec<(u32, u64)>,
    nulls: Option<Bitmap>,
}

#[derive(Clone, Debug, PartialEq)]
enum Distances {
    One(Vec<u8>),
    Two(Vec<u16>),
    Four(Vec<u32>),
}

/// What the numbers are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meaning {
    Int,
    /// The digits of floats.
    F32(Scale),
    F64(Scale),
}

impl Distances {
    /// `None` if the numbers lie too far apart.
    fn new(numbers: &[u64], sign: Sign) -> Option<(Distances, u64)> {
        let (low, high) = int::range(numbers, sign);
        let lowest = sign.key(low);
        let distances = || numbers.iter().map(|&number| number.wrapping_sub(lowest));
        let distances = match high.checked_sub(low)? {
            0..=0xff => Distances::One(distances().map(|distance| distance as u8).collect()),
            0x100..=0xffff => Distances::Two(distances().map(|distance| distance as u16).collect()),
            0x1_0000..=0xffff_ffff => Distances::Four(distances().map(|distance| distance as u32).collect()),
            _ => return None,
        };
        Some((distances, lowest))
    }

    fn among(self, nulls: &Bitmap) -> Distances {
        match self {
            Distances::One(v) => Distances::One(nulls::spread(&v, nulls)),
            Distances::Two(v) => Distances::Two(nulls::spread(&v, nulls)),
            Distances::Four(v) => Distances::Four(nulls::spread(&v, nulls)),
        }
    }

    fn rows(&self) -> usize {
        match self {
            Distances::One(v) => v.len(),
            Distances::Two(v) => v.len(),
            Distances::Four(v) => v.len(),
        }
    }

    #[inline]
    fn get(&self, row: usize) -> u64 {
        match self {
            Distances::One(v) => v[row].into(),
            Distances::Two(v) => v[row].into(),
            Distances::Four(v) => v[row].into(),
        }
    }

    fn map<T>(&self, rows: Range<usize>, value: impl Fn(u64) -> T) -> Vec<T> {
        match self {
            Distances::One(v) => v[rows].iter().map(|&distance| value(distance.into())).collect(),
            Distances::Two(v) => v[rows].iter().map(|&distance| value(distance.into())).collect(),
            Distances::Four(v) => v[rows].iter().map(|&distance| value(distance.into())).collect(),
        }
    }
}

impl Narrow {
    fn new(numbers: &[u64], sign: Sign, meaning: Meaning, nulls: Option<&Bitmap>) -> Option<Narrow> {
        let (distances, lowest) = Distances::new(numbers, sign)?;
        let distances = match nulls {
            Some(nulls) => distances.among(nulls),
            None => distances,
        };
        Some(Narrow { distances, lowest, meaning, patches: Vec::new(), nulls: nulls.cloned() })
    }

    /// Of floats that are decimal fractions.
    fn of_digits(digits: &Digits, kind: Kind, nulls: Option<&Bitmap>) -> Result<Option<Narrow>, DecodeError> {
        let meaning = match kind {
            Kind::F32 => Meaning::F32(digits.scale),
            _ => Meaning::F64(digits.scale),
        };
        // Patches are counted among the rows that are not null.
        if digits.is_near() || nulls.is_some() && digits.is_patched() {
            return Ok(None);
        }
        let Some(mut narrow) = Narrow::new(&digits.digits, Sign::Signed, meaning, nulls) else { return Ok(None) };
        narrow.patches = match kind {
            Kind::F32 => digits.patches::<u32>()?,
            _ => digits.patches::<u64>()?,
        };
        Ok(Some(narrow))
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.distances.rows()
    }

    /// What kind the values are of.
    pub fn kind(&self) -> Kind {
        match self.meaning {
            Meaning::Int => Kind::Int,
            Meaning::F32(_) => Kind::F32,
            Meaning::F64(_) => Kind::F64,
        }
    }

    /// Whether row `i` is null. Panics behind the last row if there are nulls.
    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.get(row))
    }

    /// The integer of a row, or the bits of its float. Panics behind the last row.
    #[inline]
    pub fn bits(&self, row: usize) -> u64 {
        if !self.patches.is_empty()
            && let Ok(place) = self.patches.binary_search_by_key(&(row as u32), |patch| patch.0)
        {
            return self.patches[place].1;
        }
        let number = self.lowest.wrapping_add(self.distances.get(row));
        match self.meaning {
            Meaning::Int => number,
            Meaning::F32(scale) => scale.join::<u32>(number).into(),
            Meaning::F64(scale) => scale.join(number),
        }
    }

    /// Some rows, decoded. Panics if they end behind the last row.
    pub fn column(&self, rows: Range<usize>) -> Column {
        let number = |distance: u64| self.lowest.wrapping_add(distance);
        let first = self.patches.partition_point(|patch| (patch.0 as usize) < rows.start);
        let patches = self.patches[first..].iter().take_while(|patch| (patch.0 as usize) < rows.end);
        let patches = patches.map(|&(row, bits)| (row as usize - rows.start, bits));
        let values = match self.meaning {
            Meaning::Int => Values::Int(self.distances.map(rows.clone(), number)),
            Meaning::F32(scale) => {
                let mut values = self.distances.map(rows.clone(), |distance| scale.join::<u32>(number(distance)));
                patches.for_each(|(row, bits)| values[row] = bits as u32);
                Values::F32(values)
            }
            Meaning::F64(scale) => {
                let mut values = self.distances.map(rows.clone(), |distance| scale.join::<u64>(number(distance)));
                patches.for_each(|(row, bits)| values[row] = bits);
                Values::F64(values)
            }
        };
        let nulls = match &self.nulls {
            Some(nulls) if rows.len() == nulls.len() => Some(nulls.clone()),
            Some(nulls) => {
                let mut some = Bitmap::new(rows.len());
                rows.clone().filter(|&row| nulls.get(row)).for_each(|row| some.set(row - rows.start));
                Some(some).filter(|some| some.count() > 0)
            }
            None => None,
        };
        // Null rows hold zeros, as those of a decoded block do.
        let mut column = Column { values, nulls };
        clear_nulls(&mut column);
        column
    }

    /// Bytes in memory beside the value itself.
    pub fn heap_bytes(&self) -> usize {
        let distances = match &self.distances {
            Distances::One(v) => v.capacity(),
            Distances::Two(v) => v.capacity() * 2,
            Distances::Four(v) => v.capacity() * 4,
        };
        distances + self.patches.capacity() * 16 + self.nulls.as_ref().map_or(0, |nulls| nulls.words().len() * 8)
    }
}

fn clear_nulls(column: &mut Column) {
    let Some(nulls) = &column.nulls else { return };
    for (i, &word) in nulls.words().iter().enumerate() {
        let mut left = word;
        while left != 0 {
            let row = i * 64 + left.trailing_zeros() as usize;
            left &= left - 1;
            match &mut column.values {
                Values::Int(v) | Values::F64(v) => v[row] = 0,
                Values::F32(v) => v[row] = 0,
                Values::Bytes(_) => {}
            }
        }
    }
}

/// Reads a block of `rows` rows back, as [`crate::decode`] does, into what takes least memory.
pub fn decode_compact(bytes: &[u8], kind: Kind, rows: usize) -> Result<Compact, DecodeError> {
    if rows > MAX_ROWS {
        return Err(DecodeError::TooLarge);
    }
    if kind == Kind::Int
        && let Some(lines) = block::decode_pieces(bytes, rows)?
    {
        return Ok(Compact::Lines(lines));
    }
    let (nulls, values) = match *bytes.first().ok_or(DecodeError::Truncated)? {
        tag::ALL_NULL => return block::decode(bytes, kind, rows).map(Compact::Column),
        tag::NULLS => {
            let (nulls, values) = split_nulls(bytes, rows)?;
            (Some(nulls), values)
        }
        _ => (None, bytes),
    };
    let dense = rows - nulls.as_ref().map_or(0, Bitmap::count);
    let values = match (kind, values.first()) {
        (Kind::Int, _) => {
            let numbers = int::decode(values, dense)?;
            if let Some(narrow) = Narrow::new(&numbers, Sign::Unsigned, Meaning::Int, nulls.as_ref()) {
                return Ok(Compact::Narrow(narrow));
            }
            Values::Int(numbers)
        }
        (Kind::F32 | Kind::F64, Some(&tag::FLOAT_DECIMAL)) => {
            let mut reader = Reader::new(values);
            reader.byte()?;
            let digits = Digits::read(&mut reader, dense, decimal::Precision::Exact)?;
            if let Some(narrow) = Narrow::of_digits(&digits, kind, nulls.as_ref())? {
                return Ok(Compact::Narrow(narrow));
            }
            match kind {
                Kind::F32 => Values::F32(digits.floats()?),
                _ => Values::F64(digits.floats()?),
            }
        }
        _ => block::decode_values(values, kind, dense)?,
    };
    Ok(Compact::Column(match nulls {
        Some(nulls) => block::with_nulls(values, nulls),
        None => Column { values, nulls: None },
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Effort, encode};
    use proptest::prelude::*;

    /// Writes a column and reads it both ways. Returns the bytes that it takes, if it became narrow.
    fn check(column: &Column) -> Option<usize> {
        let mut taken = None;
        for effort in [Effort::Fast, Effort::Small] {
            let mut block = Vec::new();
            encode(column, effort, &mut block);
            let (kind, rows) = (column.kind(), column.rows());
            let decoded = crate::decode(&block, kind, rows).unwrap();
            let narrow = match decode_compact(&block, kind, rows).unwrap() {
                Compact::Lines(lines) => {
                    assert_eq!(decoded, Column { values: Values::Int(lines.values(0..lines.rows())), nulls: None });
                    continue;
                }
                Compact::Column(column) => {
                    assert_eq!(column, decoded);
                    continue;
                }
                Compact::Narrow(narrow) => narrow,
            };
            assert_eq!((narrow.rows(), narrow.kind()), (rows, kind));
            assert_eq!(narrow.column(0..rows), decoded);
            let bits = |row: usize| match &decoded.values {
                Values::Int(v) | Values::F64(v) => v[row],
                Values::F32(v) => v[row].into(),
                Values::Bytes(_) => unreachable!(),
            };
            for row in 0..rows {
                assert_eq!(narrow.is_null(row), decoded.is_null(row));
                assert!(decoded.is_null(row) || narrow.bits(row) == bits(row), "row {row}");
            }
            for some in [0..rows / 3, rows / 3..rows.div_ceil(2), rows.saturating_sub(1)..rows] {
                let part = narrow.column(some.clone());
                assert_eq!(part.rows(), some.len());
                assert_ne!(part.nulls.as_ref().map(Bitmap::count), Some(0));
                for row in some.clone() {
                    let here = row - some.start;
                    assert_eq!(part.is_null(here), decoded.is_null(row));
                    match (&part.values, &decoded.values) {
                        (Values::Int(a), Values::Int(b)) | (Values::F64(a), Values::F64(b)) => {
                            assert_eq!(a[here], b[row])
                        }
                        (Values::F32(a), Values::F32(b)) => assert_eq!(a[here], b[row]),
                        other => panic!("{other:?}"),
                    }
                }
            }
            for end in 0..block.len() {
                // Every prefix is damage or something else, never a panic.
                let _ = decode_compact(&block[..end], kind, rows);
            }
            taken = Some(narrow.heap_bytes());
        }
        taken
    }

    fn walk(rows: u64, step: i64) -> impl Iterator<Item = i64> {
        let noise = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as i64;
        (0..rows).scan(0, move |at, i| {
            *at += noise(i) % (2 * step + 1) - step;
            Some(*at)
        })
    }

    #[test]
    fn walks_take_two_bytes_a_row() {
        let mut doubles = Column::new(Kind::F64);
        let mut floats = Column::new(Kind::F32);
        let mut ints = Column::new(Kind::Int);
        for value in walk(3000, 40) {
            doubles.push_f64(value as f64 / 100.0);
            floats.push_f32(value as f32 / 10.0);
            ints.push_int((1 << 63) + value as u64);
        }
        assert_eq!([check(&doubles), check(&floats), check(&ints)], [Some(6000); 3]);
    }

    #[test]
    fn patches_and_nulls_come_back() {
        let (mut patched, mut with_nulls, mut both) =
            (Column::new(Kind::F64), Column::new(Kind::F64), Column::new(Kind::F64));
        for (i, value) in walk(3000, 40).enumerate() {
            let value = value as f64 / 100.0;
            let odd = if i % 200 == 7 { value.sin() } else { value };
            patched.push_f64(odd);
            if i % 10 == 3 {
                with_nulls.push_null()
            } else {
                with_nulls.push_f64(value)
            }
            if i % 10 == 3 { both.push_null() } else { both.push_f64(odd) }
        }
        assert!(check(&patched).is_some());
        assert!(check(&with_nulls).is_some());
        assert_eq!(check(&both), None);
    }

    proptest! {
        #[test]
        fn every_column_comes_back(
            numbers in prop::collection::vec((0u64..1 << 40, any::<u8>()), 0..400),
            width in 1u32..64,
            kind in prop::sample::select(vec![Kind::Int, Kind::F32, Kind::F64]),
            nulls in any::<bool>(),
        ) {
            let mut column = Column::new(kind);
            for (number, odd) in numbers {
                let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - width);
                match kind {
                    _ if nulls && odd < 20 => column.push_null(),
                    Kind::Int => column.push_int(number),
                    Kind::F32 => column.push_f32(if odd > 250 { f32::NAN } else { number as f32 / 10.0 }),
                    _ => column.push_f64(if odd > 250 { f64::NAN } else { number as f64 / 1000.0 }),
                }
            }
            check(&column);
        }
    }
}
