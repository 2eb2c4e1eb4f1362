//! Numbers as the server writes them into the rows that it sends.
//!
//! Of doubles the server's own way there (`my_gcvt`, over Gay's dtoa) works with long numbers and takes most of the time of an answer
//! of many averages. The digits here are the same, the fewest that say which double it is and of those the nearest, found
//! by zmij; only where the point and the exponent go is the server's custom.

/// Bytes that a text has at most: a sign, `0.`, 14 zeros, 17 digits.
pub const MAX_BYTES: usize = 40;

/// So many places before and zeros behind the point are written out; beyond that there is an exponent.
const PLACES: i32 = 15;

/// Eight digits that are made and written at once.
const EIGHT: u64 = 100_000_000;

/// The eight digits of a number below [`EIGHT`], the first in the lowest byte. Halves, quarters and digits are parted in lanes of
/// one word: multiplying and shifting divides lanes by 100 and by 10, as long as they are below 10,000 and 100.
#[inline]
fn eight_digits(number: u64) -> u64 {
    // As 32 bits, whose division is cheaper.
    let (high, low) = (number as u32 / 10_000, number as u32 % 10_000);
    let halves = u64::from(high) | u64::from(low) << 32;
    let hundreds = (halves * 10_486) >> 20 & 0x0000_007f_0000_007f;
    let pairs = hundreds | (halves - hundreds * 100) << 16;
    let tens = (pairs * 103) >> 10 & 0x000f_000f_000f_000f;
    tens | (pairs - tens * 10) << 8
}

const TWO_TO_52: f64 = 4_503_599_627_370_496.0;

/// Eight digits as ASCII.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// Writes an integer and returns the length of the text.
#[inline]
pub fn write_integer(size: u64, is_negative: bool, out: &mut [u8; MAX_BYTES]) -> usize {
    let mut text = Text { out, length: 0 };
    text.out[0] = b'-';
    text.length += usize::from(is_negative);
    text.put_integer(size);
    text.length
}

/// Writes the text of a finite double and returns its length.
#[inline]
pub fn write(value: f64, out: &mut [u8; MAX_BYTES]) -> usize {
    let mut text = Text { out, length: 0 };
    if text.puts_thousandths(value) {
        return text.length;
    }
    let mut buffer = zmij::Buffer::new();
    let found = buffer.format_finite(value);
    if let Some(same) = same_here(found) {
        text.put(same);
        return text.length;
    }
    let (digits, point) = digits_of(found.trim_start_matches('-'));
    let digits = digits.as_slice();
    if value < 0.0 {
        text.push(b'-');
    }
    let count = digits.len() as i32;
    if point > -PLACES && (point <= PLACES || count > point) {
        if point <= 0 {
            text.put(b"0.");
            (point..0).for_each(|_| text.push(b'0'));
            text.put(digits);
        } else if point < count {
            let (whole, part) = digits.split_at(point as usize);
            text.put(whole);
            text.push(b'.');
            text.put(part);
        } else {
            text.put(digits);
            (count..point).for_each(|_| text.push(b'0'));
        }
        return text.length;
    }
    text.push(digits[0]);
    if count > 1 {
        text.push(b'.');
        text.put(&digits[1..]);
    }
    text.put(format!("e{}", point - 1).as_bytes());
    text.length
}

/// The part of zmij's text that is the server's text too: mostly all of it.
fn same_here(found: &str) -> Option<&[u8]> {
    let text = found.as_bytes();
    if text.contains(&b'e') {
        return None;
    }
    match text.strip_suffix(b".0") {
        Some(whole) => (whole.len() <= PLACES as usize).then_some(whole),
        None => Some(text),
    }
}

struct Text<'a> {
    out: &'a mut [u8; MAX_BYTES],
    length: usize,
}

impl Text<'_> {
    /// Most readings have few decimals: that these say which double it is takes a multiplication and a division to see. Fewer
    /// digits cannot, as no two numbers of at most 15 digits are the same double.
    fn puts_thousandths(&mut self, value: f64) -> bool {
        let size = value.abs();
        if size >= 1e11 {
            return false;
        }
        // Adding it rounds to an integer, in the low bits.
        let sum = size * 1000.0 + TWO_TO_52;
        if (sum - TWO_TO_52) / 1000.0 != size {
            return false;
        }
        let thousandths = sum.to_bits() - TWO_TO_52.to_bits();
        self.out[self.length] = b'-';
        self.length += usize::from(thousandths != 0 && value < 0.0);
        if thousandths < EIGHT {
            self.put_thousandths(thousandths);
            return true;
        }
        self.put_integer(thousandths / 1000);
        let part = eight_digits(thousandths % 1000);
        self.put_decimals(part);
        true
    }

    /// Five digits before the point and three behind it, without the zeros at both ends. Nothing here is a branch that depends on
    /// the digits: half of them would be foretold wrong.
    #[inline]
    fn put_thousandths(&mut self, thousandths: u64) {
        let digits = eight_digits(thousandths);
        let zeros = (digits.trailing_zeros() / 8).min(4);
        self.put_word((digits | ZEROS) >> (8 * zeros), 5 - zeros as usize);
        self.put_decimals(digits);
    }

    /// The last three of eight digits, behind the point; nothing if all are zeros.
    #[inline]
    fn put_decimals(&mut self, digits: u64) {
        let zeros = (digits.leading_zeros() / 8).min(3) as usize;
        self.put_word(u64::from(b'.') | (digits | ZEROS) >> 40 << 8, if zeros == 3 { 0 } else { 4 - zeros });
    }

    #[inline]
    fn put_integer(&mut self, size: u64) {
        if size < EIGHT {
            return self.put_up_to_eight(size);
        }
        let front = size / EIGHT;
        if front < 100 {
            let (tens, ones) = (front / 10, front % 10);
            self.put_word((tens | ones << 8 | ZEROS) >> (8 * u32::from(tens == 0)), 1 + usize::from(tens > 0));
        } else if front < EIGHT {
            self.put_up_to_eight(front);
        } else {
            self.put_up_to_eight(front / EIGHT);
            self.put_word(eight_digits(front % EIGHT) | ZEROS, 8);
        }
        self.put_word(eight_digits(size % EIGHT) | ZEROS, 8);
    }

    #[inline]
    fn put_up_to_eight(&mut self, number: u64) {
        let digits = eight_digits(number);
        let zeros = (digits.trailing_zeros() / 8).min(7);
        self.put_word((digits | ZEROS) >> (8 * zeros), 8 - zeros as usize);
    }

    /// Puts the lowest bytes of a word. All are written, as that takes no call: those behind do not count.
    #[inline]
    fn put_word(&mut self, word: u64, length: usize) {
        self.out[self.length..self.length + 8].copy_from_slice(&word.to_le_bytes());
        self.length += length;
    }

    fn push(&mut self, byte: u8) {
        self.out[self.length] = byte;
        self.length += 1;
    }

    fn put(&mut self, bytes: &[u8]) {
        self.out[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

/// Digits without zeros at either end.
struct Digits {
    bytes: [u8; 24],
    length: usize,
}

impl Digits {
    fn push(&mut self, digit: u8) {
        self.bytes[self.length] = digit;
        self.length += 1;
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The digits of a positive number that is written in whatever way, and how many of them are before the point (fewer than
/// none: zeros follow it).
fn digits_of(number: &str) -> (Digits, i32) {
    let mut digits = Digits { bytes: [0; 24], length: 0 };
    let (mut point, mut is_behind, mut zeros) = (0, false, 0);
    let (number, exponent) = number.split_once('e').unwrap_or((number, "0"));
    for byte in number.bytes() {
        match byte {
            b'.' => is_behind = true,
            b'0' if digits.length == 0 => point -= i32::from(is_behind),
            b'0' => {
                zeros += 1;
                point += i32::from(!is_behind);
            }
            digit => {
                (0..zeros).for_each(|_| digits.push(b'0'));
                zeros = 0;
                digits.push(digit);
                point += i32::from(!is_behind);
            }
        }
    }
    (digits, point + exponent.parse::<i32>().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(value: f64) -> String {
        let mut out = [0; MAX_BYTES];
        let length = write(value, &mut out);
        String::from_utf8_lossy(&out[..length]).into_owned()
    }

    #[test]
    fn as_the_server_writes_them() {
        let texts = [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-120.0, "-120"),
            (0.1, "0.1"),
            (-1.0 / 3.0, "-0.3333333333333333"),
            (100.05, "100.05"),
            (1e14, "100000000000000"),
            (123_456_789_012_345.0, "123456789012345"),
            (1e15, "1e15"),
            (1.5e15, "1.5e15"),
            (1_234_567_890_123_456.7, "1234567890123456.8"),
            (1_234_567_890_123_456.0, "1.234567890123456e15"),
            (1_126_437_192_529_674.2, "1126437192529674.2"),
            (1_126_437_192_529_674.8, "1126437192529674.8"),
            (1e-15, "0.000000000000001"),
            (0.001, "0.001"),
            (-0.0004, "-0.0004"),
            (99_999_999_999.999, "99999999999.999"),
            (-100_000_000_000.5, "-100000000000.5"),
            (7.25, "7.25"),
            (1000.1, "1000.1"),
            (1.25e-15, "0.00000000000000125"),
            (1e-16, "1e-16"),
            (-2.5e-16, "-2.5e-16"),
            (f64::MAX, "1.7976931348623157e308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (5e-324, "5e-324"),
        ];
        for (value, expected) in texts {
            assert_eq!(text(value), expected);
        }
    }

    #[test]
    fn integers_as_everybody_writes_them() {
        for value in [0, 1, -1, 9, 10, -10, 1_700_000_100, i64::MAX, i64::MIN] {
            let mut out = [0; MAX_BYTES];
            let length = write_integer(value.unsigned_abs(), value < 0, &mut out);
            assert_eq!(String::from_utf8_lossy(&out[..length]), value.to_string());
        }
        let mut out = [0; MAX_BYTES];
        let length = write_integer(u64::MAX, false, &mut out);
        assert_eq!(String::from_utf8_lossy(&out[..length]), u64::MAX.to_string());
    }

    #[test]
    fn all_thousandths_up_to_a_hundred_and_some_more_are_written() {
        let some =
            (0..100_000).chain((100_000..EIGHT).step_by(99_991)).chain([EIGHT - 1, EIGHT, EIGHT + 1, 99_999_999_999]);
        for thousandths in some {
            let value = thousandths as f64 / 1000.0;
            assert_eq!(text(-value), if thousandths == 0 { "0".into() } else { format!("-{value}") });
            let mut out = [0; MAX_BYTES];
            let length = write_integer(thousandths, false, &mut out);
            assert_eq!(String::from_utf8_lossy(&out[..length]), thousandths.to_string());
        }
    }

    proptest! {
        #[test]
        fn the_digits_are_the_fewest_and_nearest(bits: u64, scaled in -1_000_000_000i64..1_000_000_000, by in 1u32..10_000) {
            let values = [f64::from_bits(bits), scaled as f64 / 100.0, scaled as f64 / f64::from(by), (bits >> (by % 60)) as f64];
            for value in values {
                if value.is_finite() {
                    let of_std = format!("{value:e}");
                    let (digits, point) = digits_of(&text(value.abs()));
                    let (wanted, at) = digits_of(of_std.trim_start_matches('-'));
                    // Where two are as near, the server has the even one.
                    let (last, others) = digits.as_slice().split_last().map_or((0, &[][..]), |(last, others)| (*last, others));
                    let is_even = last % 2 == 0 && wanted.as_slice().starts_with(others) && digits.length == wanted.length;
                    prop_assert!(digits.as_slice() == wanted.as_slice() || is_even, "{}", of_std);
                    prop_assert_eq!(point, at, "{}", of_std);
                    prop_assert_eq!(text(value).parse::<f64>(), Ok(value));
                }
            }
        }
    }
}
