//! Chains of versions, and rows of batches among others.
#![allow(clippy::unwrap_used)]

use super::*;

fn chain(seqs: &[u64]) -> RowVersion {
    let mut chain: Option<Box<RowVersion>> = None;
    for &seq in seqs.iter().rev() {
        chain = Some(Box::new(RowVersion { seq, row: Some(Box::from(&b"row"[..])), older: chain }));
    }
    chain.map_or(RowVersion { seq: 0, row: None, older: None }, |first| *first)
}

fn left(seqs: &[u64], snapshots: &[u64]) -> Vec<u64> {
    let mut newest = chain(seqs);
    let versions = newest.chain().count();
    let freed = drop_unseen(&mut newest, snapshots);
    let left: Vec<u64> = newest.chain().map(|v| v.seq).collect();
    let gone = (versions - left.len()) as i64;
    assert_eq!(freed, Freed { versions: gone, bytes: gone * (3 + VERSION_OVERHEAD as i64) });
    left
}

#[test]
fn only_versions_that_a_snapshot_sees_stay_behind_the_newest() {
    assert_eq!(left(&[90, 80, 70, 20, 10], &[]), [90]);
    // A snapshot of long ago, and what new ones see.
    assert_eq!(left(&[90, 80, 70, 20, 10], &[25, 85]), [90, 80, 20]);
    assert_eq!(left(&[90, 80, 70, 20, 10], &[5, 89]), [90, 80]);
    assert_eq!(left(&[90, 80, 70, 20, 10], &[10, 20, 79, 89]), [90, 80, 70, 20, 10]);
}

/// Keys of two bytes.
fn layout() -> Arc<RowLayout> {
    let column = |id| crate::schema::ColumnDef::plain(id, crate::schema::Lane::Int { width: 1 }, false);
    Arc::new(RowLayout::new(Arc::new(crate::schema::Schema::plain((0..3).map(column).collect(), vec![0, 1], None))))
}

type Found = Vec<(Key, u64, Option<u8>)>;

/// What a walk in pieces hands out.
fn collected(memtable: &Memtable, from: Option<(&[u8], bool)>, direction: Direction, snapshot: u64) -> Found {
    let mut found = Found::new();
    let mut from = from.map(|(key, inclusive)| (Key::from_slice(key), inclusive));
    loop {
        let bound = match &from {
            None => Bound::Unbounded,
            Some((key, true)) => Bound::Included(key.as_slice()),
            Some((key, false)) => Bound::Excluded(key.as_slice()),
        };
        let mut out = RowCollector::default();
        let more = memtable.collect(bound, direction, snapshot, (3, None), &mut out);
        for i in 0..out.rows() {
            let mut key = Key::new();
            memtable.layout().push_key(out.row(i), &mut key);
            let value = (!out.tombstones[i]).then(|| memtable.layout().view(out.row(i)).int(2) as u8);
            found.push((key, out.seqs[i], value));
        }
        match more {
            Some(key) => from = Some((key, false)),
            None => return found,
        }
    }
}

proptest::proptest! {
    #[test]
    fn rows_of_batches_are_read_among_others(
        commits in proptest::collection::vec(
            (proptest::prelude::any::<bool>(), proptest::collection::btree_map(0u8..40, proptest::prelude::any::<u8>(), 1..12)),
            0..60,
        ),
        snapshot in 0u64..70,
        (from, inclusive) in (proptest::option::of((0u8..11, 0u8..5)), proptest::prelude::any::<bool>()),
    ) {
        use crate::bulk::Run;
        let layout = layout();
        let memtable = Memtable::new(layout.clone());
        let mut model: BTreeMap<Key, Vec<(u64, Option<u8>)>> = BTreeMap::new();
        // All snapshots stay open.
        let snapshots: Vec<u64> = (0..100).collect();
        for (seq, (is_batch, rows)) in (1..).zip(&commits) {
            let mut run = Run::new(&layout);
            let mut writes = Vec::new();
            for (&key, &value) in rows {
                let mut row = Vec::new();
                let mut writer = layout.writer(&mut row);
                [key / 4, key % 4, value].iter().enumerate().for_each(|(c, &v)| writer.set_int(c, u64::from(v)));
                writer.finish();
                let key = Key::from_slice(&[key / 4, key % 4]);
                let is_row = *is_batch || value % 3 > 0;
                model.entry(key.clone()).or_default().insert(0, (seq, is_row.then_some(value)));
                run.push(&row, true).unwrap();
                writes.push((key, is_row.then(|| row.into())));
            }
            if *is_batch {
                let batch = Batch::of(run, &layout).ok().unwrap();
                memtable.apply_batch(seq, seq, Arc::new(batch));
                memtable.fold_runs();
            } else {
                memtable.apply(seq, seq, &snapshots, writes.into_iter());
            }
        }
        let seen = |versions: &[(u64, Option<u8>)]| versions.iter().find(|(seq, _)| *seq <= snapshot).copied();
        let all: Found = model.iter().filter_map(|(key, v)| seen(v).map(|(seq, value)| (key.clone(), seq, value))).collect();
        let bound = from.map(|(a, b)| [a, b]);
        let bound = bound.as_ref().map(|key| (key.as_slice(), inclusive));
        let mut after = all.clone();
        after.retain(|(key, ..)| bound.is_none_or(|(from, inclusive)| &key[..] > from || (inclusive && &key[..] == from)));
        proptest::prop_assert_eq!(collected(&memtable, bound, Direction::Forward, snapshot), after);
        let mut before = all;
        before.retain(|(key, ..)| bound.is_none_or(|(from, inclusive)| &key[..] < from || (inclusive && &key[..] == from)));
        before.reverse();
        proptest::prop_assert_eq!(collected(&memtable, bound, Direction::Backward, snapshot), before);
        for key in (0u8..44).map(|key| [key / 4, key % 4]) {
            let found = memtable.get(&key, snapshot, |v| (v.seq, v.row.map(|row| layout.view(row).int(2) as u8)));
            proptest::prop_assert_eq!(found, model.get(&key[..]).and_then(|v| seen(v)));
        }
        // A flush sees all versions, newest first.
        let (entries, mut versions) = (memtable.entries(), Versions::new());
        let mut walk = entries.all();
        for (key, expected) in &model {
            proptest::prop_assert_eq!(walk.next(&mut versions).map(|key| key.to_key()), Some(key.clone()));
            let found: Vec<u64> = versions.iter().map(|v| v.seq).collect();
            proptest::prop_assert_eq!(found, expected.iter().map(|(seq, _)| *seq).collect::<Vec<_>>());
        }
        proptest::prop_assert!(walk.next(&mut versions).is_none());
    }
}
