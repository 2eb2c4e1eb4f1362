//! Few distinct values that lie far apart: their list in ascending order, and the place in the list for each row.

use super::{Level, Sign, decode_level, decode_side, encode_level, write_side};
use crate::reader::{Reader, write_varint};
use crate::{DecodeError, tag};

/// The most distinct values that a dictionary may have.
const LIMIT: usize = 4096;
/// Slots of the hash table: at most a quarter is taken.
const SLOTS: usize = 4 * LIMIT;

/// Writes nothing when there are too many distinct values.
pub(crate) fn encode(values: &[u64], level: Level, out: &mut Vec<u8>) {
    let Some((mut entries, mut ids)) = number(values) else { return };
    sort(&mut entries, &mut ids);
    out.push(tag::INT_DICTIONARY);
    write_varint(out, entries.len() as u64);
    write_side(&entries, Sign::Unsigned, level, out);
    encode_level(&ids, Sign::Unsigned, Level { dictionary: false, ..level.inner() }, out);
}

/// The distinct values in order of appearance, and which of them each row has.
fn number(values: &[u64]) -> Option<(Vec<u64>, Vec<u64>)> {
    let mut slots = vec![u16::MAX; SLOTS];
    let (mut entries, mut ids) = (Vec::<u64>::new(), Vec::with_capacity(values.len()));
    for &value in values {
        let mut slot = (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as usize % SLOTS;
        let id = loop {
            match slots[slot] {
                u16::MAX if entries.len() == LIMIT => return None,
                u16::MAX => {
                    slots[slot] = entries.len() as u16;
                    entries.push(value);
                    break slots[slot];
                }
                id if entries[usize::from(id)] == value => break id,
                _ => slot = (slot + 1) % SLOTS,
            }
        };
        ids.push(u64::from(id));
    }
    Some((entries, ids))
}

fn sort(entries: &mut [u64], ids: &mut [u64]) {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_unstable_by_key(|&i| entries[i]);
    let mut place = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, &from)| place[from] = to as u64);
    ids.iter_mut().for_each(|id| *id = place[*id as usize]);
    entries.sort_unstable();
}

pub(crate) fn decode(reader: &mut Reader, out: &mut [u64], depth: u8) -> Result<(), DecodeError> {
    let count = reader.count(out.len())?;
    let entries = decode_side(reader, count, depth)?;
    decode_level(reader.rest(), out, depth)?;
    for value in out {
        let entry = usize::try_from(*value).ok().and_then(|id| entries.get(id));
        *value = *entry.ok_or(DecodeError::Invalid("number of a dictionary entry"))?;
    }
    Ok(())
}
