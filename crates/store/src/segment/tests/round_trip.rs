//! Whatever schema and rows: what is read is what was written, and the segment knows what it holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use rrd_codec::Effort;

use super::*;
use crate::row::RowLayout;

/// Lanes by number; the first two may be key columns.
fn lane_of(n: u8) -> Lane {
    match n % 12 {
        0 => Lane::Bytes,
        w @ 1..=8 => Lane::Int { width: w },
        9 => Lane::F32,
        10 => Lane::F64,
        _ => Lane::Bytes,
    }
}

fn cell_of(lane: Lane, raw: u64, is_key: bool) -> Cell {
    let raw = if is_key { raw % 6 } else { raw };
    match lane {
        Lane::Int { width } => Cell::Int(raw & (u64::MAX >> (64 - 8 * u32::from(width)))),
        Lane::F32 => Cell::F32(raw as u32),
        Lane::F64 => Cell::F64(if raw % 3 == 0 { raw } else { (raw as f64 / 100.0).to_bits() }),
        Lane::Bytes if raw % 41 == 40 => Cell::Bytes(raw.to_le_bytes().repeat(400)),
        Lane::Bytes => Cell::Bytes(raw.to_le_bytes()[..(raw % 9) as usize].to_vec()),
    }
}

/// A table: lanes, which of them are nullable, key positions, whether an integer key is the time.
fn a_layout() -> impl Strategy<Value = Arc<RowLayout>> {
    let columns = prop::collection::vec((any::<u8>(), any::<bool>()), 0..5);
    (0u8..9, 0u8..9, columns, any::<bool>(), any::<bool>(), 0u32..1000).prop_map(|(k0, k1, others, two, timed, id)| {
        let mut columns = vec![ColumnDef::plain(id, lane_of(k0), false)];
        for (i, (lane, nullable)) in others.iter().enumerate() {
            columns.push(ColumnDef::plain(2000 - i as u32, lane_of(*lane), *nullable));
        }
        let mut key = vec![0];
        if two {
            key.insert(0, columns.len() as u16);
            columns.push(ColumnDef::plain(id + 5000, lane_of(k1), false));
        }
        let time = key.iter().copied().find(|&k| timed && matches!(columns[usize::from(k)].lane, Lane::Int { .. }));
        layout(columns, key, time)
    })
}

type RawRow = (Vec<u64>, u8, u64, bool);

fn versions_of(layout: &RowLayout, raw: Vec<RawRow>) -> Vec<Version> {
    let schema = layout.schema();
    let mut sorted = BTreeMap::new();
    for (values, nulls, seq, tombstone) in raw {
        let cells: Vec<Cell> = (0..schema.columns.len())
            .map(|p| {
                let is_key = schema.key.contains(&(p as u16));
                match schema.columns[p].nullable && nulls >> (p % 8) & 1 == 1 && !is_key {
                    true => Cell::Null,
                    false => cell_of(schema.columns[p].lane, values[p % values.len()].rotate_left(p as u32), is_key),
                }
            })
            .collect();
        let key = key_of(layout, &cells);
        sorted.insert((key, std::cmp::Reverse(seq)), Version { cells, seq, tombstone });
    }
    sorted.into_values().collect()
}

fn a_segment() -> impl Strategy<Value = (Arc<RowLayout>, Vec<Version>, Vec<usize>, Effort)> {
    let seq = prop_oneof![4 => Just(0u64), 1 => 0u64..3, 1 => any::<u64>().prop_map(|s| s / 2)];
    let row =
        (prop::collection::vec(prop_oneof![any::<u64>(), 0u64..50], 1..7), any::<u8>(), seq, prop::bool::weighted(0.1));
    let rows = prop::collection::vec(row, 0..60);
    let groups = prop::collection::vec(1usize..25, 1..4);
    let effort = prop_oneof![Just(Effort::Fast), Just(Effort::Small)];
    (a_layout(), rows, groups, effort).prop_map(|(layout, rows, groups, effort)| {
        let versions = versions_of(&layout, rows);
        (layout, versions, groups, effort)
    })
}

fn check_meta(layout: &RowLayout, versions: &[Version], meta: &SegmentMeta) {
    let keys: Vec<Vec<u8>> = versions.iter().map(|v| key_of(layout, &v.cells)).collect();
    let times = versions.iter().map(|v| layout.time(&row_bytes(layout, &v.cells)));
    assert_eq!(meta.rows, versions.len() as u64);
    assert_eq!(meta.tombstones, versions.iter().filter(|v| v.tombstone).count() as u64);
    assert_eq!(meta.first_key, keys.first().cloned().unwrap_or_default());
    assert_eq!(meta.last_key, keys.last().cloned().unwrap_or_default());
    assert_eq!(meta.min_time, times.clone().min().unwrap_or(0));
    assert_eq!(meta.max_time, times.max().unwrap_or(0));
    assert_eq!(meta.max_seq, meta.base_seq + versions.iter().map(|v| v.seq).max().unwrap_or(0));
    assert_eq!(meta.has_versions, keys.windows(2).any(|w| w[0] == w[1]));
}

fn check_groups(layout: &RowLayout, versions: &[Version], segment: &Segment) {
    let index = segment.index().unwrap();
    let keys: Vec<Vec<u8>> = versions.iter().map(|v| key_of(layout, &v.cells)).collect();
    for g in 0..index.group_count() {
        let group = index.group(g);
        let (start, end) = (group.first_row as usize, group.first_row as usize + group.rows as usize);
        assert_eq!((group.first_key, group.last_key), (&keys[start][..], &keys[end - 1][..]));
        assert_eq!(group.tombstones as usize, versions[start..end].iter().filter(|v| v.tombstone).count());
        assert_eq!(Some(group.max_seq_offset), versions[start..end].iter().map(|v| v.seq).max());
        let repeated = |i: usize| (i > 0 && keys[i - 1] == keys[i]) || keys.get(i + 1) == Some(&keys[i]);
        assert_eq!(group.has_versions, (start..end).any(repeated));
    }
    for key in keys.iter().flat_map(|k| [k.clone(), [k, &[0][..]].concat(), k[..k.len() - 1].to_vec()]) {
        let found = index.find_group(&key);
        let row = keys.partition_point(|k| *k < key);
        let expected = (0..index.group_count())
            .find(|&g| row < index.group(g).first_row as usize + index.group(g).rows as usize)
            .unwrap_or(index.group_count());
        assert_eq!(found, expected);
    }
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_written((layout, versions, groups, effort) in a_segment()) {
        let (fs, meta) = write(&layout, &versions, &groups, effort);
        let segment = open(&fs, &meta);
        prop_assert_eq!(verify(&segment), Vec::<String>::new());
        let stored = as_stored(&layout, &versions);
        prop_assert_eq!(&read_all(&segment, &layout).unwrap(), &stored);
        // And once more, from the cache.
        prop_assert_eq!(&read_all(&segment, &layout).unwrap(), &stored);
        check_meta(&layout, &versions, &meta);
        check_groups(&layout, &versions, &segment);
        prop_assert_eq!(meta.bytes, fs.read(segment.path()).len() as u64);
    }
}
