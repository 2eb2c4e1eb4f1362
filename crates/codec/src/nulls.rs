//! Which rows are null: bitmaps as blocks, and columns with and without their null rows.
//!
//! Null rows hold no value in a block: they are taken out before encoding and put back, as zeros, after decoding.
//! The bitmap of them is written as it is, or as the lengths of the runs: a clear one (perhaps of no rows), a set
//! one, and so on in turn, clear and set ones as two blocks of integers.

use crate::bits::load64;
use crate::int::{self, Sign};
use crate::reader::{Reader, write_nested, write_varint};
use crate::{Bitmap, BytesColumn, DecodeError, Effort, Values, tag};

/// Appends a bitmap block.
pub(crate) fn encode(bitmap: &Bitmap, effort: Effort, out: &mut Vec<u8>) {
    let raw = bitmap.len().div_ceil(8);
    let mut block = vec![tag::BITMAP_RUNS];
    let (clear, set) = run_lengths(bitmap);
    // Runs take more than a bit each: with too many of them, trying is a waste of time.
    let few = clear.len() + set.len() <= bitmap.len() / 3 + 2;
    if few {
        write_varint(&mut block, set.len() as u64);
        block.push((clear.len() - set.len()) as u8);
        for lengths in [clear, set] {
            let mut side = Vec::new();
            int::encode(&lengths, Sign::Unsigned, effort, &mut side);
            write_nested(&mut block, &side);
        }
    }
    if few && block.len() <= raw {
        return out.extend_from_slice(&block);
    }
    out.push(tag::BITMAP_RAW);
    out.extend(bitmap.words().iter().flat_map(|word| word.to_le_bytes()).take(raw));
}

/// The lengths of clear and of set runs, in turn.
fn run_lengths(bitmap: &Bitmap) -> (Vec<u64>, Vec<u64>) {
    let mut lengths = [Vec::new(), Vec::new()];
    let (mut start, mut carry) = (0, 0);
    for (i, &word) in bitmap.words().iter().enumerate() {
        let mut changes = word ^ (word << 1 | carry);
        carry = word >> 63;
        while changes != 0 {
            let row = i * 64 + changes.trailing_zeros() as usize;
            changes &= changes - 1;
            if row < bitmap.len() {
                let kind = usize::from(lengths[0].len() > lengths[1].len());
                lengths[kind].push((row - start) as u64);
                start = row;
            }
        }
    }
    let kind = usize::from(lengths[0].len() > lengths[1].len());
    lengths[kind].push((bitmap.len() - start) as u64);
    lengths.into()
}

/// Reads a bitmap block of `rows` rows.
pub(crate) fn decode(bytes: &[u8], rows: usize) -> Result<Bitmap, DecodeError> {
    let mut reader = Reader::new(bytes);
    let bitmap = match reader.byte()? {
        tag::BITMAP_RAW => {
            let raw = reader.take(rows.div_ceil(8))?;
            Bitmap::from_words((0..rows.div_ceil(64)).map(|i| load64(raw, i * 8)).collect(), rows)
        }
        tag::BITMAP_RUNS => decode_runs(&mut reader, rows)?,
        other => return Err(DecodeError::UnknownTag(other)),
    };
    reader.finish()?;
    Ok(bitmap)
}

fn decode_runs(reader: &mut Reader, rows: usize) -> Result<Bitmap, DecodeError> {
    const WRONG: DecodeError = DecodeError::Invalid("runs of a bitmap");
    let sets = reader.count(rows)?;
    let clears = sets + usize::from(reader.byte()? & 1);
    let clear = int::decode(reader.nested()?, clears)?;
    let set = int::decode(reader.nested()?, sets)?;
    let mut bitmap = Bitmap::new(rows);
    let mut left = rows as u64;
    for (i, &skipped) in clear.iter().enumerate() {
        left = left.checked_sub(skipped).ok_or(WRONG)?;
        let len = set.get(i).copied().unwrap_or(0);
        let start = rows - left as usize;
        left = left.checked_sub(len).ok_or(WRONG)?;
        bitmap.set_range(start, len as usize);
    }
    if left == 0 { Ok(bitmap) } else { Err(WRONG) }
}

/// The values of the rows that are not null.
pub(crate) fn take_out(values: &Values, nulls: &Bitmap) -> Values {
    match values {
        Values::Int(v) => Values::Int(keep(v, nulls)),
        Values::F32(v) => Values::F32(keep(v, nulls)),
        Values::F64(v) => Values::F64(keep(v, nulls)),
        Values::Bytes(v) => {
            let mut kept = BytesColumn::new();
            (0..v.len()).filter(|&i| !nulls.get(i)).for_each(|i| kept.push(v.get(i)));
            Values::Bytes(kept)
        }
    }
}

fn keep<T: Copy>(values: &[T], nulls: &Bitmap) -> Vec<T> {
    let mut kept = Vec::with_capacity(values.len());
    for (chunk, &word) in values.chunks(64).zip(nulls.words()) {
        if word == 0 {
            kept.extend_from_slice(chunk);
            continue;
        }
        kept.extend(chunk.iter().enumerate().filter(|(i, _)| word >> i & 1 == 0).map(|(_, &value)| value));
    }
    kept
}

/// Puts nulls between `dense` values, one for every clear bit.
pub(crate) fn put_back(dense: Values, nulls: &Bitmap) -> Values {
    match dense {
        Values::Int(v) => Values::Int(spread(&v, nulls)),
        Values::F32(v) => Values::F32(spread(&v, nulls)),
        Values::F64(v) => Values::F64(spread(&v, nulls)),
        Values::Bytes(v) => Values::Bytes(spread_bytes(v, nulls)),
    }
}

/// Puts zeros between `dense` values, one for every set bit.
pub(crate) fn spread<T: Copy + Default>(dense: &[T], nulls: &Bitmap) -> Vec<T> {
    let mut values = vec![T::default(); nulls.len()];
    let mut rest = dense;
    for (chunk, &word) in values.chunks_mut(64).zip(nulls.words()) {
        let count = chunk.len() - word.count_ones() as usize;
        let (own, behind) = rest.split_at(count.min(rest.len()));
        rest = behind;
        if word == 0 {
            chunk[..own.len()].copy_from_slice(own);
            continue;
        }
        let places = chunk.iter_mut().enumerate().filter(|(i, _)| word >> i & 1 == 0);
        places.zip(own).for_each(|((_, place), &value)| *place = value);
    }
    values
}

fn spread_bytes(dense: BytesColumn, nulls: &Bitmap) -> BytesColumn {
    let mut offsets = Vec::with_capacity(nulls.len() + 1);
    let mut ends = dense.offsets.iter().copied();
    let mut end = ends.next().unwrap_or(0);
    offsets.push(end);
    for i in 0..nulls.len() {
        if !nulls.get(i) {
            end = ends.next().unwrap_or(end);
        }
        offsets.push(end);
    }
    BytesColumn { offsets, data: dense.data }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(bitmap: &Bitmap) -> usize {
        let mut block = Vec::new();
        encode(bitmap, Effort::Small, &mut block);
        assert_eq!(decode(&block, bitmap.len()).as_ref(), Ok(bitmap));
        (0..block.len()).for_each(|end| assert!(decode(&block[..end], bitmap.len()).is_err()));
        block.len()
    }

    #[test]
    fn bitmaps_of_all_shapes_come_back() {
        for rows in [1, 2, 63, 64, 65, 1000, 8192] {
            for step in [1, 2, 3, 50, 700] {
                let mut bitmap = Bitmap::new(rows);
                (0..rows).filter(|i| i % step == step / 2).for_each(|i| bitmap.set(i));
                round_trip(&bitmap);
                let mut runs = Bitmap::new(rows);
                (0..rows).filter(|i| i / step % 2 == 0).for_each(|i| runs.set(i));
                round_trip(&runs);
            }
        }
    }

    #[test]
    fn a_regular_bitmap_costs_next_to_nothing() {
        let mut bitmap = Bitmap::new(65536);
        (0..65536).step_by(512).for_each(|i| bitmap.set_range(i, 7));
        assert!(round_trip(&bitmap) < 24);
    }

    #[test]
    fn nulls_go_out_and_come_back() {
        let mut nulls = Bitmap::new(300);
        (0..300).filter(|i| i % 5 == 0 || i / 64 == 2).for_each(|i| nulls.set(i));
        let all = Values::Int((0..300).map(|i| if nulls.get(i) { 0 } else { i as u64 }).collect());
        let dense = take_out(&all, &nulls);
        assert_eq!(dense.rows(), 300 - nulls.count());
        assert_eq!(put_back(dense, &nulls), all);
    }
}
