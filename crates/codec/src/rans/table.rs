//! The probabilities of the bins, and how a table is written in about six bits a bin.
//!
//! Counts are kept as quarters of an octave: `q = round(4 log2 count)`. That is off by 5 % on average, which costs
//! 0.002 bits a number. Reader and writer derive the same frequencies from them: every bin gets one slot of 2^log,
//! and the others are shared by weight. A bin is written as three Exp-Golomb codes: the change of its width against
//! the bin before, the gap between them in units of the width, and the change of `q`.

use super::bins::{BINS, Bin};
use crate::DecodeError;
use crate::bits::{BitReader, BitWriter, bit_length, unzigzag, zigzag};

/// The most slots of a table, as a power of two.
pub(crate) const MAX_LOG: u32 = 14;
const MIN_LOG: u32 = 9;
/// 2^(i/4) in units of 2^-16.
const QUARTERS: [u64; 4] = [65536, 77936, 92682, 110_218];
/// The highest `q`: a count of 2^24 is far above any block.
const MAX_QUARTERS: u64 = 96;

/// The slots of a bin.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Slots {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// A table as the writer needs it.
pub(crate) struct Table {
    pub(crate) log: u32,
    pub(crate) bins: Vec<Bin>,
    pub(crate) slots: Vec<Slots>,
    /// 2^(32 + log) by the number of slots, rounded up.
    pub(crate) reciprocals: Vec<u64>,
    quarters: Vec<u64>,
    index: Index,
}

impl Table {
    /// A table for bins that hold `total` numbers.
    pub(crate) fn new(bins: Vec<Bin>, total: usize) -> Self {
        let log = (total.max(1).ilog2()).max(bins.len().ilog2() + 3).clamp(MIN_LOG, MAX_LOG);
        let quarters: Vec<u64> = bins.iter().map(|bin| (f64::from(bin.count).log2() * 4.0).round() as u64).collect();
        let slots = share(&quarters, log);
        let reciprocals = slots.iter().map(|slots| (1u64 << (32 + log)).div_ceil(slots.count.into())).collect();
        Table { log, slots, reciprocals, index: Index::new(&bins), bins, quarters }
    }

    /// The bin that a number lies in.
    #[inline]
    pub(crate) fn bin_of(&self, number: u64) -> usize {
        let mut bin = self.index.first_bin(number);
        while self.bins.get(bin + 1).is_some_and(|next| next.lower <= number) {
            bin += 1;
        }
        bin
    }

    pub(crate) fn write(&self, out: &mut BitWriter) {
        out.write(u64::from(self.log - MIN_LOG), 3);
        out.write(self.bins.len() as u64 - 1, 8);
        let (mut end, mut width_before, mut quarters_before) = (0u64, 0, 0);
        for (bin, &quarters) in self.bins.iter().zip(&self.quarters) {
            out.write_golomb(zigzag(u64::from(bin.width).wrapping_sub(width_before)));
            out.write_golomb((bin.lower - align_up(end, bin.width)) >> bin.width);
            out.write_golomb(zigzag(quarters.wrapping_sub(quarters_before)));
            (width_before, quarters_before) = (u64::from(bin.width), quarters);
            end = bin.lower.wrapping_add(1 << bin.width);
        }
    }
}

fn align_up(number: u64, width: u32) -> u64 {
    number.div_ceil(1 << width) << width
}

/// Shares 2^log slots: one for each, the others by weight.
fn share(quarters: &[u64], log: u32) -> Vec<Slots> {
    let weights = || quarters.iter().map(|&q| (QUARTERS[q as usize % 4] << (q / 4)) >> 4);
    let whole: u64 = weights().sum();
    let spare = (1 << log) - quarters.len() as u64;
    let mut sum = 0;
    let mut first = 0;
    let mut slots = Vec::with_capacity(quarters.len());
    for (i, weight) in weights().enumerate() {
        sum += weight;
        let next = (u128::from(sum) * u128::from(spare) / u128::from(whole)) as u64 + i as u64 + 1;
        slots.push(Slots { first: first as u32, count: (next - first) as u32 });
        first = next;
    }
    slots
}

/// Where to start looking for a number's bin: the numbers from the first to the last bin of some weight, in cells.
struct Index {
    start: u64,
    shift: u32,
    /// The bin of each cell's lowest number; the last cell is for whatever lies behind.
    first: Vec<u8>,
}

impl Index {
    const CELLS: u64 = 2048;

    fn new(bins: &[Bin]) -> Self {
        let total: u32 = bins.iter().map(|bin| bin.count).sum();
        let heavy = |bin: &&Bin| bin.count > total / 2048;
        let start = bins.iter().find(heavy).map_or(0, |bin| bin.lower);
        let last = bins.iter().rfind(heavy).map_or(0, |bin| bin.lower + ((1 << bin.width) - 1));
        let shift = (bit_length(last - start) + 1).saturating_sub(Self::CELLS.ilog2());
        let lowest = |cell: u64| start.saturating_add(cell << shift);
        let mut bin = 0;
        let bin_of = |cell| {
            while bins.get(bin + 1).is_some_and(|next| next.lower <= lowest(cell)) {
                bin += 1;
            }
            bin as u8
        };
        Index { start, shift, first: (0..Self::CELLS).map(bin_of).collect() }
    }

    #[inline]
    fn first_bin(&self, number: u64) -> usize {
        match number.checked_sub(self.start) {
            Some(distance) => self.first[(distance >> self.shift).min(Self::CELLS - 1) as usize].into(),
            None => 0,
        }
    }
}

/// A table as the reader needs it: everything is found by index, and no index can be out of range.
pub(crate) struct Decoder {
    pub(crate) log: u32,
    /// Which bin a slot belongs to.
    pub(crate) bin_of: Box<[u8; 1 << MAX_LOG]>,
    /// The slots of each bin: the first one in the high half, how many in the low half.
    pub(crate) slots: Box<[u32; BINS]>,
    /// The lowest number of each bin, the base counted in.
    pub(crate) lowers: Box<[u64; BINS]>,
    /// The width of each bin.
    pub(crate) widths: Box<[u8; BINS]>,
    /// The widest bin.
    pub(crate) max_width: u32,
}

impl Decoder {
    pub(crate) fn read(reader: &mut BitReader, base: u64) -> Result<Self, DecodeError> {
        let log = MIN_LOG + reader.read(3)? as u32;
        if log > MAX_LOG {
            return Err(DecodeError::Invalid("size of a table"));
        }
        let count = reader.read(8)? as usize + 1;
        let mut table = Decoder {
            log,
            bin_of: Box::new([0; 1 << MAX_LOG]),
            slots: Box::new([0; BINS]),
            lowers: Box::new([0; BINS]),
            widths: Box::new([0; BINS]),
            max_width: 0,
        };
        let quarters = table.read_bins(reader, count, base)?;
        table.fill_slots(&share(&quarters, log));
        Ok(table)
    }

    fn read_bins(&mut self, reader: &mut BitReader, count: usize, base: u64) -> Result<Vec<u64>, DecodeError> {
        let mut quarters = Vec::with_capacity(count);
        let (mut end, mut width, mut q) = (0u64, 0u64, 0u64);
        for i in 0..count {
            width = width.wrapping_add(unzigzag(reader.read_golomb()?));
            if width > 63 {
                return Err(DecodeError::Invalid("width of a bin"));
            }
            let gap = reader.read_golomb()?;
            let lower = end.div_ceil(1 << width).checked_add(gap).filter(|&units| units <= u64::MAX >> width);
            let lower = lower.ok_or(DecodeError::Invalid("gap before a bin"))? << width;
            q = q.wrapping_add(unzigzag(reader.read_golomb()?));
            if q > MAX_QUARTERS {
                return Err(DecodeError::Invalid("probability of a bin"));
            }
            quarters.push(q);
            self.lowers[i] = lower.wrapping_add(base);
            self.widths[i] = width as u8;
            self.max_width = self.max_width.max(width as u32);
            end = lower.saturating_add(1 << width);
        }
        Ok(quarters)
    }

    fn fill_slots(&mut self, slots: &[Slots]) {
        let mut rest = &mut self.bin_of[..];
        for (bin, slots) in slots.iter().enumerate() {
            self.slots[bin] = slots.first << 16 | slots.count;
            let (own, behind) = rest.split_at_mut(slots.count as usize);
            own.fill(bin as u8);
            rest = behind;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_use_every_slot_and_forget_no_bin() {
        for quarters in [vec![0], vec![0; 256], vec![96, 0, 0], (0..97).collect()] {
            let slots = share(&quarters, 9);
            assert_eq!(slots.iter().map(|s| s.count).sum::<u32>(), 512);
            assert!(slots.iter().all(|s| s.count > 0));
            assert!(slots.windows(2).all(|s| s[0].first + s[0].count == s[1].first));
        }
    }

    #[test]
    fn a_table_comes_back() {
        let bins = vec![
            Bin { lower: 0, width: 0, count: 1 },
            Bin { lower: 1, width: 0, count: 900 },
            Bin { lower: 2, width: 1, count: 7 },
            Bin { lower: 1 << 20, width: 7, count: 40 },
            Bin { lower: 1 << 63, width: 63, count: 2 },
        ];
        let table = Table::new(bins.clone(), 950);
        let mut header = BitWriter::default();
        table.write(&mut header);
        let header = header.finish();
        let mut reader = BitReader::new(&header);
        let Ok(decoder) = Decoder::read(&mut reader, 5) else { panic!("not read") };
        assert_eq!(reader.finish(), Ok(()));
        for (i, bin) in bins.iter().enumerate() {
            assert_eq!(decoder.lowers[i], bin.lower.wrapping_add(5));
            assert_eq!(u32::from(decoder.widths[i]), bin.width);
            assert_eq!(decoder.slots[i], table.slots[i].first << 16 | table.slots[i].count);
        }
    }
}
