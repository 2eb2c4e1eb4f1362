//! Blocks of byte strings.

use crate::reader::{Reader, write_nested, write_varint};
use crate::{BytesColumn, DecodeError, Effort, int, tag};

pub(crate) fn encode(column: &BytesColumn, effort: Effort, out: &mut Vec<u8>) {
    let level = match effort {
        Effort::Fast => 1,
        Effort::Small => 9,
    };
    let packed = zstd::bulk::compress(&column.data, level).ok().filter(|p| p.len() + 5 < column.data.len());
    out.push(if packed.is_some() { tag::BYTES_ZSTD } else { tag::BYTES_RAW });
    let lengths: Vec<u64> = column.offsets.windows(2).map(|w| u64::from(w[1] - w[0])).collect();
    let mut block = Vec::new();
    int::encode(&lengths, effort, &mut block);
    write_nested(out, &block);
    if packed.is_some() {
        write_varint(out, column.data.len() as u64);
    }
    out.extend_from_slice(packed.as_deref().unwrap_or(&column.data));
}

pub(crate) fn decode(bytes: &[u8], rows: usize) -> Result<BytesColumn, DecodeError> {
    let mut reader = Reader::new(bytes);
    let tag = reader.byte()?;
    if !matches!(tag, tag::BYTES_RAW | tag::BYTES_ZSTD) {
        return Err(DecodeError::UnknownTag(tag));
    }
    let mut offsets = vec![0u32];
    let mut total = 0u64;
    for length in int::decode(reader.nested()?, rows)? {
        total = total.checked_add(length).ok_or(DecodeError::TooLarge)?;
        offsets.push(u32::try_from(total).map_err(|_| DecodeError::TooLarge)?);
    }
    let data = if tag == tag::BYTES_ZSTD {
        let size = reader.count(u32::MAX as usize)?;
        let frame = reader.rest();
        // A frame holds at most 128 KiB for each four bytes.
        if size / 32768 > frame.len() {
            return Err(DecodeError::TooLarge);
        }
        zstd::bulk::decompress(frame, size).map_err(|_| DecodeError::Invalid("zstd frame"))?
    } else {
        reader.rest().to_vec()
    };
    if data.len() as u64 != total {
        return Err(DecodeError::Invalid("length of the data"));
    }
    Ok(BytesColumn { offsets, data })
}
