//! REPAIR TABLE with damaged files of tiers: buckets whose rows are there are what the rows make them again.

use std::path::Path;
use std::sync::Arc;

use rrd_store::{Direction, Engine};

use super::small_config;
use super::world::{World, comparable, expected, rows_of};

/// Tiers that are not what the rows give.
fn wrong_tiers(engine: &Arc<Engine>) -> Vec<String> {
    let table = engine.table("db/t").unwrap();
    let mut txn = engine.begin();
    let raw = rows_of(txn.cursor(&table).unwrap(), Direction::Forward, (None, None), 100);
    let mut wrong = Vec::new();
    for tier in table.tiers().iter() {
        let layout = tier.table.layout();
        let found = rows_of(txn.cursor(&tier.table).unwrap(), Direction::Forward, (None, None), 100);
        let compared =
            |rows: &[(Vec<u8>, Vec<u8>)]| rows.iter().map(|(_, r)| comparable(&layout, r)).collect::<Vec<_>>();
        if compared(&found) != compared(&expected(&raw, &table.layout(), tier)) {
            wrong.push(tier.def.name.clone());
        }
    }
    wrong
}

#[test]
fn damaged_tiers_are_made_again_from_the_rows() {
    let mut world = World::new(7);
    for _ in 0..150 {
        world.step();
    }
    while rows_of(world.engine.begin().cursor(&world.table).unwrap(), Direction::Forward, (None, None), 100).len() < 100
    {
        world.bulk();
    }
    world.old = None;
    world.engine.optimize_table(&world.table, &mut |_, _| true).unwrap();
    let tiers = world.table.tiers();
    for tier in tiers.iter() {
        let segment = tier.table.segment_reports(false, &mut |_| {}, &|| false).remove(0);
        let path = Path::new("/rrd").join(&segment.file);
        for part in 0..12 {
            let fs = world.fs.kill();
            fs.corrupt(&path, segment.meta.bytes * part / 12, 4);
            let engine = Engine::open(small_config(), Arc::new(fs.clone())).unwrap();
            let table = engine.table("db/t").unwrap();
            assert!(!engine.check_table(&table, &mut |_, _| true).unwrap().is_empty(), "{path:?} is damaged at {part}");
            let repaired = engine.repair_table(&table, &mut |_, _| true).unwrap();
            assert_eq!(repaired.segments, 1);
            let names: Vec<&str> = repaired.tiers.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, [tier.def.name.as_str()]);
            let check = |engine: &Arc<Engine>, when: &str| {
                let what = format!("{} damaged at {part}, {when}", tier.def.name);
                assert_eq!(wrong_tiers(engine), Vec::<String>::new(), "{what}");
                let findings = engine.check_table(&engine.table("db/t").unwrap(), &mut |_, _| true).unwrap();
                assert_eq!(findings, Vec::<String>::new(), "{what}");
            };
            check(&engine, "before the flush");
            // The tier is built after a crash as well.
            let killed = Engine::open(small_config(), Arc::new(fs.kill())).unwrap();
            check(&killed, "after a crash");
            killed.flush_table(&killed.table("db/t").unwrap()).unwrap();
            check(&killed, "after a crash and a flush");
            engine.flush_table(&table).unwrap();
            check(&engine, "after the flush");
        }
    }
}
