//! Merging segments: `choose` says which, `run` does it.

pub mod choose;
pub mod run;
