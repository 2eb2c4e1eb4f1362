//! C functions behind SQL's own functions: time_bucket, rrd_delta, rrd_rate.

use rrd_consolidate::Value;

use crate::abi::{self, RrdError, RrdText};
use crate::counter::{Counter, MAX_READINGS};
use crate::guard::{get, get_mut, guard, guard_close, slice};
use crate::options::source_type;
use crate::status::{Failure, Outcome};
use crate::time_bucket::RrdBucket;

/// The readings of a group.
pub struct RrdCounter {
    counter: Counter,
}

/// What a reading's number is.
pub type RrdNumberKind = u32;
/// NULL: unknown.
pub const RRD_NUMBER_NULL: RrdNumberKind = 0;
/// An unsigned integer.
pub const RRD_NUMBER_UNSIGNED: RrdNumberKind = 1;
/// A signed integer, its bits.
pub const RRD_NUMBER_SIGNED: RrdNumberKind = 2;
/// A double, its bits.
pub const RRD_NUMBER_DOUBLE: RrdNumberKind = 3;

/// A text of the caller's.
///
/// # Safety
/// The text is valid for `'a`.
unsafe fn text<'a>(text: RrdText) -> Outcome<std::borrow::Cow<'a, str>> {
    // SAFETY: promised by the caller.
    Ok(String::from_utf8_lossy(unsafe { slice(text.data.cast(), text.length)? }))
}

/// The buckets of `time_bucket(width, ..)`: of `units` (as many as a second has `per_second` of) or, if `width` is
/// not none, of what that text says.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_bucket_of(
    units: i64,
    width: RrdText,
    per_second: i64,
    out: *mut RrdBucket,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let (bucket, given) = if width.data.is_null() {
                (RrdBucket::of_units(units, per_second), units.to_string())
            } else {
                let width = text(width)?;
                (RrdBucket::of_text(&width, per_second), format!("'{width}'"))
            };
            *get_mut(out)? = bucket.ok_or_else(|| {
                Failure::invalid(format!(
                    "time_bucket: width {given} cannot be understood; write '5m', '1 DAY', '1w', '1mo' or a whole number \
                     from 1 on"
                ))
            })?;
            Ok(())
        })
    }
}

/// Moves the buckets by the text of a length of time; `RRD_NOT_FOUND` if it is none.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_bucket_move(bucket: *mut RrdBucket, offset: RrdText, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || match get_mut(bucket)?.move_by(&text(offset)?) {
            true => Ok(()),
            false => Err(Failure::Outcome(abi::RRD_NOT_FOUND)),
        })
    }
}

/// Moves the buckets by units of time.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_bucket_move_units(bucket: *mut RrdBucket, units: i64, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || match get_mut(bucket)?.move_by_units(units) {
            true => Ok(()),
            false => Err(Failure::invalid("time_bucket: the offset is out of range")),
        })
    }
}

/// Moves the buckets so that one of them starts at a time.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_bucket_start_at(bucket: *mut RrdBucket, origin: i64, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            get_mut(bucket)?.start_at(origin);
            Ok(())
        })
    }
}

/// The start of the bucket that a time is in. Time and start are unsigned integers if `is_unsigned`. `RRD_LIMIT` if the
/// start is out of their range.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_bucket_start(
    bucket: *const RrdBucket,
    time: i64,
    is_unsigned: bool,
    out: *mut i64,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let bucket = get(bucket)?;
            let start = match is_unsigned {
                true => u64::try_from(bucket.start_of((time as u64).into())).map(|start| start as i64),
                false => i64::try_from(bucket.start_of(time.into())),
            };
            *get_mut(out)? = start.map_err(|_| Failure::Outcome(abi::RRD_LIMIT))?;
            Ok(())
        })
    }
}

/// A group without readings; `kind` is a data source type as rrdcreate(1) names them. Close it by
/// `rrd_counter_close`.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_counter_open(kind: RrdText, out: *mut *mut RrdCounter, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let kind = text(kind)?;
            let known = source_type(&kind).ok_or_else(|| {
                Failure::invalid(format!(
                    "'{kind}' is no data source type; write 'COUNTER', 'DERIVE', 'DCOUNTER', 'DDERIVE', 'ABSOLUTE' or \
                     'GAUGE'"
                ))
            })?;
            *get_mut(out)? = Box::into_raw(Box::new(RrdCounter { counter: Counter::new(known) }));
            Ok(())
        })
    }
}

/// Begins a new group.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_counter_clear(counter: *mut RrdCounter, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            get_mut(counter)?.counter.clear();
            Ok(())
        })
    }
}

/// Takes a reading, in any order.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_counter_add(
    counter: *mut RrdCounter,
    time_us: i64,
    kind: RrdNumberKind,
    bits: u64,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let value = match kind {
                RRD_NUMBER_UNSIGNED => Some(Value::Unsigned(bits)),
                RRD_NUMBER_SIGNED => Some(Value::Signed(bits as i64)),
                RRD_NUMBER_DOUBLE => Some(Value::Double(f64::from_bits(bits))),
                _ => None,
            };
            match get_mut(counter)?.counter.add(time_us, value) {
                true => Ok(()),
                false => Err(Failure::invalid(format!(
                    "rrd_delta and rrd_rate take {MAX_READINGS} rows of a group at most; GROUP BY time_bucket() too"
                ))),
            }
        })
    }
}

/// What was counted in the group, and in how many seconds; `RRD_NOT_FOUND` if nothing is known.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_counter_result(
    counter: *mut RrdCounter,
    amount: *mut f64,
    seconds: *mut f64,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let counted = get_mut(counter)?.counter.counted().ok_or(Failure::Outcome(abi::RRD_NOT_FOUND))?;
            *get_mut(amount)? = counted.amount;
            *get_mut(seconds)? = counted.seconds;
            Ok(())
        })
    }
}

/// Gives a group back; null is none.
///
/// # Safety
/// `counter` is null or came from `rrd_counter_open` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_counter_close(counter: *mut RrdCounter) {
    guard_close(|| {
        if !counter.is_null() {
            // SAFETY: promised by the caller.
            drop(unsafe { Box::from_raw(counter) });
        }
    });
}
