//! Row locks: who waits for whom when statements read what they change.
//!
//! A lock is a table and a key, held by an owner (a transaction) until it lets go of all of its locks at once.
//! Waiters are served in the order in which they came; a newcomer never overtakes one. A wait that would close
//! a circle of waiting owners is refused at its beginning. Locks live in shards, each with its own mutex; the
//! mutex of the waits-for graph is taken before a shard's, never the other way round. Nothing is on disk: after
//! a crash nobody holds a lock. What a lock protects is the business of transactions.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hashbrown::{DefaultHashBuilder, Equivalent};
use parking_lot::{Condvar, Mutex, MutexGuard};
use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::limits;
use crate::manifest::edit::TableId;
use crate::pause::Pause;

#[cfg(test)]
mod tests;

/// Shards; enough that statements on different rows seldom meet.
const SHARDS: usize = 64;

/// How often a waiter looks whether its statement was killed, should nobody wake it.
const POLL: Duration = Duration::from_millis(100);

/// Locks of one owner from which on they are let go of by a sweep.
const SWEPT_LOCKS: usize = 1 << 14;

/// Places for locks that an idle shard keeps.
const KEPT_CAPACITY: usize = 64;

/// What else may be held beside a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Nothing.
    Exclusive,
    /// Other shared locks.
    Shared,
}

/// All row locks of an engine.
pub struct RowLocks {
    hasher: DefaultHashBuilder,
    shards: Vec<Mutex<Shard>>,
    /// What each owner holds, in shards by owner.
    held: Vec<Mutex<HashMap<u64, Held>>>,
    /// What each waiting owner waits for.
    waits: Mutex<HashMap<u64, Wait>>,
    waits_begun: AtomicU64,
    timeouts: AtomicU64,
    deadlocks: AtomicU64,
    /// What all locks take, roughly, and what they may take.
    bytes: AtomicU64,
    bytes_limit: AtomicU64,
    /// Owners' locks of whole tables that took the place of locks of rows.
    escalated: AtomicU64,
    escalations: AtomicU64,
    /// Told of each wait.
    report: OnceLock<WaitReport>,
}

/// Told that an owner is about to wait for others; called without any lock of this module.
pub type WaitReport = Box<dyn Fn(u64, &[u64]) + Send + Sync>;

type Shard = hashbrown::HashMap<Name, Lock>;

/// Names a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    table: TableId,
    key: Arc<[u8]>,
}

/// A name that is only looked up.
#[derive(Clone, Copy, Hash)]
struct NameRef<'a> {
    table: TableId,
    key: &'a [u8],
}

/// What an owner holds.
#[derive(Default)]
struct Held {
    names: Vec<Name>,
    bytes: u64,
    /// Tables that are locked as a whole in the place of their rows.
    escalated: u64,
}

/// What a waiting owner waits for.
struct Wait {
    name: Name,
    mode: LockMode,
    since: Instant,
}

/// A wait under way, for whoever looks after the engine.
pub(crate) struct WaitReported {
    pub owner: u64,
    /// The holders of the lock, and those who stand in front in its queue.
    pub blockers: Vec<u64>,
    pub table: TableId,
    /// Empty for the lock of the whole table.
    pub key: Arc<[u8]>,
    pub mode: LockMode,
    pub since: Instant,
}

#[derive(Default)]
struct Lock {
    /// Mostly one, and no allocation for it: a statement may lock millions of rows.
    holders: SmallVec<[(u64, LockMode); 1]>,
    queue: VecDeque<Waiter>,
}

struct Waiter {
    owner: u64,
    mode: LockMode,
    signal: Arc<Signal>,
}

/// How a waiter is told.
#[derive(Default)]
struct Signal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

#[derive(Default)]
struct SignalState {
    /// The lock was given to it.
    is_granted: bool,
    /// It should ask whether it was interrupted.
    was_poked: bool,
}

impl Name {
    /// Not the lock of a whole table, which is the one of no key.
    fn is_row(&self) -> bool {
        !self.key.is_empty()
    }

    /// What a lock with this name takes, roughly.
    fn bytes(&self) -> u64 {
        lock_bytes(&self.key)
    }

    fn by_ref(&self) -> NameRef<'_> {
        NameRef { table: self.table, key: &self.key }
    }
}

fn lock_bytes(key: &[u8]) -> u64 {
    limits::ROW_LOCK_BYTES + key.len() as u64
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.by_ref().hash(state);
    }
}

impl Equivalent<Name> for NameRef<'_> {
    fn equivalent(&self, name: &Name) -> bool {
        self.table == name.table && *self.key == *name.key
    }
}

impl Default for RowLocks {
    fn default() -> Self {
        RowLocks::new()
    }
}

impl RowLocks {
    /// No locks.
    pub fn new() -> RowLocks {
        RowLocks {
            hasher: DefaultHashBuilder::default(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            held: (0..SHARDS).map(|_| Mutex::default()).collect(),
            waits: Mutex::default(),
            waits_begun: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            deadlocks: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            bytes_limit: AtomicU64::new(u64::MAX),
            escalated: AtomicU64::new(0),
            escalations: AtomicU64::new(0),
            report: OnceLock::new(),
        }
    }

    /// Reports each wait from now on, who waits and for whom; the first report that is set stays.
    pub fn report_waits(&self, report: WaitReport) {
        let _ = self.report.set(report);
    }

    /// Locks a row for `owner` and says whether the owner held nothing of it before. An owner that holds it shared
    /// may ask for it exclusively and then goes in front of those who hold nothing. [`Error::Conflict`] when
    /// waiting would be a deadlock; [`Error::LockTimeout`] after `timeout`, with zero at once; [`Error::Interrupted`]
    /// when `interrupted` says so (see [`RowLocks::wake`]). After an error the owner keeps the locks that it had.
    pub fn lock(
        &self,
        owner: u64,
        table: TableId,
        key: &[u8],
        mode: LockMode,
        timeout: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let name_ref = NameRef { table, key };
        let mut shard = self.shard(name_ref).lock();
        let is_upgrade = match shard.get(&name_ref) {
            None => false,
            Some(lock) if lock.is_held(owner, mode) => return Ok(false),
            Some(lock) => {
                let is_upgrade = lock.is_held(owner, LockMode::Shared);
                if timeout.is_zero() && !lock.is_free_for(owner, mode, is_upgrade) {
                    return Err(Error::LockTimeout);
                }
                is_upgrade
            }
        };
        let name = Name { table, key: key.into() };
        let lock = shard.entry(name.clone()).or_default();
        if lock.is_free_for(owner, mode, is_upgrade) {
            lock.give(owner, mode);
        } else {
            let signal = lock.enqueue(owner, mode, is_upgrade);
            drop(shard);
            self.wait((owner, mode), &name, &signal, timeout, interrupted)?;
        }
        if !is_upgrade {
            self.bytes.fetch_add(name.bytes(), Ordering::Relaxed);
            let mut held = self.held_by(owner).lock();
            let held = held.entry(owner).or_default();
            held.bytes += name.bytes();
            held.names.push(name);
        }
        Ok(!is_upgrade)
    }

    /// Whether `owner` may lock one row more: [`Error::LockMemory`] if all locks take as much as they may, and the owner has
    /// more than the few that everybody may have. A row that it has locked may always be locked again.
    pub fn check_room(&self, owner: u64, table: TableId, key: &[u8]) -> Result<()> {
        let limit = self.bytes_limit.load(Ordering::Relaxed);
        if self.bytes().saturating_add(lock_bytes(key)) <= limit {
            return Ok(());
        }
        let has = self.held_by(owner).lock().get(&owner).map_or(0, |held| held.names.len());
        if has < limits::ROW_LOCKS_FOR_ALL || self.holds(owner, table, key) {
            return Ok(());
        }
        Err(Error::LockMemory { limit })
    }

    /// Lets go of the rows of a table that `owner` has locked alone, as a whole: that lock stands for them.
    pub fn escalate(&self, owner: u64, table: TableId) {
        let gone;
        {
            let mut held = self.held_by(owner).lock();
            let Some(held) = held.get_mut(&owner) else { return };
            let is_row = |name: &Name| name.table == table && name.is_row();
            let names = std::mem::take(&mut held.names);
            (gone, held.names) = names.into_iter().partition(is_row);
            let bytes: u64 = gone.iter().map(Name::bytes).sum();
            held.bytes -= bytes;
            held.escalated += 1;
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        self.escalated.fetch_add(1, Ordering::Relaxed);
        self.escalations.fetch_add(1, Ordering::Relaxed);
        if gone.len() < SWEPT_LOCKS {
            return self.let_go(owner, gone);
        }
        drop(gone);
        self.sweep(owner, Some(table));
    }

    /// Whether some owner has locked a table in the place of its rows.
    pub fn has_escalated(&self) -> bool {
        self.escalated.load(Ordering::Relaxed) > 0
    }

    /// How often a table was locked in the place of its rows.
    pub fn escalations(&self) -> u64 {
        self.escalations.load(Ordering::Relaxed)
    }

    /// Bytes that all locks take, roughly.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that all locks may take; see [`RowLocks::check_room`].
    pub fn set_bytes_limit(&self, bytes: u64) {
        self.bytes_limit.store(bytes, Ordering::Relaxed);
    }

    /// Makes a waiting owner ask at once whether it was interrupted; from any thread.
    pub fn wake(&self, owner: u64) {
        let Some(name) = self.waits.lock().get(&owner).map(|wait| wait.name.clone()) else { return };
        let shard = self.shard(name.by_ref()).lock();
        let waiter = shard.get(&name).and_then(|lock| lock.queue.iter().find(|waiter| waiter.owner == owner));
        if let Some(waiter) = waiter {
            waiter.signal.state.lock().was_poked = true;
            waiter.signal.changed.notify_one();
        }
    }

    /// Whether `owner` holds the row, in any mode.
    pub fn holds(&self, owner: u64, table: TableId, key: &[u8]) -> bool {
        let name = NameRef { table, key };
        let shard = self.shard(name).lock();
        shard.get(&name).is_some_and(|lock| lock.is_held(owner, LockMode::Shared))
    }

    /// Lets go of one row of `owner`, however it is held.
    pub fn release(&self, owner: u64, table: TableId, key: &[u8]) {
        let name_ref = NameRef { table, key };
        {
            let mut held = self.held_by(owner).lock();
            let Some(held) = held.get_mut(&owner) else { return };
            // Rows that are let go one by one were locked a moment ago.
            let Some(at) = held.names.iter().rposition(|name| name_ref.equivalent(name)) else { return };
            held.names.swap_remove(at);
            held.bytes -= lock_bytes(key);
            self.bytes.fetch_sub(lock_bytes(key), Ordering::Relaxed);
        }
        let mut shard = self.shard(name_ref).lock();
        if let Some((name, lock)) = shard.get_key_value_mut(&name_ref) {
            let name = name.clone();
            lock.holders.retain(|(holder, _)| *holder != owner);
            settle(&mut shard, &name);
        }
    }

    /// Lets go of all locks of `owner`, which must not be waiting.
    pub fn release_all(&self, owner: u64) {
        let Held { names, bytes, escalated } = {
            let mut held = self.held_by(owner).lock();
            let of_owner = held.remove(&owner);
            if held.is_empty() {
                held.shrink_to(KEPT_CAPACITY);
            }
            of_owner.unwrap_or_default()
        };
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.escalated.fetch_sub(escalated, Ordering::Relaxed);
        if names.len() >= SWEPT_LOCKS {
            drop(names);
            return self.sweep(owner, None);
        }
        self.let_go(owner, names);
    }

    fn let_go(&self, owner: u64, names: Vec<Name>) {
        for name in names {
            let mut shard = self.shard(name.by_ref()).lock();
            if let Some(lock) = shard.get_mut(&name) {
                lock.holders.retain(|(holder, _)| *holder != owner);
                settle(&mut shard, &name);
            }
        }
    }

    /// Lets go of an owner's many locks, all or those of the rows of a table, by going through all that there are: faster than
    /// to look each one up.
    fn sweep(&self, owner: u64, of_table: Option<TableId>) {
        let is_meant = |name: &Name| of_table.is_none_or(|table| name.table == table && name.is_row());
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.retain(|name, lock| {
                if is_meant(name) && lock.holders.iter().any(|(holder, _)| *holder == owner) {
                    lock.holders.retain(|(holder, _)| *holder != owner);
                    lock.serve();
                }
                !lock.is_unwanted()
            });
            shard.shrink_to(KEPT_CAPACITY);
        }
    }

    /// How many rows `owner` has locked.
    pub fn count_of(&self, owner: u64) -> u64 {
        let rows = |held: &Held| held.names.iter().filter(|name| name.is_row()).count() as u64;
        self.held_by(owner).lock().get(&owner).map_or(0, rows)
    }

    /// How many rows are locked.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().keys().filter(|name| name.is_row()).count()).sum()
    }

    /// Whether no row is locked.
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
    }

    /// The waits under way, the oldest first.
    pub(crate) fn waits(&self) -> Vec<WaitReported> {
        let waits = self.waits.lock();
        let reported = |(&owner, Wait { name, mode, since }): (&u64, &Wait)| {
            let shard = self.shard(name.by_ref()).lock();
            let blockers = shard.get(name).map(|lock| lock.blockers_of(owner)).unwrap_or_default();
            WaitReported { owner, blockers, table: name.table, key: name.key.clone(), mode: *mode, since: *since }
        };
        let mut list: Vec<WaitReported> = waits.iter().map(reported).collect();
        list.sort_by_key(|wait| wait.since);
        list
    }

    /// Waits so far.
    pub fn waits_begun(&self) -> u64 {
        self.waits_begun.load(Ordering::Relaxed)
    }

    /// Waits that ended by their time-out.
    pub fn timeouts(&self) -> u64 {
        self.timeouts.load(Ordering::Relaxed)
    }

    /// Waits that were refused because they would have been deadlocks.
    pub fn deadlocks(&self) -> u64 {
        self.deadlocks.load(Ordering::Relaxed)
    }

    /// Waits for a place in a queue to be served, and gives the place up when that is not to be.
    fn wait(
        &self,
        (owner, mode): (u64, LockMode),
        name: &Name,
        signal: &Signal,
        timeout: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.waits_begun.fetch_add(1, Ordering::Relaxed);
        let outcome = match self.begin_wait(owner, name, mode) {
            Ok(()) => {
                self.report_wait(owner, name);
                let _pause = Pause::begin();
                signal.wait(timeout, interrupted)
            }
            deadlock => deadlock,
        };
        self.waits.lock().remove(&owner);
        let Err(error) = outcome else {
            return Ok(());
        };
        let mut shard = self.shard(name.by_ref()).lock();
        if signal.state.lock().is_granted {
            // Served at the last moment: the lock is there, so nothing is wrong.
            return Ok(());
        }
        if let Some(lock) = shard.get_mut(name) {
            lock.queue.retain(|waiter| waiter.owner != owner);
            settle(&mut shard, name);
        }
        match &error {
            Error::LockTimeout => self.timeouts.fetch_add(1, Ordering::Relaxed),
            Error::Conflict => self.deadlocks.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        Err(error)
    }

    /// Enters a wait into the graph, or refuses it when it closes a circle.
    fn begin_wait(&self, owner: u64, name: &Name, mode: LockMode) -> Result<()> {
        let mut waits = self.waits.lock();
        waits.insert(owner, Wait { name: name.clone(), mode, since: Instant::now() });
        // Whoever closes a circle enters last and sees all of it, because the graph stays locked meanwhile.
        if self.is_deadlocked(&waits, owner) { Err(Error::Conflict) } else { Ok(()) }
    }

    fn report_wait(&self, owner: u64, name: &Name) {
        let Some(report) = self.report.get() else { return };
        // The lock stays where it is meanwhile: were a blocker through with its transaction by the time of the report, a
        // replica's server would kill the next transaction of its worker, and stop.
        let shard = self.shard(name.by_ref()).lock();
        let blockers = shard.get(name).map(|lock| lock.blockers_of(owner));
        report(owner, &blockers.unwrap_or_default());
    }

    /// Whether `owner` waits, by whatever detours, for itself.
    fn is_deadlocked(&self, waits: &MutexGuard<'_, HashMap<u64, Wait>>, owner: u64) -> bool {
        let mut seen = HashSet::new();
        let mut to_visit = vec![owner];
        while let Some(waiting) = to_visit.pop() {
            let Some(Wait { name, .. }) = waits.get(&waiting) else {
                continue;
            };
            let blockers = match self.shard(name.by_ref()).lock().get(name) {
                Some(lock) => lock.blockers_of(waiting),
                None => continue,
            };
            if blockers.contains(&owner) {
                return true;
            }
            to_visit.extend(blockers.into_iter().filter(|blocker| seen.insert(*blocker)));
        }
        false
    }

    fn shard(&self, name: NameRef<'_>) -> &Mutex<Shard> {
        &self.shards[self.hasher.hash_one(name) as usize % SHARDS]
    }

    fn held_by(&self, owner: u64) -> &Mutex<HashMap<u64, Held>> {
        &self.held[self.hasher.hash_one(owner) as usize % SHARDS]
    }
}

/// Serves whom a lock admits now, and forgets a lock that nobody wants.
fn settle(shard: &mut Shard, name: &Name) {
    let Some(lock) = shard.get_mut(name) else {
        return;
    };
    lock.serve();
    if lock.is_unwanted() {
        shard.remove(name);
        if shard.is_empty() {
            shard.shrink_to(KEPT_CAPACITY);
        }
    }
}

impl Lock {
    /// Whether nobody holds it or waits for it.
    fn is_unwanted(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    /// Whether `owner` holds at least `mode`.
    fn is_held(&self, owner: u64, mode: LockMode) -> bool {
        let enough = |held: LockMode| held == mode || held == LockMode::Exclusive;
        self.holders.iter().any(|(holder, held)| *holder == owner && enough(*held))
    }

    /// Whether the other holders leave room for `owner` in `mode`.
    fn admits(&self, owner: u64, mode: LockMode) -> bool {
        let shared = |held: LockMode| held == LockMode::Shared && mode == LockMode::Shared;
        self.holders.iter().all(|(holder, held)| *holder == owner || shared(*held))
    }

    /// Whether `owner` gets it in `mode` without waiting.
    fn is_free_for(&self, owner: u64, mode: LockMode, is_upgrade: bool) -> bool {
        self.admits(owner, mode) && (is_upgrade || self.queue.is_empty())
    }

    fn give(&mut self, owner: u64, mode: LockMode) {
        match self.holders.iter_mut().find(|(holder, _)| *holder == owner) {
            Some(held) => held.1 = mode,
            None => self.holders.push((owner, mode)),
        }
    }

    fn enqueue(&mut self, owner: u64, mode: LockMode, is_upgrade: bool) -> Arc<Signal> {
        let signal = Arc::new(Signal::default());
        let waiter = Waiter { owner, mode, signal: signal.clone() };
        // Those in the queue wait for an upgrader's shared lock anyway.
        if is_upgrade {
            self.queue.push_front(waiter)
        } else {
            self.queue.push_back(waiter)
        }
        signal
    }

    /// Serves the queue from its front as far as the holders admit.
    fn serve(&mut self) {
        while let Some(next) = self.queue.front()
            && self.admits(next.owner, next.mode)
            && let Some(Waiter { owner, mode, signal }) = self.queue.pop_front()
        {
            self.give(owner, mode);
            signal.state.lock().is_granted = true;
            signal.changed.notify_one();
        }
    }

    /// Whom a waiting owner waits for: the other holders, and whoever stands in front of it.
    fn blockers_of(&self, owner: u64) -> Vec<u64> {
        if !self.queue.iter().any(|waiter| waiter.owner == owner) {
            return Vec::new();
        }
        let holders = self.holders.iter().map(|(holder, _)| *holder).filter(|holder| *holder != owner);
        let in_front = self.queue.iter().map(|waiter| waiter.owner).take_while(|waiting| *waiting != owner);
        holders.chain(in_front).collect()
    }
}

impl Signal {
    fn wait(&self, timeout: Duration, interrupted: &dyn Fn() -> bool) -> Result<()> {
        // A time-out too long for the clock is none.
        let deadline = Instant::now().checked_add(timeout);
        let mut state = self.state.lock();
        while !state.is_granted {
            let now = Instant::now();
            let left = deadline.map_or(POLL, |deadline| deadline.saturating_duration_since(now));
            if left.is_zero() {
                return Err(Error::LockTimeout);
            }
            state.was_poked = false;
            if MutexGuard::unlocked(&mut state, interrupted) {
                return Err(Error::Interrupted);
            }
            if !state.is_granted && !state.was_poked {
                self.changed.wait_for(&mut state, left.min(POLL));
            }
        }
        Ok(())
    }
}
