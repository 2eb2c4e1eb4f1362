//! Files of format version 1 that stay readable for ever: the golden file, and the document's worked example.
//!
//! `make_version_1_files` (ignored) wrote them; a change of the format is a new version and a new file, the old
//! ones stay as they are.

use rrd_codec::Effort;

use super::*;

const GOLDEN: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/segment-v1.rrds"));
const DOCUMENT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/internals/format-segment.md"));

const SECTION: &str = "## Worked example";

/// Two rows of (time, temperature), the second of them with a NULL.
fn example() -> (Arc<RowLayout>, Vec<Version>) {
    let layout = layout(
        vec![ColumnDef::plain(1, Lane::Int { width: 8 }, false), ColumnDef::plain(2, Lane::F64, true)],
        vec![0],
        Some(0),
    );
    let version = |time, value| Version { cells: vec![Cell::Int(time), value], seq: 0, tombstone: false };
    (layout, vec![version(1_000, Cell::F64(21.5f64.to_bits())), version(1_060, Cell::Null)])
}

fn check_file(bytes: &[u8], layout: &Arc<RowLayout>, versions: &[Version], groups: &[usize]) {
    // The writer of today tells what the manifest would say; the bytes are those of the file.
    let (_, meta) = write(layout, versions, groups, Effort::Small);
    let fs = SimFs::new();
    fs.create_dir(Path::new(DIR)).unwrap();
    fs.create(&Path::new(DIR).join(ID.file_name())).unwrap().write(bytes).unwrap();
    let segment = open(&fs, &SegmentMeta { bytes: bytes.len() as u64, ..meta });
    assert_eq!(verify(&segment), Vec::<String>::new());
    assert_eq!(read_all(&segment, layout).unwrap(), as_stored(layout, versions));
}

#[test]
fn the_golden_file_of_version_1_reads_as_ever() {
    check_file(GOLDEN, &sample_layout(), &sample_versions(400), &[150]);
}

#[test]
fn the_documents_example_is_a_segment() {
    let example_text = DOCUMENT.split(SECTION).nth(1).expect("the section");
    let dump = example_text.split("```").nth(1).expect("the dump");
    let bytes: Vec<u8> = dump
        .lines()
        .flat_map(|line| line.split('|').nth(1).unwrap_or("").split_whitespace())
        .map(|hex| u8::from_str_radix(hex, 16).expect("two hex digits"))
        .collect();
    let (layout, versions) = example();
    check_file(&bytes, &layout, &versions, &[2]);
}

/// Lines of `offset | bytes | what`, cut at the fields that matter.
fn dump(bytes: &[u8], index: &super::super::SegmentIndex) -> String {
    let mut parts = vec![
        (8, "magic"),
        (4, "format version"),
        (4, "table id"),
        (8, "segment id"),
        (4, "schema version"),
        (4, "crc"),
    ];
    for column in &index.columns {
        parts.extend([(4, "block: mark, lane, rows - 1"), (4, "column id"), (4, "group"), (4, "length"), (4, "crc")]);
        parts.push((column.blocks.length[0] as usize, "payload"));
    }
    let before: usize = parts.iter().map(|p| p.0).sum();
    parts.push((bytes.len() - 24 - before, "footer"));
    parts.extend([(8, "trailer: offset of the footer"), (4, "its length"), (4, "its crc"), (4, "crc"), (4, "magic")]);
    let mut out = String::new();
    let mut at = 0;
    for (length, what) in parts {
        for (i, line) in bytes[at..at + length].chunks(16).enumerate() {
            let hex: Vec<String> = line.iter().map(|b| format!("{b:02x}")).collect();
            let what = if i == 0 { what } else { "" };
            out += format!("{:4} | {:47} | {what}", at + 16 * i, hex.join(" ")).trim_end();
            out += "\n";
        }
        at += length;
    }
    out
}

#[test]
#[ignore = "writes the golden file and the document's example anew"]
fn make_version_1_files() {
    let (fs, _) = write(&sample_layout(), &sample_versions(400), &[150], Effort::Small);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    replace(&here.join("tests/golden/segment-v1.rrds"), &fs.read(&Path::new(DIR).join(ID.file_name())));
    let (layout, versions) = example();
    let (fs, meta) = write(&layout, &versions, &[2], Effort::Small);
    let index = open(&fs, &meta).index().unwrap();
    let example = dump(&fs.read(&Path::new(DIR).join(ID.file_name())), &index);
    let (before, _) = DOCUMENT.split_once(SECTION).unwrap();
    let heading = DOCUMENT.split(SECTION).nth(1).unwrap().split("```").next().unwrap();
    let document = format!("{before}{SECTION}{heading}```\n{example}```\n");
    replace(&here.join("../../docs/internals/format-segment.md"), document.as_bytes());
}

fn replace(path: &Path, bytes: &[u8]) {
    let disk = crate::fs::os::OsFs;
    if disk.exists(path) {
        disk.remove(path).unwrap();
    }
    let mut file = disk.create(path).unwrap();
    file.write(bytes).unwrap();
    file.sync().unwrap();
}
