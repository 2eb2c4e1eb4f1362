//! The text of SHOW ENGINE RRD STATUS.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rrd_store::Engine;

use crate::connections::Connections;
use crate::guard::broken;

/// Transactions that are listed, the oldest ones; the same of tables with a ring or tiers, the largest ones.
const LISTED: usize = 50;

/// Counters by section; what is in none of them comes last, so a new one is never missing.
const SECTIONS: [(&str, &[&str]); 3] = [
    ("ROWS", &["rows_", "pushdowns", "tier_answers", "commits", "tables"]),
    ("LOG AND FILES", &["log_", "manifest_", "segment_", "folder_", "files_"]),
    ("FLUSHES AND MERGES", &["flush", "merge"]),
];

/// Counters that the sections before the counters tell in words.
const TOLD: [&str; 10] = [
    "read_only",
    "open_snapshots",
    "oldest_snapshot_",
    "old_version",
    "memtable_bytes",
    "cache_bytes",
    "aggregate_bytes",
    "row_locks",
    "tables",
    "prepared_transactions",
];

/// The report.
pub fn report(engine: &Engine, connections: &Connections) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_state(&mut out, engine);
    let _ = write_transactions(&mut out, engine, connections);
    let _ = write_work(&mut out, engine);
    let _ = write_rings(&mut out, engine);
    let _ = write_memory(&mut out, engine);
    let _ = write_counters(&mut out, engine);
    out
}

fn write_state(out: &mut String, engine: &Engine) -> std::fmt::Result {
    writeln!(out, "STATE")?;
    match (broken(), engine.poisoned()) {
        (Some(reason), _) => writeln!(out, "  stopped: {reason}; restart the server"),
        (None, Some(reason)) => {
            writeln!(out, "  read-only mode after an error: {reason}. Fix its cause, then restart the server")
        }
        (None, None) => writeln!(out, "  running"),
    }?;
    let tables = engine.base_tables().len();
    writeln!(out, "  tables: {tables}")
}

fn write_transactions(out: &mut String, engine: &Engine, connections: &Connections) -> std::fmt::Result {
    let counters = engine.counters();
    let counter = |name: &str| counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value);
    let open = connections.transactions();
    writeln!(out, "TRANSACTIONS")?;
    writeln!(
        out,
        "  open: {}, prepared: {}, rows locked: {}",
        open.len(),
        counter("prepared_transactions"),
        counter("row_locks")
    )?;
    match engine.oldest_open_snapshot() {
        None => writeln!(out, "  snapshots: none")?,
        Some(oldest) => {
            let of = match connections.id_of(oldest.txn) {
                Some(connection) => format!(" of connection {connection}"),
                None => String::new(),
            };
            writeln!(
                out,
                "  snapshots: {}, the oldest{of} open for {}, {} commits since",
                counter("open_snapshots"),
                seconds(oldest.age),
                oldest.commits
            )?;
        }
    }
    writeln!(
        out,
        "  old row versions in memory: {} in {} bytes",
        counter("old_versions"),
        counter("old_version_bytes")
    )?;
    for transaction in open.iter().take(LISTED) {
        writeln!(
            out,
            "  connection {}: open for {}, row locks {}",
            transaction.connection,
            seconds(transaction.age),
            engine.row_locks_of(transaction.txn)
        )?;
    }
    match open.len().saturating_sub(LISTED) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} younger ones"),
    }
}

fn write_work(out: &mut String, engine: &Engine) -> std::fmt::Result {
    writeln!(out, "BACKGROUND WORK")?;
    let (flushes, merges) = engine.waiting_work();
    writeln!(out, "  tables waiting for a flush: {flushes}, for a merge: {merges}")?;
    if let Some(error) = engine.flush_error() {
        writeln!(out, "  the last flush failed: {error}; it is tried again each second")?;
    }
    for job in engine.jobs() {
        let so_far = match (job.done.load(Ordering::Relaxed), job.rows) {
            (0, rows) => format!("{rows} rows"),
            (done, rows) => format!("{done} of {rows} rows"),
        };
        writeln!(out, "  {} of '{}': {so_far}, for {}", job.kind, job.table, seconds(job.since.elapsed()))?;
    }
    Ok(())
}

/// Nothing if no table has a ring or tiers.
fn write_rings(out: &mut String, engine: &Engine) -> std::fmt::Result {
    let mut tables = engine.base_tables();
    tables.retain(|table| !table.schema().ring.is_unbounded() || !table.tiers().is_empty());
    if tables.is_empty() {
        return Ok(());
    }
    let mut tables: Vec<_> = tables.into_iter().map(|table| (table.report(), table)).collect();
    tables.sort_by_key(|(report, _)| std::cmp::Reverse(report.data_bytes + report.index_bytes));
    writeln!(out, "RINGS AND TIERS")?;
    for (report, table) in tables.iter().take(LISTED) {
        let tiers = table.tier_reports(false);
        let bytes = report.data_bytes + report.index_bytes + tiers.iter().map(|t| t.table.data_bytes).sum::<u64>();
        let limit = report.schema.ring.max_bytes.map_or(String::new(), |limit| format!(" of {limit} (MAX_BYTES)"));
        let held = match engine.held_bytes(table) {
            0 => String::new(),
            held => format!(", and {held} that readers hold"),
        };
        writeln!(
            out,
            "  '{}': {} rows, {} behind the horizon, {} refused; {bytes} bytes{limit}{held}",
            table.name(),
            report.rows,
            report.rows_behind,
            report.refused_rows
        )?;
        for tier in tiers {
            writeln!(
                out,
                "    tier '{}': {} buckets in {} bytes, {} spans of time computed when read",
                tier.def.name, tier.table.rows, tier.table.data_bytes, tier.dirty
            )?;
        }
    }
    match tables.len().saturating_sub(LISTED) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} smaller ones"),
    }
}

fn write_memory(out: &mut String, engine: &Engine) -> std::fmt::Result {
    let memory = engine.memory_report();
    writeln!(out, "MEMORY")?;
    writeln!(
        out,
        "  memtables: {} bytes, {} of them being flushed; limit {} (rrd_memtable_size)",
        memory.active_bytes + memory.frozen_bytes,
        memory.frozen_bytes,
        memory.memtable_limit
    )?;
    writeln!(out, "  block cache: {} bytes; limit {} (rrd_cache_size)", memory.cache_bytes, memory.cache_limit)?;
    writeln!(out, "  groups of aggregate queries: {} bytes; limit {}", memory.aggregate_bytes, memory.aggregate_limit)
}

fn write_counters(out: &mut String, engine: &Engine) -> std::fmt::Result {
    let mut left = engine.counters();
    left.retain(|(name, _)| !TOLD.iter().any(|told| name.starts_with(told)) || name.starts_with("row_lock_"));
    for (title, prefixes) in SECTIONS {
        let (here, rest) =
            left.into_iter().partition(|(name, _)| prefixes.iter().any(|prefix| name.starts_with(prefix)));
        left = rest;
        write_section(out, title, &here)?;
    }
    write_section(out, "CACHE AND LOCKS", &left)
}

fn write_section(out: &mut String, title: &str, counters: &[(&str, u64)]) -> std::fmt::Result {
    writeln!(out, "{title}")?;
    counters.iter().try_for_each(|(name, value)| writeln!(out, "  {name}: {value}"))
}

fn seconds(age: Duration) -> String {
    format!("{} s", age.as_secs())
}
