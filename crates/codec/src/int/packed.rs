//! Distances from a pivot in a fixed number of bits: frame of reference, patched where a value does not fit.
//!
//! After Zukowski et al., "Super-Scalar RAM-CPU Cache Compression" (ICDE 2006). The frame lies around a pivot and
//! distances are zigzagged, so that groups of 256 rows can have widths of their own with one pivot for all. A patched
//! row holds zero in its place; positions and distances of the patches are blocks of their own.

use super::plan::{PATCH_BITS, Sample, best_width};
use super::{Level, Sign, decode_side, write_side};
use crate::bits::{bit_length, mask, unzigzag, zigzag};
use crate::bitpack::{pack, packed_len, unpack};
use crate::reader::{Reader, write_varint};
use crate::{DecodeError, tag};

/// Rows that share a width.
const GROUP: usize = 256;
/// In place of the width: every group has its own.
const EACH: u8 = 0xff;
/// What a width of a group's own costs, about.
const WIDTH_BITS: u32 = 4;

/// How to pack a block.
pub(crate) struct Plan {
    pivot: u64,
    distances: Vec<u64>,
    widths: Widths,
    bits: f64,
}

enum Widths {
    All(u32),
    Each(Vec<u64>),
}

impl Plan {
    pub(crate) fn new(values: &[u64], sign: Sign) -> Self {
        let pivot = choose_pivot(values, sign);
        let distances = distances(values, pivot);
        let mut all = [0; 65];
        let (mut each, mut each_bits) = (Vec::new(), 0);
        for group in distances.chunks(GROUP) {
            let mut lengths = [0; 65];
            group.iter().for_each(|&distance| lengths[bit_length(distance) as usize] += 1);
            all.iter_mut().zip(&lengths).for_each(|(sum, count)| *sum += count);
            let (width, bits) = best_width(&lengths);
            each.push(u64::from(width));
            each_bits += bits + WIDTH_BITS;
        }
        let (width, all_bits) = best_width(&all);
        let (widths, bits) =
            if all_bits <= each_bits { (Widths::All(width), all_bits) } else { (Widths::Each(each), each_bits) };
        Plan { pivot, distances, widths, bits: f64::from(bits) + 40.0 }
    }

    /// One width that fits every value: no block is nested in the written one.
    pub(crate) fn without_patches(values: &[u64], sign: Sign) -> Self {
        let keys = || values.iter().map(|&value| sign.key(value));
        let (low, high) = (keys().min().unwrap_or(0), keys().max().unwrap_or(0));
        let pivot = sign.key(middle(low, high));
        let distances = distances(values, pivot);
        let width = distances.iter().map(|&distance| bit_length(distance)).max().unwrap_or(0);
        Plan { pivot, bits: f64::from(width) * values.len() as f64, distances, widths: Widths::All(width) }
    }

    /// How many bits the block will take, about.
    pub(crate) fn bits(&self) -> f64 {
        self.bits
    }

    pub(crate) fn write(mut self, level: Level, out: &mut Vec<u8>) {
        out.push(tag::INT_PACKED);
        write_varint(out, zigzag(self.pivot));
        match &self.widths {
            Widths::All(width) => out.push(*width as u8),
            Widths::Each(widths) => {
                out.push(EACH);
                write_side(widths, level, out);
            }
        }
        let (gaps, patches) = self.cut_patches();
        write_varint(out, gaps.len() as u64);
        if !gaps.is_empty() {
            write_side(&gaps, level, out);
            write_side(&patches, level, out);
        }
        for (i, group) in self.distances.chunks(GROUP).enumerate() {
            pack(group, self.widths.of(i), out);
        }
    }

    /// Takes out what does not fit: how many rows lie between two patches, and the distances.
    fn cut_patches(&mut self) -> (Vec<u64>, Vec<u64>) {
        let (mut gaps, mut patches, mut next) = (Vec::new(), Vec::new(), 0);
        for (i, group) in self.distances.chunks_mut(GROUP).enumerate() {
            let fits = mask(self.widths.of(i));
            if group.iter().fold(0, |all, &distance| all | distance) <= fits {
                continue;
            }
            for (j, distance) in group.iter_mut().enumerate().filter(|(_, distance)| **distance > fits) {
                let row = i * GROUP + j;
                gaps.push((row - next) as u64);
                patches.push(std::mem::take(distance));
                next = row + 1;
            }
        }
        (gaps, patches)
    }
}

impl Widths {
    fn of(&self, group: usize) -> u32 {
        match self {
            Widths::All(width) => *width,
            Widths::Each(widths) => widths[group] as u32,
        }
    }
}

fn distances(values: &[u64], pivot: u64) -> Vec<u64> {
    values.iter().map(|value| zigzag(value.wrapping_sub(pivot))).collect()
}

/// The middle of a frame: the largest distance up is one less than the largest one down.
fn middle(low: u64, high: u64) -> u64 {
    low + (high - low).div_ceil(2)
}

/// The middle of the frame that costs least for a sample.
fn choose_pivot(values: &[u64], sign: Sign) -> u64 {
    let windows = Sample::new(values.len()).windows;
    let mut keys: Vec<u64> = windows.into_iter().flat_map(|w| &values[w]).map(|&value| sign.key(value)).collect();
    keys.sort_unstable();
    let span = |from: usize, to: usize| bit_length(keys[to - 1] - keys[from]);
    let widest = span(0, keys.len());
    let mut best = (0, keys.len(), keys.len() as u32 * widest);
    for width in (0..widest).rev() {
        let (from, to) = fullest_frame(&keys, width);
        let outside = (keys.len() - (to - from)) as u32;
        let bits = keys.len() as u32 * width + outside * (PATCH_BITS + widest);
        if bits < best.2 {
            best = (from, to, bits);
        }
        if outside as usize * 2 > keys.len() {
            break;
        }
    }
    sign.key(middle(keys[best.0], keys[best.1 - 1]))
}

/// The range of sorted keys with the most keys that lie within 2^width of each other.
fn fullest_frame(keys: &[u64], width: u32) -> (usize, usize) {
    let (mut best, mut from) = ((0, 1), 0);
    for to in 1..=keys.len() {
        while keys[to - 1] - keys[from] > mask(width) {
            from += 1;
        }
        if to - from > best.1 - best.0 {
            best = (from, to);
        }
    }
    best
}

pub(crate) fn decode(reader: &mut Reader, out: &mut [u64], depth: u8) -> Result<(), DecodeError> {
    let pivot = unzigzag(reader.varint()?);
    let groups = out.len().div_ceil(GROUP);
    let widths = match reader.byte()? {
        EACH => Widths::Each(decode_side(reader, groups, depth)?),
        width => Widths::All(u32::from(width)),
    };
    if (0..groups.max(1)).any(|i| matches!(&widths, Widths::Each(w) if w.get(i).is_some_and(|&w| w > 64)) || matches!(widths, Widths::All(65..))) {
        return Err(DecodeError::Invalid("width"));
    }
    let count = reader.count(out.len())?;
    let (mut gaps, mut patches) = (Vec::new(), Vec::new());
    if count > 0 {
        gaps = decode_side(reader, count, depth)?;
        patches = decode_side(reader, count, depth)?;
    }
    let mut bytes = reader.rest();
    for (i, group) in out.chunks_mut(GROUP).enumerate() {
        let width = widths.of(i);
        let len = packed_len(group.len(), width);
        if bytes.len() < len {
            return Err(DecodeError::Truncated);
        }
        unpack(bytes, width, group);
        group.iter_mut().for_each(|value| *value = unzigzag(*value).wrapping_add(pivot));
        bytes = &bytes[len..];
    }
    if !bytes.is_empty() {
        return Err(DecodeError::TrailingBytes);
    }
    apply_patches(out, pivot, &gaps, &patches)
}

fn apply_patches(out: &mut [u64], pivot: u64, gaps: &[u64], patches: &[u64]) -> Result<(), DecodeError> {
    let mut rest = out;
    for (&gap, &patch) in gaps.iter().zip(patches) {
        if gap >= rest.len() as u64 {
            return Err(DecodeError::Invalid("position of a patch"));
        }
        let (before, behind) = rest.split_at_mut(gap as usize + 1);
        before[gap as usize] = unzigzag(patch).wrapping_add(pivot);
        rest = behind;
    }
    Ok(())
}
