//! The manifest against a model, with the power cut at every operation, a full disk, and damage.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use proptest::prelude::*;

use super::edit::{ChunkSpan, TableId};
use super::*;
use crate::fs::sim::SimFs;
use crate::schema::{ColumnDef, Lane, Schema, TimeColumn, TimeUnit};
use crate::segment::meta::{SegmentId, SegmentMeta};

const DIR: &str = "data";

fn new_fs(seed: u64) -> SimFs {
    let fs = SimFs::with_seed(seed);
    fs.create_dir(Path::new(DIR)).unwrap();
    fs.sync_dir(Path::new("")).unwrap();
    fs
}

fn open_with(fs: &SimFs, rewrite_bytes: u64) -> Result<(Manifest, State)> {
    Manifest::open_with(Arc::new(fs.clone()), Path::new(DIR), rewrite_bytes)
}

fn open(fs: &SimFs) -> (Manifest, State) {
    open_with(fs, 1 << 20).unwrap()
}

fn schema(version: u32, with_time: bool) -> Arc<Schema> {
    let column = |id: u32, name: &str| ColumnDef {
        name: name.to_owned(),
        options: vec![("DST".into(), "GAUGE".into())],
        ..ColumnDef::plain(id, Lane::Int { width: 8 }, false)
    };
    let time = TimeColumn { column: 1, unit: TimeUnit::Timestamp { fraction_digits: 3 }, bias: 0 };
    Arc::new(Schema {
        version,
        time: with_time.then_some(time),
        ..Schema::plain(vec![column(0, "sensor"), column(1, "ts")], vec![0, 1], None)
    })
}

fn segment(id: u64, chunk: u64) -> SegmentMeta {
    SegmentMeta {
        id: SegmentId(id),
        chunk,
        schema_version: 1,
        rows: 10,
        tombstones: 1,
        bytes: 1000,
        first_key: vec![1; 3],
        last_key: vec![2; 5],
        min_time: chunk,
        max_time: chunk + 5,
        base_seq: 3,
        max_seq: 9,
        has_versions: id % 3 == 1,
        sealed: id & 1 == 1,
    }
}

fn create(table: u32, name: &str) -> Edit {
    Edit::CreateTable { table: TableId(table), name: name.into(), schema: schema(1, true) }
}

/// Numbers that depend on a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..self.below(20)).map(|_| self.below(256) as u8).collect()
    }

    /// Any edit, most of them without sense.
    fn edit(&mut self) -> Edit {
        let table = TableId(self.below(4) as u32);
        let name = format!("db/t{}", self.below(4));
        match self.below(12) {
            0 => Edit::CreateTable { table, name, schema: schema(1, self.below(2) == 0) },
            1 => Edit::DropTable { table },
            2 => Edit::RenameTable { table, name },
            3 => Edit::SetSchema { table, schema: schema(self.below(4) as u32, true) },
            4 => Edit::Truncate { table, flushed_seq: self.below(100) },
            5 => {
                let start = self.below(10) * 10;
                Edit::AddChunk { table, span: ChunkSpan { start, end: start + self.below(12) } }
            }
            6 => Edit::AddSegment { table, meta: segment(self.below(20), self.below(10) * 10) },
            7 => Edit::RemoveSegment { table, segment: SegmentId(self.below(20)) },
            8 => Edit::Flushed { table, seq: self.below(100) },
            9 => Edit::NextSeq { seq: self.below(100) },
            10 => Edit::NextRowNumber { table, next: self.below(100) },
            _ => Edit::SetProperty { table, name, value: self.bytes() },
        }
    }

    /// A list of edits that `state` accepts.
    fn sensible(&mut self, state: &State) -> Vec<Edit> {
        let mut state = state.clone();
        let create = create(state.next_table, &format!("db/new{}", state.next_table));
        let mut edits = Vec::new();
        if state.tables.len() < 2 {
            state.apply(&create).unwrap();
            edits.push(create);
        }
        for _ in 0..1 + self.below(20) {
            let mut edit = self.edit();
            if let Edit::AddSegment { meta, .. } = &mut edit {
                meta.id = SegmentId(state.next_segment);
            }
            if state.apply(&edit).is_ok() {
                edits.push(edit);
            }
        }
        edits
    }
}

/// A state with something of everything.
fn rich_state(seed: u64) -> State {
    let mut random = Random(seed);
    let mut state = State::default();
    for _ in 0..10 {
        let edits = random.sensible(&state);
        state.apply_all(&edits).unwrap();
    }
    state
}

proptest! {
    #[test]
    fn edits_come_back_as_they_were(seed: u64, count in 0usize..30) {
        let mut random = Random(seed);
        let edits: Vec<Edit> = (0..count).map(|_| random.edit()).collect();
        prop_assert_eq!(decode::edits(&encode::edits(&edits).unwrap()), Ok(edits));
    }

    #[test]
    fn a_state_comes_back_as_it_was(seed: u64) {
        let state = rich_state(seed);
        prop_assert_eq!(decode::state(&encode::state(&state).unwrap()), Ok(state));
    }

    #[test]
    fn no_bytes_make_the_decoders_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = (decode::edits(&bytes), decode::state(&bytes));
        let _ = file::read(&bytes, 1, Path::new("m"));
    }

    #[test]
    fn damaged_encodings_do_not_make_the_decoders_panic(seed: u64, at: usize, to: u8) {
        let mut bytes = encode::state(&rich_state(seed)).unwrap();
        let at = at % bytes.len();
        bytes[at] = to;
        let _ = decode::state(&bytes);
    }

    #[test]
    fn refused_edits_change_nothing(seed: u64) {
        let mut state = rich_state(seed);
        let before = state.clone();
        let mut random = Random(seed);
        let edits: Vec<Edit> = (0..6).map(|_| random.edit()).collect();
        match state.apply_all(&edits) {
            Ok(undo) => state.revert(undo),
            Err(e) => prop_assert!(matches!(e, Error::InvalidInput(_) | Error::TableExists { .. }), "{e}"),
        }
        prop_assert_eq!(state, before);
    }
}

#[test]
fn every_prefix_of_an_encoding_is_refused() {
    let mut random = Random(1);
    let edits: Vec<Edit> = (0..60).map(|_| random.edit()).collect();
    let bytes = encode::edits(&edits).unwrap();
    assert!((0..bytes.len()).all(|end| decode::edits(&bytes[..end]).is_err()));
    let bytes = encode::state(&rich_state(1)).unwrap();
    assert!((0..bytes.len()).all(|end| decode::state(&bytes[..end]).is_err()));
}

type Spans = Vec<(u64, u64)>;

/// The spans of a table's chunks, and the chunk of each segment.
fn chunks_of(state: &State, table: TableId) -> (Spans, Spans) {
    let table = &state.tables[&table];
    let spans = table.chunks.values().map(|chunk| (chunk.start, chunk.end)).collect();
    (spans, table.segments.values().map(|meta| (meta.id.0, meta.chunk)).collect())
}

#[test]
fn overlapping_chunks_of_a_disk_become_one_and_keep_their_segments() {
    let table = TableId(3);
    let chunk = |start, end| Edit::AddChunk { table, span: ChunkSpan { start, end } };
    let add = |id, chunk| Edit::AddSegment { table, meta: segment(id, chunk) };
    let mut state = State::default();
    let edits = [create(3, "a/b"), chunk(0, 10), chunk(20, 30), chunk(40, 50), add(1, 0), add(2, 20), add(3, 40)];
    state.apply_all(&edits).unwrap();
    let joined = (vec![(0, 10), (15, 50)], vec![(1, 0), (2, 15), (3, 15), (4, 15), (5, 15)]);

    // As edits: of the first chunk a part comes again, the other spans lie across what is there.
    let more = [chunk(2, 4), chunk(15, 25), chunk(28, 41), add(4, 28), add(5, 20)];
    assert!(more[..3].iter().all(|edit| state.clone().apply(edit).is_err()), "as new edits they are refused");
    let payload = |edits: &[Edit]| encode::edits(edits).unwrap();
    let mut bytes = new_file(&state, 1).unwrap();
    file::put_frame(&mut bytes, 1, 1, Kind::Edits, &payload(&more));
    let read = file::read(&bytes, 1, Path::new("m")).unwrap();
    assert_eq!(chunks_of(&read, table), joined);

    // In a snapshot.
    let broken = state.tables.get_mut(&table).unwrap();
    for (start, end) in [(2, 4), (15, 25), (28, 41)] {
        broken.chunks.insert(start, ChunkSpan { start, end });
    }
    broken.segments.extend([segment(4, 28), segment(5, 20)].map(|meta| (meta.id, meta)));
    let read = decode::state(&encode::state(&state).unwrap()).unwrap();
    assert_eq!(chunks_of(&read, table), joined);
    // What was read is sound: it can be written and goes on.
    assert_eq!(decode::state(&encode::state(&read).unwrap()), Ok(read.clone()));
    read.clone().apply(&chunk(10, 15)).unwrap();
}

#[test]
fn what_no_edit_makes_is_refused_in_a_snapshot_and_the_table_is_named() {
    let table = TableId(3);
    let chunk = Edit::AddChunk { table, span: ChunkSpan { start: 0, end: 10 } };
    let mut state = State::default();
    state.apply_all(&[create(3, "a/b"), chunk, Edit::AddSegment { table, meta: segment(1, 0) }]).unwrap();
    let refused = |change: &dyn Fn(&mut State)| {
        let mut state = state.clone();
        change(&mut state);
        let error = decode::state(&encode::state(&state).unwrap()).unwrap_err();
        assert!(error.contains("'a/b'"), "{error}");
    };
    let of = |change: &dyn Fn(&mut SegmentMeta)| {
        refused(&|state| change(state.tables.get_mut(&table).unwrap().segments.values_mut().next().unwrap()));
    };
    of(&|meta| meta.schema_version = 7);
    of(&|meta| meta.first_key = vec![3]);
    of(&|meta| meta.min_time = u64::MAX);
    of(&|meta| meta.id = SegmentId(u64::MAX));
    refused(&|state| state.tables.get_mut(&table).unwrap().schema = Arc::new(Schema::plain(Vec::new(), vec![0], None)));
    refused(&|state| {
        let table = state.tables.get_mut(&table).unwrap();
        table.old_schemas.insert(0, Arc::new(Schema::plain(Vec::new(), vec![9], None)));
    });
    // Two tables with one name.
    refused(&|state| {
        let again = state.tables[&table].clone();
        state.tables.insert(TableId(4), again);
    });
}

#[test]
fn edits_that_make_no_sense_are_refused() {
    let mut state = State::default();
    state.apply(&create(3, "a/b")).unwrap();
    assert_eq!(state.next_table, 4);
    let table = TableId(3);
    let chunk = |start, end| Edit::AddChunk { table, span: ChunkSpan { start, end } };
    let add = |meta| Edit::AddSegment { table, meta };
    state.apply(&chunk(10, 20)).unwrap();
    state.apply(&chunk(20, u64::MAX)).unwrap();
    state.apply(&add(segment(7, 10))).unwrap();
    assert_eq!(state.next_segment, 8);
    let before = state.clone();
    let upside_down = SegmentMeta { min_time: 9, max_time: 8, ..segment(8, 10) };
    let refused = [
        create(3, "a/c"),
        create(u32::MAX, "a/c"),
        create(4, "a/b"),
        Edit::DropTable { table: TableId(4) },
        Edit::RenameTable { table: TableId(4), name: "x/y".into() },
        Edit::SetSchema { table, schema: schema(1, true) },
        chunk(0, 11),
        chunk(19, 20),
        chunk(5, 30),
        chunk(5, 5),
        chunk(100, 200),
        add(segment(7, 10)),
        add(segment(8, 11)),
        add(segment(u64::MAX, 10)),
        add(SegmentMeta { schema_version: 2, ..segment(8, 10) }),
        add(upside_down),
        Edit::RemoveSegment { table, segment: SegmentId(8) },
    ];
    for edit in refused {
        assert!(state.apply(&edit).is_err(), "{edit:?}");
        assert_eq!(state, before, "{edit:?}");
    }
    // Numbers are taken before tables are made, and not in the same order.
    state.apply(&create(2, "a/c")).unwrap();
    assert_eq!(state.next_table, 4);
    state.apply(&Edit::DropTable { table: TableId(2) }).unwrap();
    // A chunk that has a segment stays.
    state.apply(&Edit::RemoveChunk { table, start: 10 }).unwrap();
    assert_eq!(state, before);
    state.apply(&Edit::RemoveChunk { table, start: 20 }).unwrap();
    assert_eq!(state.tables[&table].chunks.keys().collect::<Vec<_>>(), [&10]);
    state.apply(&Edit::SetSchema { table, schema: schema(2, true) }).unwrap();
    state.apply(&add(segment(8, 10))).unwrap();
    state.apply(&Edit::RenameTable { table, name: "a/b".into() }).unwrap();
    state.apply(&Edit::Truncate { table, flushed_seq: 5 }).unwrap();
    state.apply(&Edit::Flushed { table, seq: 4 }).unwrap();
    let table = &state.tables[&table];
    assert_eq!((table.segments.len(), table.chunks.len(), table.flushed_seq), (0, 0, 5));
    assert_eq!(table.old_schemas.keys().collect::<Vec<_>>(), [&1]);
}

#[test]
fn commits_are_there_after_a_restart_and_one_file_is() {
    let fs = new_fs(0);
    let (manifest, state) = open_with(&fs, 2_000).unwrap();
    assert_eq!(state, State::default());
    let mut random = Random(9);
    for _ in 0..60 {
        manifest.commit(&random.sensible(&manifest.state())).unwrap();
        assert_eq!(fs.files().len(), 1);
        assert_eq!(open(&fs.power_cut(5)).1, manifest.state());
    }
    let name = fs.files()[0].to_string_lossy().into_owned();
    assert!(name.as_str() > "data/manifest-00000001.rrdm", "rewritten when it grew: {name}");
    assert!(fs.read(&fs.files()[0]).len() < 40_000);
}

#[test]
fn a_commit_of_nothing_writes_nothing() {
    let fs = new_fs(0);
    let (manifest, _) = open(&fs);
    let ops = fs.op_count();
    manifest.commit(&[]).unwrap();
    assert_eq!(fs.op_count(), ops);
}

#[test]
fn data_without_a_manifest_is_an_error_and_not_an_empty_engine() {
    for name in ["log-0000000000000001.rrdl", "table-00000001/"] {
        let fs = new_fs(0);
        let path = Path::new(DIR).join(name);
        match name.ends_with('/') {
            true => fs.create_dir(&path).unwrap(),
            false => drop(fs.create(&path).unwrap()),
        }
        let error = open_with(&fs, 0).err().unwrap().to_string();
        assert!(error.contains("no manifest"), "{error}");
    }
    let fs = new_fs(0);
    fs.create(&Path::new(DIR).join("lock")).unwrap();
    assert!(open_with(&fs, 0).is_ok(), "the lock file is no data");
}

/// A manifest with four records, the states after each, and where the records begin.
fn small_manifest() -> (SimFs, PathBuf, Vec<State>, Vec<u64>) {
    let fs = new_fs(0);
    let (manifest, state) = open(&fs);
    let path = fs.files()[0].clone();
    let (mut states, mut begins) = (vec![state], Vec::new());
    let flushed = |seq| Edit::Flushed { table: TableId(0), seq };
    for edits in [vec![create(0, "a/b")], vec![flushed(1)], vec![flushed(2), create(1, "a/c")], vec![flushed(3)]] {
        begins.push(fs.read(&path).len() as u64);
        manifest.commit(&edits).unwrap();
        states.push(manifest.state());
    }
    begins.push(fs.read(&path).len() as u64);
    // Sooner or later the operating system writes the last receipt too.
    fs.sync_file(&path).unwrap();
    (fs, path, states, begins)
}

#[test]
fn every_prefix_gives_an_older_state_or_an_error() {
    let (fs, path, states, begins) = small_manifest();
    for cut in 0..begins[4] {
        let fs = fs.power_cut(0);
        fs.truncate(&path, cut);
        if cut < begins[0] {
            assert!(matches!(open_with(&fs, 0), Err(Error::Corruption { .. })), "cut at {cut}");
            continue;
        }
        let receipt = file::FRAME_BYTES as u64;
        let whole = begins[1..].iter().filter(|&&end| end - receipt <= cut).count();
        let (manifest, state) = open_with(&fs, 0).unwrap_or_else(|e| panic!("cut at {cut}: {e}"));
        assert_eq!(state, states[whole], "cut at {cut}");
        manifest.commit(&[Edit::NextSeq { seq: 77 }]).unwrap();
        assert_eq!(open(&fs).1, manifest.state());
    }
}

#[test]
fn every_flipped_bit_is_found_or_harmless() {
    let (fs, path, states, begins) = small_manifest();
    let receipt = file::FRAME_BYTES as u64;
    for offset in 0..begins[4] {
        let in_receipt = begins[1..].iter().any(|&end| end - receipt <= offset && offset < end);
        for bit in 0..8 {
            let fs = fs.power_cut(0);
            fs.corrupt(&path, offset, 1 << bit);
            match open_with(&fs, 0) {
                Err(Error::Corruption { path: named, offset: at, .. }) => {
                    assert!(named == path && at <= offset && !in_receipt, "byte {offset}");
                }
                Ok((_, state)) => {
                    assert!(in_receipt, "byte {offset} went unnoticed");
                    assert_eq!(&state, states.last().unwrap());
                }
                Err(e) => panic!("byte {offset}: {e}"),
            }
        }
    }
}

#[test]
fn without_its_receipt_a_damaged_last_record_passes_for_a_torn_one() {
    let (fs, path, states, begins) = small_manifest();
    fs.truncate(&path, begins[4] - 1);
    fs.corrupt(&path, begins[3] + 3, 1);
    assert_eq!(open(&fs).1, states[3]);
}

#[test]
fn another_version_is_refused_and_not_guessed_at() {
    for version in [1, 3] {
        let (fs, path, _, _) = small_manifest();
        fs.corrupt(&path, 8, 2 ^ version);
        let header = fs.read(&path);
        let crc = crc32fast::hash(&header[..28]).to_le_bytes();
        (0..4).for_each(|i| fs.corrupt(&path, 28 + i, header[28 + i as usize] ^ crc[i as usize]));
        match open_with(&fs, 0) {
            Err(Error::Incompatible { found, supported, .. }) => {
                assert_eq!((found, supported), (u32::from(version), 2))
            }
            _ => panic!("another version must be refused"),
        }
    }
}

#[test]
fn a_failed_sync_poisons_the_manifest() {
    let fs = new_fs(0);
    let (manifest, _) = open(&fs);
    manifest.commit(&[create(0, "a/b")]).unwrap();
    fs.fail_at(fs.op_count() + 2, libc::EIO);
    assert!(matches!(manifest.commit(&[create(1, "a/c")]), Err(Error::Io { op: "sync", .. })));
    let ops = fs.op_count();
    assert!(matches!(manifest.commit(&[create(1, "a/c")]), Err(Error::Poisoned { .. })));
    assert_eq!((fs.op_count(), manifest.state().tables.len()), (ops, 1));
}

#[test]
fn a_full_disk_at_any_operation_refuses_commits_and_never_revives_them() {
    for start in 0..60 {
        for lasting in [false, true] {
            let fs = new_fs(start);
            let (manifest, _) = open_with(&fs, 300).unwrap();
            match lasting {
                true => fs.fail_from(fs.op_count() + 1 + start, libc::ENOSPC),
                false => fs.fail_at(fs.op_count() + 1 + start, libc::ENOSPC),
            }
            for i in 0..10 {
                let before = manifest.state();
                let outcome = manifest.commit(&[create(before.next_table, &format!("a/{i}"))]);
                if outcome.is_err() {
                    assert_eq!(manifest.state(), before);
                }
                let found = open(&fs.power_cut(i)).1;
                let poisoned =
                    matches!(manifest.commit(&[Edit::DropTable { table: TableId(99) }]), Err(Error::Poisoned { .. }));
                assert!(poisoned || found == manifest.state(), "start {start}, commit {i}: {outcome:?}");
                assert!(!(poisoned && lasting), "start {start}: a full disk alone must not poison");
            }
            fs.heal();
            if lasting {
                let next = manifest.state().next_table;
                manifest.commit(&[create(next, "after/it")]).unwrap();
                assert_eq!(open(&fs.power_cut(1)).1, manifest.state());
            }
        }
    }
}

/// Random commits and restarts, stopped by the first error; the states that a restart may find.
fn run(fs: &SimFs, seed: u64) -> (Vec<State>, Result<()>) {
    let mut random = Random(seed);
    let mut possible = Vec::new();
    let outcome = (|| {
        let (mut manifest, state) = open_with(fs, 600)?;
        possible = vec![state];
        for _ in 0..10 {
            if random.below(4) == 0 {
                let state = manifest.state();
                drop(manifest);
                manifest = open_with(fs, 600)?.0;
                assert_eq!(manifest.state(), state, "seed {seed}");
            }
            let state = manifest.state();
            let edits = random.sensible(&state);
            let mut after = state.clone();
            after.apply_all(&edits)?;
            possible = vec![state, after.clone()];
            manifest.commit(&edits)?;
            possible = vec![after];
        }
        Ok(())
    })();
    (possible, outcome)
}

#[test]
fn a_power_cut_at_any_operation_leaves_the_state_before_or_after_the_commit() {
    let mut crashes = 0;
    for seed in 0..50 {
        let fs = new_fs(seed);
        let base = fs.op_count();
        run(&fs, seed).1.unwrap();
        for n in base + 1..=fs.op_count() {
            let fs = new_fs(seed);
            fs.crash_at(n);
            let (possible, _) = run(&fs, seed);
            for cut in 0..5 {
                let what = format!("seed {seed}, operation {n}, cut {cut}");
                after_crash(&fs.power_cut(cut), &possible, &what, n);
                crashes += 1;
            }
            let killed = fs.kill();
            let (_, state) = open_with(&killed, 600).unwrap();
            assert!(possible.is_empty() || possible.contains(&state), "seed {seed}, operation {n}");
            for cut in 0..3 {
                after_crash(
                    &killed.power_cut(cut),
                    std::slice::from_ref(&state),
                    &format!("seed {seed}, killed at {n}"),
                    n,
                );
                crashes += 1;
            }
        }
    }
    println!("{crashes} power cuts");
    assert!(crashes > 5_000, "only {crashes}");
}

/// Recovers, loses power again during the next commits, and recovers once more.
fn after_crash(fs: &SimFs, possible: &[State], what: &str, n: u64) {
    let (_, found) = open_with(fs, 600).unwrap_or_else(|e| panic!("{what}: {e}"));
    let is_new = possible.is_empty() && found == State::default();
    assert!(is_new || possible.contains(&found), "{what}");
    fs.crash_at(fs.op_count() + 1 + n % 11);
    let (possible, outcome) = run(fs, n);
    let possible = if possible.is_empty() { vec![found] } else { possible };
    let fs = fs.power_cut(n);
    let (manifest, found) = open_with(&fs, 600).unwrap_or_else(|e| panic!("{what}, second: {e}"));
    assert!(possible.contains(&found), "{what}, second, after {outcome:?}");
    manifest.commit(&[Edit::NextSeq { seq: 1000 }]).unwrap();
    assert_eq!(open(&fs.power_cut(3)).1, manifest.state(), "{what}");
}

#[test]
fn the_worked_example_of_the_format_document_holds() {
    let fs = new_fs(0);
    let (manifest, _) = open(&fs);
    manifest.commit(&[Edit::NextSeq { seq: 7 }]).unwrap();
    let document = include_str!("../../../../docs/internals/format-log.md");
    let bytes = fs.read(&fs.files()[0]);
    let lines = bytes.chunks(16).map(|line| line.iter().map(|b| format!("{b:02x} ")).collect::<String>());
    let dump: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
    let dump = dump.join("\n");
    assert!(document.contains(&dump), "the document should say\n{dump}");
}
