//! Tiers come, change and go with their table.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use rrd_consolidate::{Dst, Rollup, Source, Value, consolidate};
use rrd_store::alter::Alteration;
use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{Bucket, DataSource, Initial, Lane, Ring, SourceType, TierDef};
use rrd_store::tier::Tier;
use rrd_store::{Config, Cursor, Direction, Engine, OnDuplicate, RowLayout, Schema, Table, Txn};

/// (series, ts) with an integer, a decimal and a float; tiers of 10, 60 and 100 seconds.
pub const SCHEMA: &str = r#"{"version": 1, "columns": [
    {"id": 0, "name": "series", "lane": {"int": {"width": 2}}, "nullable": false},
    {"id": 1, "name": "ts", "lane": {"int": {"width": 4}}, "nullable": false},
    {"id": 2, "name": "n", "lane": {"int": {"width": 4}}, "nullable": true, "number": {"integer": {"bias": 2147483648}}},
    {"id": 3, "name": "d", "lane": {"int": {"width": 5}}, "nullable": true,
     "number": {"decimal": {"precision": 10, "scale": 2}}},
    {"id": 4, "name": "f", "lane": "f64", "nullable": true}],
    "key": [0, 1], "time": {"column": 1, "unit": "s"},
    "tiers": [{"id": 1, "name": "10s", "bucket": {"fixed": {"length": 10000000}}},
              {"id": 2, "name": "1m", "bucket": {"fixed": {"length": 60000000}}},
              {"id": 3, "name": "100s", "bucket": {"fixed": {"length": 100000000}}}]}"#;

fn open(fs: &Arc<SimFs>) -> Arc<Engine> {
    let mut config = Config::new("/data/rrd");
    config.background = false;
    Engine::open(config, fs.clone()).unwrap()
}

fn schema() -> Schema {
    serde_json::from_str(SCHEMA).unwrap()
}

fn tier_names(table: &Table) -> Vec<String> {
    table.tiers().iter().map(|t| t.table.name()).collect()
}

fn alter(engine: &Engine, table: &Arc<Table>, change: impl FnOnce(&mut Schema)) {
    let mut schema = Schema::clone(&table.schema());
    change(&mut schema);
    let change = Alteration { table: table.clone(), schema, definition: Vec::new(), built: Vec::new() };
    engine.alter_tables(&[change]).unwrap();
}

#[test]
fn tiers_come_and_go_with_their_table() {
    let fs = Arc::new(SimFs::new());
    let engine = open(&fs);
    engine.create_table("db/t", schema()).unwrap();
    let table = engine.table("db/t").unwrap();
    assert_eq!(tier_names(&table), ["db/t$10s", "db/t$1m", "db/t$100s"]);
    let sources: Vec<Option<usize>> = table.tiers().iter().map(|t| t.source).collect();
    assert_eq!(sources, [None, Some(0), Some(0)]);
    assert_eq!(engine.table_names(), ["db/t"]);
    engine.drop_table("db/t$1m").unwrap_err();
    engine.create_table("db/t$1m", schema()).unwrap_err();
    engine.rename_table("db/t", "db/u").unwrap();
    assert_eq!(tier_names(&table), ["db/u$10s", "db/u$1m", "db/u$100s"]);
    engine.close().unwrap();
    drop((table, engine));
    let engine = open(&fs);
    let table = engine.table("db/u").unwrap();
    assert_eq!(tier_names(&table).len(), 3);
    assert!(engine.table("db/u$10s").unwrap().is_tier() && engine.table("db/t$10s").is_err());
    engine.truncate_table("db/u").unwrap();
    engine.drop_table("db/u").unwrap();
    assert!(engine.table("db/u$10s").is_err());
    engine.create_table("db/u$10s", schema()).unwrap();
}

#[test]
fn an_alter_flows_into_tiers() {
    let fs = Arc::new(SimFs::new());
    let engine = open(&fs);
    engine.create_table("db/t", schema()).unwrap();
    let table = engine.table("db/t").unwrap();
    alter(&engine, &table, |schema| {
        schema.tiers.remove(1);
        schema.tiers[1].name = "100".into();
        let bucket = Bucket::Months { count: 1 };
        schema.tiers.push(TierDef { id: 4, name: "1mo".into(), bucket, keep: None });
        let mut column = schema.columns[4].clone();
        (column.id, column.name, column.initial) = (5, "g".into(), Some(Initial::Null));
        schema.columns.push(column);
        schema.columns[2].name = "m".into();
        schema.columns.remove(3);
    });
    let check = |engine: &Engine| {
        let table = engine.table("db/t").unwrap();
        assert_eq!(tier_names(&table), ["db/t$10s", "db/t$100", "db/t$1mo"]);
        let names = |t: &Table| t.schema().columns.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
        let columns: Vec<Vec<String>> = table.tiers().iter().map(|t| names(&t.table)).collect();
        assert_eq!(columns[0], columns[2]);
        assert_eq!((&columns[1][..3], columns[1].len()), (&["series".into(), "ts".into(), "m_avg".into()][..], 23));
        assert_eq!(columns[1][22], "g_last");
        assert!(engine.table("db/t$1m").is_err() && engine.table("db/t$100s").is_err());
    };
    check(&engine);
    engine.close().unwrap();
    drop((table, engine));
    check(&open(&fs));
}

/// A small generator of random numbers, the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

fn small_config() -> Config {
    let mut config = Config::new("/rrd");
    config.background = false;
    config.memtable_bytes = 60_000;
    config.tuning.bulk_run_bytes = 600;
    config.tuning.bulk_min_bytes = 900;
    config.tuning.txn_spill_bytes = 2_000;
    config.tuning.chunk_target_rows = 60;
    config
}

fn random_row(random: &mut Random, layout: &RowLayout, times: u64) -> Vec<u8> {
    let mut row = Vec::new();
    let mut writer = layout.writer(&mut row);
    for (c, def) in layout.schema().columns.iter().enumerate() {
        match (def.name.as_str(), def.lane) {
            _ if def.nullable && random.below(4) == 0 => writer.set_null(c),
            ("series", _) => writer.set_int(c, random.below(4)),
            ("ts", _) => writer.set_int(c, random.below(times)),
            // Whole numbers: their sums are exact in floats, whatever the order.
            (_, Lane::F64) => writer.set_f64_bits(c, (random.below(1000) as f64 - 500.0).to_bits()),
            ("d", _) => writer.set_int(c, decimal(random.below(2000) as i64 - 1000)),
            _ => writer.set_int(c, (1 << 31) + random.below(1000) - 500),
        }
    }
    writer.finish();
    row
}

/// A DECIMAL(10,2) as its lane holds it.
fn decimal(hundredths: i64) -> u64 {
    let (whole, part) = ((hundredths.abs() / 100) as u64, (hundredths.abs() % 100) as u64);
    let packed = whole << 8 | part;
    let packed = if hundredths < 0 { packed ^ 0xFF_FFFF_FFFF } else { packed };
    packed ^ 0x80_0000_0000
}

/// All rows that a cursor hands out, with their keys.
fn rows_of(mut cursor: Cursor, direction: Direction, bounds: (Option<&[u8]>, Option<&[u8]>), step: usize) -> Rows {
    cursor.set_bounds(bounds.0, bounds.1);
    cursor.seek(None, true, direction).unwrap();
    let mut rows = Rows::new();
    while let Some(span) = cursor.next_span(step).unwrap() {
        for n in 0..span.rows {
            let (mut key, mut row) = (Vec::new(), Vec::new());
            span.group.push_key(span.row(n), &mut key).unwrap();
            span.group.push_row(span.row(n), &mut row).unwrap();
            rows.push((key, row));
        }
    }
    rows
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Tiers of a table as its rows give them: written down here anew.
fn expected(raw: &Rows, layout: &RowLayout, tier: &Tier) -> Rows {
    let Bucket::Fixed { length, .. } = tier.def.bucket else { panic!("fixed buckets only") };
    let length = length / 1_000_000;
    let mut buckets: BTreeMap<(u64, u64), Vec<&[u8]>> = BTreeMap::new();
    for (_, row) in raw {
        let view = layout.view(row);
        buckets.entry((view.int(0), view.int(1) / length * length)).or_default().push(row);
    }
    let out = tier.table.layout();
    let schema = out.schema().clone();
    let of = |((series, start), rows): ((u64, u64), Vec<&[u8]>)| {
        let mut row = Vec::new();
        let mut writer = out.writer(&mut row);
        writer.set_int(0, series);
        writer.set_int(1, start);
        for (c, def) in layout.schema().columns.iter().enumerate().skip(2) {
            let place = |s: &str| schema.columns.iter().position(|d| d.name == format!("{}_{s}", def.name));
            let Some(places) = ["avg", "min", "max", "sum", "count", "first", "last"].map(place).into_iter().collect()
            else {
                continue;
            };
            let places: Vec<usize> = places;
            let bits: Vec<u64> =
                rows.iter().map(|r| layout.view(r)).filter(|v| !v.is_null(c)).map(|v| v.int(c)).collect();
            writer.set_int(places[4], (1 << 63) + bits.len() as u64);
            if bits.is_empty() {
                places.iter().filter(|&&p| p != places[4]).for_each(|&p| writer.set_null(p));
                continue;
            }
            let n = bits.len() as i64;
            let is_float = def.lane == Lane::F64;
            let value = |bits: &u64| match def.lane {
                Lane::F64 => f64::from_bits(*bits),
                Lane::Int { width: 5 } => {
                    let bits = bits ^ 0x80_0000_0000;
                    let (bits, sign) = if bits >> 39 != 0 { (bits ^ 0xFF_FFFF_FFFF, -1.0) } else { (bits, 1.0) };
                    sign * ((bits >> 8) * 100 + (bits & 0xFF)) as f64
                }
                _ => *bits as f64 - (1u64 << 31) as f64,
            };
            let compare = |a: &&u64, b: &&u64| value(a).total_cmp(&value(b));
            let (min, max) = (*bits.iter().min_by(compare).unwrap(), *bits.iter().max_by(compare).unwrap());
            let same = [(1, min), (2, max), (5, bits[0]), (6, bits[bits.len() - 1])];
            let sum: f64 = bits.iter().map(value).sum();
            let mut set = |place: usize, bits: u64| match schema.columns[place].lane {
                Lane::F64 => writer.set_f64_bits(place, bits),
                _ => writer.set_int(place, bits),
            };
            same.into_iter().for_each(|(s, bits)| set(places[s], bits));
            if is_float {
                set(places[0], (sum / n as f64).to_bits());
                set(places[3], sum.to_bits());
            }
        }
        let mut key = Vec::new();
        writer.finish();
        out.push_key(&row, &mut key);
        (key, row)
    };
    buckets.into_iter().map(of).collect()
}

/// What a tier says of a bucket, without what [`expected`] leaves out: sums and averages of exact numbers.
fn comparable(layout: &RowLayout, row: &[u8]) -> Vec<Option<u64>> {
    let schema = layout.schema();
    let is_left_out = |name: &str| (name.ends_with("_avg") || name.ends_with("_sum")) && !name.starts_with("f_");
    let columns = schema.columns.iter().enumerate().filter(|(_, c)| !is_left_out(&c.name));
    columns.map(|(c, _)| (!layout.view(row).is_null(c)).then(|| layout.view(row).int(c))).collect()
}

struct World {
    random: Random,
    fs: SimFs,
    engine: Arc<Engine>,
    table: Arc<Table>,
    /// An old snapshot and the rows that it saw.
    old: Option<(Txn, Rows)>,
}

impl World {
    fn new(seed: u64) -> World {
        let fs = SimFs::with_seed(seed);
        let engine = Engine::open(small_config(), Arc::new(fs.clone())).unwrap();
        engine.create_table("db/t", schema()).unwrap();
        let table = engine.table("db/t").unwrap();
        World { random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1), fs, engine, table, old: None }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..=54 => self.write(),
            55..=64 => self.bulk(),
            65..=67 => self.delete_times(),
            68..=77 => self.engine.flush_table(&self.table).unwrap(),
            78..=81 => self.merge(),
            82..=84 => self.engine.optimize_table(&self.table, &mut |_, _| true).unwrap(),
            85..=88 => self.restart(),
            89..=92 => self.hold(),
            93 if self.random.below(4) == 0 => self.truncate(),
            _ => self.check(),
        }
    }

    fn write(&mut self) {
        let mut txn = self.engine.begin();
        let layout = self.table.layout();
        for _ in 0..=self.random.below(6) {
            let row = random_row(&mut self.random, &layout, 400);
            let mut key = Vec::new();
            layout.push_key(&row, &mut key);
            let is_there = txn.read_latest(&self.table, &key, &mut Vec::new()).unwrap();
            match self.random.below(3) {
                0 if is_there => txn.delete(&self.table, &key).unwrap(),
                _ if is_there => txn.update(&self.table, &key, &row).unwrap(),
                _ => txn.insert(&self.table, &row, OnDuplicate::Fail).unwrap(),
            }
        }
        if self.random.below(4) == 0 {
            check_txn(&mut txn, &self.table, &mut self.random, None);
        }
        if self.random.below(5) > 0 {
            txn.commit().unwrap();
        }
    }

    fn bulk(&mut self) {
        let mut txn = self.engine.begin();
        txn.begin_bulk(&self.table);
        let layout = self.table.layout();
        let mut known = std::collections::BTreeSet::new();
        let from = self.random.below(300);
        for _ in 0..self.random.below(60) {
            let mut row = random_row(&mut self.random, &layout, 100);
            let start = layout.schema().columns.len().div_ceil(8) + 2;
            let time = from + layout.view(&row).int(1);
            row[start..start + 4].copy_from_slice(&(time as u32).to_le_bytes());
            let mut key = Vec::new();
            layout.push_key(&row, &mut key);
            if known.insert(key) && txn.insert(&self.table, &row, OnDuplicate::Fail).is_err() {
                return;
            }
        }
        if txn.end_bulk(&self.table).is_ok() {
            let _ = txn.commit();
        }
    }

    fn delete_times(&mut self) {
        let from = self.random.below(400);
        let times = (from, from + self.random.below(200));
        let mut txn = self.engine.begin();
        txn.delete_times(&self.table, Some(times)).unwrap();
        txn.commit().unwrap();
    }

    fn merge(&mut self) {
        self.engine.merge_table(&self.table).unwrap();
        self.table.tiers().iter().for_each(|t| self.engine.merge_table(&t.table).unwrap());
    }

    fn restart(&mut self) {
        self.restart_only();
        self.check();
    }

    fn restart_only(&mut self) {
        self.old = None;
        if self.random.below(2) == 0 {
            self.engine.close().unwrap();
        }
        let seed = self.random.below(1 << 40);
        // The old engine lets go of its lock before the new one opens.
        let elsewhere = Engine::open(small_config(), Arc::new(SimFs::new())).unwrap();
        elsewhere.create_table("db/t", schema()).unwrap();
        self.table = elsewhere.table("db/t").unwrap();
        drop(std::mem::replace(&mut self.engine, elsewhere));
        self.fs = self.fs.power_cut(seed);
        self.engine = Engine::open(small_config(), Arc::new(self.fs.clone())).unwrap();
        self.table = self.engine.table("db/t").unwrap();
    }

    fn hold(&mut self) {
        let mut txn = self.engine.begin();
        txn.take_snapshot();
        let rows = rows_of(txn.cursor(&self.table).unwrap(), Direction::Forward, (None, None), 100);
        self.old = Some((txn, rows));
    }

    fn truncate(&mut self) {
        self.old = None;
        self.engine.truncate_table("db/t").unwrap();
        self.check();
    }

    fn check(&mut self) {
        check_txn(&mut self.engine.begin(), &self.table, &mut self.random, None);
        if let Some((txn, rows)) = &mut self.old {
            check_txn(txn, &self.table, &mut self.random, Some(rows));
        }
    }
}

/// Tiers are what the rows that a transaction sees make them, whichever way they are read.
fn check_txn(txn: &mut Txn, table: &Arc<Table>, random: &mut Random, seen: Option<&Rows>) {
    let raw = rows_of(txn.cursor(table).unwrap(), Direction::Forward, (None, None), 100);
    if let Some(seen) = seen {
        assert_eq!(raw, *seen);
    }
    for tier in table.tiers().iter() {
        let layout = tier.table.layout();
        let expected = expected(&raw, &table.layout(), tier);
        let read =
            rows_of(txn.cursor(&tier.table).unwrap(), Direction::Forward, (None, None), 1 + random.below(50) as usize);
        assert_eq!(read.len(), expected.len(), "rows of {}", tier.def.name);
        for (a, b) in read.iter().zip(&expected) {
            assert_eq!((&a.0, comparable(&layout, &a.1)), (&b.0, comparable(&layout, &b.1)), "{}", tier.def.name);
        }
        let mut back =
            rows_of(txn.cursor(&tier.table).unwrap(), Direction::Backward, (None, None), 1 + random.below(50) as usize);
        back.reverse();
        assert_eq!(back, read, "backward over {}", tier.def.name);
        // Bounds and a start anywhere.
        let mut ends: Vec<Vec<u8>> = (0..2).map(|_| random_key(random)).collect();
        ends.sort();
        let (low, high) = (random.below(3) > 0, random.below(3) > 0);
        let bounds = (low.then_some(ends[0].as_slice()), high.then_some(ends[1].as_slice()));
        let is_within = |key: &Vec<u8>| (!low || *key >= ends[0]) && (!high || *key < ends[1]);
        let wanted: Rows = read.iter().filter(|(key, _)| is_within(key)).cloned().collect();
        for direction in [Direction::Forward, Direction::Backward] {
            let mut rows = rows_of(txn.cursor(&tier.table).unwrap(), direction, bounds, 1 + random.below(9) as usize);
            if direction == Direction::Backward {
                rows.reverse();
            }
            rows.retain(|(key, _)| is_within(key));
            assert_eq!(rows, wanted, "{direction:?} within bounds over {}", tier.def.name);
        }
        let (from, inclusive) = (random_key(random), random.below(2) == 0);
        for direction in [Direction::Forward, Direction::Backward] {
            let mut cursor = txn.cursor(&tier.table).unwrap();
            cursor.seek(Some(&from), inclusive, direction).unwrap();
            let found = cursor.next_span(1).unwrap().map(|span| {
                let mut key = Vec::new();
                span.group.push_key(span.row(0), &mut key).unwrap();
                key
            });
            let mut keys = read.iter().map(|(key, _)| key);
            let wanted = match direction {
                Direction::Forward => keys.find(|k| **k > from || (inclusive && **k == from)),
                Direction::Backward => keys.rfind(|k| **k < from || (inclusive && **k == from)),
            };
            assert_eq!(found.as_ref(), wanted, "{direction:?} from {from:?} in {}", tier.def.name);
        }
    }
}

/// Some key of a tier, or the beginning of one.
fn random_key(random: &mut Random) -> Vec<u8> {
    let mut key = (random.below(5) as u16).to_be_bytes().to_vec();
    if random.below(4) > 0 {
        let unit = [1, 10, 20][random.below(3) as usize];
        key.extend(((random.below(400) / unit * unit) as u32).to_be_bytes());
    }
    key
}

#[test]
fn tiers_are_what_the_rows_make_them() {
    for seed in 0..10 {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for _ in 0..150 {
            world.step();
        }
        world.check();
    }
}

/// A table with a ring, and every row that it ever took and that was not deleted while it was there.
struct RingWorld {
    world: World,
    kept: BTreeMap<Vec<u8>, Vec<u8>>,
    now: u64,
    /// The newest row that was ever there.
    newest: u64,
    name: &'static str,
}

impl RingWorld {
    fn new(seed: u64, name: &'static str, ring: Ring, keep: [Option<u64>; 3]) -> RingWorld {
        let mut world = World::new(seed);
        world.engine.drop_table("db/t").unwrap();
        let mut schema = Schema { ring, ..schema() };
        schema.tiers.iter_mut().zip(keep).for_each(|(tier, keep)| tier.keep = keep);
        world.engine.create_table("db/t", schema).unwrap();
        world.table = world.engine.table("db/t").unwrap();
        RingWorld { world, kept: BTreeMap::new(), now: 100, newest: 0, name }
    }

    fn step(&mut self) {
        match self.world.random.below(100) {
            0..=59 => self.write(),
            60..=69 => self.world.engine.flush_table(&self.world.table).unwrap(),
            70..=81 => self.world.merge(),
            82..=83 => self.world.engine.optimize_table(&self.world.table, &mut |_, _| true).unwrap(),
            84..=87 => self.restart(),
            _ => self.check(),
        }
    }

    fn visible(&self) -> Rows {
        rows_of(self.world.engine.begin().cursor(&self.world.table).unwrap(), Direction::Forward, (None, None), 100)
    }

    fn write(&mut self) {
        let layout = self.world.table.layout();
        let visible = self.visible();
        let mut txn = self.world.engine.begin();
        let random = &mut self.world.random;
        let row = random_row(random, &layout, 100);
        let (mut key, mut row) = (Vec::new(), row);
        if random.below(5) == 0 && !visible.is_empty() {
            let (old, _) = &visible[random.below(visible.len() as u64) as usize];
            if random.below(2) == 0 {
                txn.delete(&self.world.table, old).unwrap();
                self.kept.remove(old);
            } else {
                row[1..3].copy_from_slice(&u16::from_be_bytes([old[0], old[1]]).to_le_bytes());
                row[3..7].copy_from_slice(&u32::from_be_bytes([old[2], old[3], old[4], old[5]]).to_le_bytes());
                txn.update(&self.world.table, old, &row).unwrap();
                self.kept.insert(old.clone(), row);
            }
            return txn.commit().unwrap();
        }
        for _ in 0..=random.below(3) {
            let mut row = random_row(random, &layout, 100);
            self.now += random.below(8);
            let time = if random.below(5) == 0 { self.now - random.below(90).min(self.now) } else { self.now };
            row[3..7].copy_from_slice(&(time as u32).to_le_bytes());
            key.clear();
            layout.push_key(&row, &mut key);
            // A key that was there and is behind the horizon is refused, one that is there is a duplicate.
            if txn.insert(&self.world.table, &row, OnDuplicate::Fail).is_ok() && txn.take_refused_rows() == 0 {
                self.kept.insert(key.clone(), row);
                self.newest = self.newest.max(time);
            }
        }
        txn.commit().unwrap();
    }

    fn restart(&mut self) {
        self.check();
        self.world.restart_only();
        self.check();
    }

    fn check(&mut self) {
        let kept: Rows = self.kept.iter().map(|(k, r)| (k.clone(), r.clone())).collect();
        let mut txn = self.world.engine.begin();
        for tier in self.world.table.tiers().iter() {
            let Bucket::Fixed { length, .. } = tier.def.bucket else { panic!("fixed buckets only") };
            let mut expected = expected(&kept, &self.world.table.layout(), tier);
            if let Some(keep) = tier.def.keep {
                let oldest = (self.newest * 1_000_000).saturating_sub(keep) / length * length / 1_000_000;
                expected.retain(|(_, row)| tier.table.layout().view(row).int(1) >= oldest);
            }
            let read = rows_of(txn.cursor(&tier.table).unwrap(), Direction::Forward, (None, None), 20);
            let compared = |rows: &Rows| {
                rows.iter().map(|(k, r)| (k.clone(), comparable(&tier.table.layout(), r))).collect::<Vec<_>>()
            };
            assert_eq!(compared(&read), compared(&expected), "{} in a ring of {}", tier.def.name, self.name);
        }
    }
}

#[test]
fn tiers_keep_what_a_ring_lets_go() {
    let rows = Ring { max_rows: Some(30), ..Ring::default() };
    let age = Ring { retention: Some(150_000_000), ..Ring::default() };
    let series = Ring { series_max_rows: Some(9), ..Ring::default() };
    // 10: rows of a finer tier that a coarser one needs, after a restart.
    for seed in (0..9).chain([10]) {
        println!("seed {seed}");
        let (name, ring) = [("rows", rows), ("age", age), ("series", series)][seed as usize % 3];
        let keep = [[None; 3], [Some(200_000_000), None, Some(500_000_000)]][seed as usize / 3 % 2];
        let mut world = RingWorld::new(seed, name, ring, keep);
        for _ in 0..400 {
            world.step();
        }
        world.check();
        assert!(world.visible().len() < world.kept.len() / 2);
    }
}

#[test]
fn a_new_tier_is_built_from_what_is_there() {
    for seed in 0..8 {
        let mut world = World::new(seed);
        for _ in 0..60 {
            world.step();
        }
        let table = world.table.clone();
        alter(&world.engine, &table, |schema| {
            let length = [20_000_000, 30_000_000, 5_000_000][seed as usize % 3];
            let bucket = Bucket::Fixed { length, offset: 0 };
            schema.tiers.push(TierDef { id: 9, name: "new".into(), bucket, keep: None });
            if seed % 2 == 0 {
                let mut column = schema.columns[2].clone();
                (column.id, column.name, column.initial) = (5, "m".into(), Some(Initial::Bits(7 + (1 << 31))));
                schema.columns.push(column);
            }
        });
        world.old = None;
        world.check();
        for _ in 0..60 {
            world.step();
        }
        world.check();
    }
}

/// What of the columns of a data source a tier should have: by series and bucket, count and the other six.
type PointRows = BTreeMap<(u64, u64), (u64, [Option<f64>; 6])>;

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

fn check_points(txn: &mut Txn, table: &Arc<Table>, source: &Source, random: &mut Random) {
    let raw = rows_of(txn.cursor(table).unwrap(), Direction::Forward, (None, None), 100);
    for tier in table.tiers().iter() {
        let Bucket::Fixed { length, .. } = tier.def.bucket else { panic!("fixed buckets only") };
        let expected = expected_points(&raw, &table.layout(), (length / 1_000_000) as u32, 4, source);
        let layout = tier.table.layout();
        let place = |name: &str| layout.schema().columns.iter().position(|c| c.name == name).unwrap();
        let count = place("f_count");
        let places = ["f_avg", "f_min", "f_max", "f_sum", "f_first", "f_last"].map(place);
        for direction in [Direction::Forward, Direction::Backward] {
            let step = 1 + random.below(30) as usize;
            let mut rows = rows_of(txn.cursor(&tier.table).unwrap(), direction, (None, None), step);
            if direction == Direction::Backward {
                rows.reverse();
            }
            let keys: Vec<(u64, u64)> =
                rows.iter().map(|(_, r)| (layout.view(r).int(0), layout.view(r).int(1))).collect();
            assert_eq!(keys, expected.keys().copied().collect::<Vec<_>>(), "{direction:?} {}", tier.def.name);
            for ((_, row), (key, (known, wanted))) in rows.iter().zip(&expected) {
                let view = layout.view(row);
                let what = format!("{direction:?} {} {key:?}", tier.def.name);
                assert_eq!(view.int(count) ^ (1 << 63), *known, "{what}");
                for (&place, wanted) in places.iter().zip(wanted) {
                    let found = (!view.is_null(place)).then(|| f64::from_bits(view.int(place)));
                    let is_same = match (found, wanted) {
                        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b.abs().max(1e-3),
                        (None, None) => true,
                        _ => false,
                    };
                    let name = &layout.schema().columns[place].name;
                    assert!(is_same, "{what} {name}: {found:?} is not {wanted:?}");
                }
            }
        }
    }
}

#[test]
fn data_sources_are_consolidated_as_rrdtool_does_it() {
    let kinds =
        [(SourceType::Gauge, Dst::Gauge), (SourceType::Derive, Dst::Derive), (SourceType::Absolute, Dst::Absolute)];
    for seed in 0..9 {
        println!("seed {seed}");
        let (kind, dst) = kinds[seed as usize % 3];
        let heartbeat = [7, 12, 25][seed as usize / 3];
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
    }
}
