//! The log against a model, with the power cut at every operation, a full disk, failing syncs and damage.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::fs::os::OsFs;
use crate::fs::sim::SimFs;

const DIR: &str = "log";

/// Records with the positions where they end.
type Records = Vec<(Lsn, Vec<u8>)>;

fn open_with(fs: &SimFs, file_bytes: u64) -> Result<(Wal, Records)> {
    let mut records = Records::new();
    let wal = Wal::open_with(Arc::new(fs.clone()), Path::new(DIR), file_bytes, &mut |lsn, payload| {
        records.push((lsn, payload.to_vec()));
        Ok(())
    })?;
    Ok((wal, records))
}

fn open(fs: &SimFs) -> (Wal, Records) {
    open_with(fs, 300).unwrap()
}

/// A file system whose log folder is durable.
fn new_fs(seed: u64) -> SimFs {
    let fs = SimFs::with_seed(seed);
    fs.create_dir(Path::new(DIR)).unwrap();
    fs.sync_dir(Path::new("")).unwrap();
    fs
}

fn commit(wal: &Wal, payload: &[u8]) -> Result<Lsn> {
    let lsn = wal.append(payload)?;
    wal.sync(lsn)?;
    Ok(lsn)
}

fn payloads(records: &Records) -> Vec<&[u8]> {
    records.iter().map(|(_, payload)| payload.as_slice()).collect()
}

/// Files of the log, without those that wait to be written anew.
fn named_files(fs: &SimFs) -> Vec<PathBuf> {
    fs.files().into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "rrdl")).collect()
}

fn only_file(fs: &SimFs) -> PathBuf {
    let files = named_files(fs);
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

#[test]
fn records_come_back_in_order_at_their_positions() {
    let fs = new_fs(0);
    let (wal, records) = open(&fs);
    assert!(records.is_empty() && wal.position() == Lsn(0) && fs.files().is_empty());
    let mut expected = Records::new();
    for i in 0..40u8 {
        let payload = vec![i; 1 + usize::from(i)];
        let (front, back) = payload.split_at(usize::from(i / 2));
        expected.push((wal.append_parts(&[front, back]).unwrap(), payload));
    }
    assert!(wal.unwritten() > 0 && wal.synced() == Lsn(0));
    wal.sync(wal.position()).unwrap();
    assert_eq!((wal.unwritten(), wal.synced()), (0, wal.position()));
    let (again, records) = open(&fs.power_cut(7));
    assert_eq!(records, expected);
    assert_eq!(again.position(), wal.position());
}

#[test]
fn a_new_file_is_begun_when_one_is_large_and_after_each_start() {
    let fs = new_fs(0);
    let (wal, _) = open(&fs);
    for i in 0..10 {
        commit(&wal, &[i; 100]).unwrap();
    }
    assert_eq!(fs.files().len(), 5, "two records fill a file");
    assert_eq!(wal.bytes(), 5 * 64 + 10 * 124);
    drop(wal);
    let (wal, records) = open(&fs);
    assert_eq!((records.len(), fs.files().len()), (10, 5), "an idle start makes no file");
    commit(&wal, b"x").unwrap();
    assert_eq!(fs.files().len(), 6);
    assert_eq!(open(&fs).1.len(), 11);
}

#[test]
fn truncate_removes_whole_files_and_keeps_what_is_needed() {
    let fs = new_fs(0);
    let (wal, _) = open(&fs);
    let lsns: Vec<Lsn> = (0..10).map(|i| commit(&wal, &[i; 100]).unwrap()).collect();
    wal.truncate(lsns[4]).unwrap();
    let records = open(&fs.power_cut(1)).1;
    assert_eq!(records[0].1, [4; 100], "record 5 is needed and 4 shares its file");
    wal.truncate(wal.position()).unwrap();
    assert_eq!(named_files(&fs).len(), 1, "the newest file stays");
    assert_eq!(wal.bytes(), 64 + 2 * 124);
    commit(&wal, b"x").unwrap();
    let (wal, _) = open(&fs);
    assert_eq!(wal.position(), Lsn(10 * 124 + 25));
    wal.truncate(wal.position()).unwrap();
    assert_eq!(named_files(&fs).len(), 1, "positions go on from it");
    commit(&wal, b"y").unwrap();
    wal.truncate(Lsn(10 * 124 + 25)).unwrap();
    assert_eq!(payloads(&open(&fs).1), [b"y"]);
}

#[test]
fn files_that_are_not_needed_are_written_anew_and_what_was_in_them_is_never_read() {
    let fs = new_fs(0);
    let (wal, _) = open(&fs);
    for i in 0..40 {
        let lsn = commit(&wal, &[i; 100]).unwrap();
        if i % 8 == 7 {
            wal.truncate(lsn).unwrap();
            assert!(fs.files().len() <= 1 + limits::LOG_FILES_SPARED, "{:?}", fs.files());
        }
    }
    let before = fs.files().len();
    commit(&wal, &[40; 100]).unwrap();
    assert_eq!(fs.files().len(), before, "no new file was made");
    // A file begins with frames as long as those that were in it, so what is behind them begins as a frame does.
    let bytes = fs.read(named_files(&fs).last().unwrap());
    assert_eq!((bytes.len(), &bytes[64 + 24..][..100], bytes[64 + 2 * 124 - 1]), (64 + 2 * 124, &[40; 100][..], 37));
    for after in [fs.kill(), fs.power_cut(1)] {
        let (wal, found) = open(&after);
        assert_eq!(payloads(&found), [&[38; 100][..], &[39; 100], &[40; 100]]);
        assert_eq!(after.files().len(), named_files(&after).len(), "a start leaves no file that waits");
        commit(&wal, b"more").unwrap();
        assert_eq!(open(&after).1.len(), 4);
    }
    // Whoever took the files away that wait does no harm.
    wal.truncate(wal.position()).unwrap();
    fs.files().iter().filter(|path| !named_files(&fs).contains(path)).for_each(|path| fs.remove(path).unwrap());
    for i in 41..50 {
        commit(&wal, &[i; 100]).unwrap();
    }
    assert_eq!(open(&fs.kill()).1.last().unwrap().1, [49; 100]);
    wal.close().unwrap();
    assert_eq!(fs.files().len(), named_files(&fs).len(), "nor does a shutdown");
}

#[test]
fn a_file_that_a_large_group_made_long_does_not_wait_to_be_written_anew() {
    let fs = new_fs(0);
    let (wal, _) = open(&fs);
    commit(&wal, &[1; 1000]).unwrap();
    commit(&wal, &[2; 300]).unwrap();
    commit(&wal, &[3; 10]).unwrap();
    wal.truncate(wal.position()).unwrap();
    let waiting = fs.files().len() - named_files(&fs).len();
    assert_eq!((named_files(&fs).len(), waiting), (1, 1), "{:?}", fs.files());
}

#[test]
fn records_over_the_limits_are_refused() {
    let fs = new_fs(0);
    let (wal, _) = open(&fs);
    assert!(matches!(wal.append(b""), Err(Error::InvalidInput(_))));
    let part = vec![0; 1 << 20];
    let parts: Vec<&[u8]> = std::iter::repeat_n(part.as_slice(), 1025).collect();
    assert!(matches!(wal.append_parts(&parts), Err(Error::LimitExceeded { .. })));
    assert!(matches!(wal.sync(Lsn(1)), Err(Error::InvalidInput(_))));
    assert_eq!(wal.position(), Lsn(0));
}

#[test]
fn an_error_of_the_replay_stops_the_start() {
    let fs = new_fs(0);
    commit(&open(&fs).0, b"x").unwrap();
    let refuse = &mut |_: Lsn, _: &[u8]| Err(Error::Conflict);
    assert!(matches!(Wal::open(Arc::new(fs), Path::new(DIR), refuse), Err(Error::Conflict)));
}

/// Five synced records in one file, and where each begins in it.
fn small_log(marked: bool) -> (SimFs, PathBuf, Records, Vec<u64>) {
    let fs = new_fs(0);
    let (wal, _) = open_with(&fs, 1 << 20).unwrap();
    let mut begins = Vec::new();
    for i in 0..5u8 {
        begins.push(64 + wal.position().0);
        commit(&wal, &[b'a' + i; 9]).unwrap();
    }
    if marked {
        wal.mark().unwrap();
        let files = fs.read(&only_file(&fs));
        wal.mark().unwrap();
        assert_eq!(fs.read(&only_file(&fs)), files, "a second mark adds nothing");
    }
    let path = only_file(&fs);
    let records = open(&fs).1;
    (fs, path, records, begins)
}

#[test]
fn every_prefix_gives_a_prefix_of_the_records() {
    let (fs, path, records, begins) = small_log(false);
    let len = fs.read(&path).len() as u64;
    for cut in 0..len {
        let fs = fs.power_cut(0);
        fs.truncate(&path, cut);
        if cut < 64 {
            assert!(matches!(open_with(&fs, 300), Err(Error::Corruption { .. })), "cut at {cut}");
            continue;
        }
        let whole = begins.iter().filter(|&&begin| begin + 33 <= cut).count();
        let (wal, found) = open(&fs);
        assert_eq!(found, records[..whole], "cut at {cut}");
        commit(&wal, b"more").unwrap();
        let again = open(&fs).1;
        assert_eq!((again.len(), &again[..whole]), (whole + 1, &records[..whole]), "cut at {cut}");
    }
}

#[test]
fn every_flipped_bit_of_an_acknowledged_record_is_found() {
    for marked in [false, true] {
        let (fs, path, records, begins) = small_log(marked);
        let sure = if marked { begins[4] + 33 } else { begins[4] };
        for offset in 0..fs.read(&path).len() as u64 {
            for bit in 0..8 {
                let fs = fs.power_cut(0);
                fs.corrupt(&path, offset, 1 << bit);
                match open_with(&fs, 300) {
                    Err(Error::Corruption { path: named, offset: at, .. }) => {
                        assert_eq!(named, path);
                        assert!(at <= offset && offset < sure, "byte {offset}");
                    }
                    // The last record cannot be told from a torn one, unless a mark follows it.
                    Ok((_, found)) => {
                        let whole = if marked { 5 } else { 4 };
                        assert!(offset >= sure, "byte {offset} of {path:?} went unnoticed");
                        assert_eq!(found, records[..whole]);
                    }
                    Err(e) => panic!("byte {offset}: {e}"),
                }
            }
        }
    }
}

#[test]
fn every_flipped_bit_of_an_acknowledged_record_is_found_in_a_file_that_was_used_before() {
    let fs = new_fs(0);
    let (wal, _) = open(&fs);
    for i in 0..6 {
        commit(&wal, &[i; 100]).unwrap();
    }
    wal.truncate(wal.position()).unwrap();
    let lsns: Vec<Lsn> = (6..8).map(|i| commit(&wal, &[i; 70]).unwrap()).collect();
    wal.truncate(wal.position()).unwrap();
    let path = only_file(&fs);
    let bytes = fs.read(&path).len() as u64;
    assert!(bytes > 64 + 2 * 94, "what was there is behind");
    for offset in 0..bytes {
        for bit in 0..8 {
            let fs = fs.power_cut(0);
            fs.corrupt(&path, offset, 1 << bit);
            match open_with(&fs, 300) {
                Err(Error::Corruption { path: named, .. }) => assert!(named == path && offset < 64 + 94),
                // The last record cannot be told from a torn one.
                Ok((_, found)) => {
                    assert!(offset >= 64 + 94, "byte {offset} went unnoticed");
                    let whole = if offset < 64 + 2 * 94 { 1 } else { 2 };
                    assert_eq!(found.iter().map(|(lsn, _)| *lsn).collect::<Vec<_>>(), lsns[..whole]);
                }
                Err(e) => panic!("byte {offset}: {e}"),
            }
        }
    }
}

#[test]
fn every_flipped_byte_of_an_older_file_is_found() {
    let (fs, path, _, _) = small_log(false);
    commit(&open(&fs).0, b"newer").unwrap();
    for offset in 0..fs.read(&path).len() as u64 {
        let fs = fs.power_cut(0);
        fs.corrupt(&path, offset, 0x55);
        assert!(matches!(open_with(&fs, 300), Err(Error::Corruption { .. })), "byte {offset}");
    }
    for cut in 0..fs.read(&path).len() as u64 {
        let fs = fs.power_cut(0);
        fs.truncate(&path, cut);
        assert!(matches!(open_with(&fs, 300), Err(Error::Corruption { .. })), "cut at {cut}");
    }
}

#[test]
fn a_missing_file_in_the_middle_is_found() {
    let fs = new_fs(0);
    let (wal, _) = open(&fs);
    for i in 0..10 {
        commit(&wal, &[i; 100]).unwrap();
    }
    let files = fs.files();
    for missing in &files[1..4] {
        let fs = fs.power_cut(0);
        fs.remove(missing).unwrap();
        let error = open_with(&fs, 300).err().unwrap();
        assert!(error.to_string().contains(missing.file_name().unwrap().to_str().unwrap()), "{error}");
    }
    let fs = fs.power_cut(0);
    fs.remove(&files[1]).unwrap();
    fs.rename(&files[2], &files[1]).unwrap();
    assert!(matches!(open_with(&fs, 300), Err(Error::Corruption { .. })), "a file under another name");
}

#[test]
fn another_version_is_refused_and_not_guessed_at() {
    for version in [5, 7] {
        let (fs, path, _, _) = small_log(false);
        fs.corrupt(&path, 8, 6 ^ version);
        assert!(matches!(open_with(&fs, 300), Err(Error::Corruption { .. })), "a flipped bit is no version");
        mend_header(&fs, &path);
        match open_with(&fs, 300) {
            Err(Error::Incompatible { found, supported, .. }) => {
                assert_eq!((found, supported), (u32::from(version), 6))
            }
            _ => panic!("another version must be refused"),
        }
    }
}

/// Gives a header that was changed the checksum that it should have.
fn mend_header(fs: &SimFs, path: &Path) {
    let header = fs.read(path);
    let crc = crc32fast::hash(&header[..60]).to_le_bytes();
    (0..4).for_each(|i| fs.corrupt(path, 60 + i, header[60 + i as usize] ^ crc[i as usize]));
}

#[test]
fn a_failed_sync_poisons_the_log_for_good() {
    let fs = new_fs(0);
    let (wal, _) = open(&fs);
    let first = commit(&wal, b"a").unwrap();
    fs.fail_at(fs.op_count() + 2, libc::EIO);
    let second = wal.append(b"b").unwrap();
    assert!(matches!(wal.sync(second), Err(Error::Poisoned { .. })));
    let ops = fs.op_count();
    assert!(matches!(wal.append(b"c"), Err(Error::Poisoned { .. })));
    assert!(matches!(wal.sync(second), Err(Error::Poisoned { .. })));
    assert!(matches!(wal.truncate(first), Err(Error::Poisoned { .. })));
    assert!(wal.sync(first).is_ok(), "what was durable before still is");
    assert_eq!(fs.op_count(), ops, "nothing is tried again");
}

#[test]
fn a_failed_write_that_is_not_a_full_disk_poisons_the_log() {
    let fs = new_fs(0);
    let (wal, _) = open(&fs);
    commit(&wal, b"a").unwrap();
    fs.fail_at(fs.op_count() + 1, libc::EIO);
    assert!(matches!(commit(&wal, b"b"), Err(Error::Poisoned { .. })));
    assert!(matches!(wal.append(b"c"), Err(Error::Poisoned { .. })));
}

#[test]
fn a_full_disk_refuses_exactly_its_group_and_the_log_goes_on() {
    for seed in 0..20 {
        for extra in 0..2 {
            let fs = new_fs(seed);
            let (wal, _) = open(&fs);
            for _ in 0..extra * 3 {
                commit(&wal, &[1; 100]).unwrap();
            }
            commit(&wal, b"before").unwrap();
            fs.fail_from(fs.op_count() + 1, libc::ENOSPC);
            let lost: Vec<Lsn> = (0..3).map(|_| wal.append(b"lost").unwrap()).collect();
            for &lsn in &lost {
                assert!(wal.sync(lsn).unwrap_err().is_disk_full());
            }
            for _ in 0..5 {
                assert!(commit(&wal, &[2; 400]).unwrap_err().is_disk_full());
            }
            assert_eq!(open(&fs.power_cut(seed)).1.last().unwrap().1, b"before", "refused is refused");
            let files = fs.files().len();
            fs.heal();
            commit(&wal, b"after").unwrap();
            assert!(fs.files().len() <= files + 1, "no pile of empty files");
            assert!(wal.sync(lost[1]).unwrap_err().is_disk_full(), "still refused");
            let records = open(&fs.power_cut(seed)).1;
            assert_eq!(payloads(&records)[extra * 3..], [&b"before"[..], b"after"]);
            assert_eq!(records.last().unwrap().0, wal.position(), "positions skip what was refused");
        }
    }
}

#[test]
fn a_disk_that_fills_at_any_operation_loses_nothing_acknowledged() {
    let mut tested = 0;
    loop {
        let fs = new_fs(tested);
        let (wal, _) = open_with(&fs, 300).unwrap();
        let failing = fs.op_count() + 1 + tested;
        fs.fail_at(failing, libc::ENOSPC);
        let mut acknowledged = Records::new();
        for i in 0..12u8 {
            let payload = vec![i; 60];
            if let Ok(lsn) = commit(&wal, &payload) {
                acknowledged.push((lsn, payload));
            }
        }
        let poisoned = wal.append(b"x").is_err();
        let records = open(&fs.power_cut(tested)).1;
        let missing = acknowledged.iter().find(|r| !records.contains(r));
        assert!(missing.is_none(), "operation {tested}: {missing:?}");
        assert!(poisoned || records == acknowledged, "operation {tested}: something refused came back");
        if fs.op_count() < failing {
            break;
        }
        tested += 1;
    }
    assert!(tested > 30, "only {tested} operations");
}

#[test]
fn threads_share_syncs_and_all_are_durable() {
    let fs = new_fs(0);
    let (wal, _) = open_with(&fs, 20_000).unwrap();
    let failed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let (wal, failed) = (&wal, &failed);
            scope.spawn(move || {
                for i in 0..200u8 {
                    match commit(wal, &[thread, i]) {
                        Ok(lsn) => assert!(wal.synced() >= lsn),
                        Err(_) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(failed.into_inner(), 0);
    let records = open(&fs.power_cut(3)).1;
    assert_eq!(records.len(), 1600);
    for thread in 0..8 {
        let of_thread = records.iter().filter(|(_, p)| p[0] == thread).map(|(_, p)| p[1]);
        assert!(of_thread.eq(0..200), "the order within thread {thread}");
    }
}

#[test]
fn room_behind_the_last_record_is_passed_over_and_given_back() {
    let fs = new_fs(0);
    let (wal, _) = open(&fs);
    commit(&wal, b"one").unwrap();
    let path = only_file(&fs);
    assert!(fs.read(&path).len() > 64 + 27, "the file has room");
    assert_eq!(payloads(&open(&fs.kill()).1), [b"one"]);
    wal.close().unwrap();
    assert_eq!(fs.read(&path).len(), 64 + 27 + 24, "a record and a mark");
    commit(&wal, &[2; 300]).unwrap();
    commit(&wal, b"three").unwrap();
    assert_eq!(fs.read(&path).len(), 64 + 27 + 24 + 324, "nothing is left behind the end of an older file");
    assert_eq!(open(&fs.power_cut(1)).1.len(), 3);
}

/// The simulated disk is too fast for anybody to wait for others.
#[test]
fn threads_on_a_disk_wait_for_each_other_and_all_are_durable() {
    let dir = tempfile::tempdir().unwrap();
    let open = |payloads: &mut Vec<Vec<u8>>| {
        Wal::open(Arc::new(OsFs), dir.path(), &mut |_, payload| {
            payloads.push(payload.to_vec());
            Ok(())
        })
        .unwrap()
    };
    let wal = open(&mut Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..6u8 {
            let wal = &wal;
            scope.spawn(move || {
                for i in 0..40u8 {
                    let lsn = wal.append(&[thread, i]).unwrap();
                    // Some are slow, some leave early, some do not want a sync.
                    match thread {
                        0 => wal.write(lsn).unwrap(),
                        1 if i > 20 => return,
                        2 => {
                            std::thread::sleep(Duration::from_micros(u64::from(i) * 50));
                            wal.sync(lsn).unwrap();
                        }
                        _ => wal.sync(lsn).unwrap(),
                    }
                    assert!(thread == 0 || wal.synced() >= lsn);
                }
            });
        }
    });
    drop(wal);
    let mut payloads = Vec::new();
    open(&mut payloads);
    for thread in 0..6u8 {
        let of_thread: Vec<u8> = payloads.iter().filter(|p| p[0] == thread).map(|p| p[1]).collect();
        let expected = if thread == 1 { 0..21u8 } else { 0..40 };
        // One that left did not wait for its last record.
        assert!(of_thread.iter().copied().take(expected.len()).eq(expected), "{thread}: {of_thread:?}");
    }
}

#[test]
fn groups_are_filled_up_to_a_block_where_that_is_little_and_no_bit_of_it_goes_unnoticed() {
    let fs = new_fs(0);
    fs.set_block_bytes(32);
    let (wal, _) = open_with(&fs, 1000).unwrap();
    let begins: Vec<u64> = (0..4).map(|i| commit(&wal, &[i; 66]).unwrap().0 + 64 - 24 - 66).collect();
    // The first group of a file is written before it is known what blocks the file has.
    assert_eq!(begins, [64, 154, 288, 416]);
    assert_eq!(wal.position(), Lsn(544 - 64));
    let before = wal.position();
    let small = commit(&wal, &[4; 10]).unwrap();
    assert_eq!((small, wal.position()), (Lsn(before.0 + 34), small), "a filler would be most of it");
    let lsn = wal.append(&[5; 500]).unwrap();
    wal.write(lsn).unwrap();
    assert_eq!(wal.position(), lsn, "no sync, no filler");
    let path = only_file(&fs);
    let records = open(&fs).1;
    assert_eq!(records.iter().map(|(_, payload)| payload.len()).collect::<Vec<_>>(), [66, 66, 66, 66, 10, 500]);
    for offset in begins[1]..begins[3] + 90 {
        let fs = fs.power_cut(0);
        fs.corrupt(&path, offset, 1 << (offset % 8));
        assert!(matches!(open_with(&fs, 300), Err(Error::Corruption { .. })), "byte {offset}");
    }
}

/// Room costs its bytes once more, so only syncs of little are worth it.
#[test]
fn files_get_room_where_each_commit_is_synced_and_none_where_a_sync_follows_many() {
    let bytes_of_file = |each_is_synced| {
        let dir = tempfile::tempdir().unwrap();
        let wal = Wal::open(Arc::new(OsFs), dir.path(), &mut |_, _| Ok(())).unwrap();
        for _ in 0..300 {
            let lsn = wal.append(&[1; 1000]).unwrap();
            if each_is_synced { wal.sync(lsn) } else { wal.write(lsn) }.unwrap();
        }
        wal.sync(wal.position()).unwrap();
        let files = OsFs.list(dir.path()).unwrap();
        assert_eq!((files.len(), wal.bytes() > 300_000), (1, true));
        (files[0].bytes, wal.bytes())
    };
    let (on_disk, written) = bytes_of_file(false);
    assert_eq!(on_disk, written);
    assert_eq!(bytes_of_file(true).0, limits::LOG_ROOM_BYTES);
}

#[test]
fn threads_that_want_a_write_and_threads_that_want_a_sync_are_both_served() {
    let fs = new_fs(0);
    let (wal, _) = open_with(&fs, 20_000).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let wal = &wal;
            scope.spawn(move || {
                for i in 0..200u8 {
                    let lsn = wal.append(&[thread, i]).unwrap();
                    if thread % 2 == 0 { wal.sync(lsn) } else { wal.write(lsn) }.unwrap();
                    let is_safe = if thread % 2 == 0 { wal.synced() >= lsn } else { wal.fate(lsn, false).is_some() };
                    assert!(is_safe);
                }
            });
        }
    });
    assert_eq!(open(&fs.kill()).1.len(), 1600);
}

#[test]
fn threads_that_wait_learn_of_a_failed_sync() {
    let fs = new_fs(2);
    let (wal, _) = open(&fs);
    commit(&wal, b"first").unwrap();
    let acknowledged = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let (wal, acknowledged) = (&wal, &acknowledged);
            scope.spawn(move || {
                for i in 0..=255u8 {
                    match commit(wal, &[thread, i]) {
                        Ok(_) => acknowledged.lock().push(vec![thread, i]),
                        Err(_) => return,
                    }
                }
            });
        }
        fs.fail_at(fs.op_count() + 40, libc::EIO);
    });
    let found: Vec<Vec<u8>> = open(&fs.power_cut(3)).1.into_iter().map(|(_, payload)| payload).collect();
    assert!(acknowledged.into_inner().iter().all(|record| found.contains(record)));
}

#[test]
fn threads_on_a_full_disk_learn_each_their_own_fate() {
    let fs = new_fs(5);
    let (wal, _) = open_with(&fs, 2_000).unwrap();
    let acknowledged = Mutex::new(Vec::new());
    let working = AtomicUsize::new(4);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (wal, acknowledged, working) = (&wal, &acknowledged, &working);
            scope.spawn(move || {
                for i in 0..250u8 {
                    match commit(wal, &[thread, i]) {
                        Ok(_) => acknowledged.lock().push(vec![thread, i]),
                        Err(e) => assert!(e.is_disk_full(), "{e}"),
                    }
                }
                working.fetch_sub(1, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            while working.load(Ordering::Relaxed) > 0 {
                fs.fail_from(0, libc::ENOSPC);
                std::thread::sleep(std::time::Duration::from_micros(50));
                fs.heal();
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
    });
    let records = open(&fs.power_cut(3)).1;
    let mut found: Vec<Vec<u8>> = records.into_iter().map(|(_, payload)| payload).collect();
    let mut acknowledged = acknowledged.into_inner();
    found.sort();
    acknowledged.sort();
    assert_eq!(found, acknowledged);
}

/// What the log has to give back, as far as that is known.
#[derive(Clone, Default)]
struct Model {
    /// In order, without what was refused.
    records: Records,
    /// Records up to here must come back.
    durable: Lsn,
    /// Records up to here may be gone.
    not_needed: Lsn,
}

/// A script of random steps, stopped by the first error that is not a full disk.
fn run(fs: &SimFs, model: &mut Model, seed: u64) -> Result<()> {
    let mut random = seed;
    let mut below = |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    let mut wal = open_with(fs, 300)?.0;
    for step in 0..14 {
        match below(13) {
            0 => {
                let keep = model.records.get(below(1 + model.records.len() as u64) as usize);
                let keep_from = keep.map_or(Lsn(0), |(lsn, _)| *lsn).min(model.durable);
                model.not_needed = model.not_needed.max(keep_from);
                wal.truncate(keep_from)?;
            }
            1 => wal.mark().or_else(only_full)?,
            2 => fs.fail_from(fs.op_count() + 1 + below(4), libc::ENOSPC),
            3 => fs.heal(),
            4 => {
                drop(wal);
                wal = open_with(fs, 300)?.0;
            }
            kind => {
                let count = 1 + below(3);
                let group: Records = (0..count)
                    .map(|i| [step, i as u8].repeat(1 + below(60) as usize))
                    .map(|payload| wal.append(&payload).map(|lsn| (lsn, payload)))
                    .collect::<Result<_>>()?;
                let end = wal.position();
                model.records.extend(group);
                match if kind < 9 { wal.sync(end) } else { wal.write(end) } {
                    Ok(()) if kind < 9 => model.durable = end,
                    Ok(()) => {}
                    Err(e) if e.is_disk_full() => model.records.truncate(model.records.len() - count as usize),
                    Err(e) => return Err(e),
                }
            }
        }
    }
    Ok(())
}

fn only_full(e: Error) -> Result<()> {
    if e.is_disk_full() { Ok(()) } else { Err(e) }
}

impl Model {
    /// Checks what came back and takes it for the truth from now on.
    fn check(&mut self, found: &Records, what: &str) {
        let first = found.first().map_or(self.records.len(), |first| {
            self.records.iter().position(|r| r == first).unwrap_or_else(|| panic!("{what}: {first:?} is not ours"))
        });
        let forgotten = self.records[..first].iter().find(|(lsn, _)| *lsn > self.not_needed);
        assert!(found.is_empty() || forgotten.is_none(), "{what}: lost {forgotten:?}");
        let same = self.records[first..].iter().zip(found).take_while(|(a, b)| a == b).count();
        assert_eq!(same, found.len(), "{what}: what came back is no run of what was written");
        let needed = self.records.iter().filter(|(lsn, _)| *lsn <= self.durable && *lsn > self.not_needed);
        for record in needed {
            assert!(found.contains(record), "{what}: lost the acknowledged {record:?}");
        }
        // A file whose removal is not durable may still come back.
        self.records.truncate(first);
        self.records.retain(|(lsn, _)| *lsn <= self.not_needed);
        self.records.extend(found.iter().cloned());
        self.durable = found.last().map_or(self.durable, |(lsn, _)| (*lsn).max(self.durable));
    }
}

#[test]
fn a_power_cut_at_any_operation_loses_nothing_acknowledged_and_revives_nothing_refused() {
    let mut crashes = 0;
    for seed in 0..60 {
        let new_fs = |seed| {
            let fs = new_fs(seed);
            fs.set_block_bytes([1, 32, 64][seed as usize % 3]);
            fs
        };
        let fs = new_fs(seed);
        let base = fs.op_count();
        run(&fs, &mut Model::default(), seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        for n in base + 1..=fs.op_count() {
            let fs = new_fs(seed);
            fs.crash_at(n);
            let mut model = Model::default();
            // It goes through when the last operation only tidied up behind a full disk.
            let _ = run(&fs, &mut model, seed);
            for cut in 0..4 {
                let what = format!("seed {seed}, operation {n}, cut {cut}");
                after_crash(&fs.power_cut(cut), &mut model.clone(), seed, &what);
                crashes += 1;
            }
            let killed = fs.kill();
            let what = format!("seed {seed}, killed at {n}");
            model.check(&open(&killed).1, &what);
            for cut in 0..3 {
                after_crash(&killed.power_cut(cut), &mut model.clone(), seed, &what);
                crashes += 1;
            }
        }
    }
    println!("{crashes} power cuts");
    assert!(crashes > 4_000, "only {crashes}");
}

/// Recovers, goes on, loses power again in the middle of that, and recovers once more.
fn after_crash(fs: &SimFs, model: &mut Model, seed: u64, what: &str) {
    let (wal, found) = open_with(fs, 300).unwrap_or_else(|e| panic!("{what}: {e}"));
    model.check(&found, what);
    drop(wal);
    fs.crash_at(fs.op_count() + 1 + seed % 17);
    // The second script knows the first one's records through its model.
    let _ = run(fs, model, seed + 1000);
    let fs = fs.power_cut(seed);
    let (wal, found) = open_with(&fs, 300).unwrap_or_else(|e| panic!("{what}, second: {e}"));
    model.check(&found, what);
    let lsn = commit(&wal, b"the end").unwrap();
    model.records.push((lsn, b"the end".to_vec()));
    model.durable = lsn;
    drop(wal);
    model.check(&open(&fs.power_cut(1)).1, what);
}

#[test]
fn the_worked_example_of_the_format_document_holds() {
    let fs = new_fs(0);
    commit(&open(&fs).0, b"hi").unwrap();
    let document = include_str!("../../../../docs/internals/format-log.md");
    let bytes = fs.read(&only_file(&fs));
    let (frames, room) = bytes.split_at(90);
    assert!(room.iter().all(|&b| b == 0));
    let lines = frames.chunks(16).map(|line| line.iter().map(|b| format!("{b:02x} ")).collect::<String>());
    let dump: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
    let dump = dump.join("\n");
    assert!(document.contains(&dump), "the document should say\n{dump}");
}
