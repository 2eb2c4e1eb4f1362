//! Walks over the bytes of a block, and the variable-length integers in it.
//!
//! A varint is LEB128: seven bits a byte, low bits first, the top bit set on all bytes but the last; ten bytes at
//! most. A [`Reader`] never panics: whatever is missing is [`DecodeError::Truncated`].

use crate::DecodeError;

/// A position in a block.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes }
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self.bytes.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.bytes = tail;
        Ok(head)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        self.take(1).map(|b| b[0])
    }

    pub(crate) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(DecodeError::Invalid("varint"));
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::Invalid("varint"))
    }

    /// A varint that counts something of which there are at most `limit`.
    pub(crate) fn count(&mut self, limit: usize) -> Result<usize, DecodeError> {
        match usize::try_from(self.varint()?) {
            Ok(count) if count <= limit => Ok(count),
            _ => Err(DecodeError::Invalid("count")),
        }
    }

    /// A nested block behind its length.
    pub(crate) fn nested(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.varint()?;
        self.take(usize::try_from(len).map_err(|_| DecodeError::Truncated)?)
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// Nothing may be left.
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(DecodeError::TrailingBytes) }
    }
}

pub(crate) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a nested block behind its length.
pub(crate) fn write_nested(out: &mut Vec<u8>, block: &[u8]) {
    write_varint(out, block.len() as u64);
    out.extend_from_slice(block);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip() {
        for shift in 0..64 {
            for value in [(1u64 << shift) - 1, 1 << shift, (1 << shift) + 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                write_varint(&mut out, value);
                let mut reader = Reader::new(&out);
                assert_eq!(reader.varint(), Ok(value));
                assert_eq!(reader.finish(), Ok(()));
                assert_eq!(Reader::new(&out[..out.len() - 1]).varint(), Err(DecodeError::Truncated));
            }
        }
        assert!(Reader::new(&[0xff; 10]).varint().is_err());
    }
}
