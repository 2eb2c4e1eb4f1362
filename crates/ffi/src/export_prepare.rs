//! C functions of two-phase commit. An XID is opaque bytes here: the server's side packs and unpacks it.

use std::ffi::{c_char, c_void};

use crate::abi::{self, RrdError, RrdText, RrdTextFn, RrdWaitFn};
use crate::export_engine::RrdEngine;
use crate::export_session::RrdSession;
use crate::guard::{get, get_mut, guard};
use crate::status::{Failure, Outcome};

fn xid_bytes(xid: &RrdText) -> Outcome<&[u8]> {
    // SAFETY: the caller's text is as long as it says.
    unsafe { xid.bytes() }.ok_or_else(|| Failure::internal("no XID"))
}

fn found(is_there: bool) -> Outcome<()> {
    if is_there { Ok(()) } else { Err(Failure::Outcome(abi::RRD_NOT_FOUND)) }
}

/// What of the first phase can be refused, for a coordinator that writes down the first phase before it asks for it:
/// `rrd_session_prepare` or `rrd_session_rollback` comes next. On an error everything is undone.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_reserve(
    session: *mut RrdSession,
    xid: *const RrdText,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe { guard(error, || get_mut(session)?.session.reserve(xid_bytes(get(xid)?)?)) }
}

/// First phase: the session's work is durable and cannot be refused any more. On an error everything is undone. `stays` tells that
/// it may be long until the second phase: there is a limit to the memory of all such transactions.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_prepare(
    session: *mut RrdSession,
    xid: *const RrdText,
    stays: bool,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe { guard(error, || get_mut(session)?.session.prepare(xid_bytes(get(xid)?)?, stays)) }
}

/// Gives a prepared session its place in the order of commits; `rrd_session_commit` finishes it. May be called from
/// another thread than the session's, which must be waiting meanwhile.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_order_commit(session: *mut RrdSession, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe { guard(error, || Ok(get_mut(session)?.session.txn().order_commit()?)) }
}

/// When it returns, no commit that was ordered so far needs the coordinator's log after a crash.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_engine_checkpoint(engine: *const RrdEngine, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe { guard(error, || Ok(get(engine)?.engine.checkpoint()?)) }
}

/// Reports from now on which connection waits for which.
///
/// # Safety
/// `engine` is null or valid; `report` may be called from any thread until the engine is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_engine_report_waits(
    engine: *const RrdEngine,
    report: RrdWaitFn,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let engine = get(engine)?;
            engine.connections.report_waits(&engine.engine, report);
            Ok(())
        })
    }
}

/// Second phase for a transaction whose connection is gone: commits it. `RRD_NOT_FOUND` if there is none.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_engine_commit_prepared(
    engine: *const RrdEngine,
    xid: *const RrdText,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe { guard(error, || found(get(engine)?.engine.commit_prepared(xid_bytes(get(xid)?)?)?)) }
}

/// Second phase for a transaction whose connection is gone: undoes it. `RRD_NOT_FOUND` if there is none.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_engine_rollback_prepared(
    engine: *const RrdEngine,
    xid: *const RrdText,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe { guard(error, || found(get(engine)?.engine.rollback_prepared(xid_bytes(get(xid)?)?)?)) }
}

/// Calls `take` with the XIDs of the next prepared transactions, `most` at most. `position` is 0 at the first call and says where to
/// go on at the next one; they may be decided in between.
///
/// # Safety
/// Pointers are null or valid; `take` may be called with `context` during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_engine_prepared(
    engine: *const RrdEngine,
    position: *mut u64,
    most: u64,
    take: RrdTextFn,
    context: *mut c_void,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller, in the whole body.
    unsafe {
        guard(error, || {
            let take = take.ok_or_else(|| Failure::internal("no callback"))?;
            let position = get_mut(position)?;
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            for (number, xid) in get(engine)?.engine.prepared_after(position.checked_sub(1), most) {
                take(context, xid.as_ptr().cast::<c_char>(), xid.len());
                *position = number + 1;
            }
            Ok(())
        })
    }
}
