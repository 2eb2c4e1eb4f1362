//! Batches of rows in a memtable, beside its map: each a sorted run that nobody changes any more.
//!
//! So that reads have few of them to look into, runs of about the same length are made one when there are many.

use std::sync::Arc;

use super::VersionRef;
use crate::batch::{Batch, PackedKey};

/// Runs of about the same length that stay apart.
const RUNS_OF_A_LEVEL: usize = 8;

/// A run has this many times the rows of one of the level below, as a power of two.
const LEVEL_BITS: u32 = 3;

/// Runs become no longer than this, or than a part of the memtable: the commit that makes them one lasts as long.
const LONGEST_RUN: usize = 1 << 16;
const LONGEST_PART: usize = 16;

/// Rows of a batch, or of several that were made one.
pub struct Run {
    rows: Arc<Batch>,
    seqs: Seqs,
}

/// The sequence numbers of a run's rows.
enum Seqs {
    All(u64),
    Each(Vec<u64>),
}

impl Run {
    /// The rows of one commit.
    pub fn of(rows: Arc<Batch>, seq: u64) -> Run {
        Run { rows, seqs: Seqs::All(seq) }
    }

    /// Ascending; versions of one key side by side.
    pub fn keys(&self) -> &[PackedKey] {
        self.rows.keys()
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Its rows.
    pub fn rows(&self) -> &Batch {
        &self.rows
    }

    /// Row `i`.
    #[inline]
    pub fn version(&self, i: usize) -> VersionRef<'_> {
        let seq = match &self.seqs {
            Seqs::All(seq) => *seq,
            Seqs::Each(seqs) => seqs[i],
        };
        VersionRef { seq, row: Some(self.rows.row(i)) }
    }

    /// One run of several.
    fn join(runs: &[Arc<Run>]) -> Option<Run> {
        let mut seqs = Vec::with_capacity(runs.iter().map(|run| run.len()).sum());
        let batches: Vec<&Batch> = runs.iter().map(|run| &*run.rows).collect();
        let rows = Batch::join(&batches, |number, rows| match &runs[number].seqs {
            Seqs::All(seq) => seqs.resize(seqs.len() + rows.len(), *seq),
            Seqs::Each(each) => seqs.extend_from_slice(&each[rows]),
        })?;
        Some(Run { rows: Arc::new(rows), seqs: Seqs::Each(seqs) })
    }
}

/// Which of the runs are to be made one, and that one; `None` if they are few enough.
pub fn fold(runs: &[Arc<Run>]) -> Option<(Vec<Arc<Run>>, Run)> {
    let level = |run: &Arc<Run>| run.len().ilog2() / LEVEL_BITS;
    let all: usize = runs.iter().map(|run| run.len()).sum();
    let longest = LONGEST_RUN.max(all / LONGEST_PART);
    let of_last = level(runs.last()?);
    let same: Vec<Arc<Run>> = runs.iter().filter(|run| level(run) == of_last).cloned().collect();
    let rows: usize = same.iter().map(|run| run.len()).sum();
    if same.len() < RUNS_OF_A_LEVEL || rows > longest {
        return None;
    }
    let joined = Run::join(&same)?;
    Some((same, joined))
}
