//! Reading beside plain rows: ALTERed schemas, zone maps, sizes, bounds, faults of the disk.

use rrd_codec::{Effort, Kind};

use super::*;
use crate::error::Error;
use crate::limits;
use crate::segment::zone::{Sum, ZoneMap, order_f64};
use crate::segment::{BlockChoice, SurveyedLane};

fn whole() -> (Arc<RowLayout>, SimFs, SegmentMeta) {
    let layout = sample_layout();
    let (fs, meta) = write(&layout, &sample_versions(50), &[40], Effort::Fast);
    (layout, fs, meta)
}

#[test]
fn a_column_is_found_by_id_wherever_the_schema_has_it_now() {
    let (old, fs, meta) = whole();
    let columns = vec![
        ColumnDef::plain(9, Lane::Int { width: 2 }, false),
        ColumnDef::plain(20, Lane::F64, true),
        ColumnDef::plain(21, Lane::Bytes, false),
        ColumnDef::plain(1, Lane::Int { width: 4 }, false),
        ColumnDef::plain(2, Lane::Int { width: 8 }, false),
    ];
    let new = layout(columns, vec![3, 4], Some(4));
    let segment = open(&fs, &meta);
    assert_eq!(segment.column(1, 0, &new).unwrap(), segment.column(1, 5, &old).unwrap());
    let rows = segment.index().unwrap().group(1).rows as usize;
    let added = segment.column(1, 1, &new).unwrap();
    assert_eq!((added.kind(), added.rows(), added.null_count()), (Kind::F64, rows, rows));
    let required = segment.column(1, 2, &new).unwrap();
    assert_eq!((required.kind(), required.rows(), required.null_count()), (Kind::Bytes, rows, 0));
    assert_eq!(segment.zone(1, 1, &new).unwrap(), None);
}

#[test]
fn zone_maps_are_those_of_the_rows() {
    let (layout, fs, meta) = whole();
    let segment = open(&fs, &meta);
    for group in 0..segment.index().unwrap().group_count() {
        for position in 0..6 {
            let column = segment.column(group, position, &layout).unwrap();
            assert_eq!(segment.zone(group, position, &layout).unwrap(), Some(ZoneMap::of(&column)));
        }
    }
    let zone = segment.zone(0, 2, &layout).unwrap().unwrap();
    assert!(zone.exact && zone.nulls > 0 && matches!(zone.sum, Sum::Float { .. }));
    assert_eq!(zone.range.map(|r| r.0), Some(order_f64(0.0f64.to_bits())));
}

#[test]
fn a_survey_accounts_for_every_block_and_keeps_nothing() {
    let (_, fs, meta) = whole();
    let segment = open(&fs, &meta);
    let groups = segment.peek_index().unwrap().group_count() as u64;
    let lanes = segment.survey(&mut BlockChoice::new(1)).unwrap();
    assert_eq!(segment.cache().counters().bytes, 0, "footers are not kept");
    let ids: Vec<_> = lanes.iter().map(|lane| lane.lane).collect();
    let columns = [1, 2, 3, 4, 5, 9].map(SurveyedLane::Column);
    assert_eq!(ids, [&columns[..], &[SurveyedLane::Seqs, SurveyedLane::Kinds]].concat());
    for lane in &lanes[..6] {
        assert_eq!((lane.blocks, lane.rows, lane.codecs.values().sum::<u64>()), (groups, meta.rows, groups));
    }
    assert!(lanes.iter().all(|lane| !lane.codecs.contains_key("unknown")));
    assert!(lanes.iter().any(|lane| lane.nulls > 0));
    // What is left: header, footer, trailer.
    let blocks: u64 = lanes.iter().map(|lane| lane.bytes).sum();
    assert!(blocks < meta.bytes && blocks > meta.bytes / 2);
    let some = segment.survey(&mut BlockChoice::new(2)).unwrap();
    assert_eq!(some[0].codecs.values().sum::<u64>(), groups.div_ceil(2));
    let none = segment.survey(&mut BlockChoice::new(0)).unwrap();
    assert!(none.iter().all(|lane| lane.codecs.is_empty()));
}

#[test]
fn groups_and_columns_that_do_not_fit_are_refused() {
    let layout = layout(vec![ColumnDef::plain(1, Lane::Int { width: 8 }, false)], vec![0], None);
    let fs: Arc<dyn Fs> = Arc::new(SimFs::new());
    fs.create_dir(Path::new(DIR)).unwrap();
    let mut writer = SegmentWriter::create(&fs, Path::new(DIR), ID, TABLE, layout, Effort::Fast).unwrap();
    let ints = |n: usize| Column { values: Values::Int((0..n as u64).collect()), nulls: None };
    let over = writer.push_group(&[ints(limits::GROUP_ROWS + 1)], None, None);
    assert!(matches!(over, Err(Error::LimitExceeded { .. })));
    writer.push_group(&[ints(limits::GROUP_ROWS)], None, None).unwrap();
    assert!(matches!(writer.push_group(&[], None, None), Err(Error::InvalidInput(_))));
    assert!(matches!(writer.push_group(&[ints(2)], Some(&[1]), None), Err(Error::InvalidInput(_))));
    let text = Column { values: Values::new(Kind::Bytes), nulls: None };
    assert!(matches!(writer.push_group(&[text], None, None), Err(Error::InvalidInput(_))));
    assert_eq!(writer.rows(), limits::GROUP_ROWS as u64);
}

#[test]
fn abandoning_removes_the_file() {
    let sim = SimFs::new();
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    fs.create_dir(Path::new(DIR)).unwrap();
    let writer = SegmentWriter::create(&fs, Path::new(DIR), ID, TABLE, sample_layout(), Effort::Fast).unwrap();
    assert_eq!(sim.files().len(), 1);
    writer.abandon().unwrap();
    assert!(sim.files().is_empty());
}

#[test]
fn a_failing_write_or_sync_reaches_the_caller() {
    let layout = sample_layout();
    let rows: Vec<Vec<u8>> = sample_versions(3).iter().map(|v| row_bytes(&layout, &v.cells)).collect();
    let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    let attempt = |sim: &SimFs| -> crate::Result<SegmentMeta> {
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        fs.create_dir(Path::new(DIR))?;
        let mut writer = SegmentWriter::create(&fs, Path::new(DIR), ID, TABLE, layout.clone(), Effort::Fast)?;
        writer.push_rows(&rows, None, None)?;
        writer.finish(0, 0, true)
    };
    let whole = SimFs::new();
    attempt(&whole).unwrap();
    for n in 1..=whole.op_count() {
        let sim = SimFs::new();
        sim.fail_at(n, libc::EIO);
        assert!(matches!(attempt(&sim), Err(Error::Io { .. })), "operation {n}");
    }
}

#[test]
fn what_was_finished_survives_a_power_cut() {
    let (layout, fs, meta) = whole();
    fs.sync_dir(Path::new(DIR).parent().unwrap()).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    fs.sync_dir(Path::new(DIR)).unwrap();
    for seed in 0..8 {
        let after = fs.power_cut(seed);
        let read = read_all(&open(&after, &meta), &layout).unwrap();
        assert_eq!(read, as_stored(&layout, &sample_versions(50)));
    }
}

#[test]
fn a_check_can_be_stopped_and_says_how_far_it_is() {
    let (_, fs, meta) = whole();
    let segment = open(&fs, &meta);
    let mut last = 0;
    let mut steps = 0;
    segment
        .verify(&mut |done, all| {
            assert!(done >= last && done <= all);
            (last, steps) = (done, steps + 1);
            true
        })
        .unwrap();
    assert_eq!(last, meta.bytes);
    assert!(steps > 1);
    assert!(matches!(segment.verify(&mut |_, _| false), Err(Error::Interrupted)));
}

#[test]
fn a_manifest_that_says_otherwise_is_a_finding() {
    let (_, fs, meta) = whole();
    let changed = [
        SegmentMeta { rows: meta.rows + 1, ..meta.clone() },
        SegmentMeta { tombstones: 0, ..meta.clone() },
        SegmentMeta { first_key: Vec::new(), ..meta.clone() },
        SegmentMeta { max_time: meta.max_time + 1, ..meta.clone() },
        SegmentMeta { max_seq: meta.max_seq + 1, ..meta.clone() },
        SegmentMeta { has_versions: false, ..meta.clone() },
    ];
    for meta in changed {
        assert_eq!(verify(&open(&fs, &meta)).len(), 1, "{meta:?}");
    }
    // What a commit or a merge decides after the file was written is the manifest's alone.
    let moved = SegmentMeta { base_seq: 5, max_seq: meta.max_seq - meta.base_seq + 5, sealed: true, chunk: 1, ..meta };
    assert!(verify(&open(&fs, &moved)).is_empty());
}

#[test]
fn no_more_files_stay_open_than_the_limit_allows() {
    let (_, fs, meta) = whole();
    let cache = Arc::new(BlockCache::new(1 << 20));
    let path = Path::new(DIR).join(ID.file_name());
    for n in 0..limits::OPEN_SEGMENT_FILES as u64 + 20 {
        cache.files().get(SegmentId(n), || fs.open(&path)).unwrap();
        // One file that is used all the time is not the one to be closed.
        cache.files().get(SegmentId(0), || panic!("was closed")).unwrap();
    }
    assert_eq!(cache.files().len(), limits::OPEN_SEGMENT_FILES);
    cache.evict_segment(SegmentId(0));
    assert_eq!(cache.files().len(), limits::OPEN_SEGMENT_FILES - 1);
    let segment = Segment::open(Arc::new(fs.clone()), Path::new(DIR), TABLE, meta, cache);
    assert!(segment.index().is_ok());
}
