//! Reads of single rows: from the compact form of columns, the same values in less memory.

use rrd_codec::Effort;

use super::*;
use crate::group::{Cell as Read, RowGroup};
use crate::live::LiveSegment;
use crate::segment::Held;
use crate::source::rows_before;

/// One group of readings: keys are lines but for the last part, which is as irregular as the two-decimal values.
fn readings(rows: u64) -> (Arc<RowLayout>, SimFs, SegmentMeta) {
    let columns = vec![
        ColumnDef::plain(1, Lane::Int { width: 4 }, false),
        ColumnDef::plain(2, Lane::Int { width: 8 }, false),
        ColumnDef::plain(3, Lane::Int { width: 4 }, false),
        ColumnDef::plain(4, Lane::F64, true),
    ];
    let layout = layout(columns, vec![0, 1, 2], Some(1));
    let noise = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    let versions: Vec<Version> = (0..rows)
        .map(|i| Version {
            cells: vec![
                Cell::Int(i / 1000),
                Cell::Int(1_700_000_000 + 60 * (i % 1000)),
                Cell::Int(noise(i)),
                if i % 50 == 7 { Cell::Null } else { Cell::F64((noise(i * 3) as f64 / 100.0).to_bits()) },
            ],
            seq: 0,
            tombstone: false,
        })
        .collect();
    let (fs, meta) = write(&layout, &versions, &[rows as usize], Effort::Small);
    (layout, fs, meta)
}

/// A group, with a cache of its own.
fn group(layout: &Arc<RowLayout>, fs: &SimFs, meta: &SegmentMeta, group: usize) -> (Arc<RowGroup>, Arc<BlockCache>) {
    let cache = Arc::new(BlockCache::new(1 << 20));
    let fs: Arc<dyn Fs> = Arc::new(fs.clone());
    let segment = LiveSegment::open(&fs, &cache, Path::new(DIR), TABLE, meta.clone());
    let index = segment.index().unwrap();
    (RowGroup::from_segment(layout.clone(), (segment, &index), group, 0).unwrap(), cache)
}

fn read(column: &Column, row: usize) -> Cell {
    match &column.values {
        _ if column.is_null(row) => Cell::Null,
        Values::Int(v) => Cell::Int(v[row]),
        Values::F32(v) => Cell::F32(v[row]),
        Values::F64(v) => Cell::F64(v[row]),
        Values::Bytes(v) => Cell::Bytes(v.get(row).to_vec()),
    }
}

fn owned(cell: Read<'_>) -> Cell {
    match cell {
        Read::Null => Cell::Null,
        Read::Int(value) => Cell::Int(value),
        Read::F32(bits) => Cell::F32(bits),
        Read::F64(bits) => Cell::F64(bits),
        Read::Bytes(bytes) => Cell::Bytes(bytes.to_vec()),
    }
}

/// Cells and parts are those of the columns, whoever comes first.
fn check_group(layout: &Arc<RowLayout>, fs: &SimFs, meta: &SegmentMeta, number: usize) {
    let (by_column, _) = group(layout, fs, meta, number);
    let (by_cell, _) = group(layout, fs, meta, number);
    let rows = by_column.rows();
    for position in 0..layout.schema().columns.len() {
        let column = by_column.column(position).unwrap().clone();
        for row in (0..rows).rev() {
            assert_eq!(owned(by_cell.cell(position, row).unwrap()), read(&column, row), "column {position}, row {row}");
            let (fresh, part_rows) = (by_cell.part(position, row..row + 1).unwrap(), row..rows.min(row + 20));
            assert_eq!(read(fresh.column(), row - fresh.first), read(&column, row));
            let part = by_cell.part(position, part_rows.clone()).unwrap();
            for row in part_rows {
                assert_eq!(read(part.column(), row - part.first), read(&column, row));
            }
        }
        assert_eq!(by_cell.column(position).unwrap(), &column);
        assert_eq!(owned(by_column.cell(position, 0).unwrap()), read(&column, 0));
    }
    for row in 0..rows {
        let (mut a, mut b, mut key_a, mut key_b) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (fresh, _) = group(layout, fs, meta, number);
        by_column.push_row(row, &mut a).unwrap();
        fresh.push_row(row, &mut b).unwrap();
        fresh.push_key(row, &mut key_a).unwrap();
        layout.push_key(&b, &mut key_b);
        assert_eq!((a, key_a), (b, key_b), "row {row}");
        if row > 40 {
            break;
        }
    }
}

#[test]
fn rows_are_the_same_from_columns_and_from_their_compact_form() {
    for effort in [Effort::Fast, Effort::Small] {
        let layout = sample_layout();
        let (fs, meta) = write(&layout, &sample_versions(600), &[40, 500], effort);
        (0..2).for_each(|number| check_group(&layout, &fs, &meta, number));
    }
    let (layout, fs, meta) = readings(3000);
    check_group(&layout, &fs, &meta, 0);
}

/// Keys of rows, of none, and what keys begin with: all come to the place where a walk along all keys finds them.
#[test]
fn keys_are_found_where_they_are_in_order() {
    let (layout, fs, meta) = readings(3000);
    let (group, _) = group(&layout, &fs, &meta, 0);
    let key = |row| {
        let mut key = Vec::new();
        group.push_key(row, &mut key).unwrap();
        key
    };
    let keys: Vec<Vec<u8>> = (0..group.rows()).map(key).collect();
    let mut asked = vec![vec![], vec![0], vec![255; 20]];
    for key in keys.iter().step_by(97) {
        asked.extend((1..=key.len()).map(|length| key[..length].to_vec()));
        for place in 0..key.len() {
            for change in [1, 255] {
                let mut other = key.clone();
                other[place] = other[place].wrapping_add(change);
                asked.push(other);
            }
        }
    }
    for key in asked {
        let expected = (keys.partition_point(|k| *k < key), keys.partition_point(|k| *k <= key));
        let found = (rows_before(&group, &key, false).unwrap(), rows_before(&group, &key, true).unwrap());
        assert_eq!(found, expected, "{key:?}");
    }
}

#[test]
fn a_column_that_the_segment_does_not_have_holds_its_initial_value() {
    let (_, fs, meta) = readings(500);
    let columns = vec![
        ColumnDef::plain(20, Lane::Int { width: 4 }, false),
        ColumnDef::plain(1, Lane::Int { width: 4 }, false),
        ColumnDef::plain(2, Lane::Int { width: 8 }, false),
        ColumnDef::plain(3, Lane::Int { width: 4 }, false),
        ColumnDef::plain(21, Lane::F64, true),
    ];
    let new = layout(columns, vec![1, 2, 3], Some(2));
    check_group(&new, &fs, &meta, 0);
}

#[test]
fn what_reads_of_single_rows_keep_is_small_and_serves_all_readers() {
    let rows = crate::limits::GROUP_ROWS;
    let (layout, fs, meta) = readings(rows as u64);
    let (one, cache) = group(&layout, &fs, &meta, 0);
    for position in 0..4 {
        one.cell(position, 77).unwrap();
    }
    let held = cache.counters().bytes as usize;
    assert!(held < rows * 5, "{held} bytes for {rows} rows of 32 bytes");
    let misses = cache.counters().misses;
    let segment = one.segment().unwrap();
    let reads = fs.clone();
    reads.remove(segment.path()).unwrap();
    cache.files().close(meta.id);
    // All of it is there: no other read needs the file.
    let again = RowGroup::from_segment(layout.clone(), (segment.clone(), &segment.index().unwrap()), 0, 0).unwrap();
    let mut row = Vec::new();
    again.push_row(rows - 1, &mut row).unwrap();
    assert_eq!(cache.counters().misses, misses);
    for position in 0..4 {
        assert_eq!(segment.column(0, position, &layout).unwrap().rows(), rows);
        assert_eq!(cache.counters().bytes as usize, held, "a walk keeps nothing that is there");
    }
    assert!(matches!(segment.held(0, 0, &layout).unwrap(), Held::Lines(_)));
    for position in 2..4 {
        let Held::Column(column) = segment.held(0, position, &layout).unwrap() else { panic!("noise is no line") };
        assert_eq!(&column, again.column(position).unwrap());
    }
    assert!(cache.counters().bytes as usize > held + 2 * 8 * rows, "aggregates keep what they would have to decode");
}
