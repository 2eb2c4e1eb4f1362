//! Tiers of tables with rings: they keep what the ring lets go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rrd_store::schema::{Bucket, Initial, Ring};
use rrd_store::tier::Tier;
use rrd_store::{Direction, OnDuplicate, Schema, Txn};

use super::world::{Rows, World, comparable, expected, random_row, rows_of};
use super::{alter, schema, seeds};

/// By key, what a bucket was: what [`comparable`] makes of its row, or `None` without one.
type Frozen = BTreeMap<Vec<u8>, Vec<Option<Vec<Option<u64>>>>>;

/// A table with a ring, and every row that it ever took and that was not deleted while it was there.
pub struct RingWorld {
    pub world: World,
    pub kept: BTreeMap<Vec<u8>, Vec<u8>>,
    now: u64,
    /// The newest row that was ever there.
    newest: u64,
    name: &'static str,
    /// What buckets of each tier were since rows of them had left and the finer tier had, too, by keys.
    frozen: [Frozen; 3],
    /// Buckets that were there once.
    known: [BTreeSet<Vec<u8>>; 3],
    /// A snapshot and the tiers that it saw.
    held: Option<(Txn, Vec<Rows>)>,
}

/// The ring that a test has with this seed, and what it is of.
pub fn ring_of(seed: u64) -> (&'static str, Ring) {
    let rows = Ring { max_rows: Some(30), ..Ring::default() };
    let age = Ring { retention: Some(150_000_000), ..Ring::default() };
    let series = Ring { series_max_rows: Some(9), ..Ring::default() };
    [("rows", rows), ("age", age), ("series", series)][seed as usize % 3]
}

impl RingWorld {
    /// With the ring and the tiers of this seed, which are kept for as long as it, longer or shorter.
    fn of(seed: u64) -> RingWorld {
        let (name, ring) = ring_of(seed);
        let short = Some(60_000_000);
        let keeps = [[None; 3], [Some(200_000_000), None, Some(500_000_000)], [short, None, None], [short; 3]];
        RingWorld::new(seed, name, ring, keeps[seed as usize / 3 % 4])
    }

    pub fn new(seed: u64, name: &'static str, ring: Ring, keep: [Option<u64>; 3]) -> RingWorld {
        let mut world = World::new(seed);
        world.engine.drop_table("db/t").unwrap();
        let mut schema = Schema { ring, ..schema() };
        schema.tiers.iter_mut().zip(keep).for_each(|(tier, keep)| tier.keep = keep);
        world.engine.create_table("db/t", schema).unwrap();
        world.table = world.engine.table("db/t").unwrap();
        RingWorld {
            world,
            kept: BTreeMap::new(),
            now: 100,
            newest: 0,
            name,
            frozen: Default::default(),
            known: Default::default(),
            held: None,
        }
    }

    fn step(&mut self) {
        match self.world.random.below(100) {
            0..=59 => {
                self.write();
                self.note_frozen();
            }
            60..=69 => self.world.engine.flush_table(&self.world.table).unwrap(),
            70..=81 => self.world.merge(),
            82..=83 => self.world.engine.optimize_table(&self.world.table, &mut |_, _| true).unwrap(),
            84..=87 => self.restart(),
            88..=90 => self.hold(),
            _ => self.check(),
        }
    }

    /// Takes a snapshot, whose tiers stay as they are now.
    fn hold(&mut self) {
        let mut txn = self.world.engine.begin();
        txn.take_snapshot();
        let tiers = self.read_tiers(&mut txn);
        self.held = Some((txn, tiers));
    }

    fn read_tiers(&self, txn: &mut Txn) -> Vec<Rows> {
        let read = |tier: &Arc<Tier>| {
            let cursor = |txn: &mut Txn| txn.cursor(&tier.table).unwrap();
            let rows = rows_of(cursor(txn), Direction::Forward, (None, None), 20);
            let mut back = rows_of(cursor(txn), Direction::Backward, (None, None), 20);
            back.reverse();
            assert_eq!(rows, back, "backward over {} in a ring of {}", tier.def.name, self.name);
            rows
        };
        self.world.table.tiers().iter().map(read).collect()
    }

    /// All buckets, by tier and key, and what they have by names of columns.
    fn named(&self) -> BTreeMap<(String, Vec<u8>), BTreeMap<String, Option<u64>>> {
        let mut named = BTreeMap::new();
        let tiers = self.world.table.tiers();
        for (tier, rows) in tiers.iter().zip(self.read_tiers(&mut self.world.engine.begin())) {
            let layout = tier.table.layout();
            for (key, row) in rows {
                let value = |c: usize| (!layout.view(&row).is_null(c)).then(|| layout.view(&row).int(c));
                let columns = layout.schema().columns.iter().enumerate();
                let values = columns.map(|(c, column)| (column.name.clone(), value(c))).collect();
                named.insert((tier.def.name.clone(), key), values);
            }
        }
        named
    }

    pub fn visible(&self) -> Rows {
        rows_of(self.world.engine.begin().cursor(&self.world.table).unwrap(), Direction::Forward, (None, None), 100)
    }

    pub fn write(&mut self) {
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
            if txn.insert(&self.world.table, &row, OnDuplicate::Fail).is_ok() && txn.take_losses().is_empty() {
                self.kept.insert(key.clone(), row);
                self.newest = self.newest.max(time);
            }
        }
        txn.commit().unwrap();
    }

    fn restart(&mut self) {
        self.check();
        self.held = None;
        self.world.restart_only();
        self.check();
    }

    /// Notes what is in buckets that may keep what they had: some of their rows have left, and so has the finer tier.
    fn note_frozen(&mut self) {
        let tiers = self.world.table.tiers();
        let finest = 10;
        let Some(keep) = tiers[0].def.keep else { return };
        let line = self.newest.saturating_sub(keep / 1_000_000);
        let time_of = |key: &[u8]| u32::from_be_bytes([key[2], key[3], key[4], key[5]]);
        let visible = self.visible();
        let oldest = |series: &[u8]| {
            let of_series = visible.iter().filter(|(key, _)| key[..2] == *series || self.name != "series");
            of_series.map(|(key, _)| time_of(key)).min().unwrap_or(u32::MAX)
        };
        let kept: Rows = self.kept.iter().map(|(k, r)| (k.clone(), r.clone())).collect();
        for (place, tier) in tiers.iter().enumerate().skip(1) {
            let Bucket::Fixed { length, .. } = tier.def.bucket else { panic!("fixed buckets only") };
            let length = length / 1_000_000;
            let of = |(key, row): (Vec<u8>, Vec<u8>)| (key, comparable(&tier.table.layout(), &row));
            let now: BTreeMap<_, _> = expected(&kept, &self.world.table.layout(), tier).into_iter().map(of).collect();
            let (frozen, known) = (&mut self.frozen[place], &mut self.known[place]);
            for key in now.keys().chain(&known.clone()) {
                let is_old = u64::from(time_of(key)) < line / length * length;
                if is_old && time_of(key) < oldest(&key[..2]) / finest * finest {
                    let was = frozen.entry(key.clone()).or_default();
                    if !known.contains(key) {
                        was.push(None);
                    }
                    if was.last() != Some(&now.get(key).cloned()) {
                        was.push(now.get(key).cloned());
                    }
                }
            }
            known.extend(now.into_keys());
        }
    }

    fn check(&mut self) {
        let engine = &self.world.engine;
        let differences = engine.check_tiers(&self.world.table, &mut |_| true).unwrap();
        assert_eq!(differences.len(), 0, "CHECK TABLE finds differences in a ring of {}", self.name);
        let kept: Rows = self.kept.iter().map(|(k, r)| (k.clone(), r.clone())).collect();
        let read = self.read_tiers(&mut self.world.engine.begin());
        if let Some((mut txn, was)) = self.held.take() {
            for (tier, (now, was)) in self.world.table.tiers().iter().zip(self.read_tiers(&mut txn).iter().zip(&was)) {
                let layout = tier.table.layout();
                assert_eq!(now.len(), was.len(), "{} in a ring of {}, an old snapshot", tier.def.name, self.name);
                if let Some((now, was)) = now.iter().zip(was).find(|(now, was)| now != was) {
                    let what = format!("{} in a ring of {}, an old snapshot", tier.def.name, self.name);
                    let of = |(key, row): &(Vec<u8>, Vec<u8>)| (key.clone(), comparable(&layout, row));
                    panic!("{what}: {:?}, not {:?}", of(now), of(was));
                }
            }
            self.held = Some((txn, was));
        }
        for ((tier, frozen), read) in self.world.table.tiers().iter().zip(&self.frozen).zip(read) {
            let Bucket::Fixed { length, .. } = tier.def.bucket else { panic!("fixed buckets only") };
            let mut expected = expected(&kept, &self.world.table.layout(), tier);
            if let Some(keep) = tier.def.keep {
                let oldest = (self.newest * 1_000_000).saturating_sub(keep) / length * length / 1_000_000;
                expected.retain(|(_, row)| tier.table.layout().view(row).int(1) >= oldest);
            }
            let compared = |rows: &Rows| {
                rows.iter().map(|(k, r)| (k.clone(), comparable(&tier.table.layout(), r))).collect::<Vec<_>>()
            };
            let (read, expected) = (compared(&read), compared(&expected));
            let (read, expected): (BTreeMap<_, _>, BTreeMap<_, _>) =
                (read.into_iter().collect(), expected.into_iter().collect());
            for key in read.keys().chain(expected.keys()) {
                let (a, b) = (read.get(key), expected.get(key));
                let is_frozen = || frozen.get(key).is_some_and(|was| was.contains(&a.cloned()));
                let what = format!("{} in a ring of {}: {key:?}", tier.def.name, self.name);
                assert!(a == b || is_frozen(), "{what} is {a:?}, not {b:?}");
            }
        }
    }
}

#[test]
fn tiers_keep_what_a_ring_lets_go() {
    // 10: rows of a finer tier that a coarser one needs, after a restart.
    for seed in seeds(36) {
        println!("seed {seed}");
        let mut world = RingWorld::of(seed);
        for _ in 0..400 {
            world.step();
        }
        world.check();
        assert!(world.visible().len() < world.kept.len() / 2);
    }
}

/// Their new column has values where rows are, and nothing else changes.
#[test]
fn buckets_that_are_built_anew_are_what_they_were() {
    for seed in seeds(36) {
        println!("seed {seed}");
        let mut world = RingWorld::of(seed);
        (0..300).for_each(|_| world.step());
        world.check();
        world.held = None;
        let (table, before) = (world.world.table.clone(), world.named());
        alter(&world.world.engine, &table, |schema| {
            let mut new = schema.columns[2].clone();
            (new.id, new.name, new.initial) = (5, "m".into(), Some(Initial::Bits(7 + (1 << 31))));
            schema.columns.push(new);
        });
        let after = world.named();
        assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "{}", world.name);
        for (bucket, values) in &before {
            let now = &after[bucket];
            assert!(values.iter().all(|(column, value)| now[column] == *value), "{bucket:?}: {values:?}, {now:?}");
        }
        let mut has_value = 0;
        let (visible, tiers) = (world.visible(), table.tiers());
        let of_row = |row| tiers.iter().zip(&world.frozen).map(move |tier| (row, tier));
        for ((key, _), (tier, frozen)) in visible.iter().flat_map(of_row) {
            let Bucket::Fixed { length, .. } = tier.def.bucket else { panic!("fixed buckets only") };
            let (time, length) = (u32::from_be_bytes([key[2], key[3], key[4], key[5]]), (length / 1_000_000) as u32);
            let bucket = [&key[..2], &(time / length * length).to_be_bytes()].concat();
            let is_frozen = frozen.contains_key(&bucket);
            if let Some(now) = after.get(&(tier.def.name.clone(), bucket)).filter(|_| !is_frozen) {
                assert_eq!(now["m_max"], Some(7 + (1 << 31)), "{} of the row {key:?}: {now:?}", tier.def.name);
                has_value += 1;
            }
        }
        assert!(world.world.engine.check_tiers(&table, &mut |_| true).unwrap().is_empty());
        assert!(has_value > 10, "{has_value}");
    }
}

/// On a replica whose workers commit side by side, a row was inserted before the ring let go of its time, and committed after that:
/// a tier had a bucket more than the primary's, where the row was refused at once.
#[test]
fn a_row_that_is_gone_when_it_is_committed_is_in_no_tier() {
    for (case, is_restarted, is_batch) in (0..12).map(|n| (n % 3, n / 3 % 2 == 1, n / 6 == 1)) {
        let (name, ring) = ring_of(case);
        let mut world = RingWorld::new(1, name, ring, [None; 3]).world;
        let layout = world.table.layout();
        let row = |series: u64, time: u64| {
            let mut row = Vec::new();
            let mut writer = layout.writer(&mut row);
            writer.set_int(0, series);
            writer.set_int(1, time);
            (2..5).for_each(|column| writer.set_null(column));
            writer.finish();
            row
        };
        let (mut late, mut newer) = (world.engine.begin(), world.engine.begin());
        if is_batch {
            late.begin_bulk(&world.table);
        }
        // A batch stays one if its series has no newer rows, which only a ring of series needs.
        let series = if name == "series" { 1 } else { 2 };
        late.insert(&world.table, &row(series, 5), OnDuplicate::Fail).unwrap();
        late.insert(&world.table, &row(series, 2000), OnDuplicate::Fail).unwrap();
        if is_batch {
            late.end_bulk(&world.table).unwrap();
        }
        for time in 1000..1040 {
            newer.insert(&world.table, &row(1, time), OnDuplicate::Fail).unwrap();
        }
        newer.commit().unwrap();
        late.commit().unwrap();
        drop((late, newer));
        if is_restarted {
            world.restart_only();
        }
        for is_flushed in [false, true] {
            if is_flushed {
                world.engine.flush_table(&world.table).unwrap();
            }
            let cursor = world.engine.begin().cursor(&world.table.tiers()[0].table).unwrap();
            let tier = world.table.tiers()[0].table.layout();
            let rows = rows_of(cursor, Direction::Forward, (None, None), 20);
            let starts: BTreeSet<u64> = rows.iter().map(|(_, row)| tier.view(row).int(1)).collect();
            let what = format!("{name}, restarted: {is_restarted}, batch: {is_batch}, flushed: {is_flushed}");
            assert_eq!(starts, BTreeSet::from([1000, 1010, 1020, 1030, 2000]), "{what}");
        }
    }
}
