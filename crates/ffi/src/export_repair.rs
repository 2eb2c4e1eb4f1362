//! The C function of REPAIR TABLE, and how it says what was lost.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use rrd_store::Repaired;
use rrd_store::segment::Loss;

use crate::abi::{RrdError, RrdProgressFn, RrdTextFn, progress_to, texts_to};
use crate::export_table::RrdTable;
use crate::guard::{get, guard};
use crate::key_text::utc;
use crate::table::TableHandle;

/// Saves what can be read of the table's damaged files and makes damaged indexes again (REPAIR TABLE); `told` is called
/// with each line of what was done and lost, and not at all when the table was sound. Nobody else may use the table.
///
/// # Safety
/// Rules `handles`, `answers` and `callbacks` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_table_repair(
    table: Option<&RrdTable>,
    progress: RrdProgressFn,
    told: RrdTextFn,
    context: *mut c_void,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let handle = &get(table)?.handle;
        // SAFETY: rule `callbacks`; it is used before the call ends.
        let mut go_on = unsafe { progress_to(progress, context) };
        let repaired = handle.engine().repair_table(handle.table(), &mut go_on)?;
        // SAFETY: rule `callbacks`; it is used before the call ends.
        let mut tell = unsafe { texts_to(told, context) };
        lines(handle, &repaired).iter().for_each(|line| tell(line.as_bytes()));
        Ok(())
    })
}

fn lines(handle: &TableHandle, repaired: &Repaired) -> Vec<String> {
    let mut lines: Vec<String> = repaired.losses.iter().map(|loss| line(handle, loss)).collect();
    let rows: u64 = repaired.losses.iter().filter(|l| l.column.is_none()).map(|l| l.rows).sum();
    if repaired.segments > 0 {
        let kept = handle.table().stats().rows;
        lines.push(format!(
            "{} damaged files were replaced and stay beside the new ones as *.damaged; rows lost: {rows}, kept: {kept}",
            repaired.segments
        ));
    }
    if rows > 0 {
        lines.push("where lost rows had replaced or deleted older ones, the older ones may be back".into());
    }
    lines.extend(repaired.indexes.iter().map(|name| format!("index '{name}' was made again from the rows")));
    lines.extend(repaired.tiers.iter().map(|(name, lost)| {
        format!("tier '{name}' lost {lost} buckets, wholly or in part; those whose rows are there are made again")
    }));
    let repeated = repaired.repeated.iter();
    lines.extend(
        repeated.map(|(name, n)| format!("{n} rows have a value of the unique index '{name}' that another has")),
    );
    lines
}

fn line(handle: &TableHandle, loss: &Loss) -> String {
    let keys = match (key_text(handle, &loss.first_key), key_text(handle, &loss.last_key)) {
        (Some(first), Some(last)) => format!(" with keys from '{first}' to '{last}'"),
        _ => String::new(),
    };
    let path = loss.path.display();
    // Damage is told with its file already.
    let why = if loss.what.contains("is damaged at") { loss.what.clone() } else { format!("'{path}': {}", loss.what) };
    match loss.column {
        None => format!("{} rows{keys} are lost: {why}", loss.rows),
        Some(id) => {
            let schema = handle.table().schema();
            let name = schema.columns.iter().find(|c| c.id == id).map_or("", |c| c.name.as_str());
            format!("column '{name}' of {} rows{keys} is NULL now: {why}", loss.rows)
        }
    }
}

/// The SQL values of a sort key; `None` if they cannot be had from it, as with texts whose sort key is not their value.
fn key_text(handle: &TableHandle, key: &[u8]) -> Option<String> {
    let layout = handle.table().layout();
    let schema = layout.schema();
    if schema.key.iter().any(|&k| schema.columns[usize::from(k)].hidden) {
        return None;
    }
    let mut row = Vec::new();
    layout.push_key_row(key, &mut row).then(|| handle.format().key_text(&row, &utc))
}
