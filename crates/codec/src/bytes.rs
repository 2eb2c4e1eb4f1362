//! Blocks of byte strings: constant, a dictionary, big-endian words, zstd, or as they are.
//!
//! Lengths are integers and go through the integer codecs; so do the numbers of dictionary entries. Strings of one
//! short length (wide decimals, addresses, UUIDs) are tried as big-endian words of up to eight bytes, each word of
//! all rows an integer lane of its own.

use crate::int::{self, Sign};
use crate::reader::{Reader, write_nested, write_varint};
use crate::{BytesColumn, DecodeError, Effort, tag};
use std::collections::HashMap;

/// The longest strings that are tried as words.
const MAX_WORDS_LEN: usize = 32;
/// Strings that are longer on average are not looked up in a dictionary.
const MAX_ENTRY_LEN: usize = 4096;
/// Data of fewer bytes are not worth a frame.
const FEWEST: usize = 24;
/// Data of more bytes are packed with less effort: it takes a second for each 50 MB else.
const LARGE: usize = 8 << 20;
/// A zstd block holds at most 128 KiB and takes at least three bytes.
const MAX_RATIO: usize = 128 * 1024 / 3;

/// Bytes of a block's strings beside the longest one. Writers end a block after some megabytes; a few bytes that say "this string,
/// 65536 times" must not take gigabytes.
const MOST_BYTES: u64 = 256 << 20;

/// Appends a block of byte strings.
pub(crate) fn encode(column: &BytesColumn, effort: Effort, out: &mut Vec<u8>) {
    if !column.is_empty() && column.iter().all(|value| value == column.get(0)) {
        out.push(tag::BYTES_CONSTANT);
        return write_nested(out, column.get(0));
    }
    let mut block = Vec::new();
    if !encode_dictionary(column, effort, &mut block) {
        encode_plain(column, effort, &mut block);
    }
    if let Some(words) = encode_words(column, effort).filter(|words| words.len() < block.len()) {
        block = words;
    }
    out.extend_from_slice(&block);
}

fn encode_plain(column: &BytesColumn, effort: Effort, out: &mut Vec<u8>) {
    let packed = pack(&column.data, effort);
    out.push(if packed.is_some() { tag::BYTES_ZSTD } else { tag::BYTES_RAW });
    let lengths: Vec<u64> = column.offsets.windows(2).map(|w| u64::from(w[1] - w[0])).collect();
    write_ints(&lengths, effort, out);
    out.extend_from_slice(packed.as_deref().unwrap_or(&column.data));
}

/// A zstd frame, if it is clearly smaller than the data.
fn pack(data: &[u8], effort: Effort) -> Option<Vec<u8>> {
    if data.len() < FEWEST || !looks_packable(data) {
        return None;
    }
    let level = match effort {
        Effort::Small if data.len() <= LARGE => 9,
        Effort::Small => 3,
        Effort::Fast => 1,
    };
    zstd::bulk::compress(data, level).ok().filter(|packed| packed.len() + packed.len() / 64 < data.len())
}

/// Photographs and what else is packed already: some pieces of large data tell.
fn looks_packable(data: &[u8]) -> bool {
    const PIECE: usize = 32 * 1024;
    if data.len() < 16 * PIECE {
        return true;
    }
    let step = data.len() / 4;
    let pieces: Vec<u8> = (0..4).flat_map(|i| &data[i * step..i * step + PIECE]).copied().collect();
    zstd::bulk::compress(&pieces, 1).is_ok_and(|packed| packed.len() < pieces.len() / 100 * 97)
}

fn write_ints(values: &[u64], effort: Effort, out: &mut Vec<u8>) {
    let mut block = Vec::new();
    int::encode(values, Sign::Unsigned, effort, &mut block);
    write_nested(out, &block);
}

/// Writes nothing and returns false unless values repeat often.
fn encode_dictionary(column: &BytesColumn, effort: Effort, out: &mut Vec<u8>) -> bool {
    let rows = column.len();
    if rows < 4 || column.data.len() / rows > MAX_ENTRY_LEN {
        return false;
    }
    let (mut entries, mut ids) = (BytesColumn::new(), Vec::with_capacity(rows));
    let mut numbers = HashMap::new();
    for (row, value) in column.iter().enumerate() {
        let next = numbers.len() as u64;
        let id = *numbers.entry(value).or_insert(next);
        ids.push(id);
        if id == next {
            entries.push(value);
        }
        // Half of the rows so far may be new ones, and some at the start.
        if numbers.len() > 64 + row / 2 {
            return false;
        }
    }
    if entries.len() * 2 > rows {
        return false;
    }
    out.push(tag::BYTES_DICTIONARY);
    write_varint(out, entries.len() as u64);
    let mut block = Vec::new();
    encode_plain(&entries, effort, &mut block);
    write_nested(out, &block);
    int::encode(&ids, Sign::Unsigned, effort, out);
    true
}

fn encode_words(column: &BytesColumn, effort: Effort) -> Option<Vec<u8>> {
    let len = column.iter().next()?.len();
    if !(1..=MAX_WORDS_LEN).contains(&len) || column.iter().any(|value| value.len() != len) {
        return None;
    }
    let mut out = vec![tag::BYTES_WORDS, len as u8];
    for range in words_of(len) {
        let word = |value: &[u8]| value[range.clone()].iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        write_ints(&column.iter().map(word).collect::<Vec<_>>(), effort, &mut out);
    }
    Some(out)
}

/// Where the words of a string lie: whole ones at the end, a shorter one in front.
fn words_of(len: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let count = len.div_ceil(8);
    (0..count).map(move |i| len.saturating_sub(8 * (count - i))..len - 8 * (count - i - 1))
}

/// Reads a block of `rows` byte strings; all of `bytes` must be used.
pub(crate) fn decode(bytes: &[u8], rows: usize) -> Result<BytesColumn, DecodeError> {
    let mut reader = Reader::new(bytes);
    match reader.byte()? {
        tag::BYTES_CONSTANT => {
            let value = reader.nested()?;
            reader.finish()?;
            repeat(value, rows)
        }
        tag::BYTES_DICTIONARY => decode_dictionary(&mut reader, rows),
        tag::BYTES_WORDS => decode_words(reader, rows),
        tag @ (tag::BYTES_RAW | tag::BYTES_ZSTD) => decode_plain(tag, &mut reader, rows),
        other => Err(DecodeError::UnknownTag(other)),
    }
}

fn decode_plain(tag: u8, reader: &mut Reader, rows: usize) -> Result<BytesColumn, DecodeError> {
    let offsets = sum_lengths(&int::decode(reader.nested()?, rows)?)?;
    let size = offsets.last().map_or(0, |&end| end as usize);
    let data = reader.rest();
    let data = if tag == tag::BYTES_ZSTD { unpack(data, size)? } else { data.to_vec() };
    match data.len().cmp(&size) {
        std::cmp::Ordering::Less => Err(DecodeError::Truncated),
        std::cmp::Ordering::Equal => Ok(BytesColumn { offsets, data }),
        std::cmp::Ordering::Greater => Err(DecodeError::TrailingBytes),
    }
}

fn sum_lengths(lengths: &[u64]) -> Result<Vec<u32>, DecodeError> {
    let mut offsets = Vec::with_capacity(lengths.len() + 1);
    let (mut end, mut longest) = (0u32, 0);
    offsets.push(end);
    for &length in lengths {
        let length = u32::try_from(length).map_err(|_| DecodeError::TooLarge)?;
        end = end.checked_add(length).ok_or(DecodeError::TooLarge)?;
        longest = longest.max(length);
        offsets.push(end);
    }
    if u64::from(end - longest) > MOST_BYTES { Err(DecodeError::TooLarge) } else { Ok(offsets) }
}

fn unpack(frame: &[u8], size: usize) -> Result<Vec<u8>, DecodeError> {
    // Nothing is allocated for a size that the frame cannot hold.
    if size / MAX_RATIO > frame.len() {
        return Err(DecodeError::TooLarge);
    }
    let mut data = reserve(size)?;
    let unpacked = zstd::bulk::Decompressor::new().and_then(|mut zstd| zstd.decompress_to_buffer(frame, &mut data));
    unpacked.map(|_| data).map_err(|_| DecodeError::Invalid("zstd frame"))
}

/// Room for `size` bytes. Damaged lengths may ask for up to 4 GiB: that must not end the process.
fn reserve(size: usize) -> Result<Vec<u8>, DecodeError> {
    let mut data = Vec::new();
    data.try_reserve_exact(size).map_err(|_| DecodeError::TooLarge)?;
    Ok(data)
}

fn repeat(value: &[u8], rows: usize) -> Result<BytesColumn, DecodeError> {
    let offsets = sum_lengths(&vec![value.len() as u64; rows])?;
    let mut data = reserve(value.len() * rows)?;
    (0..rows).for_each(|_| data.extend_from_slice(value));
    Ok(BytesColumn { offsets, data })
}

fn decode_dictionary(reader: &mut Reader, rows: usize) -> Result<BytesColumn, DecodeError> {
    const WRONG: DecodeError = DecodeError::Invalid("number of a dictionary entry");
    let count = reader.count(rows)?;
    let mut block = Reader::new(reader.nested()?);
    let entries = match block.byte()? {
        tag @ (tag::BYTES_RAW | tag::BYTES_ZSTD) => decode_plain(tag, &mut block, count)?,
        other => return Err(DecodeError::UnknownTag(other)),
    };
    let ids = int::decode(reader.rest(), rows)?;
    if ids.iter().any(|&id| id >= count as u64) {
        return Err(WRONG);
    }
    let lengths: Vec<u64> = ids.iter().map(|&id| entries.get(id as usize).len() as u64).collect();
    let offsets = sum_lengths(&lengths)?;
    let mut data = reserve(offsets.last().map_or(0, |&end| end as usize))?;
    ids.iter().for_each(|&id| data.extend_from_slice(entries.get(id as usize)));
    Ok(BytesColumn { offsets, data })
}

fn decode_words(mut reader: Reader, rows: usize) -> Result<BytesColumn, DecodeError> {
    let len = usize::from(reader.byte()?);
    if !(1..=MAX_WORDS_LEN).contains(&len) {
        return Err(DecodeError::Invalid("length of the words"));
    }
    let mut data = vec![0; rows * len];
    for range in words_of(len) {
        let words = int::decode(reader.nested()?, rows)?;
        for (value, word) in data.chunks_exact_mut(len).zip(words) {
            value[range.clone()].copy_from_slice(&word.to_be_bytes()[8 - range.len()..]);
        }
    }
    reader.finish()?;
    Ok(BytesColumn { offsets: (0..=rows as u32).map(|i| i * len as u32).collect(), data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_bytes_do_not_become_gigabytes() {
        const MEGABYTE: u64 = 1 << 20;
        let value = [7; 5000];
        let mut constant = vec![tag::BYTES_CONSTANT];
        write_nested(&mut constant, &value);
        assert_eq!(decode(&constant, 65536), Err(DecodeError::TooLarge));
        assert_eq!(decode(&constant, 1000).map(|column| column.len()), Ok(1000));
        // One long string is what somebody stored.
        assert!(sum_lengths(&[1000 * MEGABYTE, 200 * MEGABYTE]).is_ok());
        assert_eq!(sum_lengths(&[200 * MEGABYTE; 3]), Err(DecodeError::TooLarge));
    }
}
