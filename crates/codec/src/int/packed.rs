//! Distances from a pivot in a fixed number of bits: frame of reference, patched where a value does not fit.
//!
//! After Zukowski et al., "Super-Scalar RAM-CPU Cache Compression" (ICDE 2006). The frame lies around a pivot and
//! distances are zigzagged, so that groups of 256 rows can have widths of their own with one pivot for all; where
//! groups lie far apart, each has a pivot too. A patched row holds zero in its place; positions and distances of the
//! patches are blocks of their own.

use super::plan::{PATCH_BITS, Shape, best_width, bits_at_width};
use super::{Level, Sign, decode_side, write_small_side};
use crate::bitpack::{pack, packed_len, unpack};
use crate::bits::{bit_length, mask, unzigzag, zigzag};
use crate::reader::{Reader, write_varint};
use crate::{DecodeError, tag};

/// Rows that share a width.
const GROUP: usize = 256;
/// In place of the width: every group has its own.
const WIDTHS: u8 = 0x80;
/// In place of the width: every group has its own, and a pivot.
const PIVOTS: u8 = 0x81;
/// Rows that a common pivot, or one of a group's own, is chosen by.
const SAMPLE: usize = 256;
const GROUP_SAMPLE: usize = 32;
/// What a width that differs from the one before costs, about.
const CHANGE_BITS: u32 = 8;

/// A block on its way.
struct Packer {
    pivots: Vec<u64>,
    widths: Vec<u64>,
    gaps: Vec<u64>,
    patches: Vec<u64>,
    body: Vec<u8>,
    /// The row behind the last patch.
    next: usize,
}

/// Where the frames of the groups lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Around pivots of their own.
    Own,
    /// Around one pivot: this one, or what is found to be best.
    Common(Option<u64>),
}

/// The pivot of a block of some shape whose groups have no others; `None` if they are of differences of the values.
pub(crate) fn pivot_of(values: &[u64], sign: Sign, shape: Shape) -> Option<u64> {
    (shape.order == 0).then(|| choose_pivot(values, SAMPLE, sign))
}

/// Appends a block, with pivots for every group or a common one.
pub(crate) fn encode(values: &[u64], sign: Sign, frame: Frame, level: Level, out: &mut Vec<u8>) {
    let groups = values.len().div_ceil(GROUP);
    let local = frame == Frame::Own && groups > 1;
    let mut packer = Packer {
        pivots: Vec::with_capacity(groups),
        widths: Vec::with_capacity(groups),
        gaps: Vec::new(),
        patches: Vec::new(),
        body: Vec::with_capacity(values.len()),
        next: 0,
    };
    if !local {
        packer.pivots.push(match frame {
            Frame::Common(Some(pivot)) => pivot,
            _ => choose_pivot(values, SAMPLE, sign),
        });
    }
    for (i, group) in values.chunks(GROUP).enumerate() {
        if local {
            packer.pivots.push(choose_pivot(group, GROUP_SAMPLE, sign));
        }
        packer.add(group, i * GROUP);
    }
    packer.write(sign, local, level, out);
}

/// Appends a block of one group without patches: no block is nested in it.
///
/// There must be values.
pub(crate) fn encode_flat(values: &[u64], sign: Sign, out: &mut Vec<u8>) {
    let (low, high) = range(values, sign);
    let pivot = sign.key(middle(low, high));
    let distances: Vec<u64> = values.iter().map(|value| zigzag(value.wrapping_sub(pivot))).collect();
    let width = bit_length(distances.iter().fold(0, |all, distance| all | distance));
    out.push(tag::INT_PACKED);
    out.push(width as u8);
    write_varint(out, zigzag(pivot));
    write_varint(out, 0);
    pack(&distances, width, out);
}

impl Packer {
    fn add(&mut self, group: &[u64], row: usize) {
        let pivot = self.pivots.last().copied().unwrap_or(0);
        let mut distances = [0; GROUP];
        let distances = &mut distances[..group.len()];
        for (distance, value) in distances.iter_mut().zip(group) {
            *distance = zigzag(value.wrapping_sub(pivot));
        }
        let width = self.choose_width(&count_lengths(distances));
        self.widths.push(width.into());
        if distances.iter().fold(0, |all, &distance| all | distance) > mask(width) {
            self.cut_patches(distances, width, row);
        }
        pack(distances, width, &mut self.body);
    }

    /// The width of the group before, unless another one gains more than the change costs.
    fn choose_width(&self, lengths: &[u32; 65]) -> u32 {
        let (best, bits) = best_width(lengths);
        match self.widths.last() {
            Some(&before) if bits_at_width(lengths, before as u32) <= bits + CHANGE_BITS => before as u32,
            _ => best,
        }
    }

    fn cut_patches(&mut self, distances: &mut [u64], width: u32, row: usize) {
        for (i, distance) in distances.iter_mut().enumerate().filter(|(_, distance)| **distance > mask(width)) {
            self.gaps.push((row + i - self.next) as u64);
            self.patches.push(std::mem::take(distance));
            self.next = row + i + 1;
        }
    }

    fn write(self, sign: Sign, local: bool, level: Level, out: &mut Vec<u8>) {
        out.push(tag::INT_PACKED);
        let first = self.widths.first().copied().unwrap_or(0);
        if local {
            out.push(PIVOTS);
            write_small_side(&self.pivots, sign, level, out);
            write_small_side(&self.widths, Sign::Unsigned, level, out);
        } else if self.widths.iter().all(|&width| width == first) {
            out.push(first as u8);
            write_varint(out, zigzag(self.pivots[0]));
        } else {
            out.push(WIDTHS);
            write_varint(out, zigzag(self.pivots[0]));
            write_small_side(&self.widths, Sign::Unsigned, level, out);
        }
        write_varint(out, self.gaps.len() as u64);
        if !self.gaps.is_empty() {
            write_small_side(&self.gaps, Sign::Unsigned, level, out);
            write_small_side(&self.patches, Sign::Unsigned, level, out);
        }
        out.extend_from_slice(&self.body);
    }
}

/// How many numbers there are of each bit length. Four counters take turns: one would wait for itself.
fn count_lengths(numbers: &[u64]) -> [u32; 65] {
    let mut counters = [[0u32; 65]; 4];
    let mut fours = numbers.chunks_exact(4);
    for four in &mut fours {
        for (counter, &number) in counters.iter_mut().zip(four) {
            counter[bit_length(number) as usize] += 1;
        }
    }
    fours.remainder().iter().for_each(|&number| counters[0][bit_length(number) as usize] += 1);
    std::array::from_fn(|length| counters.iter().map(|counter| counter[length]).sum())
}

/// The middle of a frame: the largest distance up is one less than the largest one down.
fn middle(low: u64, high: u64) -> u64 {
    low + (high - low).div_ceil(2)
}

/// The middle of the frame that costs least for up to `sample` of the values.
fn choose_pivot(values: &[u64], sample: usize, sign: Sign) -> u64 {
    let step = values.len().div_ceil(sample).max(1);
    let mut keys = [0; SAMPLE];
    let count = values.len().div_ceil(step);
    let keys = &mut keys[..count];
    keys.iter_mut().zip(values.iter().step_by(step)).for_each(|(key, &value)| *key = sign.key(value));
    keys.sort_unstable();
    let width = best_frame_width(keys);
    let (low, high) = range(values, sign);
    let holds_all = bit_length(high - low) <= width;
    sign.key(if holds_all { middle(low, high) } else { middle_of_frame(keys, width) })
}

/// The lowest and the highest key. Four searches take turns: one would wait for itself.
pub(crate) fn range(values: &[u64], sign: Sign) -> (u64, u64) {
    let (mut low, mut high) = ([u64::MAX; 4], [0; 4]);
    let mut fours = values.chunks_exact(4);
    for four in &mut fours {
        for (i, &value) in four.iter().enumerate() {
            low[i] = low[i].min(sign.key(value));
            high[i] = high[i].max(sign.key(value));
        }
    }
    let rest = || fours.remainder().iter().map(|&value| sign.key(value));
    let low = low.into_iter().chain(rest()).fold(u64::MAX, u64::min);
    (low, high.into_iter().chain(rest()).fold(0, u64::max))
}

/// The width of the frame that costs least for some sorted keys.
fn best_frame_width(keys: &[u64]) -> u32 {
    let (Some(&first), Some(&last)) = (keys.first(), keys.last()) else { return 0 };
    let widest = bit_length(last - first);
    let count = keys.len() as u32;
    let mut best = (widest, count * widest);
    let mut width = widest;
    while let Some(narrower) = width.checked_sub(1) {
        let fullest = frames(keys, narrower).max_by_key(|(from, to)| to - from);
        let (inside, span) = fullest.map_or((0, 0), |(from, to)| ((to - from) as u32, keys[to - 1] - keys[from]));
        // No frame as wide as this, or between, holds more.
        width = bit_length(span);
        let bits = count * width + (count - inside) * (PATCH_BITS + widest);
        if bits < best.1 {
            best = (width, bits);
        }
        if inside * 2 < count {
            break;
        }
    }
    best.0
}

/// The middle of the fullest frame, or rather of those around it that are nearly as full: a sample is but a sample.
fn middle_of_frame(keys: &[u64], width: u32) -> u64 {
    let fullest = frames(keys, width).map(|(from, to)| to - from).max().unwrap_or(0);
    let nearly = |&(from, to): &(usize, usize)| to - from + 1 + keys.len() / 64 >= fullest;
    let best = frames(keys, width).position(|(from, to)| to - from == fullest).unwrap_or(0);
    let mut run = (0, 0);
    for (i, frame) in frames(keys, width).enumerate() {
        match nearly(&frame) {
            true => run.1 = i + 1,
            false if i < best => run = (i + 1, i + 1),
            false => break,
        }
    }
    let middle_of = |(from, to): (usize, usize)| middle(keys[from], keys[to - 1]);
    let mut near = frames(keys, width).skip(run.0).take(run.1 - run.0).map(middle_of);
    let low = near.next().unwrap_or(0);
    middle(low, near.last().unwrap_or(low))
}

/// For each sorted key the range of keys that a frame of 2^width from there on holds.
fn frames(keys: &[u64], width: u32) -> impl Iterator<Item = (usize, usize)> {
    let mut to = 0;
    keys.iter().enumerate().map(move |(from, &low)| {
        while keys.get(to).is_some_and(|key| key - low <= mask(width)) {
            to += 1;
        }
        (from, to)
    })
}

/// The pivot and the width of each group.
struct Frames {
    pivots: Vec<u64>,
    widths: Vec<u64>,
}

impl Frames {
    fn read(reader: &mut Reader, groups: usize, depth: u8) -> Result<Self, DecodeError> {
        let frames = match reader.byte()? {
            PIVOTS => {
                Frames { pivots: decode_side(reader, groups, depth)?, widths: decode_side(reader, groups, depth)? }
            }
            WIDTHS => {
                Frames { pivots: vec![unzigzag(reader.varint()?); groups], widths: decode_side(reader, groups, depth)? }
            }
            width => Frames { pivots: vec![unzigzag(reader.varint()?); groups], widths: vec![width.into(); groups] },
        };
        if frames.widths.iter().any(|&width| width > 64) {
            return Err(DecodeError::Invalid("width"));
        }
        Ok(frames)
    }
}

pub(crate) fn decode(reader: &mut Reader, out: &mut [u64], depth: u8) -> Result<(), DecodeError> {
    let frames = Frames::read(reader, out.len().div_ceil(GROUP), depth)?;
    let count = reader.count(out.len())?;
    let (mut gaps, mut patches) = (Vec::new(), Vec::new());
    if count > 0 {
        gaps = decode_side(reader, count, depth)?;
        patches = decode_side(reader, count, depth)?;
    }
    let mut bytes = reader.rest();
    for ((group, &pivot), &width) in out.chunks_mut(GROUP).zip(&frames.pivots).zip(&frames.widths) {
        let len = packed_len(group.len(), width as u32);
        let rest = bytes.get(len..).ok_or(DecodeError::Truncated)?;
        unpack(bytes, width as u32, group);
        group.iter_mut().for_each(|value| *value = unzigzag(*value).wrapping_add(pivot));
        bytes = rest;
    }
    if !bytes.is_empty() {
        return Err(DecodeError::TrailingBytes);
    }
    apply_patches(out, &frames.pivots, &gaps, &patches)
}

/// The rows that are not the pivot, ascending, each with its value.
type Exceptions = Vec<(usize, u64)>;

/// Reads a block whose rows are all the pivot but for at most `most` patches; `None` if it is another.
pub(crate) fn decode_exceptions(
    reader: &mut Reader,
    rows: usize,
    most: usize,
    depth: u8,
) -> Result<Option<(u64, Exceptions)>, DecodeError> {
    let pivot = match reader.byte()? {
        0 => unzigzag(reader.varint()?),
        _ => return Ok(None),
    };
    let count = reader.count(rows)?;
    if count > most {
        return Ok(None);
    }
    let mut exceptions = Vec::with_capacity(count);
    if count > 0 {
        let gaps = decode_side(reader, count, depth)?;
        let patches = decode_side(reader, count, depth)?;
        let mut next = 0;
        for (gap, patch) in gaps.into_iter().zip(patches) {
            let row = usize::try_from(gap).ok().and_then(|gap| gap.checked_add(next));
            let row = row.filter(|&row| row < rows).ok_or(DecodeError::Invalid("position of a patch"))?;
            exceptions.push((row, unzigzag(patch).wrapping_add(pivot)));
            next = row + 1;
        }
    }
    Ok(Some((pivot, exceptions)))
}

fn apply_patches(out: &mut [u64], pivots: &[u64], gaps: &[u64], patches: &[u64]) -> Result<(), DecodeError> {
    let mut next = 0;
    for (&gap, &patch) in gaps.iter().zip(patches) {
        let row = usize::try_from(gap).ok().and_then(|gap| gap.checked_add(next));
        let row = row.filter(|&row| row < out.len()).ok_or(DecodeError::Invalid("position of a patch"))?;
        out[row] = unzigzag(patch).wrapping_add(pivots[row / GROUP]);
        next = row + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_width_of_a_frame_is_better_than_the_one_chosen(
            near in prop::collection::vec(0u64..40, 1..60),
            far in prop::collection::vec(any::<u64>(), 0..12),
            shift in 0u32..30,
        ) {
            let mut keys: Vec<u64> = near.iter().map(|key| key << shift).chain(far).collect();
            keys.sort_unstable();
            let widest = bit_length(keys[keys.len() - 1] - keys[0]);
            let inside = |width| frames(&keys, width).map(|(from, to)| to - from).max().unwrap_or(0) as u32;
            let bits = |width| keys.len() as u32 * width + (keys.len() as u32 - inside(width)) * (PATCH_BITS + widest);
            // Frames that hold less than half are not looked at, but for the widest of them.
            let first_small = (0..=widest).rev().find(|&width| 2 * inside(width) < keys.len() as u32).unwrap_or(0);
            let best = (first_small..=widest).map(bits).min();
            prop_assert!(Some(bits(best_frame_width(&keys))) <= best);
        }
    }
}
