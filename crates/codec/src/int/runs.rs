//! Runs of the same value: one length and one value each.

use super::{Level, Sign, decode_level, decode_side, encode_level, write_side};
use crate::reader::{Reader, write_varint};
use crate::{DecodeError, tag};

pub(crate) fn encode(values: &[u64], sign: Sign, level: Level, out: &mut Vec<u8>) {
    let (mut lengths, mut heads) = (Vec::new(), Vec::new());
    for run in values.chunk_by(|a, b| a == b) {
        lengths.push(run.len() as u64 - 1);
        heads.push(run[0]);
    }
    out.push(tag::INT_RUNS);
    write_varint(out, heads.len() as u64);
    write_side(&lengths, Sign::Unsigned, level, out);
    encode_level(&heads, sign, level.inner(), out);
}

pub(crate) fn decode(reader: &mut Reader, out: &mut [u64], depth: u8) -> Result<(), DecodeError> {
    let runs = reader.count(out.len())?;
    let lengths = decode_side(reader, runs, depth)?;
    let mut heads = vec![0; runs];
    decode_level(reader.rest(), &mut heads, depth)?;
    let mut rest = out;
    for (&length, &head) in lengths.iter().zip(&heads) {
        if length >= rest.len() as u64 {
            return Err(DecodeError::Invalid("length of a run"));
        }
        let (run, behind) = rest.split_at_mut(length as usize + 1);
        run.fill(head);
        rest = behind;
    }
    if rest.is_empty() { Ok(()) } else { Err(DecodeError::Invalid("runs end early")) }
}
