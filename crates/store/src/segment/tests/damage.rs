//! Bytes that are not what was written: an error or the same rows, never a panic, never a wrong row.

use proptest::prelude::*;
use rrd_codec::Effort;

use super::*;
use crate::error::Error;
use crate::segment::format::{HEADER_BYTES, TRAILER_BYTES};

fn sample() -> (Arc<RowLayout>, Vec<Version>, SimFs, SegmentMeta) {
    let layout = sample_layout();
    let versions = sample_versions(50);
    let (fs, meta) = write(&layout, &versions, &[25, 30], Effort::Small);
    (layout.clone(), as_stored(&layout, &versions), fs, meta)
}

/// A file system with nothing but `bytes` as the segment's file.
fn with_file(bytes: &[u8]) -> SimFs {
    let fs = SimFs::new();
    fs.create_dir(Path::new(DIR)).unwrap();
    let mut file = fs.create(&Path::new(DIR).join(ID.file_name())).unwrap();
    file.write(bytes).unwrap();
    fs
}

fn file_bytes(fs: &SimFs) -> Vec<u8> {
    fs.read(&Path::new(DIR).join(ID.file_name()))
}

#[test]
fn every_prefix_is_an_error() {
    let (layout, _, fs, meta) = sample();
    let whole = file_bytes(&fs);
    for length in 0..whole.len() {
        let fs = with_file(&whole[..length]);
        let wrong_meta = SegmentMeta { bytes: length as u64, ..meta.clone() };
        for meta in [&meta, &wrong_meta] {
            let segment = open(&fs, meta);
            assert!(matches!(read_all(&segment, &layout), Err(Error::Corruption { .. })), "prefix of {length} bytes");
            assert!(!verify(&segment).is_empty());
        }
    }
}

#[test]
fn every_flipped_byte_is_found() {
    let (layout, rows, fs, meta) = sample();
    let path = Path::new(DIR).join(ID.file_name());
    for at in 0..meta.bytes {
        for xor in [1u8 << (at % 8), 0xFF] {
            fs.corrupt(&path, at, xor);
            let segment = open(&fs, &meta);
            if let Ok(read) = read_all(&segment, &layout) {
                assert_eq!(read, rows, "byte {at} flipped by {xor:#x}");
            }
            let findings = verify(&segment);
            assert!(!findings.is_empty(), "byte {at} flipped by {xor:#x} is not found");
            assert!(findings.iter().all(|f| f.contains("seg-0000000000001234.rrds")), "{findings:?}");
            fs.corrupt(&path, at, xor);
        }
    }
    assert!(verify(&open(&fs, &meta)).is_empty());
}

#[test]
fn bytes_behind_the_end_are_an_error() {
    let (layout, _, fs, meta) = sample();
    let longer = [file_bytes(&fs), vec![0]].concat();
    for bytes in [meta.bytes, meta.bytes + 1] {
        let segment = open(&with_file(&longer), &SegmentMeta { bytes, ..meta.clone() });
        assert!(matches!(read_all(&segment, &layout), Err(Error::Corruption { .. })));
    }
}

#[test]
fn a_newer_version_is_refused_as_such() {
    let (layout, _, fs, meta) = sample();
    let mut bytes = file_bytes(&fs);
    bytes[8] = 2;
    let crc = crc32fast::hash(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    let read = read_all(&open(&with_file(&bytes), &meta), &layout);
    assert!(matches!(read, Err(Error::Incompatible { found: 2, supported: 1, .. })));
}

#[test]
fn a_file_of_another_segment_or_table_is_an_error() {
    let (layout, _, fs, meta) = sample();
    let other = SegmentMeta { id: SegmentId(0x9999), ..meta.clone() };
    fs.rename(&Path::new(DIR).join(ID.file_name()), &Path::new(DIR).join(other.id.file_name())).unwrap();
    let message = read_all(&open(&fs, &other), &layout).unwrap_err().to_string();
    assert!(message.contains("another file"), "{message}");
}

#[test]
fn a_missing_file_is_named() {
    let (layout, _, fs, meta) = sample();
    fs.remove(&Path::new(DIR).join(ID.file_name())).unwrap();
    let segment = open(&fs, &meta);
    let message = read_all(&segment, &layout).unwrap_err().to_string();
    assert!(message.contains("seg-0000000000001234.rrds"), "{message}");
    assert_eq!(verify(&segment).len(), 2);
}

#[test]
fn without_its_footer_the_blocks_are_still_walked() {
    let (_, _, fs, meta) = sample();
    let index = open(&fs, &meta).index().unwrap();
    let lanes = [&index.groups.seq_blocks, &index.groups.kind_blocks]
        .into_iter()
        .chain(index.columns.iter().map(|c| &c.blocks));
    let blocks: usize = lanes.map(|b| b.length.iter().filter(|&&n| n > 0).count()).sum();
    fs.corrupt(&Path::new(DIR).join(ID.file_name()), meta.bytes - 30, 1);
    let findings = verify(&open(&fs, &meta));
    assert!(findings.iter().any(|f| f.contains(&format!("{blocks} blocks"))), "{findings:?}");
}

/// The file with `change` made to its footer and all checksums made anew.
fn with_footer_changed(bytes: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let trailer_at = bytes.len() - TRAILER_BYTES;
    let start = u64::from_le_bytes(bytes[trailer_at..trailer_at + 8].try_into().unwrap());
    let mut footer = bytes[start as usize..trailer_at].to_vec();
    change(&mut footer);
    let trailer = crate::segment::format::Trailer {
        footer_offset: start,
        footer_length: footer.len() as u32,
        footer_crc: crc32fast::hash(&footer),
    };
    [&bytes[..start as usize], &footer, &trailer.to_bytes(ID)].concat()
}

proptest! {
    #[test]
    fn a_hostile_footer_never_panics(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..6)) {
        let (layout, _, fs, meta) = sample();
        let bytes = with_footer_changed(&file_bytes(&fs), |footer| {
            for (at, byte, how) in &changes {
                let at = at.index(footer.len());
                match how {
                    0 | 1 => footer[at] = *byte,
                    2 => footer.insert(at, *byte),
                    _ => drop(footer.remove(at)),
                }
            }
        });
        let segment = open(&with_file(&bytes), &SegmentMeta { bytes: bytes.len() as u64, ..meta });
        let _ = read_all(&segment, &layout);
        if let Ok(index) = segment.index() {
            let _: Vec<_> = (0..index.group_count()).map(|g| index.zone(g, 3)).collect();
            index.find_group(&[0; 12]);
        }
        let _ = verify(&segment);
    }

    #[test]
    fn hostile_blocks_never_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let (layout, _, fs, meta) = sample();
        let mut bytes = file_bytes(&fs);
        let index = open(&fs, &meta).index().unwrap();
        let (offset, length) = (index.columns[2].blocks.offset[1] as usize, index.columns[2].blocks.length[1] as usize);
        let payload = offset + 20..offset + 20 + length;
        bytes[payload.start + at.index(length)] = byte;
        let header = crate::segment::format::BlockHeader::from_bytes(&bytes[offset..]).unwrap();
        let header = header.to_bytes(ID, &bytes[payload]);
        bytes[offset..offset + 20].copy_from_slice(&header);
        let segment = open(&with_file(&bytes), &meta);
        let _ = read_all(&segment, &layout);
        let _ = verify(&segment);
    }
}

#[test]
fn an_empty_segment_is_whole() {
    let layout = sample_layout();
    let (fs, meta) = write(&layout, &[], &[1], Effort::Fast);
    assert_eq!((meta.rows, meta.min_time, meta.first_key.len()), (0, 0, 0));
    assert!(meta.bytes < HEADER_BYTES as u64 + TRAILER_BYTES as u64 + 40);
    assert!(verify(&open(&fs, &meta)).is_empty());
}

/// What is saved of a segment: what is told of losses, and the rows that a reader of the new one finds.
fn salvaged(fs: &SimFs, meta: &SegmentMeta, layout: &Arc<RowLayout>) -> (Vec<(u64, String)>, Vec<Version>) {
    let id = SegmentId(ID.0 + 1);
    let dir = Path::new(DIR);
    let shared: Arc<dyn Fs> = Arc::new(fs.clone());
    let mut out = SegmentWriter::create(&shared, dir, id, TABLE, layout.clone(), Effort::Fast).unwrap();
    let losses = open(fs, meta).salvage(layout, &|_| false, &mut out, &mut |_| true).unwrap();
    let new = out.finish(meta.chunk, meta.base_seq, false).unwrap();
    assert!(new.max_seq <= meta.max_seq, "{new:?}");
    let segment = Segment::open(shared, dir, TABLE, new, Arc::new(BlockCache::new(1 << 20)));
    assert!(verify(&segment).is_empty(), "{:?}", verify(&segment));
    (losses.into_iter().map(|loss| (loss.rows, loss.what)).collect(), read_all(&segment, layout).unwrap())
}

/// Two groups of keys with sequence numbers, written as they are: with checksums that hold.
fn of_keys(groups: [(&[u64], &[u64]); 2]) -> (Arc<RowLayout>, SimFs, SegmentMeta) {
    let layout = layout(vec![ColumnDef::plain(1, Lane::Int { width: 2 }, false)], vec![0], None);
    let sim = SimFs::new();
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    fs.create_dir(Path::new(DIR)).unwrap();
    let mut writer = SegmentWriter::create(&fs, Path::new(DIR), ID, TABLE, layout.clone(), Effort::Fast).unwrap();
    for (keys, seqs) in groups {
        let column = Column { values: Values::Int(keys.to_vec()), nulls: None };
        writer.push_group(&[column], Some(seqs), None).unwrap();
    }
    let meta = writer.finish(0, 100, false).unwrap();
    (layout, sim, meta)
}

#[test]
fn values_over_their_columns_width_are_not_saved_and_cost_no_other_group() {
    // The key of the last row is cut to 3: the new segment would have keys that do not ascend, and could not be read.
    let (layout, fs, meta) = of_keys([(&[1, 2], &[0, 0]), (&[5, (1 << 16) + 3], &[0, 0])]);
    assert!(!verify(&open(&fs, &meta)).is_empty());
    let (losses, rows) = salvaged(&fs, &meta, &layout);
    assert_eq!(losses, [(2, "a value is too large for its column".into())]);
    assert_eq!(rows.iter().map(|row| row.cells[0].clone()).collect::<Vec<_>>(), [Cell::Int(1), Cell::Int(2)]);
}

#[test]
fn sequence_numbers_that_the_manifest_does_not_know_are_damage_and_not_saved() {
    let (layout, fs, mut meta) = of_keys([(&[1, 2], &[0, 3]), (&[5, 6], &[0, u64::MAX])]);
    meta.max_seq = 103;
    let error = open(&fs, &meta).index().unwrap_err().to_string();
    assert!(error.contains("sequence numbers that the manifest does not know"), "{error}");
    let (losses, rows) = salvaged(&fs, &meta, &layout);
    assert_eq!(losses, [(2, "its sequence numbers are not of this segment".into())]);
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), [0, 3]);
}

#[test]
fn a_search_for_blocks_can_be_stopped() {
    let (layout, _, fs, meta) = sample();
    let mut bytes = file_bytes(&fs);
    bytes[HEADER_BYTES..].fill(0);
    let fs = with_file(&bytes);
    let shared: Arc<dyn Fs> = Arc::new(fs.clone());
    let mut out =
        SegmentWriter::create(&shared, Path::new(DIR), SegmentId(1), TABLE, layout.clone(), Effort::Fast).unwrap();
    let stopped = open(&fs, &meta).salvage(&layout, &|_| false, &mut out, &mut |_| false);
    assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
}
