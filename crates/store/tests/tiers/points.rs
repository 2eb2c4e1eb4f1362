//! Tiers of data sources: what `rrd-consolidate` makes of all readings.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use rrd_consolidate::{Dst, Rollup, Source, Value, consolidate};
use rrd_store::schema::{Bucket, DataSource, SourceType};
use rrd_store::tier::Tier;
use rrd_store::{Direction, OnDuplicate, RowLayout, Schema, Table, Txn};

use super::rings::{RingWorld, ring_of};
use super::world::{Rows, World, random_key, random_row, rows_of};
use super::{Random, schema, seeds};

/// What of the columns of a data source a tier should have: by series and bucket, count and the other six.
type PointRows = BTreeMap<(u64, u64), PointRow>;

type PointRow = (u64, [Option<f64>; 6]);

/// What buckets were, one after the other.
type Histories = BTreeMap<(u64, u64), Vec<Option<PointRow>>>;

/// From all readings of the table, by the other crate alone.
fn expected_points(raw: &Rows, layout: &RowLayout, seconds: u32, column: usize, source: &Source) -> PointRows {
    let rollup = Rollup::new(source, seconds.try_into().unwrap(), 0.5).unwrap();
    let mut series: BTreeMap<u64, Vec<(i64, Option<Value>)>> = BTreeMap::new();
    let mut points = PointRows::new();
    for (_, row) in raw {
        let view = layout.view(row);
        let value = (!view.is_null(column)).then(|| Value::Double(f64::from_bits(view.int(column))));
        let time = view.int(1);
        series.entry(view.int(0)).or_default().push((time as i64 * 1_000_000, value));
        let start = time - time % u64::from(seconds);
        points.insert((view.int(0), start), (0, [None; 6]));
    }
    for (number, readings) in series {
        for b in consolidate(source, &rollup, 0..2_000_000_000, readings).unwrap() {
            let values = [b.avg, b.min, b.max, b.sum, b.first, b.last];
            points.insert((number, b.start_us as u64 / 1_000_000), (b.count.into(), values));
        }
    }
    points
}

/// Whether two buckets of points are the same, but for the last bits.
fn is_same_points(a: &PointRow, b: &PointRow) -> bool {
    let is_same = |(a, b): (&Option<f64>, &Option<f64>)| match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b.abs().max(1e-3),
        (None, None) => true,
        _ => false,
    };
    a.0 == b.0 && a.1.iter().zip(&b.1).all(is_same)
}

/// What a tier has of the column `f`.
fn read_points(txn: &mut Txn, tier: &Tier, direction: Direction, step: usize) -> PointRows {
    let layout = tier.table.layout();
    let place = |name: &str| layout.schema().columns.iter().position(|c| c.name == name).unwrap();
    let count = place("f_count");
    let places = ["f_avg", "f_min", "f_max", "f_sum", "f_first", "f_last"].map(place);
    let mut keys = Vec::new();
    let mut read = PointRows::new();
    for (_, row) in rows_of(txn.cursor(&tier.table).unwrap(), direction, (None, None), step) {
        let view = layout.view(&row);
        let values = places.map(|place| (!view.is_null(place)).then(|| f64::from_bits(view.int(place))));
        keys.push((view.int(0), view.int(1)));
        read.insert((view.int(0), view.int(1)), (view.int(count) ^ (1 << 63), values));
    }
    if direction == Direction::Backward {
        keys.reverse();
    }
    assert!(keys.iter().eq(read.keys()), "{direction:?} over {}: the order of rows", tier.def.name);
    read
}

fn check_points(txn: &mut Txn, table: &Arc<Table>, source: &Source, random: &mut Random) {
    let raw = rows_of(txn.cursor(table).unwrap(), Direction::Forward, (None, None), 100);
    for tier in table.tiers().iter() {
        let Bucket::Fixed { length, .. } = tier.def.bucket else { panic!("fixed buckets only") };
        let expected = expected_points(&raw, &table.layout(), (length / 1_000_000) as u32, 4, source);
        for direction in [Direction::Forward, Direction::Backward] {
            let read = read_points(txn, tier, direction, 1 + random.below(30) as usize);
            let what = format!("{direction:?} over {}", tier.def.name);
            assert_eq!(read.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{what}");
            for ((key, found), wanted) in read.iter().zip(expected.values()) {
                assert!(is_same_points(found, wanted), "{what}, {key:?}: {found:?} is not {wanted:?}");
            }
        }
        (0..4).for_each(|_| check_places(txn, tier, &expected, random));
    }
}

/// Walks from anywhere, and within any bounds, find the same buckets.
fn check_places(txn: &mut Txn, tier: &Tier, expected: &PointRows, random: &mut Random) {
    let key_of =
        |(series, time): &(u64, u64)| [&(*series as u16).to_be_bytes()[..], &(*time as u32).to_be_bytes()].concat();
    let keys: Vec<Vec<u8>> = expected.keys().map(key_of).collect();
    let mut ends = [random_key(random), random_key(random)];
    ends.sort();
    let bounds = (Some(&ends[0]).filter(|_| random.below(3) > 0), Some(&ends[1]).filter(|_| random.below(3) > 0));
    let (from, inclusive) = (random_key(random), random.below(2) == 0);
    for direction in [Direction::Forward, Direction::Backward] {
        let is_within = |key: &&Vec<u8>| {
            bounds.0.is_none_or(|low| *key >= low)
                && bounds.1.is_none_or(|high| *key < high)
                && match direction {
                    Direction::Forward => **key > from || (inclusive && **key == from),
                    Direction::Backward => **key < from || (inclusive && **key == from),
                }
        };
        let mut wanted: Vec<&Vec<u8>> = keys.iter().filter(is_within).collect();
        let mut cursor = txn.cursor(&tier.table).unwrap();
        cursor.set_bounds(bounds.0.map(Vec::as_slice), bounds.1.map(Vec::as_slice));
        cursor.seek(Some(&from), inclusive, direction).unwrap();
        let mut found = Vec::new();
        while let Some(span) = cursor.next_span(1 + random.below(9) as usize).unwrap() {
            for n in 0..span.rows {
                let mut key = Vec::new();
                span.group.push_key(span.row(n), &mut key).unwrap();
                found.extend(Some(key).filter(|key| is_within(&key)));
            }
        }
        if direction == Direction::Backward {
            wanted.reverse();
        }
        let what = format!("{direction:?} over {} from {from:?} within {bounds:?}", tier.def.name);
        assert_eq!(found.iter().collect::<Vec<_>>(), wanted, "{what}");
    }
}

#[test]
fn data_sources_are_consolidated_as_rrdtool_does_it() {
    let kinds =
        [(SourceType::Gauge, Dst::Gauge), (SourceType::Derive, Dst::Derive), (SourceType::Absolute, Dst::Absolute)];
    for seed in seeds(18) {
        println!("seed {seed}");
        let (kind, dst) = kinds[seed as usize % 3];
        let heartbeat = [7, 12, 25][seed as usize / 3 % 3];
        let mut world = World::new(seed);
        world.engine.drop_table("db/t").unwrap();
        let mut schema = Schema { step: Some(5_000_000), ..schema() };
        let max = Some(450.0);
        schema.columns[4].source = Some(DataSource { kind, heartbeat: heartbeat * 1_000_000, min: None, max });
        world.engine.create_table("db/t", schema).unwrap();
        world.table = world.engine.table("db/t").unwrap();
        let of = |seconds: u64| NonZeroU32::new(seconds as u32).unwrap();
        let source = Source { max, ..Source::new(dst, of(5), of(heartbeat)) };
        for _ in 0..120 {
            match world.random.below(100) {
                0..=59 => {
                    let mut txn = world.engine.begin();
                    let layout = world.table.layout();
                    for _ in 0..=world.random.below(8) {
                        let row = random_row(&mut world.random, &layout, 400);
                        let mut key = Vec::new();
                        layout.push_key(&row, &mut key);
                        let is_there = txn.read_latest(&world.table, &key, &mut Vec::new()).unwrap();
                        match world.random.below(3) {
                            0 if is_there => txn.delete(&world.table, &key).unwrap(),
                            _ if is_there => txn.update(&world.table, &key, &row).unwrap(),
                            _ => txn.insert(&world.table, &row, OnDuplicate::Fail).unwrap(),
                        }
                    }
                    txn.commit().unwrap();
                }
                60..=66 => world.bulk(),
                67..=68 => world.delete_times(),
                69..=81 => world.engine.flush_table(&world.table).unwrap(),
                82..=86 => world.merge(),
                87..=90 => world.restart_only(),
                _ => check_points(&mut world.engine.begin(), &world.table, &source, &mut world.random),
            }
        }
        check_points(&mut world.engine.begin(), &world.table, &source, &mut world.random);
        let differences = world.engine.check_tiers(&world.table, &mut |_| true).unwrap();
        assert_eq!(differences.len(), 0, "CHECK TABLE finds differences");
    }
}

/// As [`tiers_keep_what_a_ring_lets_go`], but that a bucket which rows have left need not know of what changes behind it.
#[test]
fn data_sources_keep_what_a_ring_lets_go() {
    for seed in seeds(18) {
        println!("seed {seed}");
        let (name, ring) = ring_of(seed);
        let heartbeat = [7, 12, 25][seed as usize / 3 % 3];
        let mut world = RingWorld::new(seed, name, ring, [None; 3]);
        world.world.engine.drop_table("db/t").unwrap();
        let mut schema = Schema { step: Some(5_000_000), ring, ..schema() };
        let kind = SourceType::Gauge;
        schema.columns[4].source = Some(DataSource { kind, heartbeat: heartbeat * 1_000_000, min: None, max: None });
        world.world.engine.create_table("db/t", schema).unwrap();
        world.world.table = world.world.engine.table("db/t").unwrap();
        let of = |seconds: u64| NonZeroU32::new(seconds as u32).unwrap();
        let source = Source::new(Dst::Gauge, of(5), of(heartbeat));
        // What buckets were since rows had left them, by tier.
        let mut were: [Histories; 3] = Default::default();
        // What they should have been a step ago, and the oldest row of each series then.
        let mut last: [PointRows; 3] = Default::default();
        let mut last_oldest: BTreeMap<u64, u64> = BTreeMap::new();
        for _ in 0..300 {
            match world.world.random.below(100) {
                0..=64 => world.write(),
                65..=74 => world.world.engine.flush_table(&world.world.table).unwrap(),
                75..=84 => world.world.merge(),
                85..=86 => world.world.engine.optimize_table(&world.world.table, &mut |_, _| true).unwrap(),
                87..=89 => world.world.restart_only(),
                _ => {}
            }
            let kept: Rows = world.kept.iter().map(|(k, r)| (k.clone(), r.clone())).collect();
            let layout = world.world.table.layout();
            let visible = world.visible();
            let oldest = |number: u64| {
                let of_series = visible.iter().map(|(_, row)| layout.view(row));
                let of_series = of_series.filter(|v| v.int(0) == number || name != "series");
                of_series.map(|v| v.int(1)).min().unwrap_or(u64::MAX)
            };
            let differences = world.world.engine.check_tiers(&world.world.table, &mut |_| true).unwrap();
            assert_eq!(differences.len(), 0, "CHECK TABLE finds differences in a ring of {name}");
            let mut txn = world.world.engine.begin();
            let mut finest = PointRows::new();
            for ((tier, were), last) in world.world.table.tiers().iter().zip(&mut were).zip(&mut last) {
                let Bucket::Fixed { length, .. } = tier.def.bucket else { panic!("fixed buckets only") };
                let expected = expected_points(&kept, &layout, (length / 1_000_000) as u32, 4, &source);
                let read = read_points(&mut txn, tier, Direction::Forward, 7);
                assert!(read.keys().eq(read_points(&mut txn, tier, Direction::Backward, 7).keys()));
                let seconds = length / 1_000_000;
                if seconds == 10 {
                    finest.clone_from(&read);
                }
                for key in read.keys().chain(expected.keys()) {
                    let (a, b) = (read.get(key).copied(), expected.get(key).copied());
                    let is = |b: &Option<_>| match (&a, b) {
                        (Some(a), Some(b)) => is_same_points(a, b),
                        (a, b) => a.is_none() && b.is_none(),
                    };
                    if key.1 < oldest(key.0) {
                        let were = were.entry(*key).or_insert_with(|| {
                            // A row in front of it may have got a reading, which now says what was before it.
                            let had_left = last_oldest.get(&key.0).is_some_and(|oldest| key.1 < *oldest);
                            Vec::from_iter((had_left && !last.contains_key(key)).then_some(None))
                        });
                        were.extend(Some(b).filter(|b| were.last() != Some(b)));
                        let what = format!("{} in a ring of {name}", tier.def.name);
                        // A coarse bucket follows the finer ones, some of which may have changed and others not any more.
                        let of_finer: u64 =
                            finest.range(*key..(key.0, key.1 + seconds)).map(|(_, (count, _))| count).sum();
                        let follows = seconds > 10 && a.is_some_and(|(count, _)| count == of_finer);
                        assert!(follows || were.iter().any(is), "{what}: {key:?} is {a:?}, never was: {were:?}");
                    } else {
                        assert!(is(&b), "{} in a ring of {name}: {key:?} is {a:?}, not {b:?}", tier.def.name);
                    }
                }
                *last = expected;
            }
            last_oldest = visible.iter().map(|(_, row)| layout.view(row).int(0)).map(|n| (n, oldest(n))).collect();
        }
        assert!(world.visible().len() < world.kept.len() / 2);
    }
}
