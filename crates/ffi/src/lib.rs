//! The C ABI between MariaDB's handler and the store: the only crate with `unsafe`.
//!
//! On a row's way: `record.rs` turns the server's record image into a row of the store and columns back into record
//! images, `ahead.rs` does so for many rows at once, `image.rs` turns the server's key images into sort keys,
//! `definition.rs` turns a table's description into a schema. `session.rs` and `table.rs` drive transactions and cursors,
//! the `export_*` files are the C functions. `info.rs` and `status_text.rs` are what operators see, `log.rs` brings
//! messages to the server's error log. Every export runs inside `guard`: no panic crosses, no null pointer is followed,
//! each error becomes a status code and a text in a struct that the caller owns. The header is `include/rrd.h`, generated
//! from these sources by cbindgen.

pub mod abi;
pub mod aggregate;
mod aggregate_answer;
mod ahead;
pub mod alter;
pub mod conditions;
pub mod connections;
pub mod counter;
pub mod definition;
pub mod export_aggregate;
pub mod export_alter;
pub mod export_backup;
pub mod export_engine;
pub mod export_functions;
pub mod export_info;
pub mod export_prepare;
pub mod export_repair;
pub mod export_row;
pub mod export_session;
pub mod export_table;
pub mod export_text;
pub mod export_tier;
pub mod field;
pub mod guard;
pub mod image;
pub mod info;
mod info_time;
mod key_range;
pub mod key_text;
mod lock_waits;
pub mod log;
mod number_text;
pub mod options;
pub mod record;
pub mod scan;
pub mod session;
pub mod status;
mod status_text;
pub mod table;
pub mod tier_check;
pub mod tier_definition;
mod tiers;
pub mod time_bucket;
mod time_guess;
pub mod weights;

/// The server moves handles between its threads (`session.rs`): what is behind them must allow it. The engine's is used by many at
/// the same time.
const _: () = {
    const fn is_send<T: Send>() {}
    const fn is_sync<T: Sync>() {}
    is_send::<export_aggregate::RrdAggregation>();
    is_send::<export_alter::RrdAlter>();
    is_send::<export_backup::RrdBackup>();
    is_send::<export_engine::RrdEngine>();
    is_sync::<export_engine::RrdEngine>();
    is_send::<export_functions::RrdCounter>();
    is_send::<export_session::RrdSession>();
    is_send::<export_table::RrdTable>();
    is_sync::<abi::RrdAhead>();
};
