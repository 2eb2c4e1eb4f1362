//! The real file system; being written.
