//! CHECK TABLE for one segment: reads every byte and believes nothing.
//!
//! Goes to the disk past the cache. What is wrong is collected as text that names file and offset, and the check
//! goes on with the next block as far as sense can be made of the file; a file whose footer is damaged is
//! walked block by block by the blocks' own headers.

use rrd_codec::Column;

use super::format::{
    BLOCK_HEADER_BYTES, BlockHeader, HEADER_BYTES, KIND_COLUMN, KIND_LANE, SEQ_COLUMN, SEQ_LANE, check_block,
};
use super::index::{GroupIndex, SegmentIndex};
use super::order;
use super::reader::Segment;
use super::writer::meta_of;
use super::zone::ZoneMap;
use crate::error::{Error, Result};
use crate::fs::ReadFile;
use crate::schema::Lane;

/// Findings after which a check stops: the file is beyond a list of its faults.
const MAX_FINDINGS: usize = 100;

impl Segment {
    /// Reads and checks every byte. Findings as text, empty when all is well; `progress(bytes done, bytes)`
    /// returns false to stop ([`Error::Interrupted`]).
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Vec<String>> {
        let mut check = Check { segment: self, progress, findings: Vec::new() };
        let index = check.note(self.read_index());
        let file = check.note(self.file());
        match (index, file) {
            (Some(index), Some(file)) => check.groups(&index, &*file)?,
            (None, Some(file)) => check.walk(&*file)?,
            _ => {}
        }
        Ok(check.findings)
    }
}

struct Check<'a> {
    segment: &'a Segment,
    progress: &'a mut dyn FnMut(u64, u64) -> bool,
    findings: Vec<String>,
}

impl Check<'_> {
    /// Makes a finding of an error.
    fn note<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|e| self.findings.push(e.to_string())).ok()
    }

    fn find(&mut self, offset: u64, what: impl Into<String>) {
        self.findings.push(self.segment.corrupt(offset, what).to_string());
    }

    fn step(&mut self, done: u64) -> Result<()> {
        match (self.progress)(done, self.segment.meta().bytes) {
            true => Ok(()),
            false => Err(Error::Interrupted),
        }
    }

    fn groups(&mut self, index: &SegmentIndex, file: &dyn ReadFile) -> Result<()> {
        self.meta(index);
        for group in 0..index.group_count() {
            self.step(index.columns[0].blocks.offset[group])?;
            self.group(index, file, group);
            if self.findings.len() >= MAX_FINDINGS {
                self.findings.push(format!(
                    "'{}': the check stops after {MAX_FINDINGS} findings",
                    self.segment.path().display()
                ));
                return Ok(());
            }
        }
        self.step(self.segment.meta().bytes)
    }

    /// The manifest decides on chunk, base sequence number and sealing: those may differ from the footer's.
    fn meta(&mut self, index: &SegmentIndex) {
        let told = self.segment.meta();
        let mut found = meta_of(index, told.id, told.schema_version, told.bytes);
        (found.chunk, found.base_seq, found.sealed) = (told.chunk, told.base_seq, told.sealed);
        found.max_seq = told.base_seq.saturating_add(index.max_seq_offset());
        if found != *told {
            self.find(0, format!("the manifest says {told:?}, the file {found:?}"));
        }
    }

    fn group(&mut self, index: &SegmentIndex, file: &dyn ReadFile, group: usize) {
        let segment = self.segment;
        let offset = index.columns[0].blocks.offset[group];
        let mut key = vec![None; index.columns.len()];
        for (position, column) in index.columns.iter().enumerate() {
            let own = index.schema.columns[position];
            let read = segment
                .place(index, &column.blocks, group, own.id, own.lane)
                .and_then(|place| segment.read_column(file, &place));
            let Some(read) = self.note(read) else {
                continue;
            };
            self.zone(index, group, position, &read);
            if index.schema.key.contains(&(position as u16)) {
                key[position] = Some(read);
            }
        }
        let seqs = self.seqs(index, file, group);
        self.kinds(index, file, group);
        // Without all key columns the order cannot be judged; what is missing is a finding already.
        let parts: Option<Vec<&Column>> = index.schema.key.iter().map(|&k| key[usize::from(k)].as_ref()).collect();
        if let Some(parts) = parts {
            self.keys(index, group, &parts, seqs.as_deref(), offset);
        }
    }

    fn zone(&mut self, index: &SegmentIndex, group: usize, position: usize, column: &Column) {
        let own = index.schema.columns[position];
        let offset = index.columns[position].blocks.offset[group];
        let (found, told) = (ZoneMap::of(column), index.zone(group, own.id));
        if !told.is_some_and(|told| same_zone(&told, &found)) {
            self.find(
                offset,
                format!("zone map of column {} in group {group}: {told:?}, the values give {found:?}", own.id),
            );
        }
        if let (Lane::Int { width: width @ 1..8 }, Some((_, max))) = (own.lane, found.range)
            && max >> (8 * width) != 0
        {
            self.find(offset, format!("column {} in group {group} has a value over {width} bytes", own.id));
        }
        let is_key = index.schema.key.contains(&(position as u16));
        let nulls_allowed = if is_key { 0 } else { index.groups.tombstones[group] };
        if (is_key || !own.nullable) && found.nulls > nulls_allowed {
            self.find(offset, format!("column {} in group {group} has {} nulls, it is NOT NULL", own.id, found.nulls));
        }
    }

    fn seqs(&mut self, index: &SegmentIndex, file: &dyn ReadFile, group: usize) -> Option<Vec<u64>> {
        let told = index.groups.max_seq[group];
        if told == 0 {
            return Some(vec![0; index.groups.rows[group] as usize]);
        }
        let read = self
            .segment
            .place(index, &index.groups.seq_blocks, group, SEQ_COLUMN, SEQ_LANE)
            .and_then(|place| self.segment.read_ints(file, &place));
        let seqs = self.note(read)?;
        if seqs.iter().max() != Some(&told) {
            self.find(
                index.groups.seq_blocks.offset[group],
                format!("largest sequence number of group {group} is not {told}"),
            );
        }
        Some(seqs)
    }

    fn kinds(&mut self, index: &SegmentIndex, file: &dyn ReadFile, group: usize) {
        let told = index.groups.tombstones[group];
        if told == 0 {
            return;
        }
        let read = self
            .segment
            .place(index, &index.groups.kind_blocks, group, KIND_COLUMN, KIND_LANE)
            .and_then(|place| self.segment.read_kinds(file, &place));
        if let Some(kinds) = self.note(read)
            && kinds.count() != told as usize
        {
            self.find(index.groups.kind_blocks.offset[group], format!("group {group} does not have {told} tombstones"));
        }
    }

    fn keys(&mut self, index: &SegmentIndex, group: usize, parts: &[&Column], seqs: Option<&[u64]>, offset: u64) {
        let told: GroupIndex<'_> = index.group(group);
        let rows = told.rows as usize;
        if let Some(row) = order::first_out_of_order(parts, seqs, rows) {
            self.find(offset, format!("row {row} of group {group} is out of order"));
        }
        let neighbours = [group.checked_sub(1), Some(group + 1).filter(|&g| g < index.group_count())];
        let shares_key = |other: usize| match other < group {
            true => index.group(other).last_key == told.first_key,
            false => index.group(other).first_key == told.last_key,
        };
        let has_versions = order::has_equal_neighbours(parts, rows) || neighbours.into_iter().flatten().any(shares_key);
        if has_versions != told.has_versions {
            self.find(
                offset,
                format!("group {group}: repeated keys are {has_versions}, the footer says {}", told.has_versions),
            );
        }
        for (row, told) in [(0, told.first_key), (rows - 1, told.last_key)] {
            let mut found = Vec::new();
            let part_of = |k: usize| index.schema.key.iter().position(|&p| usize::from(p) == k).unwrap_or(0);
            index.schema.push_key(|k| parts[part_of(k)], row, &mut found);
            if found != told {
                self.find(offset, format!("key of row {row} of group {group} is not what the footer says"));
            }
        }
    }

    /// Without a footer: follows the blocks by their own headers for as long as they are whole.
    fn walk(&mut self, file: &dyn ReadFile) -> Result<()> {
        let mut at = HEADER_BYTES as u64;
        let mut blocks = 0u64;
        loop {
            self.step(at.min(self.segment.meta().bytes))?;
            let Some(length) = self.whole_block(file, at) else {
                break;
            };
            at += length;
            blocks += 1;
        }
        self.findings.push(format!(
            "'{}': without its footer, {blocks} blocks up to byte {at} are whole",
            self.segment.path().display()
        ));
        Ok(())
    }

    /// Bytes of the block at `at`, if it is one and whole.
    fn whole_block(&mut self, file: &dyn ReadFile, at: u64) -> Option<u64> {
        let left = file.len().checked_sub(at)?;
        let mut header = [0; BLOCK_HEADER_BYTES];
        if left < BLOCK_HEADER_BYTES as u64 {
            return None;
        }
        file.read_at(at, &mut header).ok()?;
        let length = BLOCK_HEADER_BYTES as u64 + u64::from(BlockHeader::from_bytes(&header).ok()?.length);
        if length > left {
            return None;
        }
        let mut block = vec![0; length as usize];
        file.read_at(at, &mut block).ok()?;
        check_block(self.segment.meta().id, &block).ok()?;
        Some(length)
    }
}

/// Equal bit by bit: a float sum's zero has a sign.
fn same_zone(a: &ZoneMap, b: &ZoneMap) -> bool {
    use super::zone::Sum;
    let sums_equal = match (a.sum, b.sum) {
        (Sum::Float { hi: a, lo: b }, Sum::Float { hi: c, lo: d }) => {
            (a.to_bits(), b.to_bits()) == (c.to_bits(), d.to_bits())
        }
        (a, b) => a == b,
    };
    sums_equal && ZoneMap { sum: Sum::None, ..*a } == ZoneMap { sum: Sum::None, ..*b }
}
