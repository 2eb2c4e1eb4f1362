//! The wall around every export: pointers are checked, panics are stopped.
//!
//! A panic means that some state may be half changed. It becomes an internal error, and from then on every call
//! but closing fails with that error, so that nothing is built on the broken state; the log holds all that was
//! acknowledged, so a restart recovers.

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
///
/// # Safety
/// `error` is null or points to a struct that this call may write.
#[inline]
pub unsafe fn guard(error: *mut RrdError, body: impl FnOnce() -> Outcome<()>) -> i32 {
    let outcome = match BROKEN.get() {
        None => catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(break_down(&*panic))),
        Some(reason) => Err(stopped(reason)),
    };
    match outcome {
        Ok(()) => abi::RRD_OK,
        // SAFETY: promised by the caller.
        Err(failure) => unsafe { report(error, &failure) },
    }
}

/// Runs the body of an export that gives things back and cannot fail; a panic leaks instead of crossing.
pub fn guard_close(body: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
        break_down(&*panic);
    }
}

/// A reference from a pointer of the other side.
///
/// # Safety
/// `pointer` is null or points to a valid `T` that nobody changes for `'a`.
pub unsafe fn get<'a, T>(pointer: *const T) -> Outcome<&'a T> {
    // SAFETY: promised by the caller.
    unsafe { pointer.as_ref() }.ok_or_else(null)
}

/// A mutable reference from a pointer of the other side.
///
/// # Safety
/// `pointer` is null or points to a valid `T` that nobody else uses for `'a`.
pub unsafe fn get_mut<'a, T>(pointer: *mut T) -> Outcome<&'a mut T> {
    // SAFETY: promised by the caller.
    unsafe { pointer.as_mut() }.ok_or_else(null)
}

/// A slice from a pointer and a length; an empty one may come with any pointer.
///
/// # Safety
/// Unless `length` is 0, `pointer` is null or points to `length` valid items that nobody changes for `'a`.
pub unsafe fn slice<'a, T>(pointer: *const T, length: usize) -> Outcome<&'a [T]> {
    match (length, pointer.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(null()),
        // SAFETY: promised by the caller.
        _ => Ok(unsafe { std::slice::from_raw_parts(pointer, length) }),
    }
}

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
unsafe fn report(error: *mut RrdError, failure: &Failure) -> i32 {
    // SAFETY: promised by the caller of `guard`.
    if let Some(out) = unsafe { error.as_mut() } {
        failure.write(out);
    }
    failure.status()
}
