//! Manifests of any bytes, for fuzzing: what is inside the frames is not looked at before it is written.

use super::file::Kind;
use super::*;

/// What decodes encodes again to what decodes to the same.
pub(crate) fn check_decoders(state: &[u8], edits: &[u8]) {
    if let Ok(state) = decode::state(state) {
        let again = encode::state(&state).map(|bytes| decode::state(&bytes));
        assert!(matches!(again, Ok(Ok(again)) if again == state), "a state that does not come back");
    }
    if let Ok(edits) = decode::edits(edits) {
        let again = encode::edits(&edits).map(|bytes| decode::edits(&bytes));
        assert!(matches!(again, Ok(Ok(again)) if again == edits), "edits that do not come back");
    }
}

/// A state as a manifest has it.
pub(crate) fn encode_raw(state: &State) -> Result<Vec<u8>> {
    encode::state(state)
}

/// Puts a manifest of this state in the place of what is there.
pub(crate) fn rewrite_raw(fs: &dyn Fs, dir: &Path, state: &State) -> Result<()> {
    write_raw(fs, dir, Some(&encode::state(state)?), &[])
}

/// Puts a manifest of a snapshot, by default that of the folder, and a record in the place of what is there.
pub(crate) fn write_raw(fs: &dyn Fs, dir: &Path, snapshot: Option<&[u8]>, edits: &[u8]) -> Result<()> {
    let newest = fs.list(dir)?.iter().filter_map(|entry| number_of(&entry.name)).max().unwrap_or(0);
    let before = dir.join(file_name(newest));
    let own = match snapshot {
        Some(_) => Vec::new(),
        None => encode::state(&file::read(&read_all(fs, &before)?, newest, &before)?)?,
    };
    let number = newest + 1;
    let mut bytes = file::header(number).to_vec();
    file::put_frame(&mut bytes, number, 0, Kind::Snapshot, snapshot.unwrap_or(&own));
    if !edits.is_empty() {
        file::put_frame(&mut bytes, number, 1, Kind::Edits, edits);
        file::put_frame(&mut bytes, number, 1, Kind::Receipt, &[]);
    }
    fs.remove(&before)?;
    fs.create(&dir.join(file_name(number)))?.write(&bytes)
}
