//! C functions of the online backup: one fixes its moment, one makes its files.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::path::PathBuf;

use rrd_store::Backup;

use crate::abi::{RrdError, RrdProgressFn, RrdText, progress_to};
use crate::export_engine::{RrdEngine, os_string};
use crate::guard::{get, guard, guard_close, put};
use crate::status::Failure;

/// A backup whose moment is fixed.
pub struct RrdBackup {
    backup: Backup,
}

/// What a backup came to.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RrdBackupReport {
    /// Tables in it.
    pub tables: u64,
    /// Segments in it.
    pub segments: u64,
    /// Bytes that share their disk space with the engine's own files.
    pub linked_bytes: u64,
    /// Bytes that were copied, the log's too.
    pub copied_bytes: u64,
    /// Number of the last commit in it.
    pub last_commit: u64,
}

const _: () = assert!(size_of::<RrdBackupReport>() == 40);

/// Fixes the moment of a backup to a new folder and copies the server's definitions of the tables; the caller keeps
/// others from making, renaming or dropping tables until it returns. A prepared transaction whose packed XID begins with
/// `own_xids` is one that the server is just committing. The handle goes to `out`; give it to [`rrd_backup_finish`].
///
/// # Safety
/// Rules `handles`, `answers` and `texts` of `abi.rs`.
#[unsafe(no_mangle)]
pub extern "C" fn rrd_backup_begin(
    engine: Option<&RrdEngine>,
    folder: RrdText<'_>,
    own_xids: RrdText<'_>,
    out: Option<&mut MaybeUninit<Option<Box<RrdBackup>>>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    guard(error, || {
        let out = get(out)?;
        let folder = folder.bytes().ok_or_else(|| Failure::internal("a backup without a folder"))?;
        let own = own_xids.bytes().unwrap_or(&[]);
        let is_own = |xid: &[u8]| !own.is_empty() && xid.starts_with(own);
        let backup = get(engine)?.engine.begin_backup(&PathBuf::from(os_string(folder)), &is_own)?;
        out.write(Some(Box::new(RrdBackup { backup })));
        Ok(())
    })
}

/// Makes the backup whole, or removes what was made of it, and frees the handle.
///
/// # Safety
/// Rules `handles`, `answers` and `callbacks` of `abi.rs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_backup_finish(
    backup: Option<Box<RrdBackup>>,
    progress: RrdProgressFn,
    context: *mut c_void,
    out: Option<&mut MaybeUninit<RrdBackupReport>>,
    error: Option<&mut MaybeUninit<RrdError>>,
) -> i32 {
    let Some(handle) = backup else { return crate::abi::RRD_OK };
    let mut status = crate::abi::RRD_OK;
    guard_close(|| {
        status = guard(error, || {
            // SAFETY: rule `callbacks`; it is used before the call ends.
            let mut go_on = unsafe { progress_to(progress, context) };
            let report = handle.backup.finish(&mut go_on)?;
            let report = RrdBackupReport {
                tables: report.tables,
                segments: report.segments,
                linked_bytes: report.linked_bytes,
                copied_bytes: report.copied_bytes + report.log_bytes,
                last_commit: report.last_seq,
            };
            put(out, report)
        });
    });
    status
}
