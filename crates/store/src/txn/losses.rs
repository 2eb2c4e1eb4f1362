//! Rows that a transaction wrote and that are not stored, since they are older than the horizon of their table.
//!
//! A row is refused when it is inserted, or is too old once its own commit is applied. Whoever runs the statement asks for
//! them at its end, and after the commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::RwLock;

use super::{Txn, TxnTable};
use crate::own::OwnWrites;
use crate::row::RowLayout;
use crate::table::Table;

/// Options that let rows go.
const RING_OPTIONS: [&str; 4] = ["RETENTION", "MAX_ROWS", "SERIES_MAX_ROWS", "MAX_BYTES"];

/// Rows of one table that were not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Name of the table, that of all partitions together.
    pub table: String,
    /// Options of its ring, as the user wrote them.
    pub ring: String,
    /// How many rows.
    pub rows: u64,
    /// Whether they are all rows that were written.
    pub is_all: bool,
}

/// What became of the rows that were handed over for a table.
#[derive(Clone, Copy, Default)]
pub(super) struct RowFates {
    /// Rows that the statement wrote.
    pub offered: u64,
    /// Those of them that were refused.
    pub refused: u64,
    /// Rows of earlier statements that were not refused.
    accepted: u64,
}

/// A write set whose rows may be lost at the commit.
pub(crate) struct Watched {
    table: Arc<Table>,
    layout: Arc<RowLayout>,
    own: Arc<RwLock<OwnWrites>>,
    fates: RowFates,
}

impl RowFates {
    /// A statement is over, and was told what was refused; returns that, and whether it is all.
    fn take(&mut self) -> (u64, bool) {
        let RowFates { offered, refused, .. } = *self;
        *self = RowFates { accepted: self.accepted + offered.saturating_sub(refused), ..RowFates::default() };
        (refused, refused >= offered)
    }
}

impl TxnTable {
    fn watch(&self) -> Option<Watched> {
        let schema = self.layout.schema();
        let has_ring = !schema.ring.is_unbounded() && !self.table.is_index();
        let (table, layout, own) = (self.table.clone(), self.layout.clone(), self.own.clone());
        has_ring.then_some(Watched { table, layout, own, fates: self.fates })
    }
}

impl Watched {
    /// The table, which has a ring.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Refused rows that were not told yet, and those that the commit lost.
    fn loss(mut self) -> Option<Loss> {
        let (left_out, lost) = {
            let mut own = self.own.write();
            (std::mem::take(&mut own.left_out), std::mem::take(&mut own.lost))
        };
        let at_commit = left_out
            + lost.count(&self.table, &self.layout).unwrap_or_else(|error| {
                tracing::warn!(table = self.table.name(), %error, "could not count the rows that were too old");
                0
            });
        self.table.refused_rows.fetch_add(at_commit, Ordering::Relaxed);
        let all = self.fates.accepted + self.fates.offered;
        let (refused, _) = self.fates.take();
        let rows = refused + at_commit;
        (rows > 0).then(|| Loss::of(&self.table, rows, rows >= all))
    }
}

impl Loss {
    fn of(table: &Table, rows: u64, is_all: bool) -> Loss {
        let name = table.name();
        let base = name.split_once("#P#").map_or(&*name, |(base, _)| base);
        let schema = table.schema();
        let options = schema.options.iter().filter(|(name, _)| RING_OPTIONS.contains(&name.as_str()));
        let ring = options.map(|(name, value)| format!("{name}='{value}'")).collect::<Vec<_>>().join(" ");
        Loss { table: base.to_owned(), ring, rows, is_all }
    }
}

impl Txn {
    /// What was lost since this was last asked: rows that statements were refused, and after a commit those that it did not
    /// store.
    pub fn take_losses(&mut self) -> Vec<Loss> {
        let mut losses = std::mem::take(&mut self.losses);
        for t in &mut self.tables {
            let (refused, is_all) = t.fates.take();
            if refused > 0 {
                losses.push(Loss::of(&t.table, refused, is_all));
            }
        }
        // Partitions are one table to the user.
        losses.sort_by(|a, b| a.table.cmp(&b.table));
        losses.dedup_by(|next, first| {
            let is_same = next.table == first.table;
            if is_same {
                first.rows += next.rows;
                first.is_all &= next.is_all;
            }
            is_same
        });
        losses
    }

    /// Before the commit, and before the first phase of one: remembers the write sets that may lose rows.
    pub(crate) fn watch(&mut self) {
        let watched = self.tables.iter().filter_map(TxnTable::watch);
        self.watched.extend(watched);
    }

    /// The write sets that were remembered.
    pub(crate) fn unwatch(&mut self) -> Vec<Watched> {
        std::mem::take(&mut self.watched)
    }

    /// After the commit.
    pub(crate) fn note_losses(&mut self, watched: Vec<Watched>) {
        self.losses.extend(watched.into_iter().filter_map(Watched::loss));
    }

    /// A statement was undone: what it was refused does not matter any more.
    pub(super) fn forget_refused(&mut self) {
        for t in &mut self.tables {
            (t.fates.offered, t.fates.refused) = (0, 0);
        }
    }
}
