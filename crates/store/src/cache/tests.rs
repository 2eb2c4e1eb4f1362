//! Tests of the block cache.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

fn key(segment: u64, group: u32) -> BlockKey {
    BlockKey { segment: SegmentId(segment), group, column: 1, compact: false }
}

fn block(values: usize) -> Cached {
    Cached::Seqs(Arc::new(vec![0; values]))
}

fn held(cache: &BlockCache) -> usize {
    cache.shards.iter().map(|s| s.lock().entries.iter().map(|e| e.bytes).sum::<usize>()).sum()
}

#[test]
fn a_block_is_found_until_its_segment_is_evicted() {
    let cache = BlockCache::new(1 << 20);
    for segment in 1..=2 {
        (0..50).for_each(|group| cache.insert(key(segment, group), block(10)));
    }
    assert!(cache.get(key(1, 7)).is_some());
    cache.evict_segment(SegmentId(1));
    assert!((0..50).all(|group| cache.get(key(1, group)).is_none()));
    assert!((0..50).all(|group| cache.get(key(2, group)).is_some()));
    assert_eq!(cache.counters().bytes as usize, held(&cache));
    assert_eq!((cache.counters().hits, cache.counters().misses), (51, 50));
}

#[test]
fn values_larger_than_the_cache_pass_through() {
    let cache = BlockCache::new(10_000);
    cache.insert(key(1, 1), block(10));
    cache.insert(key(1, 2), block(5_000));
    assert!(cache.get(key(1, 1)).is_some());
    assert!(cache.get(key(1, 2)).is_none());
    // As large as the whole cache, and so than any shard's share, is kept.
    let largest = (10_000 - ENTRY_BYTES) / 8;
    cache.insert(key(1, 3), block(largest));
    assert!(cache.get(key(1, 3)).is_some());
}

#[test]
fn an_often_used_block_survives_a_long_scan() {
    let cache = BlockCache::new(100_000);
    cache.insert(key(0, 0), block(100));
    for group in 0..10_000 {
        assert!(cache.get(key(0, 0)).is_some(), "after {group} blocks");
        cache.insert(key(1, group), block(100));
    }
    assert!(cache.counters().evictions > 9_000);
}

#[test]
fn threads_together_keep_the_bound() {
    let cache = Arc::new(BlockCache::new(50_000));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let cache = Arc::clone(&cache);
            scope.spawn(move || {
                for i in 0..3_000u32 {
                    cache.insert(key(i.into(), thread as u32 % 2), block(i as usize % 400));
                    let _ = cache.get(key(u64::from(i / 2), 0));
                    assert!(cache.counters().bytes <= 50_000);
                    if i % 500 == 0 {
                        cache.evict_segment(SegmentId(u64::from(i)));
                    }
                }
            });
        }
    });
    assert_eq!(cache.counters().bytes as usize, held(&cache));
}

proptest! {
    #[test]
    fn never_over_the_bound(steps in prop::collection::vec((0u64..4, 0u32..40, 0usize..600, 0u8..20), 1..300)) {
        let cache = BlockCache::new(20_000);
        for (segment, group, values, what) in steps {
            match what {
                0 => cache.evict_segment(SegmentId(segment)),
                1 => cache.set_capacity(values * 50),
                2..8 => drop(cache.get(key(segment, group))),
                _ => cache.insert(key(segment, group), block(values)),
            }
            prop_assert_eq!(cache.counters().bytes as usize, held(&cache));
            prop_assert!(held(&cache) <= cache.capacity());
        }
    }
}
