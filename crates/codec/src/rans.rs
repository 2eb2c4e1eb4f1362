//! The entropy stage: intervals of numbers in an entropy code, and the offsets within them as bits.
//!
//! Numbers are counted from the lowest one. Intervals that are cheap to describe (`bins`) cover them; each gets a
//! probability (`table`) and costs what Shannon asks (`coder`: range asymmetric numeral systems, Duda 2013,
//! arXiv:1311.2540, interleaved after Giesen, arXiv:1402.3392). Intervals with offsets are the idea of pcodec
//! (Loncaric et al. 2025, arXiv:2502.06112). Groups of rows whose numbers are of other sizes than those of the rest
//! (a busy port beside an idle one) get a table of their own (`contexts`).

mod bins;
mod coder;
mod contexts;
mod table;

use crate::bits::{BitReader, BitWriter, unzigzag, zigzag};
use crate::int::{Level, Sign, decode_side, write_side};
use crate::reader::{Reader, write_varint};
use crate::{DecodeError, tag};
use contexts::GROUP;
use table::Table;

/// The most tables of a block.
const TABLES: usize = 16;

/// In place of the number of tables: groups have pivots, too.
const PIVOTS: u8 = 0x80;

/// How to code a block.
pub(crate) struct Plan {
    base: u64,
    /// What is taken from the values of each group; none if that is nothing.
    pivots: Vec<u64>,
    numbers: Vec<u64>,
    /// Which table each group of rows uses.
    contexts: Vec<u64>,
    tables: Vec<Table>,
    bits: f64,
}

impl Plan {
    /// `local`: the groups' levels lie far apart.
    pub(crate) fn new(values: &[u64], sign: Sign, local: bool) -> Self {
        let pivots = if local { medians(values, sign) } else { Vec::new() };
        let (base, numbers) = count_from_base(values, &pivots, sign);
        let contexts = contexts::choose(&numbers);
        let count = contexts.iter().max().map_or(1, |&last| last as usize + 1);
        let mut sorted = vec![Vec::with_capacity(if count == 1 { numbers.len() } else { 0 }); count];
        for (group, &context) in numbers.chunks(GROUP).zip(&contexts) {
            sorted[context as usize].extend_from_slice(group);
        }
        let mut bits = 64.0 + contexts.len() as f64 * (count as f64).log2() + pivots.len() as f64 * 12.0;
        let mut tables = Vec::with_capacity(count);
        for mut numbers in sorted {
            numbers.sort_unstable();
            let (bins, cost) = bins::choose(&numbers);
            tables.push(Table::new(bins, numbers.len()));
            bits += cost;
        }
        Plan { base, pivots, numbers, contexts, tables, bits }
    }

    /// How many bits the block will take, about.
    pub(crate) fn bits(&self) -> f64 {
        self.bits
    }

    pub(crate) fn write(self, sign: Sign, level: Level, out: &mut Vec<u8>) {
        out.push(tag::INT_RANS);
        write_varint(out, zigzag(self.base));
        if self.pivots.is_empty() {
            out.push(self.tables.len() as u8);
        } else {
            out.push(self.tables.len() as u8 | PIVOTS);
            write_side(&self.pivots, sign, level, out);
        }
        if self.tables.len() > 1 {
            write_side(&self.contexts, Sign::Unsigned, level, out);
        }
        let mut header = BitWriter::default();
        self.tables.iter().for_each(|table| table.write(&mut header));
        let header = header.finish();
        write_varint(out, header.len() as u64);
        out.extend_from_slice(&header);
        coder::encode(&self.numbers, |group| &self.tables[self.contexts[group] as usize], out);
    }
}

pub(crate) fn decode(reader: &mut Reader, out: &mut [u64], depth: u8) -> Result<(), DecodeError> {
    let base = unzigzag(reader.varint()?);
    let byte = reader.byte()?;
    let count = usize::from(byte & !PIVOTS);
    if !(1..=TABLES).contains(&count) {
        return Err(DecodeError::Invalid("number of tables"));
    }
    let groups = out.len().div_ceil(GROUP);
    let pivots = if byte & PIVOTS == 0 { Vec::new() } else { decode_side(reader, groups, depth)? };
    let contexts = if count > 1 { decode_side(reader, groups, depth)? } else { vec![0; groups] };
    if contexts.iter().any(|&context| context >= count as u64) {
        return Err(DecodeError::Invalid("number of a table"));
    }
    let mut header = BitReader::new(reader.nested()?);
    let tables = (0..count).map(|_| table::Decoder::read(&mut header, base)).collect::<Result<Vec<_>, _>>()?;
    header.finish()?;
    coder::decode(reader.rest(), out, |group| &tables[contexts[group] as usize])?;
    for (group, pivot) in out.chunks_mut(GROUP).zip(pivots) {
        group.iter_mut().for_each(|value| *value = value.wrapping_add(pivot));
    }
    Ok(())
}

/// The median of each group.
fn medians(values: &[u64], sign: Sign) -> Vec<u64> {
    let median = |group: &[u64]| {
        let mut sample = group.to_vec();
        *sample.select_nth_unstable_by_key(group.len() / 2, |&value| sign.key(value)).1
    };
    values.chunks(GROUP).map(median).collect()
}

/// The lowest of the distances to the pivots, and all of them counted from it.
fn count_from_base(values: &[u64], pivots: &[u64], sign: Sign) -> (u64, Vec<u64>) {
    let mut numbers = values.to_vec();
    for (group, pivot) in numbers.chunks_mut(GROUP).zip(pivots) {
        group.iter_mut().for_each(|value| *value = value.wrapping_sub(*pivot));
    }
    let sign = if pivots.is_empty() { sign } else { Sign::Signed };
    let base = numbers.iter().copied().min_by_key(|&number| sign.key(number)).unwrap_or(0);
    numbers.iter_mut().for_each(|number| *number = number.wrapping_sub(base));
    (base, numbers)
}
