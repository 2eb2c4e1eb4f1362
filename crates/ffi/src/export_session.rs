//! C functions of a connection: its transaction from the first statement to commit or rollback.

use std::ffi::c_void;

use rrd_store::TextUse;

use crate::abi::{RrdError, RrdIsolation, RrdKilledFn, RrdLocalTimeFn, RrdText};
use crate::definition::read_text;
use crate::export_engine::RrdEngine;
use crate::export_table::RrdTable;
use crate::guard::{get, get_mut, guard, guard_close};
use crate::session::{Connection, Session};

/// Is told the name of a table (as the engine has it: "database/table"), the options of its ring, how many rows were not stored,
/// and whether these are all that were written.
pub type RrdLossFn =
    Option<unsafe extern "C" fn(context: *mut c_void, table: RrdText, ring: RrdText, rows: u64, is_all: bool)>;

/// A connection's work.
pub struct RrdSession {
    pub(crate) session: Session,
}

/// Opens a session for a connection; `killed` is asked with `connection` during long work, `local_time` for the times in
/// texts of errors (without it they are UTC's), `connection_id` is what reports call it.
///
/// # Safety
/// Pointers are null or valid; the connection outlives the session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_open(
    engine: *const RrdEngine,
    connection: *mut c_void,
    connection_id: u64,
    killed: RrdKilledFn,
    local_time: RrdLocalTimeFn,
    out: *mut *mut RrdSession,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let engine = get(engine)?;
            let connection = Connection { pointer: connection, killed, local_time };
            let session = Session::new(&engine.engine, &engine.connections, connection, connection_id);
            *get_mut(out)? = Box::into_raw(Box::new(RrdSession { session }));
            Ok(())
        })
    }
}

/// The number to wake the session's waits with, see `rrd_engine_wake`; 0 without a session.
///
/// # Safety
/// `session` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_id(session: *mut RrdSession) -> u64 {
    let mut id = 0;
    // SAFETY: promised by the caller.
    let _ = unsafe {
        guard(std::ptr::null_mut(), || {
            id = get_mut(session)?.session.txn().id();
            Ok(())
        })
    };
    id
}

/// Calls `take` for each table of which rows were not stored, because they are older than its horizon, since this was last
/// asked: rows that statements were refused, and after a commit those that it did not store.
///
/// # Safety
/// `session` is null or valid; `take` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_take_losses(
    session: *mut RrdSession,
    take: RrdLossFn,
    context: *mut c_void,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            for loss in get_mut(session)?.session.txn().take_losses() {
                if let Some(take) = take {
                    take(context, RrdText::of(&loss.table), RrdText::of(&loss.ring), loss.rows, loss.is_all);
                }
            }
            Ok(())
        })
    }
}

/// Rolls back what is open and frees the handle.
///
/// # Safety
/// `session` is null or came from [`rrd_session_open`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_close(session: *mut RrdSession) {
    if !session.is_null() {
        // SAFETY: promised by the caller.
        guard_close(|| drop(unsafe { Box::from_raw(session) }));
    }
}

/// Begins a statement.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_begin_statement(
    session: *mut RrdSession,
    isolation: RrdIsolation,
    lock_timeout_ms: u64,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            get_mut(session)?.session.begin_statement(isolation, lock_timeout_ms);
            Ok(())
        })
    }
}

/// Until the statement under way ends, its reads of tiers see the rows as they are now. To be called for statements that write, after
/// the savepoint that marks their beginning.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_keep_tiers(session: *mut RrdSession, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            get_mut(session)?.session.txn().keep_tiers();
            Ok(())
        })
    }
}

/// Waits until all commits that have their place in the coordinator's order can be seen.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_wait_ordered(session: *mut RrdSession, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            get_mut(session)?.session.txn().wait_ordered();
            Ok(())
        })
    }
}

/// Takes the snapshot now; it sees all commits that have their place in the coordinator's order.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_take_snapshot(session: *mut RrdSession, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            get_mut(session)?.session.txn().take_ordered_snapshot();
            Ok(())
        })
    }
}

/// Keeps statements that a replica repeats as text from missing each other's rows: until the end of the transaction
/// it is alone on the table, or, if it only inserts, alone with others who do.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_lock_table(
    session: *mut RrdSession,
    table: *const RrdTable,
    only_inserts: bool,
    error: *mut RrdError,
) -> i32 {
    let use_of = if only_inserts { TextUse::Insert } else { TextUse::Read };
    // SAFETY: promised by the caller.
    unsafe { guard(error, || get_mut(session)?.session.lock_table(get(table)?.handle.table(), use_of)) }
}

/// Waits, up to `timeout_ms`, until no prepared transaction has writes to a table whose name, definition or rows as a whole are
/// to change: `RRD_PREPARED` if one still has. A table that is not known is nobody's.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_wait_for_prepared(
    session: *mut RrdSession,
    name: RrdText,
    timeout_ms: u64,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe { guard(error, || get_mut(session)?.session.wait_for_prepared(&read_text(name), timeout_ms)) }
}

/// Marks a place to roll back to; its number goes to `out`.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_savepoint(session: *mut RrdSession, out: *mut u64, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            *get_mut(out)? = get_mut(session)?.session.txn().savepoint();
            Ok(())
        })
    }
}

/// Undoes everything after the mark.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_rollback_to(session: *mut RrdSession, mark: u64, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe { guard(error, || Ok(get_mut(session)?.session.txn().rollback_to(mark)?)) }
}

/// Forgets the mark and later ones, keeps the work.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_release(session: *mut RrdSession, mark: u64, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            get_mut(session)?.session.txn().release(mark);
            Ok(())
        })
    }
}

/// Commits; on an error everything is undone.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_commit(session: *mut RrdSession, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe { guard(error, || get_mut(session)?.session.commit()) }
}

/// Undoes everything.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_rollback(session: *mut RrdSession, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            get_mut(session)?.session.rollback();
            Ok(())
        })
    }
}
