//! The coder itself: four states side by side over one stream of 16-bit words.
//!
//! A state is in 2^16..2^32. Row `i` belongs to state `i % 4`. Writing goes from the last row to the first and the
//! words are turned around, so that reading goes forward. Every state starts at 2^16, and the reader must find it
//! there at the end, with all words and all offset bits used.

use super::bins::BINS;
use super::contexts::GROUP;
use super::table::{Decoder, MAX_LOG, Table};
use crate::DecodeError;
use crate::bits::{BitWriter, field, load64};
use crate::reader::{Reader, write_varint};

const STATES: usize = 4;
const LOWEST: u32 = 1 << 16;
/// The widest offset that one load of eight bytes always holds.
const ONE_LOAD: u32 = 57;

/// Appends `numbers`, with the table of each group of rows.
pub(crate) fn encode<'a>(numbers: &[u64], table_of: impl Fn(usize) -> &'a Table, out: &mut Vec<u8>) {
    let mut offsets = BitWriter::with_capacity(numbers.len());
    let mut bins = Vec::with_capacity(numbers.len());
    for (i, group) in numbers.chunks(GROUP).enumerate() {
        let table = table_of(i);
        for &number in group {
            let bin = table.bin_of(number);
            bins.push(bin as u8);
            offsets.write(number - table.bins[bin].lower, table.bins[bin].width);
        }
    }
    let mut states = [LOWEST; STATES];
    let mut words = vec![0u16; numbers.len()];
    // Words are filled from the end: that turns them around.
    let mut first = words.len();
    for (i, group) in bins.chunks(GROUP).enumerate().rev() {
        let table = table_of(i);
        for (j, &bin) in group.iter().enumerate().rev() {
            first -= usize::from(put(&mut states[j % STATES], table, bin, &mut words[..first]));
        }
    }
    states.iter().for_each(|state| out.extend_from_slice(&state.to_le_bytes()));
    write_varint(out, (words.len() - first) as u64);
    words[first..].iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    out.extend_from_slice(&offsets.finish());
}

/// Takes a bin into a state. Returns whether the state gave a word away, to the end of `words`.
#[inline]
fn put(state: &mut u32, table: &Table, bin: u8, words: &mut [u16]) -> bool {
    let slots = table.slots[usize::from(bin)];
    let full = u64::from(*state) >= u64::from(slots.count) << (32 - table.log);
    if let Some(word) = words.last_mut() {
        // Written whether it counts or not: there is no branch to guess.
        *word = *state as u16;
    }
    let state_before = *state >> (16 * u32::from(full));
    // The state is below `count << (32 - log)`: the product stays within 64 bits, and the quotient is exact.
    let quotient = ((u64::from(state_before) * table.reciprocals[usize::from(bin)]) >> (32 + table.log)) as u32;
    *state = (quotient << table.log) + (state_before - quotient * slots.count) + slots.first;
    full
}

/// Fills `out` from all of `bytes`.
pub(crate) fn decode<'a>(
    bytes: &[u8],
    out: &mut [u64],
    table_of: impl Fn(usize) -> &'a Decoder,
) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut states = [0; STATES];
    for state in &mut states {
        *state = load64(reader.take(4)?, 0) as u32;
    }
    let word_bytes = 2 * reader.count(out.len())?;
    let stream = reader.rest();
    let Some(offsets) = stream.get(word_bytes..) else { return Err(DecodeError::Truncated) };
    let mut words = Words { bytes: stream, at: 0 };
    let (mut bins, mut bit) = ([0; GROUP], 0);
    for (i, group) in out.chunks_mut(GROUP).enumerate() {
        let table = table_of(i);
        let bins = &mut bins[..group.len()];
        take_bins(&mut states, &mut words, table, bins);
        bit = if table.max_width <= ONE_LOAD {
            add_offsets(bins, table, offsets, bit, group)
        } else {
            add_wide_offsets(bins, table, offsets, bit, group)
        };
    }
    if states != [LOWEST; STATES] || words.at != word_bytes {
        return Err(DecodeError::Invalid("end of the entropy code"));
    }
    match offsets.len().cmp(&bit.div_ceil(8)) {
        std::cmp::Ordering::Less => Err(DecodeError::Truncated),
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(DecodeError::TrailingBytes),
    }
}

struct Words<'a> {
    bytes: &'a [u8],
    at: usize,
}

fn take_bins(states: &mut [u32; STATES], words: &mut Words, table: &Decoder, bins: &mut [u8]) {
    match table.log {
        9 => take_bins_of::<9>(states, words, table, bins),
        10 => take_bins_of::<10>(states, words, table, bins),
        11 => take_bins_of::<11>(states, words, table, bins),
        12 => take_bins_of::<12>(states, words, table, bins),
        13 => take_bins_of::<13>(states, words, table, bins),
        _ => take_bins_of::<MAX_LOG>(states, words, table, bins),
    }
}

#[inline(never)]
fn take_bins_of<const LOG: u32>(states: &mut [u32; STATES], words: &mut Words, table: &Decoder, bins: &mut [u8]) {
    let (bin_of, slots) = (&*table.bin_of, &*table.slots);
    let (mut local, mut at) = (*states, words.at);
    let mut chunks = bins.chunks_exact_mut(STATES);
    for chunk in &mut chunks {
        // Each state takes a word at most: one load holds those of all four.
        let mut window = load64(words.bytes, at);
        for (bin, state) in chunk.iter_mut().zip(&mut local) {
            *bin = take::<LOG>(state, &mut window, &mut at, bin_of, slots);
        }
    }
    for (bin, state) in chunks.into_remainder().iter_mut().zip(&mut local) {
        let mut window = load64(words.bytes, at);
        *bin = take::<LOG>(state, &mut window, &mut at, bin_of, slots);
    }
    (*states, words.at) = (local, at);
}

#[inline(always)]
fn take<const LOG: u32>(
    state: &mut u32,
    window: &mut u64,
    at: &mut usize,
    bin_of: &[u8; 1 << MAX_LOG],
    slots: &[u32; BINS],
) -> u8 {
    let slot = *state & ((1 << LOG) - 1);
    let bin = bin_of[slot as usize];
    let slots = slots[usize::from(bin)];
    let next = (slots & 0xffff).wrapping_mul(*state >> LOG).wrapping_add(slot).wrapping_sub(slots >> 16);
    // Whether a word is due is anyone's guess: both ways are computed, and there is no branch.
    let due = u32::from(next < LOWEST);
    *state = next << (16 * due) | (*window as u32 & 0xffff & due.wrapping_neg());
    *window >>= 16 * due;
    *at += 2 * due as usize;
    bin
}

/// Fills `out` with the lower ends of the bins plus offsets from bit `bit` on; returns the bit behind them.
#[inline(never)]
fn add_offsets(bins: &[u8], table: &Decoder, offsets: &[u8], mut bit: usize, out: &mut [u64]) -> usize {
    for (value, &bin) in out.iter_mut().zip(bins) {
        let width = u32::from(table.widths[usize::from(bin)]);
        let offset = load64(offsets, bit / 8) >> (bit % 8) & !(u64::MAX << (width % 64));
        *value = table.lowers[usize::from(bin)].wrapping_add(offset);
        bit += width as usize;
    }
    bit
}

fn add_wide_offsets(bins: &[u8], table: &Decoder, offsets: &[u8], mut bit: usize, out: &mut [u64]) -> usize {
    for (value, &bin) in out.iter_mut().zip(bins) {
        let width = u32::from(table.widths[usize::from(bin)]);
        *value = table.lowers[usize::from(bin)].wrapping_add(field(offsets, bit, width));
        bit += width as usize;
    }
    bit
}

const _: () = assert!(BINS == 256 && GROUP % STATES == 0);
