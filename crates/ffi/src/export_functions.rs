//! C functions behind SQL's own functions: time_bucket, rrd_delta, rrd_rate.

use rrd_consolidate::Value;
use std::mem::MaybeUninit;

use crate::abi::{self, RrdError, RrdText};
use crate::counter::{Counter, MAX_READINGS};
use crate::definition::read_text;
use crate::guard::{get, guard, guard_close, put};
use crate::options::source_type;
use crate::status::Failure;
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

/// The buckets of `time_bucket(width, ..)`: of `units` (as many as a second has `per_second` of) or, if `width` is
/// not none, of what that text says.
///
/// # Safety
/// Rules `answers` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_bucket_of(
    units: i64,
    width: RrdText<'_>,
    per_second: i64,
    out: Option<&mut MaybeUninit<RrdBucket>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let (bucket, given) = if width.bytes().is_none() {
            (RrdBucket::of_units(units, per_second), units.to_string())
        } else {
            let width = read_text(width);
            (RrdBucket::of_text(&width, per_second), format!("'{width}'"))
        };
        let bucket = bucket.ok_or_else(|| {
            Failure::invalid(format!(
                "time_bucket: width {given} cannot be understood; write '5m', '1 DAY', '1w', '1mo' or a whole number \
                     from 1 on"
            ))
        })?;
        put(out, bucket)
    })
}

/// Moves the buckets by the text of a length of time; `RRD_NOT_FOUND` if it is none.
///
/// # Safety
/// Rules `answers` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_bucket_move(
    bucket: Option<&mut RrdBucket>,
    offset: RrdText<'_>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || match get(bucket)?.move_by(&read_text(offset)) {
        true => Ok(()),
        false => Err(Failure::Outcome(abi::RRD_NOT_FOUND)),
    })
}

/// Moves the buckets by units of time.
///
/// # Safety
/// Rule `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_bucket_move_units(
    bucket: Option<&mut RrdBucket>,
    units: i64,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || match get(bucket)?.move_by_units(units) {
        true => Ok(()),
        false => Err(Failure::invalid("time_bucket: the offset is out of range")),
    })
}

/// Moves the buckets so that one of them starts at a time.
///
/// # Safety
/// Rule `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_bucket_start_at(
    bucket: Option<&mut RrdBucket>,
    origin: i64,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        get(bucket)?.start_at(origin);
        Ok(())
    })
}

/// The start of the bucket that a time is in. Time and start are unsigned integers if `is_unsigned`. `RRD_LIMIT` if the
/// start is out of their range.
///
/// # Safety
/// Rules `answers` and `arrays` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_bucket_start(
    bucket: Option<&RrdBucket>,
    time: i64,
    is_unsigned: bool,
    out: Option<&mut MaybeUninit<i64>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let bucket = get(bucket)?;
        let start = match is_unsigned {
            true => u64::try_from(bucket.start_of((time as u64).into())).map(|start| start as i64),
            false => i64::try_from(bucket.start_of(time.into())),
        };
        put(out, start.map_err(|_| Failure::Outcome(abi::RRD_LIMIT))?)
    })
}

/// A group without readings; `kind` is a data source type as rrdcreate(1) names them. Close it by
/// `rrd_counter_close`.
///
/// # Safety
/// Rules `handles`, `answers` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_counter_open(
    kind: RrdText<'_>,
    out: Option<&mut MaybeUninit<Option<Box<RrdCounter>>>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let kind = read_text(kind);
        let known = source_type(&kind).ok_or_else(|| {
            Failure::invalid(format!(
                "'{kind}' is no data source type; write 'COUNTER', 'DERIVE', 'DCOUNTER', 'DDERIVE', 'ABSOLUTE' or \
                     'GAUGE'"
            ))
        })?;
        put(out, Some(Box::new(RrdCounter { counter: Counter::new(known) })))
    })
}

/// Begins a new group.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_counter_clear(
    counter: Option<&mut RrdCounter>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        get(counter)?.counter.clear();
        Ok(())
    })
}

/// Takes a reading, in any order.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_counter_add(
    counter: Option<&mut RrdCounter>,
    time_us: i64,
    kind: RrdNumberKind,
    bits: u64,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let value = match kind {
            RRD_NUMBER_UNSIGNED => Some(Value::Unsigned(bits)),
            RRD_NUMBER_SIGNED => Some(Value::Signed(bits as i64)),
            RRD_NUMBER_DOUBLE => Some(Value::Double(f64::from_bits(bits))),
            _ => None,
        };
        match get(counter)?.counter.add(time_us, value) {
            true => Ok(()),
            false => Err(Failure::invalid(format!(
                "rrd_delta and rrd_rate take {MAX_READINGS} rows of a group at most; GROUP BY time_bucket() too"
            ))),
        }
    })
}

/// What was counted in the group, and in how many seconds; `RRD_NOT_FOUND` if nothing is known.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_counter_result(
    counter: Option<&mut RrdCounter>,
    amount: Option<&mut MaybeUninit<f64>>,
    seconds: Option<&mut MaybeUninit<f64>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let counted = get(counter)?.counter.counted().ok_or(Failure::Outcome(abi::RRD_NOT_FOUND))?;
        put(amount, counted.amount)?;
        put(seconds, counted.seconds)
    })
}

/// Gives a group back; null is none.
///
/// # Safety
/// Rule `handles` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_counter_close(counter: Option<Box<RrdCounter>>) {
    guard_close(|| drop(counter));
}
