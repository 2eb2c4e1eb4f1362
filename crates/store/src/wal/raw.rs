//! Logs of any records, for fuzzing.

use super::frame::{self, FileHeader, HEADER_BYTES};
use super::*;

/// Writes a log of one file with these records.
pub(crate) fn write_raw<'a>(fs: &dyn Fs, dir: &Path, records: impl Iterator<Item = &'a [u8]>) -> Result<()> {
    let header = FileHeader { number: 1, incarnation: 1, start: Lsn(1 << 20), previous_end: Lsn(1 << 20) };
    let mut bytes = header.encode().to_vec();
    for record in records {
        let at = Lsn(header.start.0 + (bytes.len() - HEADER_BYTES) as u64);
        frame::encode(&mut bytes, header.incarnation, at, header.start, &[record]);
    }
    fs.create_dir(dir)?;
    fs.create(&dir.join(writer::file_name(header.number)))?.write(&bytes)
}

/// The records of a sound file.
pub(crate) fn for_each_raw(bytes: &[u8], take: &mut dyn FnMut(&[u8])) {
    let Some(Ok(header)) = bytes.first_chunk().map(|header| FileHeader::decode(header, Path::new(""))) else { return };
    let mut at = HEADER_BYTES;
    while let Ok(frame) = frame::decode(
        bytes.get(at..).unwrap_or(&[]),
        header.incarnation,
        Lsn(header.start.0 + (at - HEADER_BYTES) as u64),
    ) {
        if !frame.payload.is_empty() {
            take(frame.payload);
        }
        at += frame.bytes;
    }
}
