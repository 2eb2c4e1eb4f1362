//! C functions of tiers: which there are, and what the server is to take them for.

use std::ffi::c_void;
use std::sync::Arc;

use rrd_store::schema::Schema;
use rrd_store::{Engine, Table};

use crate::abi::{RrdError, RrdTableDefinition, RrdText, RrdTextFn};
use crate::definition::{Definition, read_text};
use crate::export_engine::RrdEngine;
use crate::guard::{get, guard};
use crate::status::Failure;
use crate::tier_definition::{create_statement, split_name};

/// Is told the name of a table (as the engine has it: "database/table") and of one of its tiers.
pub type RrdTierFn = Option<unsafe extern "C" fn(context: *mut c_void, table: RrdText, tier: RrdText)>;

/// Whether users see the tiers of a table: what is left of one that has lost its definition is none.
fn is_shown(engine: &Engine, name: &str) -> bool {
    engine.table(name).is_ok_and(|table| !table.schema().tiers.is_empty()) && engine.has_definition(name)
}

/// Calls `tier` for each tier of the table `name`, or if that ends with a slash, of all tables of that database.
///
/// # Safety
/// Pointers are null or valid; `tier` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_tiers_list(
    engine: *const RrdEngine,
    name: RrdText,
    tier: RrdTierFn,
    context: *mut c_void,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let (engine, name) = (&get(engine)?.engine, read_text(name));
            let mut names = if name.ends_with('/') { engine.table_names() } else { vec![name.clone()] };
            names.retain(|found| {
                *found == name || name.ends_with('/') && found.starts_with(&name) && is_shown(engine, found)
            });
            for name in names {
                // Dropped meanwhile, or never there: a table without tiers.
                let Ok(table) = engine.table(&name) else { continue };
                tell(&table.schema(), &name, tier, context);
            }
            Ok(())
        })
    }
}

/// As [`rrd_tiers_list`], for the tiers that a definition asks for; the table's name is empty.
///
/// # Safety
/// Pointers are null or valid, in the definition too; `tier` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_tiers_asked_for(
    definition: *const RrdTableDefinition,
    tier: RrdTierFn,
    context: *mut c_void,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            tell(&Definition::read(get(definition)?)?.new_schema()?, "", tier, context);
            Ok(())
        })
    }
}

unsafe fn tell(schema: &Schema, name: &str, tier: RrdTierFn, context: *mut c_void) {
    for def in &schema.tiers {
        if let Some(tier) = tier {
            // SAFETY: promised by the callers.
            unsafe { tier(context, RrdText::of(name), RrdText::of(&def.name)) };
        }
    }
}

/// Whether there is a tier with this name: "database/table$tier".
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_tier_exists(engine: *const RrdEngine, name: RrdText) -> bool {
    let mut exists = false;
    // SAFETY: promised by the caller.
    let _ = unsafe {
        guard(std::ptr::null_mut(), || {
            let name = read_text(name);
            let Some((base, tier)) = split_name(&name) else { return Ok(()) };
            let engine = &get(engine)?.engine;
            let has = |table: Arc<Table>| table.schema().tiers.iter().any(|def| def.name == tier);
            exists = engine.table(base).is_ok_and(has) && engine.has_definition(base);
            Ok(())
        })
    };
    exists
}

/// Whether tiers of a table hold what its rows no longer say: a copy of the rows would not bring it along.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_tiers_outlive_rows(engine: *const RrdEngine, name: RrdText) -> bool {
    let mut outlive = false;
    // SAFETY: promised by the caller.
    let _ = unsafe {
        guard(std::ptr::null_mut(), || {
            let table = get(engine)?.engine.table(&read_text(name))?;
            outlive = !table.schema().tiers.is_empty() && table.report().horizon.is_some();
            Ok(())
        })
    };
    outlive
}

/// Gives the CREATE TABLE statement of a tier; `RRD_NO_SUCH_TABLE` if there is none with this name.
///
/// # Safety
/// Pointers are null or valid; `statement` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_tier_definition(
    engine: *const RrdEngine,
    name: RrdText,
    statement: RrdTextFn,
    context: *mut c_void,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller.
    unsafe {
        guard(error, || {
            let name = read_text(name);
            let sql = create_statement(&get(engine)?.engine, &name)?;
            let sql = sql.ok_or(Failure::Outcome(crate::abi::RRD_NO_SUCH_TABLE))?;
            if let Some(statement) = statement {
                statement(context, sql.as_ptr().cast(), sql.len());
            }
            Ok(())
        })
    }
}
