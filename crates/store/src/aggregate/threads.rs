//! Works off the parts of a query, on some threads, and joins their groups in the order of the parts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, bounded};
use parking_lot::Mutex;

use super::groups::Groups;
use super::memory::Helpers;
use super::part::work_off;
use super::query::{Answer, Query};
use super::view::{Plan, View};
use crate::error::{Error, Result};

/// How often the caller looks whether it was killed while it waits for the others.
const LOOK: Duration = Duration::from_millis(5);

/// The answer to a query.
pub fn answer(view: &View, query: &Query, part_rows: u64, is_cancelled: &dyn Fn() -> bool) -> Result<Answer> {
    groups(view, query, part_rows, is_cancelled)?.finish()
}

/// The groups of a query.
pub fn groups<'q>(
    view: &View,
    query: &'q Query,
    part_rows: u64,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Groups<'q>> {
    let plan = view.plan(query, part_rows)?;
    let work = Work::new(view, query, &plan);
    let helpers = Helpers::take(query.threads.max(1).min(plan.parts.len()) - usize::from(!plan.parts.is_empty()));
    if helpers.count() == 0 {
        work.run(is_cancelled);
    } else {
        std::thread::scope(|scope| work.share(scope, helpers.count(), is_cancelled));
    }
    work.finish()
}

/// What threads share.
struct Work<'a, 'q> {
    view: &'a View,
    query: &'q Query,
    plan: &'a Plan,
    next: AtomicUsize,
    stop: AtomicBool,
    joined: Mutex<Joined<'q>>,
}

/// Groups of the parts that are done.
struct Joined<'q> {
    groups: Groups<'q>,
    /// The next part whose groups are to be joined, and those that are done before their turn.
    next: usize,
    waiting: BTreeMap<usize, Groups<'q>>,
    error: Option<Error>,
}

impl<'a, 'q> Work<'a, 'q> {
    fn new(view: &'a View, query: &'q Query, plan: &'a Plan) -> Work<'a, 'q> {
        let groups = Groups::new(query, view.layout.schema());
        let joined = Joined { groups, next: 0, waiting: BTreeMap::new(), error: None };
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        Work { view, query, plan, next, stop, joined: Mutex::new(joined) }
    }

    /// Lets threads help, and waits for them.
    fn share<'s>(&'s self, scope: &'s std::thread::Scope<'s, '_>, helpers: usize, is_cancelled: &dyn Fn() -> bool) {
        let (done, all_done) = bounded::<()>(0);
        for _ in 0..helpers {
            let done = done.clone();
            let help = move || {
                self.run(&|| false);
                drop(done);
            };
            // Without a thread the caller does the work alone.
            if std::thread::Builder::new().name("rrd-aggregate".into()).spawn_scoped(scope, help).is_err() {
                break;
            }
        }
        drop(done);
        self.run(is_cancelled);
        while all_done.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            if is_cancelled() {
                self.fail(Error::Interrupted);
            }
        }
    }

    /// Works off parts until there are none.
    fn run(&self, is_cancelled: &dyn Fn() -> bool) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(part) = self.plan.parts.get(number) else { return };
            let is_over = || self.stop.load(Ordering::Relaxed) || is_cancelled();
            if is_over() {
                return self.fail(Error::Interrupted);
            }
            let cluster = &self.plan.clusters[part.cluster];
            let done = work_off(self.view, self.query, cluster, part, &is_over);
            if let Err(error) = done.and_then(|groups| self.joined.lock().join(number, groups)) {
                return self.fail(error);
            }
        }
    }

    /// Stops all threads; the first error counts.
    fn fail(&self, error: Error) {
        self.joined.lock().error.get_or_insert(error);
        self.stop.store(true, Ordering::Relaxed);
    }

    fn finish(self) -> Result<Groups<'q>> {
        let joined = self.joined.into_inner();
        match joined.error {
            Some(error) => Err(error),
            None => Ok(joined.groups),
        }
    }
}

impl<'q> Joined<'q> {
    fn join(&mut self, number: usize, groups: Groups<'q>) -> Result<()> {
        self.waiting.insert(number, groups);
        while let Some(groups) = self.waiting.remove(&self.next) {
            self.groups.join(groups)?;
            self.next += 1;
        }
        Ok(())
    }
}
