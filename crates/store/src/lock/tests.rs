//! Row locks under threads: order, deadlocks, time-outs, kills.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::*;

const T: TableId = TableId(1);
const LONG: Duration = Duration::from_secs(20);

fn never() -> bool {
    false
}

fn lock(locks: &RowLocks, owner: u64, key: &[u8]) -> Result<()> {
    locks.lock(owner, T, key, LockMode::Exclusive, LONG, &never).map(|_| ())
}

fn try_as(locks: &RowLocks, owner: u64, key: &[u8], mode: LockMode) -> Result<()> {
    locks.lock(owner, T, key, mode, Duration::ZERO, &never).map(|_| ())
}

/// Returns when `count` owners wait.
fn until_waiting(locks: &RowLocks, count: usize) {
    while locks.waits.lock().len() != count {
        thread::yield_now();
    }
}

#[test]
fn a_row_has_one_owner_and_other_rows_are_free() {
    let locks = RowLocks::new();
    lock(&locks, 1, b"a").unwrap();
    lock(&locks, 1, b"a").unwrap();
    assert!(matches!(try_as(&locks, 2, b"a", LockMode::Exclusive), Err(Error::LockTimeout)));
    lock(&locks, 2, b"b").unwrap();
    locks.lock(2, TableId(2), b"a", LockMode::Exclusive, LONG, &never).unwrap();
    assert!(locks.holds(1, T, b"a") && !locks.holds(2, T, b"a") && !locks.holds(1, T, b"c"));
    assert_eq!(locks.len(), 3);
    locks.release_all(1);
    assert!(!locks.holds(1, T, b"a"));
    lock(&locks, 2, b"a").unwrap();
    locks.release_all(2);
    locks.release_all(3);
    assert!(locks.is_empty() && locks.waits.lock().is_empty());
}

#[test]
fn memory_is_freed_with_the_last_lock() {
    let locks = RowLocks::new();
    for i in 0..100_000u32 {
        lock(&locks, 1, &i.to_le_bytes()).unwrap();
    }
    assert_eq!(locks.len(), 100_000);
    locks.release_all(1);
    assert_eq!(locks.len(), 0);
    let kept: usize = locks.shards.iter().map(|shard| shard.lock().capacity()).sum();
    assert!(kept <= 2 * SHARDS * KEPT_CAPACITY, "{kept}");
    assert!(locks.held.iter().all(|held| held.lock().is_empty()));
}

#[test]
fn waiters_are_served_in_the_order_in_which_they_came() {
    let locks = RowLocks::new();
    let order = Mutex::new(Vec::new());
    lock(&locks, 100, b"a").unwrap();
    thread::scope(|scope| {
        for owner in 0..5 {
            let (locks, order) = (&locks, &order);
            scope.spawn(move || {
                lock(locks, owner, b"a").unwrap();
                order.lock().push(owner);
                locks.release_all(owner);
            });
            until_waiting(locks, owner as usize + 1);
        }
        locks.release_all(100);
    });
    assert_eq!(*order.lock(), [0, 1, 2, 3, 4]);
    assert!(locks.is_empty());
}

/// Each of `count` owners holds a row and asks for the next one's; how many are refused.
fn circle(count: u64) -> usize {
    let locks = RowLocks::new();
    for owner in 0..count {
        lock(&locks, owner, &[owner as u8]).unwrap();
    }
    thread::scope(|scope| {
        let ask = |owner: u64| {
            let locks = &locks;
            scope.spawn(move || {
                let outcome = lock(locks, owner, &[((owner + 1) % count) as u8]);
                locks.release_all(owner);
                match outcome {
                    Ok(()) => 0,
                    Err(Error::Conflict) => 1,
                    Err(e) => panic!("{e}"),
                }
            })
        };
        let threads: Vec<_> = (0..count).map(ask).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    })
}

#[test]
fn a_deadlock_of_two_or_more_is_refused_to_one() {
    for _ in 0..50 {
        // The one that closes the circle is refused; then the others go on one after the other.
        assert_eq!(circle(2), 1);
        assert_eq!(circle(3), 1);
        assert_eq!(circle(7), 1);
    }
}

#[test]
fn a_deadlock_through_the_queue_is_seen() {
    let locks = RowLocks::new();
    lock(&locks, 1, b"a").unwrap();
    lock(&locks, 2, b"b").unwrap();
    thread::scope(|scope| {
        // 2 waits for 1, and 3 stands behind 2 in the queue.
        let second = scope.spawn(|| lock(&locks, 2, b"a"));
        until_waiting(&locks, 1);
        lock(&locks, 3, b"c").unwrap();
        let third = scope.spawn(|| lock(&locks, 3, b"a"));
        until_waiting(&locks, 2);
        assert!(matches!(lock(&locks, 1, b"c"), Err(Error::Conflict)), "1 for 3, 3 for 1");
        assert!(matches!(lock(&locks, 1, b"b"), Err(Error::Conflict)), "1 for 2, 2 for 1");
        assert!(locks.holds(1, T, b"a"), "the refused keeps what it has");
        locks.release_all(1);
        second.join().unwrap().unwrap();
        locks.release_all(2);
        third.join().unwrap().unwrap();
        locks.release_all(3);
    });
    assert!(locks.is_empty());
}

#[test]
fn a_wait_ends_after_its_time_out() {
    let locks = RowLocks::new();
    lock(&locks, 1, b"a").unwrap();
    let start = Instant::now();
    let outcome = locks.lock(2, T, b"a", LockMode::Exclusive, Duration::from_millis(150), &never);
    assert!(matches!(outcome, Err(Error::LockTimeout)));
    assert!(start.elapsed() >= Duration::from_millis(150) && start.elapsed() < LONG / 4);
    locks.release_all(1);
    assert!(locks.is_empty(), "a waiter that gave up leaves nothing behind");
}

#[test]
fn a_kill_ends_a_wait() {
    let locks = RowLocks::new();
    lock(&locks, 1, b"a").unwrap();
    let killed = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let is_killed = || killed.load(Ordering::Relaxed);
            locks.lock(2, T, b"a", LockMode::Exclusive, Duration::MAX, &is_killed)
        });
        until_waiting(&locks, 1);
        killed.store(true, Ordering::Relaxed);
        let start = Instant::now();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Interrupted)));
        assert!(start.elapsed() < LONG / 4);
    });
}

#[test]
fn shared_locks_go_together_and_exclude_an_exclusive_one() {
    let locks = RowLocks::new();
    try_as(&locks, 1, b"a", LockMode::Shared).unwrap();
    try_as(&locks, 2, b"a", LockMode::Shared).unwrap();
    assert!(matches!(try_as(&locks, 3, b"a", LockMode::Exclusive), Err(Error::LockTimeout)));
    assert!(matches!(try_as(&locks, 1, b"a", LockMode::Exclusive), Err(Error::LockTimeout)));
    locks.release_all(2);
    try_as(&locks, 1, b"a", LockMode::Exclusive).unwrap();
    try_as(&locks, 1, b"a", LockMode::Shared).unwrap();
    assert!(matches!(try_as(&locks, 2, b"a", LockMode::Shared), Err(Error::LockTimeout)), "still exclusive");
    locks.release_all(1);
    assert!(locks.is_empty());
}

#[test]
fn two_upgrades_of_one_row_are_a_deadlock() {
    let locks = RowLocks::new();
    try_as(&locks, 1, b"a", LockMode::Shared).unwrap();
    try_as(&locks, 2, b"a", LockMode::Shared).unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| lock(&locks, 1, b"a"));
        until_waiting(&locks, 1);
        assert!(matches!(lock(&locks, 2, b"a"), Err(Error::Conflict)));
        locks.release_all(2);
        first.join().unwrap().unwrap();
    });
    assert_eq!(locks.len(), 1);
}

#[test]
fn a_shared_waiter_behind_a_writer_that_gives_up_is_served() {
    let locks = RowLocks::new();
    try_as(&locks, 1, b"a", LockMode::Shared).unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| locks.lock(2, T, b"a", LockMode::Exclusive, Duration::from_millis(100), &never));
        until_waiting(&locks, 1);
        let reader = scope.spawn(|| locks.lock(3, T, b"a", LockMode::Shared, LONG, &never));
        assert!(matches!(writer.join().unwrap(), Err(Error::LockTimeout)));
        reader.join().unwrap().unwrap();
    });
}

#[test]
fn threads_that_take_random_locks_exclude_each_other_and_all_finish() {
    let locks = RowLocks::new();
    let owners: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
    let conflicts = AtomicU64::new(0);
    thread::scope(|scope| {
        for owner in 1..=6u64 {
            let (locks, owners, conflicts) = (&locks, &owners, &conflicts);
            scope.spawn(move || {
                let mut random = owner;
                for _ in 0..400 {
                    let mut mine = Vec::new();
                    for _ in 0..3 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(owner);
                        let row = (random >> 40) as usize % owners.len();
                        match lock(locks, owner, &[row as u8]) {
                            Ok(()) => mine.push(row),
                            Err(Error::Conflict) => {
                                conflicts.fetch_add(1, Ordering::Relaxed);
                                break;
                            }
                            Err(e) => panic!("{e}"),
                        }
                        let before = owners[row].swap(owner, Ordering::SeqCst);
                        assert!(before == 0 || before == owner, "row {row} has two owners");
                        thread::yield_now();
                    }
                    mine.iter().for_each(|&row| owners[row].store(0, Ordering::SeqCst));
                    locks.release_all(owner);
                }
            });
        }
    });
    assert!(locks.is_empty() && locks.waits.lock().is_empty());
}

#[test]
fn who_does_not_wait_leaves_no_trace() {
    let locks = RowLocks::new();
    lock(&locks, 1, b"a").unwrap();
    assert!(matches!(try_as(&locks, 2, b"a", LockMode::Shared), Err(Error::LockTimeout)));
    assert!(locks.waits.lock().is_empty() && locks.waits_begun() == 0);
    locks.release_all(1);
    assert!(locks.is_empty());
    // Not even a deadlock is looked for.
    lock(&locks, 1, b"a").unwrap();
    lock(&locks, 2, b"b").unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| lock(&locks, 1, b"b"));
        until_waiting(&locks, 1);
        assert!(matches!(try_as(&locks, 2, b"a", LockMode::Exclusive), Err(Error::LockTimeout)));
        locks.release_all(2);
        first.join().unwrap().unwrap();
    });
}

#[test]
fn a_single_row_is_given_back_to_whoever_waits_for_it() {
    let locks = RowLocks::new();
    let new = |owner, key: &[u8], mode| locks.lock(owner, T, key, mode, Duration::ZERO, &never).unwrap();
    assert!(new(1, b"a", LockMode::Shared));
    assert!(!new(1, b"a", LockMode::Shared) && !new(1, b"a", LockMode::Exclusive), "held already");
    assert!(new(1, b"b", LockMode::Exclusive));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock(&locks, 2, b"a"));
        until_waiting(&locks, 1);
        locks.release(1, T, b"a");
        waiter.join().unwrap().unwrap();
    });
    assert!(!locks.holds(1, T, b"a") && locks.holds(1, T, b"b") && locks.holds(2, T, b"a"));
    locks.release(1, T, b"a");
    assert!(locks.holds(2, T, b"a"), "nobody lets go of another's lock");
    locks.release_all(1);
    locks.release_all(2);
    assert!(locks.is_empty() && locks.held.iter().all(|held| held.lock().is_empty()));
}

#[test]
fn a_waiter_that_is_woken_asks_whether_it_was_killed() {
    let locks = RowLocks::new();
    lock(&locks, 1, b"a").unwrap();
    let asked = AtomicU64::new(0);
    let killed = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let is_killed = || {
                asked.fetch_add(1, Ordering::Relaxed);
                killed.load(Ordering::Relaxed)
            };
            locks.lock(2, T, b"a", LockMode::Exclusive, Duration::MAX, &is_killed)
        });
        until_waiting(&locks, 1);
        // Far more often than it would ask by itself.
        let before = asked.load(Ordering::Relaxed);
        for _ in 0..100 {
            locks.wake(2);
            let asked_now = asked.load(Ordering::Relaxed);
            while asked.load(Ordering::Relaxed) == asked_now {
                thread::yield_now();
            }
        }
        assert!(asked.load(Ordering::Relaxed) >= before + 100);
        killed.store(true, Ordering::Relaxed);
        locks.wake(2);
        assert!(matches!(waiter.join().unwrap(), Err(Error::Interrupted)));
    });
    locks.wake(2);
    locks.wake(1);
}

#[test]
fn a_blocker_stays_one_until_the_report_of_the_wait_is_made() {
    let locks = Arc::new(RowLocks::new());
    let (reported, is_reported) = std::sync::mpsc::channel();
    let of_report = Arc::downgrade(&locks);
    locks.report_waits(Box::new(move |_, blockers| {
        let locks = of_report.upgrade().unwrap();
        // Who lets go of the lock needs its shard.
        let is_kept = locks.shard(NameRef { table: T, key: b"row" }).try_lock().is_none();
        reported.send((blockers.to_vec(), is_kept)).unwrap();
    }));
    lock(&locks, 1, b"row").unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock(&locks, 2, b"row"));
        assert_eq!(is_reported.recv().unwrap(), (vec![1], true));
        locks.release_all(1);
        waiter.join().unwrap().unwrap();
    });
}
