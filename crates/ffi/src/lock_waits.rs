//! The rows of INFORMATION_SCHEMA.RRD_LOCK_WAITS: who waits for whom, and the row as people read it.
//!
//! How a row is shown is known to the handlers that have its table open, and whoever waits for a row has. So each opened
//! table leaves its format here.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rrd_store::report::LockWait;
use rrd_store::schema::Lane;
use rrd_store::{LockMode, RowLayout, Table, key};

use crate::connections::Connections;
use crate::key_text::utc;
use crate::record::RecordFormat;

/// The formats of open tables, by the numbers of the tables.
#[derive(Default)]
pub struct Formats(Mutex<BTreeMap<u32, Weak<RecordFormat>>>);

impl Formats {
    /// A table is open.
    pub fn note(&self, table: &Table, format: &Arc<RecordFormat>) {
        // A panic between two changes of a map leaves it whole.
        let mut formats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        formats.retain(|_, format| format.strong_count() > 0);
        formats.insert(table.number(), Arc::downgrade(format));
    }

    fn of(&self, table: &Table) -> Option<Arc<RecordFormat>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&table.number())?.upgrade()
    }
}

/// A transaction that waits for another one.
pub struct WaitRow {
    /// The name of the index whose key is locked; `None` for the clustering key.
    pub index_name: Option<String>,
    /// Who waits: the transaction, and the connection, which a prepared transaction may have none of.
    pub waiting: (u64, Option<u64>),
    /// Who is in the way.
    pub blocking: (u64, Option<u64>),
    /// How the row is to be locked.
    pub mode: LockMode,
    /// How long it has waited.
    pub waited: Duration,
    /// The key's value; `None` for the lock of the whole table.
    pub locked_row: Option<String>,
}

/// The waits for rows of a table, those among `waits`.
pub fn wait_rows(waits: &[LockWait], table: &Arc<Table>, connections: &Connections, formats: &Formats) -> Vec<WaitRow> {
    let mut rows = Vec::new();
    for wait in waits.iter().filter(|wait| Arc::ptr_eq(&wait.table, table)) {
        let locked_row = key_text(wait, formats.of(table).as_deref());
        let index = wait.index.and_then(|number| table.indexes().get(number).cloned());
        for &blocking in &wait.blocking {
            rows.push(WaitRow {
                index_name: index.as_ref().map(|index| index.def.name.clone()),
                waiting: (wait.waiting, connections.id_of(wait.waiting)),
                blocking: (blocking, connections.id_of(blocking)),
                mode: wait.mode,
                waited: wait.waited,
                locked_row: locked_row.clone(),
            });
        }
    }
    rows
}

/// The value of the locked key, its parts with dashes between them as in the error of a duplicate; TIMESTAMPs in UTC. Where
/// that is not known, its bytes in hexadecimal digits.
fn key_text(wait: &LockWait, format: Option<&RecordFormat>) -> Option<String> {
    if wait.key.is_empty() {
        return None;
    }
    let made = || row_of_key(&wait.table.layout(), &wait.key).filter(|_| wait.index.is_none());
    let row = wait.row.clone().or_else(made);
    let text = format.zip(row).and_then(|(format, row)| match wait.index {
        None => Some(format.key_text(&row, &utc)),
        Some(number) => {
            let index = format.indexes().iter().find(|index| index.number == number)?;
            Some(format.index_text(index, &row, &utc))
        }
    });
    Some(text.unwrap_or_else(|| hex(&wait.key)))
}

/// A row with the values of its key, which has to be of integers; other columns are zero.
fn row_of_key(layout: &RowLayout, mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut row = Vec::new();
    let mut writer = layout.writer(&mut row);
    let mut is_whole = true;
    for &column in &layout.schema().key {
        let column = usize::from(column);
        let Lane::Int { width } = layout.schema().columns[column].lane else {
            is_whole = false;
            break;
        };
        let Some((value, behind)) = key::split_int(rest, width) else {
            is_whole = false;
            break;
        };
        writer.set_int(column, value);
        rest = behind;
    }
    writer.finish();
    (is_whole && rest.is_empty()).then_some(row)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}
