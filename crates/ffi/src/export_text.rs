//! Exports for rows that are sent to a client as text.

use crate::abi::{self, RrdTextColumn};
use crate::field::read_le;
use crate::guard::guard_close;
use crate::number_text::{self, MAX_BYTES};

/// What stands for NULL instead of the length of a text.
const NULL: u8 = 251;

/// Writes a finite double as the server sends it and returns the length of the text; 0 if there is no place for it.
///
/// # Safety
/// `text` is null or has room for 40 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_double_text(value: f64, text: *mut [u8; 40]) -> usize {
    let mut length = 0;
    if !text.is_null() {
        guard_close(|| {
            let mut own = [0; MAX_BYTES];
            length = number_text::write(value, &mut own);
            // SAFETY: `length` bytes of `own` are written, to room for `MAX_BYTES`, which need not be initialised: no reference is
            // made to it. `own` is a local variable, so the two do not overlap.
            unsafe { text.cast::<u8>().copy_from_nonoverlapping(own.as_ptr(), length) };
        });
    }
    length
}

/// Writes numbers of a record as the server sends them in the text protocol, each behind the byte of its length, and returns the
/// length of all; 0 if the server has to do it, as one of them is no finite number.
///
/// # Safety
/// `columns` points to `count` columns, those point to values of the length that they tell and to their bytes of nulls, and
/// `text` has room for 41 bytes of each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_row_text(columns: *const RrdTextColumn, count: usize, text: *mut u8) -> usize {
    let mut length = 0;
    if !columns.is_null() && !text.is_null() {
        guard_close(|| {
            // SAFETY: promised by the caller.
            let columns = unsafe { std::slice::from_raw_parts(columns, count) };
            // SAFETY: as well.
            length = unsafe { row_text(columns, text) }.unwrap_or(0);
        });
    }
    length
}

/// # Safety
/// As of [`rrd_row_text`].
unsafe fn row_text(columns: &[RrdTextColumn], text: *mut u8) -> Option<usize> {
    let mut length = 0;
    // A text is made here and then copied: the other side's memory need not be initialised, so no reference is made to it.
    let mut own = [0; 1 + MAX_BYTES];
    for column in columns {
        let [size, out @ ..] = &mut own;
        // SAFETY: promised by the caller.
        if !column.null_byte.is_null() && unsafe { *column.null_byte } & column.null_bit != 0 {
            // SAFETY: each column before this one took 1 + MAX_BYTES at most, so there is room for as many.
            unsafe { text.add(length).write(NULL) };
            length += 1;
            continue;
        }
        // SAFETY: promised by the caller.
        let bytes = unsafe { std::slice::from_raw_parts(column.value, column.pack_length.into()) };
        let bits = read_le(bytes, column.pack_length);
        let written = if column.kind == abi::RRD_KIND_DOUBLE {
            let value = f64::from_bits(bits);
            if !value.is_finite() {
                return None;
            }
            number_text::write(value, out)
        } else {
            let unused = 64 - 8 * u32::from(column.pack_length);
            let signed = ((bits << unused) as i64) >> unused;
            let is_negative = column.is_signed != 0 && signed < 0;
            number_text::write_integer(if is_negative { signed.unsigned_abs() } else { bits }, is_negative, out)
        };
        *size = written as u8;
        // SAFETY: as above; `own` has these bytes and is a local variable, so the two do not overlap.
        unsafe { text.add(length).copy_from_nonoverlapping(own.as_ptr(), 1 + written) };
        length += 1 + written;
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of integers (signed or not) and doubles; the fourth bit of the byte beside each says that it is NULL.
    fn text_of(numbers: &[(&[u8], abi::RrdKind, bool, Option<u8>)]) -> Vec<u8> {
        let column = |(bytes, kind, is_signed, null): &(&[u8], _, _, Option<u8>)| RrdTextColumn {
            value: bytes.as_ptr(),
            null_byte: null.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
            null_bit: 8,
            kind: *kind,
            is_signed: u8::from(*is_signed),
            pack_length: bytes.len() as u8,
        };
        let columns: Vec<_> = numbers.iter().map(column).collect();
        let mut text = vec![0; columns.len() * (1 + MAX_BYTES)];
        // SAFETY: values and null bytes are borrowed for as long as the call takes, and there is room.
        let length = unsafe { rrd_row_text(columns.as_ptr(), columns.len(), text.as_mut_ptr()) };
        text.truncate(length);
        text
    }

    const INTEGER: abi::RrdKind = abi::RRD_KIND_INTEGER;
    const DOUBLE: abi::RrdKind = abi::RRD_KIND_DOUBLE;

    #[test]
    fn each_number_is_behind_its_length_and_null_is_a_byte() {
        let text = text_of(&[
            (&1_700_000_100u32.to_le_bytes(), INTEGER, false, None),
            (&(-7i32).to_le_bytes()[..3], INTEGER, true, Some(7)),
            (&u64::MAX.to_le_bytes(), INTEGER, false, Some(7)),
            (&i64::MIN.to_le_bytes(), INTEGER, true, Some(7)),
            (&[200], INTEGER, false, None),
            (&[200], INTEGER, true, Some(8)),
            (&(-21.37f64).to_le_bytes(), DOUBLE, false, Some(7)),
            (&f64::MIN_POSITIVE.to_le_bytes(), DOUBLE, false, Some(7)),
        ]);
        let expected =
            b"\x0a1700000100\x02-7\x1418446744073709551615\x14-9223372036854775808\x03200\xfb\x06-21.37\x172.2250738585072014e-308";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_no_number_is_left_to_the_server() {
        assert_eq!(text_of(&[(&[1], INTEGER, false, None), (&f64::NAN.to_le_bytes(), DOUBLE, false, None)]), b"");
    }
}
