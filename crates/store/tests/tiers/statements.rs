//! A statement that writes reads tiers as they were when it began, and the next one as they are then.

use std::sync::Arc;

use rrd_store::{Direction, OnDuplicate, Table, Txn};

use super::Random;
use super::world::{World, comparable, expected, random_row, rows_of};

type Seen = Vec<Vec<Vec<Option<u64>>>>;

fn tiers(txn: &mut Txn, table: &Arc<Table>) -> Seen {
    let read = |tier: &Arc<Table>, txn: &mut Txn| {
        let rows = rows_of(txn.cursor(tier).unwrap(), Direction::Forward, (None, None), 100);
        rows.iter().map(|(_, row)| comparable(&tier.layout(), row)).collect()
    };
    table.tiers().iter().map(|tier| read(&tier.table, txn)).collect()
}

/// What the rows that the transaction sees make of the tiers.
fn tiers_of_rows(txn: &mut Txn, table: &Arc<Table>) -> Seen {
    let raw = rows_of(txn.cursor(table).unwrap(), Direction::Forward, (None, None), 100);
    let compared = |rows: Vec<(Vec<u8>, Vec<u8>)>, tier: &Table| {
        rows.iter().map(|(_, row)| comparable(&tier.layout(), row)).collect()
    };
    table.tiers().iter().map(|tier| compared(expected(&raw, &table.layout(), tier), &tier.table)).collect()
}

/// Changes some rows, or appends many that stay together.
fn write(txn: &mut Txn, table: &Arc<Table>, random: &mut Random, newest: &mut u64) {
    let layout = table.layout();
    if random.below(3) == 0 {
        txn.begin_bulk(table);
        for _ in 0..random.below(100) {
            *newest += 1;
            let mut row = random_row(random, &layout, 400);
            let start = layout.schema().columns.len().div_ceil(8) + 2;
            row[start..start + 4].copy_from_slice(&(*newest as u32).to_le_bytes());
            txn.insert(table, &row, OnDuplicate::Fail).unwrap();
        }
        return txn.end_bulk(table).unwrap();
    }
    for _ in 0..=random.below(6) {
        let row = random_row(random, &layout, 400);
        let mut key = Vec::new();
        layout.push_key(&row, &mut key);
        match (txn.read_latest(table, &key, &mut Vec::new()).unwrap(), random.below(2)) {
            (true, 0) => txn.delete(table, &key).unwrap(),
            (true, _) => txn.update(table, &key, &row).unwrap(),
            (false, _) => txn.insert(table, &row, OnDuplicate::Fail).unwrap(),
        }
    }
}

#[test]
fn a_statement_that_writes_reads_tiers_as_they_were_when_it_began() {
    for seed in 1..60 {
        let mut world = World::new(seed);
        (0..30).for_each(|_| world.step());
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut newest = 1000;
        let mut txn = world.engine.begin();
        // In autocommit mode the one statement has no savepoint.
        let has_savepoints = seed % 5 > 0;
        for number in 0..4 {
            txn.start_statement();
            let before = tiers_of_rows(&mut txn, &world.table);
            assert_eq!(tiers(&mut txn, &world.table), before, "a statement that reads, seed {seed}");
            txn.start_statement();
            let mark = has_savepoints.then(|| txn.savepoint());
            txn.keep_tiers();
            for _ in 0..random.below(4) {
                if random.below(2) == 0 {
                    assert_eq!(tiers(&mut txn, &world.table), before, "statement {number}, seed {seed}");
                }
                write(&mut txn, &world.table, &mut random, &mut newest);
            }
            assert_eq!(tiers(&mut txn, &world.table), before, "the end of statement {number}, seed {seed}");
            match mark {
                None => break,
                Some(mark) if random.below(4) == 0 => {
                    txn.rollback_to(mark).unwrap();
                    txn.start_statement();
                    assert_eq!(tiers(&mut txn, &world.table), before, "rolled back, seed {seed}");
                }
                Some(mark) => txn.release(mark),
            }
        }
    }
}
