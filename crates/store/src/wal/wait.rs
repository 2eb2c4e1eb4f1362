//! How a thread waits for the leader of a group: in a seat of its own, so that it is woken once and needs no lock then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, Thread};

use super::Lsn;
use crate::pause::Pause;

/// Nothing happened yet.
const WAITS: u8 = 0;
/// The record is where it should be.
const DONE: u8 = 1;
/// Look what happened, or lead.
const LOOK: u8 = 2;

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
    /// The seat of the calling thread, empty.
    pub fn take() -> Arc<Seat> {
        SEAT.with(|seat| {
            seat.word.store(WAITS, Ordering::Relaxed);
            seat.clone()
        })
    }

    /// Waits for a word: true if the record is where it should be.
    pub fn wait(&self) -> bool {
        let _pause = Pause::begin();
        loop {
            match self.word.load(Ordering::Acquire) {
                WAITS => thread::park(),
                word => return word == DONE,
            }
        }
    }

    /// Tells that the record is where it should be.
    pub fn done(&self) {
        self.wake(DONE);
    }

    /// Tells to look again.
    pub fn look(&self) {
        self.wake(LOOK);
    }

    fn wake(&self, word: u8) {
        self.word.store(word, Ordering::Release);
        self.thread.unpark();
    }
}
