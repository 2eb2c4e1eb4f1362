//! What aggregate queries may take of the server, all of them together: bytes of groups, and threads that help.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::available_parallelism;

use crate::error::{Error, Result};
use crate::limits;
use crate::memory;

static BYTES: AtomicU64 = AtomicU64::new(0);
static HELPERS: AtomicUsize = AtomicUsize::new(0);

/// Bytes that the groups of all aggregate queries take now.
pub(crate) fn group_bytes() -> u64 {
    BYTES.load(Ordering::Relaxed)
}

/// Bytes of groups, given back when it is dropped.
#[derive(Default)]
pub struct Memory {
    used: u64,
    reserved: u64,
}

impl Memory {
    /// Takes some more; fails if all queries together would take more than they may.
    #[inline]
    pub fn take(&mut self, bytes: u64) -> Result<()> {
        self.used += bytes;
        if self.used <= self.reserved { Ok(()) } else { self.reserve(limits::AGGREGATE_BYTES) }
    }

    #[cold]
    fn reserve(&mut self, limit: u64) -> Result<()> {
        let more = (self.used - self.reserved).next_multiple_of(limits::AGGREGATE_BYTES_AT_ONCE);
        let before = BYTES.fetch_add(more, Ordering::Relaxed);
        self.reserved += more;
        if before + more <= limit {
            // The largest table of groups takes as much again when it doubles.
            return match self.reserved.checked_ilog2() == (self.reserved - more).checked_ilog2() {
                true => Ok(()),
                false => memory::ask(
                    usize::try_from(self.reserved).unwrap_or(usize::MAX),
                    "the groups of an aggregate query",
                ),
            };
        }
        let what = "bytes of the groups of all aggregate queries (SET rrd_pushdown=OFF: the server groups, on disk if need be)";
        Err(Error::LimitExceeded { what: what.into(), limit })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.reserved, Ordering::Relaxed);
    }
}

/// Threads that help a query, given back when it is dropped.
pub struct Helpers(usize);

impl Helpers {
    /// As many of those wanted as are free.
    pub fn take(wanted: usize) -> Helpers {
        let most = limits::HELPERS_PER_CORE * available_parallelism().map_or(1, usize::from);
        Helpers::take_of(&HELPERS, wanted, most)
    }

    fn take_of(all: &AtomicUsize, wanted: usize, most: usize) -> Helpers {
        let taken = |busy: usize| busy + wanted.min(most.saturating_sub(busy));
        match all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |busy| Some(taken(busy))) {
            Ok(busy) | Err(busy) => Helpers(taken(busy) - busy),
        }
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        HELPERS.fetch_sub(self.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_all_queries_together_are_bounded() {
        let (mut one, mut other) = (Memory::default(), Memory::default());
        assert!(one.take(1).is_ok());
        other.used = 1;
        let limit = limits::AGGREGATE_BYTES_AT_ONCE;
        assert!(matches!(other.reserve(limit), Err(Error::LimitExceeded { .. })), "what another query holds counts");
    }

    #[test]
    fn helpers_of_all_queries_together_are_bounded() {
        let all = AtomicUsize::new(0);
        let first = Helpers::take_of(&all, 3, 5);
        let second = Helpers::take_of(&all, 256, 5);
        let third = Helpers::take_of(&all, 1, 5);
        let counts = [first.count(), second.count(), third.count()];
        // They belong to another count than the one that dropping gives them back to.
        [first, second, third].into_iter().for_each(std::mem::forget);
        assert_eq!(counts, [3, 2, 0]);
    }
}
