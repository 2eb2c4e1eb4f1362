//! C functions of tiers: which there are, and what the server is to take them for.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;

use rrd_store::schema::Schema;
use rrd_store::{Engine, Table};

use crate::abi::{RrdError, RrdTableDefinition, RrdText, RrdTextFn, texts_to};
use crate::definition::{Definition, read_text};
use crate::export_engine::RrdEngine;
use crate::guard::{get, guard, guard_value};
use crate::status::Failure;
use crate::tier_definition::{create_statement, split_name};

/// Is told the name of a table (as the engine has it: "database/table") and of one of its tiers.
pub type RrdTierFn = Option<unsafe extern "C" fn(context: *mut c_void, table: RrdText<'_>, tier: RrdText<'_>)>;

/// Whether users see the tiers of a table: what is left of one that has lost its definition is none.
fn is_shown(engine: &Engine, name: &str) -> bool {
    engine.table(name).is_ok_and(|table| !table.schema().tiers.is_empty()) && engine.has_definition(name)
}

/// Calls `tier` for each tier of the table `name`, or if that ends with a slash, of all tables of that database.
///
/// # Safety
/// Rules `handles`, `answers`, `texts` and `callbacks` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_tiers_list(
    engine: Option<&RrdEngine>,
    name: RrdText<'_>,
    tier: RrdTierFn,
    context: *mut c_void,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let (engine, name) = (&get(engine)?.engine, read_text(name));
        let mut names = if name.ends_with('/') { engine.table_names() } else { vec![name.clone()] };
        names.retain(|found| {
            *found == name || name.ends_with('/') && found.starts_with(&name) && is_shown(engine, found)
        });
        for name in names {
            // Dropped meanwhile, or never there: a table without tiers.
            let Ok(table) = engine.table(&name) else { continue };
            // SAFETY: rule `callbacks`.
            unsafe { tell(&table.schema(), &name, tier, context) };
        }
        Ok(())
    })
}

/// As [`rrd_tiers_list`], for the tiers that a definition asks for; the table's name is empty.
///
/// # Safety
/// Rules `answers`, `arrays`, `callbacks` and `collations` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_tiers_asked_for(
    definition: Option<&RrdTableDefinition<'_>>,
    tier: RrdTierFn,
    context: *mut c_void,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        // SAFETY: rule `arrays` for what the definition points to.
        let definition = unsafe { Definition::read(get(definition)?)? };
        // SAFETY: rule `callbacks`.
        unsafe { tell(&definition.new_schema()?, "", tier, context) };
        Ok(())
    })
}

/// # Safety
/// The rule `callbacks`: the function may be called with the context.
unsafe fn tell(schema: &Schema, name: &str, tier: RrdTierFn, context: *mut c_void) {
    for def in &schema.tiers {
        if let Some(tier) = tier {
            // SAFETY: the function may be called, and both texts live until it returns.
            unsafe { tier(context, RrdText::of(name), RrdText::of(&def.name)) };
        }
    }
}

/// Whether there is a tier with this name: "database/table$tier".
///
/// # Safety
/// Rules `handles` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_tier_exists(engine: Option<&RrdEngine>, name: RrdText<'_>) -> bool {
    guard_value(false, || {
        let name = read_text(name);
        let Some((base, tier)) = split_name(&name) else { return Ok(false) };
        let engine = &get(engine)?.engine;
        let has = |table: Arc<Table>| table.schema().tiers.iter().any(|def| def.name == tier);
        Ok(engine.table(base).is_ok_and(has) && engine.has_definition(base))
    })
}

/// Whether tiers of a table hold what its rows no longer say: a copy of the rows would not bring it along.
///
/// # Safety
/// Rules `handles` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_tiers_outlive_rows(engine: Option<&RrdEngine>, name: RrdText<'_>) -> bool {
    guard_value(false, || {
        let table = get(engine)?.engine.table(&read_text(name))?;
        Ok(!table.schema().tiers.is_empty() && table.report().horizon.is_some())
    })
}

/// Gives the CREATE TABLE statement of a tier; `RRD_NO_SUCH_TABLE` if there is none with this name.
///
/// # Safety
/// Rules `handles`, `answers`, `texts` and `callbacks` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_tier_definition(
    engine: Option<&RrdEngine>,
    name: RrdText<'_>,
    statement: RrdTextFn,
    context: *mut c_void,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let name = read_text(name);
        let sql = create_statement(&get(engine)?.engine, &name)?;
        let sql = sql.ok_or(Failure::Outcome(crate::abi::RRD_NO_SUCH_TABLE))?;
        // SAFETY: rule `callbacks`; it is used before the call ends.
        let mut tell = unsafe { texts_to(statement, context) };
        tell(sql.as_bytes());
        Ok(())
    })
}
