//! What the simulated file system promises to the tests that rely on it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::HashSet;

use super::*;

const F: &str = "d/f";

/// A folder `d` that is durable.
fn with_dir() -> SimFs {
    let fs = SimFs::new();
    fs.create_dir(Path::new("d")).unwrap();
    fs.sync_dir(Path::new("")).unwrap();
    fs
}

/// `d/f`, durable, holding `content`.
fn with_file(content: &[u8]) -> (SimFs, Box<dyn WriteFile>) {
    let fs = with_dir();
    let mut file = fs.create(Path::new(F)).unwrap();
    file.write(content).unwrap();
    file.sync().unwrap();
    fs.sync_dir(Path::new("d")).unwrap();
    (fs, file)
}

/// The different contents of `d/f` (`None`: no such name) that 300 power cuts leave.
fn outcomes(fs: &SimFs) -> HashSet<Option<Vec<u8>>> {
    (0..300)
        .map(|seed| {
            let after = fs.power_cut(seed);
            after.exists(Path::new(F)).then(|| after.read(Path::new(F)))
        })
        .collect()
}

#[test]
fn synced_bytes_under_a_synced_name_survive_every_power_cut() {
    let (fs, _file) = with_file(b"abc");
    assert_eq!(outcomes(&fs), HashSet::from([Some(b"abc".to_vec())]));
}

#[test]
fn an_unsynced_write_is_kept_lost_or_torn() {
    let (fs, mut file) = with_file(b"abc");
    file.write(b"def").unwrap();
    assert_eq!(fs.read(Path::new(F)), b"abcdef", "the program sees its write");
    let found = outcomes(&fs);
    for expected in [&b"abc"[..], b"abcd", b"abcde", b"abcdef", b"abc\0\0\0", b"abc\0ef"] {
        assert!(found.contains(&Some(expected.to_vec())), "missing {expected:?}");
    }
    assert!(found.iter().all(|content| content.as_ref().unwrap().starts_with(b"abc")));
}

#[test]
fn unsynced_writes_survive_out_of_order() {
    let (fs, mut file) = with_file(b"");
    file.write(b"ab").unwrap();
    file.write(b"cd").unwrap();
    let found = outcomes(&fs);
    assert!(found.contains(&Some(b"\0\0cd".to_vec())), "only the second");
    assert!(found.contains(&Some(b"ab".to_vec())), "only the first");
    assert!(found.contains(&Some(b"".to_vec())) && found.contains(&Some(b"abcd".to_vec())));
}

#[test]
fn an_unsynced_name_is_kept_or_lost_even_when_its_bytes_are_synced() {
    let fs = with_dir();
    let mut file = fs.create(Path::new(F)).unwrap();
    file.write(b"x").unwrap();
    file.sync().unwrap();
    assert_eq!(outcomes(&fs), HashSet::from([None, Some(b"x".to_vec())]));
}

#[test]
fn a_rename_happens_wholly_or_not_at_all() {
    let (fs, _file) = with_file(b"old");
    let temporary = Path::new("d/t");
    let mut file = fs.create(temporary).unwrap();
    file.write(b"new").unwrap();
    file.sync().unwrap();
    fs.sync_dir(Path::new("d")).unwrap();
    fs.rename(temporary, Path::new(F)).unwrap();
    assert_eq!(outcomes(&fs), HashSet::from([Some(b"old".to_vec()), Some(b"new".to_vec())]));
    for seed in 0..100 {
        let after = fs.power_cut(seed);
        assert_eq!(after.exists(temporary), after.read(Path::new(F)) == b"old");
    }
    fs.sync_dir(Path::new("d")).unwrap();
    assert_eq!(outcomes(&fs), HashSet::from([Some(b"new".to_vec())]));
}

#[test]
fn a_removed_file_may_come_back_until_its_folder_is_synced() {
    let (fs, _file) = with_file(b"x");
    fs.remove(Path::new(F)).unwrap();
    assert_eq!(outcomes(&fs), HashSet::from([None, Some(b"x".to_vec())]));
    fs.sync_dir(Path::new("d")).unwrap();
    assert_eq!(outcomes(&fs), HashSet::from([None]));
}

#[test]
fn a_lost_folder_takes_its_files_along() {
    let fs = SimFs::new();
    fs.create_dir(Path::new("d")).unwrap();
    fs.create(Path::new(F)).unwrap().sync().unwrap();
    fs.sync_dir(Path::new("d")).unwrap();
    assert_eq!(outcomes(&fs), HashSet::from([None, Some(Vec::new())]));
}

#[test]
fn a_truncated_file_is_durable_after_sync() {
    let (fs, mut file) = with_file(b"abcdef");
    file.truncate(2).unwrap();
    assert_eq!(outcomes(&fs), HashSet::from([Some(b"ab".to_vec()), Some(b"abcdef".to_vec())]));
    file.write(b"X").unwrap();
    file.sync().unwrap();
    assert_eq!(outcomes(&fs), HashSet::from([Some(b"abX".to_vec())]));
}

#[test]
fn after_a_crash_everything_fails_and_nothing_more_reaches_the_disk() {
    let (fs, mut file) = with_file(b"abc");
    fs.crash_at(fs.op_count() + 1);
    assert!(file.write(b"def").is_err());
    assert!(file.write(b"ghi").is_err() && file.sync().is_err());
    assert!(fs.create(Path::new("d/g")).is_err() && fs.sync_dir(Path::new("d")).is_err());
    let found = outcomes(&fs);
    assert!(found.contains(&Some(b"abc".to_vec())) && found.contains(&Some(b"abcdef".to_vec())));
    assert!(found.iter().flatten().all(|content| content.len() <= 6));
    assert!(fs.power_cut(1).create(Path::new("d/g")).is_ok(), "the machine after it works");
}

#[test]
fn one_failing_operation_leaves_the_others_alone() {
    let (fs, mut file) = with_file(b"abc");
    fs.fail_at(fs.op_count() + 1, libc::ENOSPC);
    assert!(file.write(b"defghi").unwrap_err().is_disk_full());
    assert_eq!(file.len(), 3, "a failed write does not count");
    file.truncate(3).unwrap();
    file.write(b"X").unwrap();
    file.sync().unwrap();
    assert_eq!(outcomes(&fs), HashSet::from([Some(b"abcX".to_vec())]));
}

#[test]
fn a_failed_sync_may_keep_delay_or_forget_a_write() {
    let mut contents = HashSet::new();
    for seed in 0..64 {
        let fs = SimFs::with_seed(seed);
        let mut file = fs.create(Path::new("f")).unwrap();
        fs.sync_dir(Path::new("")).unwrap();
        file.write(b"a").unwrap();
        fs.fail_at(fs.op_count() + 1, libc::EIO);
        assert!(file.sync().is_err());
        assert_eq!(fs.read(Path::new("f")), b"a", "still seen, as in a page cache");
        contents.insert(fs.power_cut(seed).read(Path::new("f")));
        file.sync().unwrap();
        contents.insert(fs.power_cut(seed).read(Path::new("f")));
    }
    assert!(contents.contains(b"a".as_slice()) && contents.contains(b"".as_slice()));
}

#[test]
fn a_full_disk_stays_full_until_it_is_healed() {
    let (fs, mut file) = with_file(b"abc");
    fs.fail_from(fs.op_count() + 1, libc::ENOSPC);
    for _ in 0..3 {
        assert!(file.write(b"defghi").unwrap_err().is_disk_full());
        assert!(fs.create(Path::new("d/g")).err().unwrap().is_disk_full());
    }
    file.truncate(1).unwrap();
    file.sync().unwrap();
    fs.remove(Path::new(F)).unwrap();
    fs.heal();
    assert!(fs.create(Path::new("d/g")).is_ok());
}

#[test]
fn damage_is_on_the_disk_for_good() {
    let (fs, _file) = with_file(b"abc");
    fs.corrupt(Path::new(F), 1, 1);
    fs.corrupt(Path::new(F), 99, 1);
    assert_eq!(outcomes(&fs), HashSet::from([Some(b"acc".to_vec())]));
    fs.truncate(Path::new(F), 2);
    assert_eq!(outcomes(&fs), HashSet::from([Some(b"ac".to_vec())]));
}

#[test]
fn it_behaves_as_the_operating_system_does() {
    let (fs, _file) = with_file(b"abc");
    assert!(fs.create(Path::new(F)).is_err(), "taken");
    assert!(fs.create(Path::new("e/f")).is_err(), "no such folder");
    assert!(fs.open(Path::new("d")).is_err() && fs.open(Path::new("d/x")).is_err());
    assert!(fs.remove_dir(Path::new("d")).is_err(), "not empty");
    fs.hard_link(Path::new(F), Path::new("d/g")).unwrap();
    assert_eq!(fs.files(), [PathBuf::from("d/f"), PathBuf::from("d/g")]);
    let read = fs.open(Path::new(F)).unwrap();
    fs.remove(Path::new(F)).unwrap();
    let mut buf = [0; 2];
    read.read_at(1, &mut buf).unwrap();
    assert_eq!(&buf, b"bc", "an open file outlives its name");
    assert!(read.read_at(2, &mut buf).is_err() && read.read_at(u64::MAX, &mut buf).is_err());
    let listed = fs.list(Path::new("d")).unwrap();
    assert_eq!(listed, [DirEntry { name: "g".into(), bytes: 3, is_dir: false }]);
    assert!(fs.list(Path::new("e")).is_err());
    fs.create_dir(Path::new("/x/y/z")).unwrap();
    assert!(fs.exists(Path::new("/x/y")) && fs.list(Path::new("/x")).unwrap()[0].is_dir);
}

#[test]
fn a_lock_is_held_once_and_ends_with_the_power() {
    let fs = with_dir();
    let path = Path::new("d/lock");
    let held = fs.lock(path).unwrap();
    assert!(matches!(fs.lock(path), Err(Error::Locked { .. })));
    assert!(fs.power_cut(3).lock(path).is_ok());
    drop(held);
    assert!(fs.lock(path).is_ok());
}

#[test]
fn a_killed_server_finds_what_it_wrote_and_the_power_may_still_take_it() {
    let (fs, mut file) = with_file(b"abc");
    file.write(b"def").unwrap();
    let held = fs.lock(Path::new("d/lock")).unwrap();
    let after = fs.kill();
    assert_eq!(after.read(Path::new(F)), b"abcdef");
    assert!(after.lock(Path::new("d/lock")).is_ok() && after.op_count() == 0);
    assert!(outcomes(&after).contains(&Some(b"abc".to_vec())));
    after.sync_file(Path::new(F)).unwrap();
    assert_eq!(outcomes(&after), HashSet::from([Some(b"abcdef".to_vec())]));
    assert!(outcomes(&fs).contains(&Some(b"abc".to_vec())), "nothing is shared");
    drop(held);
}

#[test]
fn a_renamed_folder_takes_along_what_is_durable_in_it_once_its_parent_is_synced() {
    let fs = SimFs::new();
    fs.create_dir(Path::new("/a/b")).unwrap();
    let mut file = fs.create(Path::new("/a/b/f")).unwrap();
    file.write(b"text").unwrap();
    file.sync().unwrap();
    assert!(fs.rename(Path::new("/a"), Path::new("/c")).is_err(), "names in it are not durable");
    for dir in ["/a/b", "/a", "/"] {
        fs.sync_dir(Path::new(dir)).unwrap();
    }
    fs.rename(Path::new("/a"), Path::new("/c")).unwrap();
    assert_eq!(fs.read(Path::new("/c/b/f")), b"text");
    assert!(!fs.exists(Path::new("/a")));
    let found = |fs: &SimFs| (fs.exists(Path::new("/a/b/f")), fs.exists(Path::new("/c/b/f")));
    let cuts: Vec<_> = (0..20).map(|seed| found(&fs.power_cut(seed))).collect();
    assert!(cuts.contains(&(true, false)) && cuts.contains(&(false, true)), "{cuts:?}");
    assert!(cuts.iter().all(|(old, new)| old != new), "{cuts:?}");
    fs.sync_dir(Path::new("/")).unwrap();
    assert!((0..20).all(|seed| found(&fs.power_cut(seed)) == (false, true)));
}
