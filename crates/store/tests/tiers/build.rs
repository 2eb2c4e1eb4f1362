//! ALTER TABLE builds new tiers before the table is altered: whoever stops it, or a crash, leaves the table as it was.

use std::path::PathBuf;
use std::sync::Arc;

use rrd_store::alter::Alteration;
use rrd_store::schema::{Bucket, TierDef};
use rrd_store::{Direction, Engine, Error, Schema, Table};

use super::small_config;
use super::world::{World, comparable, expected, rows_of};

/// A tier less, two more, of which one is made from the other.
fn changed(table: &Table) -> Schema {
    let mut schema = Schema::clone(&table.schema());
    schema.tiers.remove(1);
    for (id, seconds) in [(8, 20), (9, 40)] {
        let bucket = Bucket::Fixed { length: seconds * 1_000_000, offset: 0 };
        schema.tiers.push(TierDef { id, name: format!("{seconds}s"), bucket, keep: None });
    }
    schema
}

fn filled(seed: u64) -> World {
    let mut world = World::new(seed);
    for _ in 0..120 {
        world.step();
    }
    while rows_of(world.engine.begin().cursor(&world.table).unwrap(), Direction::Forward, (None, None), 100).len() < 100
    {
        world.bulk();
    }
    world.old = None;
    world
}

fn names(table: &Table) -> Vec<String> {
    table.tiers().iter().map(|tier| tier.def.name.clone()).collect()
}

/// Names of the tiers that are there, each of which is what the rows give.
fn checked(engine: &Arc<Engine>) -> Vec<String> {
    let table = engine.table("db/t").unwrap();
    let mut txn = engine.begin();
    let raw = rows_of(txn.cursor(&table).unwrap(), Direction::Forward, (None, None), 100);
    for tier in table.tiers().iter() {
        let layout = tier.table.layout();
        let found = rows_of(txn.cursor(&tier.table).unwrap(), Direction::Forward, (None, None), 100);
        let compared =
            |rows: &[(Vec<u8>, Vec<u8>)]| rows.iter().map(|(_, r)| comparable(&layout, r)).collect::<Vec<_>>();
        assert_eq!(compared(&found), compared(&expected(&raw, &table.layout(), tier)), "{}", tier.def.name);
    }
    names(&table)
}

fn change(world: &World, tiers: Option<rrd_store::tier::TierChanges>) -> Alteration {
    let table = world.table.clone();
    Alteration { schema: changed(&table), table, definition: b"id".to_vec(), built: Vec::new(), tiers }
}

fn files(world: &World) -> Vec<PathBuf> {
    let mut files = world.fs.files();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "rrds"));
    files
}

#[test]
fn a_build_that_is_stopped_leaves_the_table_as_it_was() {
    let world = filled(3);
    world.engine.flush_table(&world.table).unwrap();
    let (before, tiers) = (files(&world), names(&world.table));
    let mut steps = 0;
    for stop_at in 0.. {
        let mut left = stop_at;
        let schema = changed(&world.table);
        let built = world.engine.build_tiers(&world.table, &schema, &mut |done, total| {
            assert!(done <= total);
            left -= 1;
            left >= 0
        });
        match built {
            Err(Error::Interrupted) => steps += 1,
            Err(error) => panic!("{error}"),
            // Built, and given up.
            Ok(_) => break,
        }
        assert_eq!(files(&world), before, "stopped at word {stop_at}");
    }
    assert!(steps > 2, "{steps} words only");
    assert_eq!(files(&world), before);
    assert_eq!(checked(&world.engine), tiers);
    assert!(world.engine.jobs().is_empty());
    // It can be done all the same.
    let built = world.engine.build_tiers(&world.table, &changed(&world.table), &mut |_, _| true).unwrap();
    world.engine.alter_tables(vec![change(&world, Some(built))]).unwrap();
    assert_eq!(checked(&world.engine), ["10s", "20s", "40s", "100s"]);
}

/// A build takes the number of its tier's table before it begins.
#[test]
fn tables_that_are_made_during_a_build_are_no_hindrance() {
    let mut world = filled(7);
    let mut made = Vec::new();
    let built = world.engine.build_tiers(&world.table, &changed(&world.table), &mut |_, _| {
        made.push(format!("db/other{}", made.len()));
        let name = &made[made.len() - 1];
        world.engine.create_table(name, Schema::clone(&world.table.schema())).is_ok()
    });
    let built = built.unwrap();
    world.engine.drop_table(&made[0]).unwrap();
    world.engine.alter_tables(vec![change(&world, Some(built))]).unwrap();
    assert_eq!(checked(&world.engine), ["10s", "20s", "40s", "100s"]);
    let count = world.engine.table_names().len();
    world.restart_only();
    assert_eq!(checked(&world.engine), ["10s", "20s", "40s", "100s"]);
    assert_eq!(world.engine.table_names().len(), count);
    // A number that is in use would be refused.
    world.engine.create_table("db/last", Schema::clone(&world.table.schema())).unwrap();
}

#[test]
fn progress_goes_forward_to_the_end() {
    let world = filled(4);
    let mut told = Vec::new();
    let built = world.engine.build_tiers(&world.table, &changed(&world.table), &mut |done, total| {
        told.push((done, total));
        true
    });
    drop(built.unwrap());
    // The total is not known while memtables are flushed.
    told.retain(|(_, total)| *total > 0);
    assert!(told.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 == pair[1].1), "{told:?}");
    assert!(told.last().is_some_and(|(done, total)| done == total && *total > 0), "{told:?}");
}

#[test]
fn rows_that_come_after_a_build_are_in_the_tiers_nevertheless() {
    for is_flushed in [false, true] {
        let mut world = filled(5);
        let built = world.engine.build_tiers(&world.table, &changed(&world.table), &mut |_, _| true).unwrap();
        world.bulk();
        world.delete_times();
        if is_flushed {
            world.engine.flush_table(&world.table).unwrap();
        }
        world.engine.alter_tables(vec![change(&world, Some(built))]).unwrap();
        assert_eq!(checked(&world.engine), ["10s", "20s", "40s", "100s"]);
    }
}

/// Without power at any moment of the ALTER TABLE, the next start has the tiers of before or of after, right ones.
#[test]
fn after_a_crash_the_tiers_are_those_of_before_or_of_after() {
    let mut seen = [0, 0];
    for at in (0..).step_by(2) {
        let world = filled(6);
        let before = names(&world.table);
        world.fs.crash_at(world.fs.op_count() + at);
        let altered = world.engine.build_tiers(&world.table, &changed(&world.table), &mut |_, _| true);
        let altered = altered.and_then(|built| world.engine.alter_tables(vec![change(&world, Some(built))]));
        let engine = Engine::open(small_config(), Arc::new(world.fs.power_cut(at))).unwrap();
        let found = checked(&engine);
        let is_after = found != before;
        assert!(!is_after || found == ["10s", "20s", "40s", "100s"], "{found:?}");
        seen[usize::from(is_after)] += 1;
        if altered.is_ok() {
            assert!(is_after);
            break;
        }
    }
    assert!(seen[0] > 3 && seen[1] > 0, "{seen:?}");
}
