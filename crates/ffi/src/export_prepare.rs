//! C functions of two-phase commit. An XID is opaque bytes here: the server's side packs and unpacks it.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use crate::abi::{self, RrdError, RrdText, RrdTextFn, RrdWaitFn, texts_to};
use crate::export_engine::RrdEngine;
use crate::export_session::RrdSession;
use crate::guard::{get, guard};
use crate::status::{Failure, Outcome};

fn xid_bytes<'a>(xid: Option<&RrdText<'a>>) -> Outcome<&'a [u8]> {
    get(xid)?.bytes().ok_or_else(|| Failure::internal("no XID"))
}

fn found(is_there: bool) -> Outcome<()> {
    if is_there { Ok(()) } else { Err(Failure::Outcome(abi::RRD_NOT_FOUND)) }
}

/// What of the first phase can be refused, for a coordinator that writes down the first phase before it asks for it:
/// `rrd_session_prepare` or `rrd_session_rollback` comes next. On an error everything is undone.
///
/// # Safety
/// Rules `handles`, `answers`, `arrays` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_session_reserve(
    session: Option<&mut RrdSession>,
    xid: Option<&RrdText<'_>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || get(session)?.session.reserve(xid_bytes(xid)?))
}

/// First phase: the session's work is durable and cannot be refused any more. On an error everything is undone. `stays` tells that
/// it may be long until the second phase: there is a limit to the memory of all such transactions.
///
/// # Safety
/// Rules `handles`, `answers`, `arrays` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_session_prepare(
    session: Option<&mut RrdSession>,
    xid: Option<&RrdText<'_>>,
    stays: bool,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || get(session)?.session.prepare(xid_bytes(xid)?, stays))
}

/// Gives a prepared session its place in the order of commits; `rrd_session_commit` finishes it. May be called from
/// another thread than the session's, which must be waiting meanwhile.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`. Another thread than the session's may call while that one waits for it.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_session_order_commit(
    session: Option<&mut RrdSession>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || Ok(get(session)?.session.txn().order_commit()?))
}

/// When it returns, no commit that was ordered so far needs the coordinator's log after a crash.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_engine_checkpoint(engine: Option<&RrdEngine>, error: Option<&mut MaybeUninit<RrdError>>) -> i32 {
    guard(error, || Ok(get(engine)?.engine.checkpoint()?))
}

/// Reports from now on which connection waits for which.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`. `report` is null, or any thread may call it with connections that have a
/// session, until the engine is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_engine_report_waits(
    engine: Option<&RrdEngine>,
    report: RrdWaitFn,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let engine = get(engine)?;
        // SAFETY: the caller lets any thread call it until the engine is closed.
        unsafe { engine.connections.report_waits(&engine.engine, report) };
        Ok(())
    })
}

/// Second phase for a transaction whose connection is gone: commits it. `RRD_NOT_FOUND` if there is none.
///
/// # Safety
/// Rules `handles`, `answers`, `arrays` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_engine_commit_prepared(
    engine: Option<&RrdEngine>,
    xid: Option<&RrdText<'_>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || found(get(engine)?.engine.commit_prepared(xid_bytes(xid)?)?))
}

/// Second phase for a transaction whose connection is gone: undoes it. `RRD_NOT_FOUND` if there is none.
///
/// # Safety
/// Rules `handles`, `answers`, `arrays` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_engine_rollback_prepared(
    engine: Option<&RrdEngine>,
    xid: Option<&RrdText<'_>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || found(get(engine)?.engine.rollback_prepared(xid_bytes(xid)?)?))
}

/// Calls `take` with the XIDs of the next prepared transactions, `most` at most. `position` is 0 at the first call and says where to
/// go on at the next one; they may be decided in between.
///
/// # Safety
/// Rules `handles`, `answers` and `callbacks` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_engine_prepared(
    engine: Option<&RrdEngine>,
    position: Option<&mut u64>,
    most: u64,
    take: RrdTextFn,
    context: *mut c_void,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        // SAFETY: rule `callbacks`; it is used before the call ends.
        let mut tell = unsafe { texts_to(Some(get(take)?), context) };
        let position = get(position)?;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        for (number, xid) in get(engine)?.engine.prepared_after(position.checked_sub(1), most) {
            tell(&xid);
            *position = number + 1;
        }
        Ok(())
    })
}
