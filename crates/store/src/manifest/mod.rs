//! The manifest; being written.
pub mod edit;
