//! A table with tiers, random changes of it, and what its tiers should hold, written down here anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rrd_store::fs::sim::SimFs;
use rrd_store::schema::{Bucket, Lane};
use rrd_store::tier::Tier;
use rrd_store::{Cursor, Direction, Engine, OnDuplicate, RowLayout, Table, Txn};

use super::{Random, schema, small_config};

pub fn random_row(random: &mut Random, layout: &RowLayout, times: u64) -> Vec<u8> {
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
pub fn rows_of(mut cursor: Cursor, direction: Direction, bounds: (Option<&[u8]>, Option<&[u8]>), step: usize) -> Rows {
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

pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Tiers of a table as its rows give them: written down here anew.
pub fn expected(raw: &Rows, layout: &RowLayout, tier: &Tier) -> Rows {
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
pub fn comparable(layout: &RowLayout, row: &[u8]) -> Vec<Option<u64>> {
    let schema = layout.schema();
    let is_left_out = |name: &str| (name.ends_with("_avg") || name.ends_with("_sum")) && !name.starts_with("f_");
    let columns = schema.columns.iter().enumerate().filter(|(_, c)| !is_left_out(&c.name));
    columns.map(|(c, _)| (!layout.view(row).is_null(c)).then(|| layout.view(row).int(c))).collect()
}

pub struct World {
    pub random: Random,
    pub fs: SimFs,
    pub engine: Arc<Engine>,
    pub table: Arc<Table>,
    /// An old snapshot and the rows that it saw.
    pub old: Option<(Txn, Rows)>,
}

impl World {
    pub fn new(seed: u64) -> World {
        let fs = SimFs::with_seed(seed);
        let engine = Engine::open(small_config(), Arc::new(fs.clone())).unwrap();
        engine.create_table("db/t", schema()).unwrap();
        let table = engine.table("db/t").unwrap();
        World { random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1), fs, engine, table, old: None }
    }

    pub fn step(&mut self) {
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

    pub fn bulk(&mut self) {
        let mut txn = self.engine.begin();
        txn.begin_bulk(&self.table);
        let layout = self.table.layout();
        let mut known = BTreeSet::new();
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

    pub fn delete_times(&mut self) {
        let from = self.random.below(400);
        let times = (from, from + self.random.below(200));
        let mut txn = self.engine.begin();
        txn.delete_times(&self.table, Some(times)).unwrap();
        txn.commit().unwrap();
    }

    pub fn merge(&mut self) {
        self.engine.merge_table(&self.table).unwrap();
        self.table.tiers().iter().for_each(|t| self.engine.merge_table(&t.table).unwrap());
    }

    fn restart(&mut self) {
        self.restart_only();
        self.check();
    }

    pub fn restart_only(&mut self) {
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

    pub fn check(&mut self) {
        check_txn(&mut self.engine.begin(), &self.table, &mut self.random, None);
        assert_eq!(
            self.engine.check_tiers(&self.table, &mut |_| true).unwrap().len(),
            0,
            "CHECK TABLE finds differences"
        );
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
pub fn random_key(random: &mut Random) -> Vec<u8> {
    let mut key = (random.below(5) as u16).to_be_bytes().to_vec();
    if random.below(4) > 0 {
        let unit = [1, 10, 20][random.below(3) as usize];
        key.extend(((random.below(400) / unit * unit) as u32).to_be_bytes());
    }
    key
}
