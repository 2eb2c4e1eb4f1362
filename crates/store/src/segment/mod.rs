//! Segments; being written.
pub mod meta;
