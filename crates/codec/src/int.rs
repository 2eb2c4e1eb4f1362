//! Blocks of integers: every other kind of value ends up here.
//!
//! A codec is a transform that hands its main stream on to the next block (delta, scale, runs, dictionary, split)
//! or an end (raw, constant, packed, rANS, Rice). The main stream stands last and without a length; side streams stand
//! before it behind their lengths. Nesting is limited on both sides, so that hostile bytes cannot exhaust the stack.

mod delta;
mod dictionary;
mod linear;
mod packed;
pub(crate) mod pieces;
mod plan;
mod rice;
mod runs;
mod scaled;

use crate::bits::{unzigzag, zigzag};
use crate::reader::{Reader, write_varint};
use crate::{DecodeError, Effort, rans, tag};
use packed::Frame;
pub(crate) use packed::range;
pub(crate) use plan::{Sample, estimate};

/// How many blocks may be nested in each other.
const DEPTH: u8 = 8;

/// Up to so many values, trying costs nothing.
const FEW: usize = 4096;
/// Up to so many bits a row, packing is tried beside the entropy stage.
const FEW_BITS: f64 = 3.0;
/// The bits of a block that is not worth the entropy stage.
const TINY: usize = 256;
/// From so many bits a row on, values are noise.
const NOISE_BITS: f64 = 63.5;

/// How an inner block is to be written.
#[derive(Clone, Copy)]
pub(crate) struct Level {
    effort: Effort,
    /// How many blocks may still be nested in this one.
    depth: u8,
    /// A dictionary may be tried: the numbers of its entries gain nothing from another one.
    dictionary: bool,
}

impl Level {
    fn inner(self) -> Self {
        Level { depth: self.depth.saturating_sub(1), ..self }
    }

    /// What an estimate may be at most to be worth a trial beside one of `bits` bits a row.
    fn close(self, bits: f64) -> f64 {
        match self.effort {
            Effort::Fast => bits * 1.03 + 0.005,
            Effort::Small => bits * 1.3 + 0.1,
        }
    }
}

/// Whether numbers are meant as two's complement: differences are, values are not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    Unsigned,
    Signed,
}

impl Sign {
    /// Maps to numbers whose unsigned order is the meant one. It is its own inverse.
    pub(crate) fn key(self, value: u64) -> u64 {
        match self {
            Sign::Unsigned => value,
            Sign::Signed => value ^ 1 << 63,
        }
    }
}

/// How the block before was written.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    plan: Option<plan::Plan>,
    /// The bits of a row when that plan was made.
    bits: f64,
    /// Blocks that were written by it since.
    uses: u32,
    /// The quotients of scaled values.
    scaled: Option<Box<Memory>>,
    /// The pivot belongs to the plan.
    keeps_pivot: bool,
}

/// Blocks that are written by a plan before it is made anew.
const USES: u32 = 16;
/// Fewer values than this are told too little by the block before.
const FEWEST_ALIKE: usize = 64;

impl Memory {
    /// Of blocks of differences, which all have about the same pivot.
    pub(crate) fn of_differences() -> Self {
        Memory { keeps_pivot: true, ..Memory::default() }
    }

    /// Whether a block of some bits a row is about what the plan promised.
    fn is_as_good(&self, bits: f64) -> bool {
        bits <= self.bits * 1.1 + 0.02
    }
}

/// Appends a block of `values`.
pub(crate) fn encode(values: &[u64], sign: Sign, effort: Effort, out: &mut Vec<u8>) {
    encode_level(values, sign, Level { effort, depth: DEPTH - 1, dictionary: true }, out);
}

/// Appends a block of `values` that may be like the one before.
pub(crate) fn encode_alike(values: &[u64], sign: Sign, effort: Effort, memory: &mut Memory, out: &mut Vec<u8>) {
    encode_level_alike(values, sign, Level { effort, depth: DEPTH - 1, dictionary: true }, memory, out);
}

/// How blocks of differences were written of late.
#[derive(Debug)]
pub(crate) struct Differences {
    memory: Memory,
    /// The bits of a remainder, if Rice codes were the shortest.
    rice: Option<u32>,
    /// The bits of a row then, and the blocks that were written so since.
    bits: f64,
    uses: u32,
}

impl Default for Differences {
    fn default() -> Self {
        Differences { memory: Memory::of_differences(), rice: None, bits: 0.0, uses: USES }
    }
}

/// Appends a block of zigzagged differences that may be like the one before.
pub(crate) fn encode_differences(values: &[u64], effort: Effort, before: &mut Differences, out: &mut Vec<u8>) {
    let start = out.len();
    let bits = |out: &Vec<u8>| (out.len() - start) as f64 * 8.0 / values.len().max(1) as f64;
    if values.iter().all(|value| Some(value) == values.first()) {
        return encode_alike(values, Sign::Unsigned, effort, &mut before.memory, out);
    }
    before.uses += 1;
    let is_due = before.uses > USES;
    if let Some(remainder) = before.rice.filter(|_| !is_due) {
        rice::write(values, remainder, out);
        if bits(out) <= before.bits * 1.1 + 0.02 {
            return;
        }
        out.truncate(start);
    }
    encode_alike(values, Sign::Unsigned, effort, &mut before.memory, out);
    if is_due || before.rice.is_some() {
        let (remainder, bits) = rice::best_remainder(values);
        before.rice = Some(remainder).filter(|_| rice::block_bytes(bits) < out.len() - start);
        before.uses = 0;
    }
    if let Some(remainder) = before.rice {
        out.truncate(start);
        rice::write(values, remainder, out);
    }
    before.bits = bits(out);
}

fn encode_level(values: &[u64], sign: Sign, level: Level, out: &mut Vec<u8>) {
    encode_level_alike(values, sign, level, &mut Memory::default(), out);
}

fn encode_level_alike(values: &[u64], sign: Sign, level: Level, memory: &mut Memory, out: &mut Vec<u8>) {
    if write_trivial(values, sign, level, out) {
        return;
    }
    let start = out.len();
    let bits = |out: &Vec<u8>| (out.len() - start) as f64 * 8.0 / values.len() as f64;
    let is_due = level.effort == Effort::Small || values.len() < FEWEST_ALIKE || memory.uses >= USES;
    if let Some(plan) = memory.plan.take_if(|_| !is_due) {
        encode_planned(values, sign, level, &plan, memory, out);
        if memory.is_as_good(bits(out)) {
            memory.uses += 1;
            memory.plan = Some(plan);
            return;
        }
        out.truncate(start);
    }
    let mut plan = plan::Plan::new(values, sign, level);
    if memory.keeps_pivot {
        plan.shape.pivot = packed::pivot_of(values, sign, plan.shape);
    }
    encode_planned(values, sign, level, &plan, memory, out);
    memory.bits = bits(out);
    memory.uses = 0;
    memory.plan = Some(plan);
}

fn encode_planned(values: &[u64], sign: Sign, level: Level, plan: &plan::Plan, memory: &mut Memory, out: &mut Vec<u8>) {
    if let Some(factor) = plan.factor {
        let scaled = memory.scaled.get_or_insert_default();
        if scaled::encode(values, factor, sign, level, scaled, out) {
            return;
        }
    }
    if plan.shape.bits.min(plan.runs_bits).min(plan.dictionary_bits) > NOISE_BITS {
        return write_raw(values, out);
    }
    let enough = level.close(plan.shape.bits.min(plan.runs_bits));
    let few = values.len() <= FEW;
    // A dictionary takes time: it must be clearly better.
    let dictionary =
        level.dictionary && plan.dictionary_bits < if few { 1.0 } else { 0.9 } * plan.shape.bits.min(plan.runs_bits);
    let start = out.len();
    if plan.shape.bits <= enough && (few || !dictionary) {
        delta::encode(values, plan.shape, sign, level, out);
    }
    if plan.runs_bits <= enough {
        try_another(out, start, |out| runs::encode(values, sign, level, out));
    }
    if dictionary {
        try_another(out, start, |out| dictionary::encode(values, level, out));
    }
    if out.len() == start {
        delta::encode(values, plan.shape, sign, level, out);
    }
    if out.len() - start > values.len() * 8 {
        out.truncate(start);
        write_raw(values, out);
    }
}

/// What a delta leaves: no further transform but runs.
fn encode_residuals(values: &[u64], sign: Sign, shape: plan::Shape, level: Level, out: &mut Vec<u8>) {
    if write_trivial(values, sign, level, out) {
        return;
    }
    let start = out.len();
    encode_end(values, sign, shape, level, out);
    let rare = if level.effort == Effort::Fast { 32 } else { 8 };
    if shape.bits < 1.0 && plan::changes(values) * rare < values.len() {
        try_another(out, start, |out| runs::encode(values, sign, level, out));
    }
}

/// Packs or entropy-codes, whichever is smaller.
fn encode_end(values: &[u64], sign: Sign, shape: plan::Shape, level: Level, out: &mut Vec<u8>) {
    if level.effort == Effort::Fast {
        return packed::encode(values, sign, shape.frame(), level, out);
    }
    let start = out.len();
    // Few patches may have a pattern, which no estimate sees.
    let early = shape.packed_bits <= FEW_BITS;
    if early {
        packed::encode(values, sign, shape.frame(), level, out);
        if (out.len() - start) * 8 <= TINY + values.len() / 100 {
            return;
        }
    }
    let rans = rans::Plan::new(values, sign, shape.rans_local);
    if !early && shape.packed_bits <= level.close(rans.bits() / values.len() as f64) {
        packed::encode(values, sign, shape.frame(), level, out);
    }
    // Packed blocks decode faster: half a percent of size is worth it.
    if start == out.len() || (out.len() - start) as f64 * 8.0 > rans.bits() * 1.005 {
        try_another(out, start, |out| rans.write(sign, level, out));
    }
}

/// Replaces the block from `start` on by what `encode` writes, if there is no block yet or that is smaller.
fn try_another(out: &mut Vec<u8>, start: usize, encode: impl FnOnce(&mut Vec<u8>)) {
    let end = out.len();
    encode(out);
    let len = out.len() - end;
    if start == end {
        return;
    }
    if len > 0 && len < end - start {
        out.copy_within(end.., start);
        out.truncate(start + len);
    } else {
        out.truncate(end);
    }
}

/// Writes the blocks that need no thought. Returns false when there is something to think about.
fn write_trivial(values: &[u64], sign: Sign, level: Level, out: &mut Vec<u8>) -> bool {
    let Some(&first) = values.first() else {
        out.push(tag::INT_RAW);
        return true;
    };
    if values.iter().all(|&value| value == first) {
        out.push(tag::INT_CONSTANT);
        write_varint(out, zigzag(first));
        return true;
    }
    if level.depth == 0 {
        packed::encode_flat(values, sign, out);
        return true;
    }
    false
}

fn write_raw(values: &[u64], out: &mut Vec<u8>) {
    out.push(tag::INT_RAW);
    out.reserve(values.len() * 8);
    values.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
}

/// Writes an inner block behind its length.
pub(crate) fn write_side(values: &[u64], sign: Sign, level: Level, out: &mut Vec<u8>) {
    let mut block = Vec::new();
    encode_level(values, sign, level.inner(), &mut block);
    write_varint(out, block.len() as u64);
    out.extend_from_slice(&block);
}

/// [`write_side`] for what is small beside its block: packed at once where time counts.
pub(crate) fn write_small_side(values: &[u64], sign: Sign, level: Level, out: &mut Vec<u8>) {
    if level.effort == Effort::Small {
        return write_side(values, sign, level, out);
    }
    let mut block = Vec::new();
    if !write_trivial(values, sign, level.inner(), &mut block) {
        packed::encode(values, sign, Frame::Common(None), level.inner(), &mut block);
    }
    write_varint(out, block.len() as u64);
    out.extend_from_slice(&block);
}

/// Reads a block of `rows` values; all of `bytes` must be used.
pub(crate) fn decode(bytes: &[u8], rows: usize) -> Result<Vec<u64>, DecodeError> {
    let mut values = vec![0; rows];
    decode_level(bytes, &mut values, DEPTH)?;
    Ok(values)
}

/// Reads an inner block of `rows` values.
pub(crate) fn decode_side(reader: &mut Reader, rows: usize, depth: u8) -> Result<Vec<u64>, DecodeError> {
    let mut values = vec![0; rows];
    decode_level(reader.nested()?, &mut values, depth)?;
    Ok(values)
}

/// Fills `out`; `depth` is how many blocks may still be nested.
fn decode_level(bytes: &[u8], out: &mut [u64], depth: u8) -> Result<(), DecodeError> {
    let depth = depth.checked_sub(1).ok_or(DecodeError::Invalid("depth"))?;
    let mut reader = Reader::new(bytes);
    match reader.byte()? {
        tag::INT_RAW => read_raw(&mut reader, out)?,
        tag::INT_CONSTANT => out.fill(unzigzag(reader.varint()?)),
        tag::INT_DELTA => delta::decode(&mut reader, out, depth)?,
        tag::INT_LINEAR => linear::decode(&mut reader, out, depth)?,
        tag::INT_SCALED => scaled::decode(&mut reader, out, depth)?,
        tag::INT_RUNS => runs::decode(&mut reader, out, depth)?,
        tag::INT_DICTIONARY => dictionary::decode(&mut reader, out, depth)?,
        tag::INT_PACKED => packed::decode(&mut reader, out, depth)?,
        tag::INT_RANS => rans::decode(&mut reader, out, depth)?,
        tag::INT_RICE => rice::decode(&mut reader, out)?,
        other => return Err(DecodeError::UnknownTag(other)),
    }
    reader.finish()
}

fn read_raw(reader: &mut Reader, out: &mut [u64]) -> Result<(), DecodeError> {
    let bytes = reader.take(out.len() * 8)?;
    for (value, eight) in out.iter_mut().zip(bytes.chunks_exact(8)) {
        *value = crate::bits::load64(eight, 0);
    }
    Ok(())
}
