//! The wall around every export: panics are stopped, missing pointers are errors.
//!
//! A panic means that some state may be half changed. It becomes an internal error, and from then on every call
//! but closing fails with that error, so that nothing is built on the broken state; the log holds all that was
//! acknowledged, so a restart recovers.
//!
//! What callers promise of pointers is in `abi.rs`; what can be checked of it is checked here.

use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use crate::abi::{self, RrdError};
use crate::status::{Failure, Outcome};

static BROKEN: OnceLock<String> = OnceLock::new();

/// Why the engine stopped, if it did.
pub fn broken() -> Option<&'static str> {
    BROKEN.get().map(String::as_str)
}

/// Runs the body of an export.
#[inline]
pub fn guard(error: Option<&mut MaybeUninit<RrdError>>, body: impl FnOnce() -> Outcome<()>) -> i32 {
    match run(body) {
        Ok(()) => abi::RRD_OK,
        Err(failure) => report(error, &failure),
    }
}

/// Runs the body of an export that gives its answer as it is: `otherwise` if there is none.
#[inline]
pub fn guard_value<T>(otherwise: T, body: impl FnOnce() -> Outcome<T>) -> T {
    run(body).unwrap_or(otherwise)
}

/// Runs the body of an export that gives things back and cannot fail; a panic leaks instead of crossing.
pub fn guard_close(body: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
        break_down(&*panic);
    }
}

#[inline]
fn run<T>(body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    match BROKEN.get() {
        None => catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(break_down(&*panic))),
        Some(reason) => Err(stopped(reason)),
    }
}

/// A pointer that must be there.
#[inline]
pub fn get<P>(pointer: Option<P>) -> Outcome<P> {
    pointer.ok_or_else(null)
}

/// Puts an answer where the caller wants it.
#[inline]
pub fn put<T>(place: Option<&mut MaybeUninit<T>>, answer: T) -> Outcome<()> {
    get(place)?.write(answer);
    Ok(())
}

/// A slice of the caller's. An empty one may come with any pointer; a null pointer, one that is not aligned, and a length that
/// no memory has are errors.
///
/// # Safety
/// The pointer and the length are of one argument that the rule `arrays`, `records` or `images` of `abi.rs` is for, and `'a` ends with
/// the call.
#[inline]
pub unsafe fn slice<'a, T>(pointer: *const T, length: usize) -> Outcome<&'a [T]> {
    if length == 0 {
        return Ok(&[]);
    }
    check(pointer, length)?;
    // SAFETY: the pointer is not null, is aligned, and the bytes are no more than `isize::MAX`: checked above. By the rule the pointer is
    // to `length` values in one piece of memory, which nobody changes before the call ends.
    Ok(unsafe { std::slice::from_raw_parts(pointer, length) })
}

/// As [`slice`], to be written. It need not be initialised if `T` is a [`MaybeUninit`].
///
/// # Safety
/// As for [`slice`]; nothing else in the call is in the same memory.
#[inline]
pub unsafe fn slice_mut<'a, T>(pointer: *mut T, length: usize) -> Outcome<&'a mut [T]> {
    if length == 0 {
        return Ok(&mut []);
    }
    check(pointer, length)?;
    // SAFETY: as in `slice`; nobody else reads it or writes to it before the call ends, as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, length) })
}

#[inline]
fn check<T>(pointer: *const T, length: usize) -> Outcome<()> {
    let is_possible = length.checked_mul(size_of::<T>()).is_some_and(|bytes| bytes <= isize::MAX as usize);
    match pointer.is_null() {
        true => Err(null()),
        false if !pointer.is_aligned() || !is_possible => Err(bad_slice()),
        false => Ok(()),
    }
}

#[cold]
fn bad_slice() -> Failure {
    Failure::internal("internal error: an impossible length or address came over the ABI")
}

#[cold]
fn null() -> Failure {
    Failure::internal("internal error: a null pointer came over the ABI")
}

fn stopped(reason: &str) -> Failure {
    Failure::internal(format!("the engine stopped after an internal error ({reason}); restart the server"))
}

#[cold]
fn break_down(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "panic".to_owned(),
    };
    stopped(BROKEN.get_or_init(|| text))
}

#[cold]
fn report(error: Option<&mut MaybeUninit<RrdError>>, failure: &Failure) -> i32 {
    if let Some(out) = error {
        failure.write(out);
    }
    failure.status()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_refused_that_no_memory_can_hold() {
        let values = [1u64, 2];
        // SAFETY: none of these pointers is followed.
        let refused = unsafe {
            [
                slice(std::ptr::null::<u64>(), 1).is_err(),
                slice(values.as_ptr(), usize::MAX / 4).is_err(),
                slice(values.as_ptr().wrapping_byte_add(1), 1).is_err(),
                slice_mut(std::ptr::null_mut::<u8>(), 1).is_err(),
            ]
        };
        assert_eq!(refused, [true; 4]);
        // SAFETY: there are two values.
        assert!(unsafe { slice(values.as_ptr(), 2) }.is_ok_and(|found| found == values));
        // SAFETY: nothing is read.
        assert!(unsafe { slice(std::ptr::null::<u64>(), 0) }.is_ok_and(<[u64]>::is_empty));
    }
}
