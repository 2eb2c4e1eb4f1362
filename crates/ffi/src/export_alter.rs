//! C functions of ALTER TABLE: a change is begun, committed together with those of the other partitions, or dropped.

use std::ffi::c_void;

use crate::abi::{RrdError, RrdProgressFn, RrdTableDefinition, RrdText};
use crate::alter::{Alter, Request};
use crate::definition::{Definition, read_text};
use crate::export_engine::RrdEngine;
use crate::export_row::record_mut;
use crate::export_table::RrdTable;
use crate::guard::{get, get_mut, guard, guard_close, slice};
use crate::status::Failure;

/// A change of a table that is not committed.
pub struct RrdAlter {
    alter: Option<Alter>,
}

/// Works out what a new definition changes; `RRD_NEEDS_COPY` with a reason if the rows cannot stay as they are.
/// `old_numbers` has, for each field of the definition, its number in the old table, or 2^32 - 1 for a new column;
/// `record` is a record of the new table with the values of new columns; `auto_increment` is 0 if not given.
/// `builds` says whether [`rrd_alter_build`] has something to do.
///
/// # Safety
/// Pointers are null or valid, in the definition and the record too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_alter_begin(
    table: *const RrdTable,
    definition: *const RrdTableDefinition,
    old_numbers: *const u32,
    record: *const u8,
    definition_id: RrdText,
    auto_increment: u64,
    out: *mut *mut RrdAlter,
    builds: *mut bool,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let raw = get(definition)?;
            let definition = Definition::read(raw)?;
            let request = Request {
                old_numbers: slice(old_numbers, raw.field_count)?,
                record: slice(record, raw.record_bytes)?,
                definition_id: definition_id.bytes().unwrap_or_default(),
                auto_increment,
            };
            let alter = Alter::new(&get(table)?.handle, definition, &request)?;
            *get_mut(builds)? = alter.builds() > 0;
            *get_mut(out)? = Box::into_raw(Box::new(RrdAlter { alter: Some(alter) }));
            Ok(())
        })
    }
}

/// Builds new indexes and tiers; nobody may write to the table from here to the commit. A value that occurs twice in a unique
/// one is `RRD_DUPLICATE` with the place of the key; see [`rrd_alter_duplicate`].
///
/// # Safety
/// Pointers are null or valid; `progress` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_alter_build(
    alter: *mut RrdAlter,
    progress: RrdProgressFn,
    context: *mut c_void,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let mut go_on = |done, total| progress.is_none_or(|f| f(context, done, total) == 0);
            get_mut(alter)?.alter.as_mut().map_or(Ok(()), |alter| alter.build(&mut go_on))
        })
    }
}

/// Writes the row that [`rrd_alter_build`] refused into a record of the new definition. Its blobs are valid until the
/// change is closed.
///
/// # Safety
/// `alter` is null or valid, `record` null or a record of the new definition.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_alter_duplicate(alter: *const RrdAlter, record: *mut u8, error: *mut RrdError) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || match &get(alter)?.alter {
            Some(alter) => alter.unpack_duplicate(record_mut(record, alter.record_bytes())?),
            None => Err(Failure::internal("internal error: an ALTER is committed already")),
        })
    }
}

/// Makes changes visible and durable, all of them or none. They must be closed nevertheless. `fallen` becomes the number of
/// rows that are gone because of it, `is_all` says whether none is left.
///
/// # Safety
/// `alters` points to `count` valid changes; other pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_alter_commit(
    alters: *const *mut RrdAlter,
    count: usize,
    fallen: *mut u64,
    is_all: *mut bool,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let mut changes = Vec::with_capacity(count);
            for &alter in slice(alters, count)? {
                let change = get_mut(alter)?.alter.take();
                changes.push(change.ok_or_else(|| Failure::internal("internal error: an ALTER is committed twice"))?);
            }
            let gone = Alter::commit(changes)?;
            (*get_mut(fallen)?, *get_mut(is_all)?) = (gone.rows, gone.is_all);
            Ok(())
        })
    }
}

/// Frees a change; one that was not committed leaves nothing behind.
///
/// # Safety
/// `alter` is null or came from [`rrd_alter_begin`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_alter_close(alter: *mut RrdAlter) {
    if !alter.is_null() {
        // SAFETY: promised by the caller.
        guard_close(|| drop(unsafe { Box::from_raw(alter) }));
    }
}

/// Whether a table (or all partitions of one) was altered to the definition with this id: for the server's recovery.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_has_definition(
    engine: *const RrdEngine,
    name: RrdText,
    definition_id: RrdText,
    out: *mut bool,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let engine = &get(engine)?.engine;
            let (name, id) = (read_text(name), definition_id.bytes().unwrap_or_default());
            let partitions = format!("{name}#P#");
            let names = engine.table_names();
            let mut parts = names.iter().filter(|n| **n == name || n.starts_with(&partitions)).peekable();
            let exists = parts.peek().is_some();
            *get_mut(out)? = exists && parts.all(|n| engine.definition_id(n).is_ok_and(|found| found == id));
            Ok(())
        })
    }
}
