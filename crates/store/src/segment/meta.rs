//! What the engine knows of a segment without opening it.

/// Names a segment; never reused within an engine. Its file is `seg-<id in 16 hex digits>.rrds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub u64);

impl SegmentId {
    /// The file's name within its table's folder.
    pub fn file_name(self) -> String {
        format!("seg-{:016x}.rrds", self.0)
    }
}

/// One segment, as the manifest keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentMeta {
    /// Its name.
    pub id: SegmentId,
    /// Start of the chunk that it belongs to, as the time lane holds it (0 without a time column).
    pub chunk: u64,
    /// Version of the schema that it was written with.
    pub schema_version: u32,
    /// Row versions in it, tombstones included.
    pub rows: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Sort key of the first row.
    pub first_key: Vec<u8>,
    /// Sort key of the last row.
    pub last_key: Vec<u8>,
    /// Smallest and largest time, as the lane holds it (0 without a time column).
    pub min_time: u64,
    /// See `min_time`.
    pub max_time: u64,
    /// A row's sequence number is `base_seq` + what the segment's sequence lane says (nothing: 0).
    pub base_seq: u64,
    /// Largest sequence number of a row in it (base_seq + the lane's largest).
    pub max_seq: u64,
    /// True when some key occurs more than once (several versions of a row).
    pub has_versions: bool,
    /// True when it is the result of merging all of its chunk.
    pub sealed: bool,
}
