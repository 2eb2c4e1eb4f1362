//! The store's `tracing` events, handed to the server's error log.
//!
//! One subscriber for the whole process, installed at the first start of the engine; where it writes to is set at each
//! start and taken away at each stop, after which events of late threads go nowhere. What repeats is written once a
//! minute, and no place in the code writes more than a few lines a minute, with a count of what was left out: a flush
//! that fails every second must not fill the disk that it waits for.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// How grave an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Something is broken.
    Error,
    /// Something should be looked at.
    Warning,
    /// Good to know.
    Note,
}

/// Where lines go.
pub type Sink = Box<dyn Fn(Severity, &str) + Send + Sync>;

/// For how long what was left out is only counted.
const WINDOW: Duration = Duration::from_secs(60);

/// Different lines of one place in the code within a window.
const LINES: u32 = 10;

/// Crates whose events are ours.
const OURS: &str = "rrd_";

static SINK: RwLock<Option<Sink>> = RwLock::new(None);

/// From now on events go to `sink`.
pub fn connect(sink: Sink) {
    *SINK.write().unwrap_or_else(PoisonError::into_inner) = Some(sink);
    // An error says that it was installed by an earlier start.
    let _ = tracing::subscriber::set_global_default(ErrorLog { places: Mutex::default() });
}

/// From now on events go nowhere. When it returns nobody is in the sink any more.
pub fn disconnect() {
    *SINK.write().unwrap_or_else(PoisonError::into_inner) = None;
}

struct ErrorLog {
    /// What each place in the code wrote lately.
    places: Mutex<HashMap<tracing::callsite::Identifier, Place>>,
}

struct Place {
    since: Instant,
    lines: u32,
    left_out: u64,
    last: String,
}

impl Place {
    fn new(now: Instant) -> Place {
        Place { since: now, lines: 0, left_out: 0, last: String::new() }
    }

    /// Whether to write `line`, and how many like it were left out before.
    fn admits(&mut self, now: Instant, line: &str) -> Option<u64> {
        let mut left_out = 0;
        if now.duration_since(self.since) >= WINDOW {
            left_out = self.left_out;
            *self = Place::new(now);
        }
        if self.lines >= LINES || (self.lines > 0 && self.last == line) {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        line.clone_into(&mut self.last);
        Some(left_out)
    }
}

impl Subscriber for ErrorLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with(OURS) && *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let mut text = line.text();
        let place = event.metadata().callsite();
        let now = Instant::now();
        let admitted = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            places.entry(place).or_insert_with(|| Place::new(now)).admits(now, &text)
        };
        let Some(left_out) = admitted else { return };
        if left_out > 0 {
            let _ = write!(text, " ({left_out} more such messages were left out)");
        }
        if let Some(sink) = &*SINK.read().unwrap_or_else(PoisonError::into_inner) {
            sink(severity(*event.metadata().level()), &text);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn severity(level: Level) -> Severity {
    match level {
        Level::ERROR => Severity::Error,
        Level::WARN => Severity::Warning,
        _ => Severity::Note,
    }
}

/// An event's words: `table 'db/t': message: reason`.
#[derive(Default)]
struct Line {
    message: String,
    before: String,
    behind: String,
}

impl Line {
    fn text(self) -> String {
        format!("{}{}{}", self.before, self.message, self.behind)
    }

    fn add(&mut self, field: &Field, value: &str) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value}"),
            "table" => write!(self.before, "table '{value}': "),
            "error" | "reason" => write!(self.behind, ": {value}"),
            name => write!(self.behind, ", {name} {value}"),
        };
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.add(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_repeats_is_written_once_a_minute() {
        let start = Instant::now();
        let mut place = Place::new(start);
        assert_eq!(place.admits(start, "disk full"), Some(0));
        for second in 1..60 {
            assert_eq!(place.admits(start + Duration::from_secs(second), "disk full"), None);
        }
        assert_eq!(place.admits(start + WINDOW, "disk full"), Some(59));
        assert_eq!(place.admits(start + WINDOW, "disk full"), None);
    }

    #[test]
    fn lines_that_differ_are_bounded_too() {
        let start = Instant::now();
        let mut place = Place::new(start);
        let written = (0..1000).filter(|n| place.admits(start, &format!("table {n}")).is_some()).count();
        assert_eq!(written, LINES as usize);
        assert_eq!(place.admits(start + WINDOW, "table 1"), Some(990));
    }

    // One test for the whole life, since the subscriber is the process's own.
    #[test]
    fn events_reach_whoever_is_connected() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = |lines: &Arc<Mutex<Vec<String>>>| -> Sink {
            let lines = lines.clone();
            Box::new(move |severity, line| {
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{severity:?} {line}"));
            })
        };
        let event = |n: u64| tracing::error!(table = "db/t", error = %"no room", "could not write, try {n}");
        event(0);
        connect(sink(&lines));
        event(1);
        tracing::debug!("not for operators");
        tracing::warn!(target: "another_crate", "not ours");
        disconnect();
        event(2);
        connect(sink(&lines));
        event(3);
        disconnect();
        let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(
            *lines,
            [
                "Error table 'db/t': could not write, try 1: no room",
                "Error table 'db/t': could not write, try 3: no room"
            ]
        );
    }
}
