//! Exports for rows that are sent to a client as text.

use std::mem::MaybeUninit;

use crate::abi::{self, RrdTextColumn};
use crate::field::read_le;
use crate::guard::{guard_value, put, slice, slice_mut};
use crate::number_text::{self, MAX_BYTES};
use crate::status::Outcome;

/// What stands for NULL instead of the length of a text.
const NULL: u8 = 251;

/// Writes a finite double as the server sends it and returns the length of the text; 0 if there is no place for it.
///
/// # Safety
/// Rule `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_double_text(value: f64, text: Option<&mut MaybeUninit<[u8; 40]>>) -> usize {
    guard_value(0, || {
        let mut own = [0; MAX_BYTES];
        let length = number_text::write(value, &mut own);
        put(text, own)?;
        Ok(length)
    })
}

/// Writes numbers of a record as the server sends them in the text protocol, each behind the byte of its length, and returns the
/// length of all; 0 if the server has to do it, as one of them is no finite number. `text` has room for `capacity` bytes; there must
/// be `RRD_TEXT_BYTES` for each column.
///
/// # Safety
/// Rule `arrays` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_row_text(
    columns: *const RrdTextColumn<'_>,
    count: usize,
    text: *mut u8,
    capacity: usize,
) -> usize {
    guard_value(0, || {
        // SAFETY: rule `arrays`: there are `count` columns.
        let columns = unsafe { slice(columns, count)? };
        // SAFETY: rule `answers`: there are `capacity` bytes, initialised or not, that nothing else is in.
        let text = unsafe { slice_mut(text.cast::<MaybeUninit<u8>>(), capacity)? };
        // SAFETY: rule `arrays` for the values of the columns.
        Ok(unsafe { row_text(columns, text)? }.unwrap_or(0))
    })
}

/// # Safety
/// The rule `arrays` for the values of the columns.
unsafe fn row_text(columns: &[RrdTextColumn<'_>], text: &mut [MaybeUninit<u8>]) -> Outcome<Option<usize>> {
    if text.len() / abi::RRD_TEXT_BYTES < columns.len() {
        return Ok(None);
    }
    let mut length = 0;
    let mut own = [0; abi::RRD_TEXT_BYTES];
    for column in columns {
        let bytes = if column.null_byte.is_some_and(|byte| byte & column.null_bit != 0) {
            own[0] = NULL;
            1
        } else {
            // SAFETY: rule `arrays`: a value has `pack_length` bytes.
            let value = unsafe { slice(column.value, column.pack_length.into())? };
            match number_behind_length(column, value, &mut own) {
                Some(bytes) => bytes,
                None => return Ok(None),
            }
        };
        text[length..][..bytes].iter_mut().zip(own).for_each(|(to, from)| _ = to.write(from));
        length += bytes;
    }
    Ok(Some(length))
}

/// Returns how many bytes were written.
fn number_behind_length(
    column: &RrdTextColumn<'_>,
    value: &[u8],
    own: &mut [u8; abi::RRD_TEXT_BYTES],
) -> Option<usize> {
    let width = column.pack_length;
    let [size, out @ ..] = own;
    let written = match column.kind {
        abi::RRD_KIND_DOUBLE if width == 8 => {
            let value = f64::from_bits(read_le(value, width));
            if !value.is_finite() {
                return None;
            }
            number_text::write(value, out)
        }
        abi::RRD_KIND_INTEGER if (1..=8).contains(&width) => {
            let bits = read_le(value, width);
            let unused = 64 - 8 * u32::from(width);
            let signed = ((bits << unused) as i64) >> unused;
            let is_negative = column.is_signed != 0 && signed < 0;
            number_text::write_integer(if is_negative { signed.unsigned_abs() } else { bits }, is_negative, out)
        }
        _ => return None,
    };
    *size = written as u8;
    Some(1 + written)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Number<'a> = (&'a [u8], abi::RrdKind, bool, Option<u8>);

    fn column_of<'a>((bytes, kind, is_signed, null): &'a Number<'a>) -> RrdTextColumn<'a> {
        RrdTextColumn {
            value: bytes.as_ptr(),
            null_byte: null.as_ref(),
            null_bit: 8,
            kind: *kind,
            is_signed: u8::from(*is_signed),
            pack_length: bytes.len() as u8,
        }
    }

    /// The text of integers (signed or not) and doubles; the fourth bit of the byte beside each says that it is NULL.
    fn text_of(numbers: &[Number<'_>]) -> Vec<u8> {
        let columns: Vec<_> = numbers.iter().map(column_of).collect();
        let mut text = vec![0; columns.len() * abi::RRD_TEXT_BYTES];
        // SAFETY: columns and text are slices; values and null bytes live as long as `numbers`.
        let length = unsafe { rrd_row_text(columns.as_ptr(), columns.len(), text.as_mut_ptr(), text.len()) };
        // SAFETY: as above. There is a byte too little.
        let cut = unsafe { rrd_row_text(columns.as_ptr(), columns.len(), text.as_mut_ptr(), text.len() - 1) };
        assert_eq!(cut, 0, "no room is told");
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
        assert_eq!(text_of(&[(&[1; 9], INTEGER, true, None)]), b"", "of a width that no integer has");
        assert_eq!(text_of(&[(&[1; 4], DOUBLE, true, None)]), b"");
        assert_eq!(text_of(&[(&[1; 8], abi::RRD_KIND_BLOB, true, None)]), b"");
    }
}
