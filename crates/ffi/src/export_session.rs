//! C functions of a connection: its transaction from the first statement to commit or rollback.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use rrd_store::TextUse;

use crate::abi::{RrdError, RrdIsolation, RrdKilledFn, RrdLocalTimeFn, RrdText};
use crate::definition::read_text;
use crate::export_engine::RrdEngine;
use crate::export_table::RrdTable;
use crate::guard::{get, guard, guard_close, guard_value, put};
use crate::session::{Connection, Session};

/// Is told the name of a table (as the engine has it: "database/table"), the options of its ring, how many rows were not stored,
/// and whether these are all that were written.
pub type RrdLossFn =
    Option<unsafe extern "C" fn(context: *mut c_void, table: RrdText<'_>, ring: RrdText<'_>, rows: u64, is_all: bool)>;

/// A connection's work.
pub struct RrdSession {
    pub(crate) session: Session,
}

/// Opens a session for a connection; `killed` is asked with `connection` during long work, `local_time` for the times in
/// texts of errors (without it they are UTC's), `connection_id` is what reports call it.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`. Any thread that is in a call with the session may call `killed` and
/// `local_time` with `connection`, until the session is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_open(
    engine: Option<&RrdEngine>,
    connection: *mut c_void,
    connection_id: u64,
    killed: RrdKilledFn,
    local_time: RrdLocalTimeFn,
    out: Option<&mut MaybeUninit<Option<Box<RrdSession>>>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let engine = get(engine)?;
        // SAFETY: the caller says so: see the Safety section.
        let connection = unsafe { Connection::new(connection, killed, local_time) };
        let session = Session::new(&engine.engine, &engine.connections, connection, connection_id);
        put(out, Some(Box::new(RrdSession { session })))
    })
}

/// The number to wake the session's waits with, see `rrd_engine_wake`; 0 without a session.
///
/// # Safety
/// Rule `handles` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_session_id(session: Option<&mut RrdSession>) -> u64 {
    guard_value(0, || Ok(get(session)?.session.txn().id()))
}

/// Calls `take` for each table of which rows were not stored, because they are older than its horizon, since this was last
/// asked: rows that statements were refused, and after a commit those that it did not store.
///
/// # Safety
/// Rules `handles`, `answers` and `callbacks` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_session_take_losses(
    session: Option<&mut RrdSession>,
    take: RrdLossFn,
    context: *mut c_void,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        for loss in get(session)?.session.txn().take_losses() {
            let (table, ring) = (RrdText::of(&loss.table), RrdText::of(&loss.ring));
            if let Some(take) = take {
                // SAFETY: rule `callbacks`; both texts live until it returns.
                unsafe { take(context, table, ring, loss.rows, loss.is_all) };
            }
        }
        Ok(())
    })
}

/// Rolls back what is open and frees the handle.
///
/// # Safety
/// Rule `handles` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_session_close(session: Option<Box<RrdSession>>) {
    guard_close(|| drop(session));
}

/// Begins a statement.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_session_begin_statement(
    session: Option<&mut RrdSession>,
    isolation: RrdIsolation,
    lock_timeout_ms: u64,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        get(session)?.session.begin_statement(isolation, lock_timeout_ms);
        Ok(())
    })
}

/// Until the statement under way ends, its reads of tiers see the rows as they are now. To be called for statements that write, after
/// the savepoint that marks their beginning.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_session_keep_tiers(
    session: Option<&mut RrdSession>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        get(session)?.session.txn().keep_tiers();
        Ok(())
    })
}

/// Waits until all commits that have their place in the coordinator's order can be seen.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_session_wait_ordered(
    session: Option<&mut RrdSession>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        get(session)?.session.txn().wait_ordered();
        Ok(())
    })
}

/// Takes the snapshot now; it sees all commits that have their place in the coordinator's order.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_session_take_snapshot(
    session: Option<&mut RrdSession>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        get(session)?.session.txn().take_ordered_snapshot();
        Ok(())
    })
}

/// Keeps statements that a replica repeats as text from missing each other's rows: until the end of the transaction
/// it is alone on the table, or, if it only inserts, alone with others who do.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_session_lock_table(
    session: Option<&mut RrdSession>,
    table: Option<&RrdTable>,
    only_inserts: bool,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    let use_of = if only_inserts { TextUse::Insert } else { TextUse::Read };
    guard(error, || get(session)?.session.lock_table(get(table)?.handle.table(), use_of))
}

/// Waits, up to `timeout_ms`, until no prepared transaction has writes to a table whose name, definition or rows as a whole are
/// to change: `RRD_PREPARED` if one still has. A table that is not known is nobody's.
///
/// # Safety
/// Rules `handles`, `answers` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_session_wait_for_prepared(
    session: Option<&mut RrdSession>,
    name: RrdText<'_>,
    timeout_ms: u64,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || get(session)?.session.wait_for_prepared(&read_text(name), timeout_ms))
}

/// Marks a place to roll back to; its number goes to `out`.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_session_savepoint(
    session: Option<&mut RrdSession>,
    out: Option<&mut MaybeUninit<u64>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || put(out, get(session)?.session.txn().savepoint()))
}

/// Undoes everything after the mark.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_session_rollback_to(
    session: Option<&mut RrdSession>,
    mark: u64,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || Ok(get(session)?.session.txn().rollback_to(mark)?))
}

/// Forgets the mark and later ones, keeps the work.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_session_release(
    session: Option<&mut RrdSession>,
    mark: u64,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        get(session)?.session.txn().release(mark);
        Ok(())
    })
}

/// Commits; on an error everything is undone.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_session_commit(
    session: Option<&mut RrdSession>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || get(session)?.session.commit())
}

/// Undoes everything.
///
/// # Safety
/// Rules `handles` and `answers` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_session_rollback(
    session: Option<&mut RrdSession>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        get(session)?.session.rollback();
        Ok(())
    })
}
