//! Variable-length fields of a footer: integers, byte strings, arrays of one integer a group.
//!
//! [`Fields`] reads; it never panics and allocates no more than the input and the counts it is told justify.
//! An array is a run of codec blocks of up to 65536 integers each, so it costs little when values repeat.

use rrd_codec::{Column, Effort, Kind, Values};

use super::format::Damage;

const ARRAY_PIECE: usize = rrd_codec::MAX_ROWS;

/// Appends a varint.
pub(crate) fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a varint from the front; `None` if there is none, or none that an integer can hold.
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (n, &byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if n == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * n);
        if byte < 0x80 {
            *bytes = &bytes[n + 1..];
            return Some(value);
        }
    }
    None
}

/// Appends an array of integers.
pub(crate) fn push_array(out: &mut Vec<u8>, values: impl IntoIterator<Item = u64>, effort: Effort) {
    let mut values = values.into_iter().peekable();
    let mut block = Vec::new();
    while values.peek().is_some() {
        let piece = Values::Int(values.by_ref().take(ARRAY_PIECE).collect());
        block.clear();
        rrd_codec::encode(&Column { values: piece, nulls: None }, effort, &mut block);
        push_varint(out, block.len() as u64);
        out.extend_from_slice(&block);
    }
}

/// [`push_array`] of small integers.
pub(crate) fn push_array_u32(out: &mut Vec<u8>, values: &[u32], effort: Effort) {
    push_array(out, values.iter().map(|&v| u64::from(v)), effort);
}

/// A place in the bytes of a footer.
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields { bytes, at: 0 }
    }

    /// A damage at this place.
    pub(crate) fn damage(&self, what: impl Into<String>) -> Damage {
        Damage::new(self.at, what)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Damage> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn varint(&mut self) -> Result<u64, Damage> {
        let mut rest = &self.bytes[self.at..];
        let value = take_varint(&mut rest).ok_or_else(|| self.damage("an integer is cut off or too long"))?;
        self.at = self.bytes.len() - rest.len();
        Ok(value)
    }

    /// A varint of at most `limit`.
    pub(crate) fn count(&mut self, limit: usize, what: &str) -> Result<usize, Damage> {
        match usize::try_from(self.varint()?) {
            Ok(n) if n <= limit => Ok(n),
            _ => Err(self.damage(format!("{what} over the limit of {limit}"))),
        }
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Damage> {
        let end = self.at.checked_add(len).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or_else(|| self.damage("the footer ends early"))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// Bytes behind their length.
    pub(crate) fn nested(&mut self) -> Result<&'a [u8], Damage> {
        let len = self.count(self.bytes.len(), "length")?;
        self.take(len)
    }

    /// An array of `len` integers, each at most `max`.
    pub(crate) fn array(&mut self, len: usize, max: u64, what: &str) -> Result<Vec<u64>, Damage> {
        let mut values = Vec::new();
        while values.len() < len {
            let rows = (len - values.len()).min(ARRAY_PIECE);
            let block = self.nested()?;
            match rrd_codec::decode(block, Kind::Int, rows) {
                Ok(Column { values: Values::Int(piece), nulls: None }) if piece.len() == rows => {
                    match values.is_empty() {
                        true => values = piece,
                        false => values.extend_from_slice(&piece),
                    }
                }
                Ok(_) => return Err(self.damage(format!("{what}: not an array of integers"))),
                Err(e) => return Err(self.damage(format!("{what}: {e}"))),
            }
        }
        match values.iter().all(|&v| v <= max) {
            true => Ok(values),
            false => Err(self.damage(format!("{what} over the limit of {max}"))),
        }
    }

    /// [`Fields::array`] of small integers.
    pub(crate) fn array_u32(&mut self, len: usize, max: u32, what: &str) -> Result<Vec<u32>, Damage> {
        Ok(self.array(len, u64::from(max), what)?.into_iter().map(|v| v as u32).collect())
    }

    /// Nothing may be left.
    pub(crate) fn finish(self) -> Result<(), Damage> {
        match self.at == self.bytes.len() {
            true => Ok(()),
            false => Err(self.damage("bytes are left over behind the footer's last field")),
        }
    }
}
