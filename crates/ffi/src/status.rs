//! From errors to status numbers: the one table, and the texts that go with them.
//!
//! The handler has the other half: status number to `HA_ERR_*`. Users see the text, so it names what failed and,
//! where there is one, the way out.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use rrd_store::Error;

use crate::abi::{self, RrdError};

/// Why a call failed.
#[derive(Debug)]
pub enum Failure {
    /// The store said so.
    Store(Error),
    /// An expected outcome that needs no text: end of scan, key not found.
    Outcome(i32),
    /// Ours to explain: status number and text.
    Explained(i32, String),
}

/// Result of everything behind an export.
pub type Outcome<T> = std::result::Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

impl Failure {
    /// A request that makes no sense.
    pub fn invalid(text: impl Into<String>) -> Failure {
        Failure::Explained(abi::RRD_INVALID, text.into())
    }

    /// A request that the engine does not serve.
    pub fn unsupported(text: impl Into<String>) -> Failure {
        Failure::Explained(abi::RRD_UNSUPPORTED, text.into())
    }

    /// A bug on this or the other side of the ABI.
    pub fn internal(text: impl Into<String>) -> Failure {
        Failure::Explained(abi::RRD_INTERNAL, text.into())
    }

    /// The server's table definition does not go with the engine's.
    pub fn definition_changed(text: impl Into<String>) -> Failure {
        Failure::Explained(abi::RRD_DEFINITION_CHANGED, text.into())
    }

    /// The status number.
    pub fn status(&self) -> i32 {
        match self {
            Failure::Store(error) => status_of(error),
            Failure::Outcome(status) | Failure::Explained(status, _) => *status,
        }
    }

    fn text(&self) -> String {
        match self {
            Failure::Store(error) => error.to_string(),
            Failure::Outcome(_) => String::new(),
            Failure::Explained(_, text) => text.clone(),
        }
    }

    /// Fills the caller's struct: of the message no more than its text.
    pub fn write(&self, out: &mut MaybeUninit<RrdError>) {
        let index = match self {
            Failure::Store(Error::Duplicate { index, .. }) => *index,
            _ => 0,
        };
        let out = out.as_mut_ptr();
        // SAFETY: the pointer is from a reference, so it is aligned and to memory that nobody else uses meanwhile. Only places of
        // fields are taken. The message becomes a slice of bytes that need not be initialised, as long as the field.
        let message = unsafe {
            (&raw mut (*out).status).write(self.status());
            (&raw mut (*out).index).write(index);
            &mut *(&raw mut (*out).message).cast::<[MaybeUninit<c_char>; abi::RRD_MESSAGE_BYTES]>()
        };
        write_text(&self.text(), message);
    }
}

/// The table: what each error of the store is called on the other side.
pub fn status_of(error: &Error) -> i32 {
    match error {
        Error::Io { .. } if error.is_disk_full() => abi::RRD_DISK_FULL,
        Error::Io { .. } => abi::RRD_IO,
        Error::Corruption { .. } => abi::RRD_CORRUPTION,
        Error::Incompatible { .. } => abi::RRD_INCOMPATIBLE,
        Error::DefinitionChanged { .. } => abi::RRD_DEFINITION_CHANGED,
        Error::InvalidInput(_) => abi::RRD_INVALID,
        Error::LimitExceeded { .. } | Error::NoRoom { .. } => abi::RRD_LIMIT,
        Error::Duplicate { .. } => abi::RRD_DUPLICATE,
        Error::Conflict => abi::RRD_CONFLICT,
        Error::LockTimeout | Error::Undecided { .. } => abi::RRD_LOCK_TIMEOUT,
        Error::Prepared { .. } => abi::RRD_PREPARED,
        // Waited for within the store.
        Error::Pending { .. } => abi::RRD_INTERNAL,
        Error::LockMemory { .. } => abi::RRD_LOCK_MEMORY,
        Error::OutOfMemory { .. } => abi::RRD_OUT_OF_MEMORY,
        Error::Interrupted => abi::RRD_INTERRUPTED,
        Error::Locked { .. } => abi::RRD_LOCKED,
        Error::NoSuchTable { .. } => abi::RRD_NO_SUCH_TABLE,
        Error::TableExists { .. } => abi::RRD_TABLE_EXISTS,
        Error::Poisoned { .. } => abi::RRD_READ_ONLY,
    }
}

/// Copies as much of `text` as fits, cut between characters, and ends it with a zero byte.
fn write_text(text: &str, out: &mut [MaybeUninit<c_char>]) {
    let mut end = text.len().min(out.len() - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (to, from) in out.iter_mut().zip(&text.as_bytes()[..end]) {
        to.write(*from as c_char);
    }
    out[end].write(0);
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::*;

    #[test]
    fn a_full_disk_is_told_from_other_io_errors() {
        let full = Error::io("write", Path::new("x"))(io::Error::from_raw_os_error(28));
        let other = Error::io("write", Path::new("x"))(io::Error::from_raw_os_error(5));
        assert_eq!(status_of(&full), abi::RRD_DISK_FULL);
        assert_eq!(status_of(&other), abi::RRD_IO);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut out = [MaybeUninit::new(1); 4];
        write_text("ab\u{20ac}", &mut out);
        // SAFETY: all four were initialised, and some written again.
        let out = out.map(|byte| unsafe { byte.assume_init() });
        assert_eq!(out, [b'a' as c_char, b'b' as c_char, 0, 1]);
    }
}
