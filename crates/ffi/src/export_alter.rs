//! C functions of ALTER TABLE: a change is begun, committed together with those of the other partitions, or dropped.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use crate::abi::{RrdError, RrdKilledFn, RrdProgressFn, RrdTableDefinition, RrdText, RrdTextFn, progress_to, texts_to};
use crate::alter::{Alter, Request};
use crate::definition::{Definition, read_text};
use crate::export_engine::RrdEngine;
use crate::export_table::RrdTable;
use crate::guard::{get, guard, guard_close, put, slice, slice_mut};
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
/// Rules `handles`, `answers`, `arrays`, `texts`, `records` and `collations` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_alter_begin(
    table: Option<&RrdTable>,
    definition: Option<&RrdTableDefinition<'_>>,
    old_numbers: *const u32,
    record: *const u8,
    definition_id: RrdText<'_>,
    auto_increment: u64,
    out: Option<&mut MaybeUninit<Option<Box<RrdAlter>>>>,
    builds: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let raw = get(definition)?;
        // SAFETY: rule `arrays` for what the definition points to.
        let definition = unsafe { Definition::read(raw)? };
        // SAFETY: rule `arrays`: there is a number for each field.
        let old_numbers = unsafe { slice(old_numbers, raw.field_count)? };
        // SAFETY: rule `records`: a record of this definition.
        let record = unsafe { slice(record, raw.record_bytes)? };
        let request =
            Request { old_numbers, record, definition_id: definition_id.bytes().unwrap_or_default(), auto_increment };
        // SAFETY: rule `records`: its blobs are valid until the call ends.
        let alter = unsafe { Alter::new(&get(table)?.handle, definition, &request)? };
        put(builds, alter.builds() > 0)?;
        put(out, Some(Box::new(RrdAlter { alter: Some(alter) })))
    })
}

/// Builds new indexes and tiers; nobody may write to the table from here to the commit. A value that occurs twice in a unique
/// one is `RRD_DUPLICATE` with the place of the key; see [`rrd_alter_duplicate`].
///
/// # Safety
/// Rules `handles`, `answers` and `callbacks` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_alter_build(
    alter: Option<&mut RrdAlter>,
    progress: RrdProgressFn,
    context: *mut c_void,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        // SAFETY: rule `callbacks`; it is used before the call ends.
        let mut go_on = unsafe { progress_to(progress, context) };
        get(alter)?.alter.as_mut().map_or(Ok(()), |alter| alter.build(&mut go_on))
    })
}

/// Writes the row that [`rrd_alter_build`] refused into a record of the new definition. Its blobs are valid until the
/// change is closed.
///
/// # Safety
/// Rules `handles`, `answers` and `records` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_alter_duplicate(
    alter: Option<&RrdAlter>,
    record: *mut u8,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || match &get(alter)?.alter {
        Some(alter) => {
            // SAFETY: rule `records`: a buffer for a record of the ALTER's definition.
            alter.unpack_duplicate(unsafe { slice_mut(record, alter.record_bytes())? })
        }
        None => Err(Failure::internal("internal error: an ALTER is committed already")),
    })
}

/// Makes changes visible and durable, all of them or none. They must be closed nevertheless. `fallen` becomes the number of
/// rows that are gone because of it, `is_all` says whether none is left. Tiers whose history ends
/// are `told`, a sentence each. While it waits for others it asks `killed`.
///
/// # Safety
/// Rules `handles`, `answers`, `arrays` and `callbacks` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_alter_commit(
    alters: *mut Option<&mut RrdAlter>,
    count: usize,
    killed: RrdKilledFn,
    told: RrdTextFn,
    connection: *mut c_void,
    fallen: Option<&mut MaybeUninit<u64>>,
    is_all: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let mut changes = Vec::with_capacity(count);
        // SAFETY: rule `arrays`: there are `count` handles; rule `handles`: each is another one.
        for alter in unsafe { slice_mut(alters, count)? } {
            let change = get(alter.as_mut())?.alter.take();
            changes.push(change.ok_or_else(|| Failure::internal("internal error: an ALTER is committed twice"))?);
        }
        // SAFETY: rule `callbacks`, on the calling thread: the closure is gone when this call ends.
        let mut stop = || killed.is_some_and(|killed| unsafe { killed(connection) } != 0);
        let gone = Alter::commit(changes, &mut stop)?;
        // SAFETY: rule `callbacks`; it is not used after this call.
        let mut tell = unsafe { texts_to(told, connection) };
        gone.history.iter().for_each(|text| tell(text.as_bytes()));
        put(fallen, gone.rows)?;
        put(is_all, gone.is_all)
    })
}

/// Frees a change; one that was not committed leaves nothing behind.
///
/// # Safety
/// Rule `handles` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_alter_close(alter: Option<Box<RrdAlter>>) {
    guard_close(|| drop(alter));
}

/// Whether a table (or all partitions of one) was altered to the definition with this id: for the server's recovery.
///
/// # Safety
/// Rules `handles`, `answers` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_table_has_definition(
    engine: Option<&RrdEngine>,
    name: RrdText<'_>,
    definition_id: RrdText<'_>,
    out: Option<&mut MaybeUninit<bool>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let engine = &get(engine)?.engine;
        let (name, id) = (read_text(name), definition_id.bytes().unwrap_or_default());
        let partitions = format!("{name}#P#");
        let names = engine.table_names();
        let mut parts = names.iter().filter(|n| **n == name || n.starts_with(&partitions)).peekable();
        let exists = parts.peek().is_some();
        put(out, exists && parts.all(|n| engine.definition_id(n).is_ok_and(|found| found == id)))
    })
}
