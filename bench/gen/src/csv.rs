//! Rows as CSV text, without the general formatting machinery: that would cost more than drawing
//! the values.

use std::io::Write;

const DIGIT_PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0u8; 2]; 100];
    let mut i = 0;
    while i < 100 {
        pairs[i] = [b'0' + (i / 10) as u8, b'0' + (i % 10) as u8];
        i += 1;
    }
    pairs
};

/// Rows that wait to be written.
pub struct RowBuffer {
    bytes: Vec<u8>,
}

impl RowBuffer {
    /// Room for `capacity` bytes and a row more.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity + 1024) }
    }

    pub fn comma(&mut self) {
        self.bytes.push(b',');
    }

    pub fn end_row(&mut self) {
        self.bytes.push(b'\n');
    }

    /// A whole number.
    pub fn integer(&mut self, mut value: u64) {
        let mut digits = [0u8; 20];
        let mut start = digits.len();
        while value >= 100 {
            start -= 2;
            digits[start..start + 2].copy_from_slice(&DIGIT_PAIRS[(value % 100) as usize]);
            value /= 100;
        }
        if value >= 10 {
            start -= 2;
            digits[start..start + 2].copy_from_slice(&DIGIT_PAIRS[value as usize]);
        } else {
            start -= 1;
            digits[start] = b'0' + value as u8;
        }
        self.bytes.extend_from_slice(&digits[start..]);
    }

    /// A number of hundredths, with its two decimals.
    pub fn hundredths(&mut self, value: i64) {
        if value < 0 {
            self.bytes.push(b'-');
        }
        let value = value.unsigned_abs();
        self.integer(value / 100);
        self.bytes.push(b'.');
        self.bytes.extend_from_slice(&DIGIT_PAIRS[(value % 100) as usize]);
    }

    /// A floating-point number, in the fewest digits that read back as the same number.
    pub fn double(&mut self, value: f64) {
        // Writing to a Vec cannot fail.
        let _ = write!(self.bytes, "{value}");
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets what was written since the buffer had this length.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut RowBuffer)) -> String {
        let mut buffer = RowBuffer::with_capacity(0);
        write(&mut buffer);
        String::from_utf8_lossy(buffer.as_bytes()).into_owned()
    }

    #[test]
    fn integers_read_as_the_standard_library_writes_them() {
        for value in [0, 9, 10, 99, 100, 12_345, 1_700_000_100, u64::MAX] {
            assert_eq!(text(|row| row.integer(value)), value.to_string());
        }
    }

    #[test]
    fn hundredths_keep_sign_and_zeros() {
        assert_eq!(text(|row| row.hundredths(-5)), "-0.05");
        assert_eq!(text(|row| row.hundredths(1200)), "12.00");
    }
}
