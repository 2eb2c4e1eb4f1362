//! C functions of the online backup: one fixes its moment, one makes its files.

use std::ffi::c_void;
use std::path::PathBuf;

use rrd_store::Backup;

use crate::abi::{RrdError, RrdProgressFn, RrdText};
use crate::export_engine::{RrdEngine, os_string};
use crate::guard::{get, get_mut, guard, guard_close};
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
/// Pointers are null or valid; texts are as long as they say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_backup_begin(
    engine: *const RrdEngine,
    folder: RrdText,
    own_xids: RrdText,
    out: *mut *mut RrdBackup,
    error: *mut RrdError,
) -> i32 {
    // SAFETY: promised by the caller, in the whole body.
    unsafe {
        guard(error, || {
            let out = get_mut(out)?;
            let folder = folder.bytes().ok_or_else(|| Failure::internal("a backup without a folder"))?;
            let own = own_xids.bytes().unwrap_or(&[]);
            let is_own = |xid: &[u8]| !own.is_empty() && xid.starts_with(own);
            let backup = get(engine)?.engine.begin_backup(&PathBuf::from(os_string(folder)), &is_own)?;
            *out = Box::into_raw(Box::new(RrdBackup { backup }));
            Ok(())
        })
    }
}

/// Makes the backup whole, or removes what was made of it, and frees the handle.
///
/// # Safety
/// `backup` is null or came from [`rrd_backup_begin`] and is not used again; the other pointers are null or valid;
/// `progress` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrd_backup_finish(
    backup: *mut RrdBackup,
    progress: RrdProgressFn,
    context: *mut c_void,
    out: *mut RrdBackupReport,
    error: *mut RrdError,
) -> i32 {
    if backup.is_null() {
        return crate::abi::RRD_OK;
    }
    let mut status = crate::abi::RRD_OK;
    guard_close(|| {
        // SAFETY: promised by the caller.
        let handle = unsafe { Box::from_raw(backup) };
        // SAFETY: as above.
        status = unsafe {
            guard(error, || {
                let mut go_on = |done, total| progress.is_none_or(|f| f(context, done, total) == 0);
                let report = handle.backup.finish(&mut go_on)?;
                *get_mut(out)? = RrdBackupReport {
                    tables: report.tables,
                    segments: report.segments,
                    linked_bytes: report.linked_bytes,
                    copied_bytes: report.copied_bytes + report.log_bytes,
                    last_commit: report.last_seq,
                };
                Ok(())
            })
        };
    });
    status
}
