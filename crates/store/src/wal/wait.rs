//! How a thread waits for the leader of a group: in a seat of its own, so that it is woken once and needs no lock then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::Lsn;
use crate::pause::Pause;

/// Nothing happened yet.
const WAITS: u8 = 0;
const DONE: u8 = 1;
const LOOK: u8 = 2;

/// What a thread is told that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The record is where it should be.
    Done,
    /// Look what happened, or lead.
    Look,
}

/// Somebody who waits for the record that ends at `up_to`.
pub struct Waiter {
    pub up_to: Lsn,
    pub durable: bool,
    pub seat: Arc<Seat>,
}

/// A thread's place to wait; it has one.
pub struct Seat {
    thread: Thread,
    word: AtomicU8,
}

thread_local! {
    static SEAT: Arc<Seat> = Arc::new(Seat { thread: thread::current(), word: AtomicU8::new(WAITS) });
}

impl Seat {
    /// The seat of the calling thread, empty. Nobody else has it any more: who takes a waiter out of the list calls it once.
    pub fn take() -> Arc<Seat> {
        SEAT.with(|seat| {
            seat.word.store(WAITS, Ordering::Relaxed);
            seat.clone()
        })
    }

    /// Waits for a word; `None` if none came in time.
    pub fn wait(&self, limit: Option<Duration>) -> Option<Word> {
        let _pause = Pause::begin();
        let deadline = limit.map(|limit| Instant::now() + limit);
        loop {
            match self.word.load(Ordering::Acquire) {
                DONE => return Some(Word::Done),
                LOOK => return Some(Word::Look),
                _ => {}
            }
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => thread::park(),
                Some(Duration::ZERO) => return None,
                Some(left) => thread::park_timeout(left),
            }
        }
    }

    /// Gives it a word.
    pub fn call(&self, word: Word) {
        let word = match word {
            Word::Done => DONE,
            Word::Look => LOOK,
        };
        self.word.store(word, Ordering::Release);
        self.thread.unpark();
    }
}
