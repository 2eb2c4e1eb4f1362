//! Whether the next group waits a moment for those whom the last one woke.
//!
//! Clients that do little but commit are back at once. A leader that starts without them makes two groups that take turns:
//! one is on its way to the disk while the other waits, and each client waits for two syncs a commit. So a leader
//! measures how long a group needs to come back and how long the disk needs for it, and waits for those who are missing
//! when they will be there in less time than the sync takes that they would otherwise sit through. Who comes last leads at
//! once. A client alone never waits, nor does anybody where the disk is faster than the clients. Pure: the time is given.

use std::time::{Duration, Instant};

/// How many samples an average remembers, about.
const REMEMBERED: u32 = 4;

/// What is known of the last group and of the groups before it.
#[derive(Default)]
pub struct Gather {
    /// How many the last group served.
    woken: usize,
    /// When that was.
    since: Option<Instant>,
    /// How many have come since then.
    arrived: usize,
    /// Until as many as were woken had come again.
    back: Average,
    /// What the disk takes for a group.
    sync: Average,
}

impl Gather {
    /// Somebody wants a sync.
    pub fn arrive(&mut self, now: Instant) {
        self.arrived += 1;
        if self.arrived == self.woken {
            self.note_back(now);
        }
    }

    /// A group of so many is durable; the disk took so long.
    pub fn settle(&mut self, served: usize, took: Duration, now: Instant) {
        if self.arrived < self.woken {
            // They are not back yet.
            self.note_back(now);
        }
        (self.woken, self.arrived, self.since) = (served, 0, Some(now));
        self.sync.add(took);
    }

    /// Whether as many have come as the last group woke.
    pub fn is_complete(&self) -> bool {
        self.arrived >= self.woken
    }

    /// How long it is worth while to wait for those who are missing; `None` not to wait.
    pub fn patience(&self, now: Instant) -> Option<Duration> {
        let (back, sync) = (self.back.value?, self.sync.value?);
        let passed = now.saturating_duration_since(self.since?);
        if self.is_complete() || back.saturating_sub(passed) >= sync {
            return None;
        }
        // Twice the time that they usually need; who is later than that does something else now.
        let limit = (2 * back).checked_sub(passed)?.min(sync);
        (!limit.is_zero()).then_some(limit)
    }

    fn note_back(&mut self, now: Instant) {
        if let Some(since) = self.since {
            self.back.add(now.saturating_duration_since(since));
        }
    }
}

/// A mean that forgets.
#[derive(Default)]
struct Average {
    value: Option<Duration>,
}

impl Average {
    fn add(&mut self, sample: Duration) {
        let mean = |value: Duration| (value * (REMEMBERED - 1) + sample) / REMEMBERED;
        self.value = Some(self.value.map_or(sample, mean));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// Groups of `clients` that come back one after the other, each `apart` after the one before, and syncs of `sync`.
    fn after_groups(clients: usize, apart: Duration, sync: Duration) -> (Gather, Instant) {
        let (mut gather, mut now) = (Gather::default(), Instant::now());
        for _ in 0..20 {
            for _ in 0..clients {
                now += apart;
                gather.arrive(now);
            }
            now += sync;
            gather.settle(clients, sync, now);
        }
        (gather, now)
    }

    #[test]
    fn who_is_back_soon_is_waited_for_and_the_last_one_ends_the_wait() {
        let (mut gather, woken) = after_groups(8, 20 * US, 1000 * US);
        let first = woken + 20 * US;
        gather.arrive(first);
        // They are back in 160 us, the disk takes 1000.
        let patience = gather.patience(first).unwrap_or_default();
        assert!(patience > 140 * US && patience < 400 * US, "{patience:?}");
        (0..6).for_each(|_| gather.arrive(first));
        assert!(!gather.is_complete());
        gather.arrive(first);
        assert!(gather.is_complete());
        assert_eq!(gather.patience(first), None);
    }

    #[test]
    fn a_client_alone_never_waits() {
        let (mut gather, woken) = after_groups(1, 20 * US, 1000 * US);
        gather.arrive(woken + US);
        assert_eq!(gather.patience(woken + US), None);
        assert_eq!(Gather::default().patience(woken), None);
    }

    #[test]
    fn nobody_waits_where_the_disk_is_faster_than_the_clients() {
        let (mut gather, woken) = after_groups(8, 20 * US, 100 * US);
        gather.arrive(woken + US);
        assert_eq!(gather.patience(woken + US), None);
    }

    #[test]
    fn clients_that_stay_away_are_soon_not_waited_for() {
        let (mut gather, mut now) = after_groups(8, 20 * US, 1000 * US);
        let mut waits = 0;
        for _ in 0..100 {
            now += 50 * US;
            gather.arrive(now);
            // The others have gone; but the next groups believe to have woken two each.
            if let Some(patience) = gather.patience(now) {
                waits += 1;
                now += patience;
            }
            now += 1000 * US;
            gather.settle(2, 1000 * US, now);
        }
        assert!(waits < 10, "{waits}");
        assert_eq!(gather.patience(now + 5000 * US), None, "too late to be worth it");
    }
}
