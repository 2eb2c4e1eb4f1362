//! A simulated file system; being written.
