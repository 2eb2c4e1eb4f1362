//! What a segment's columns cost, for INFORMATION_SCHEMA.
//!
//! Walks over thousands of segments without disturbing anybody: a footer that is cached is used, one that is not is
//! read and let go again, the file is opened aside from those that scans keep open.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::format::{BLOCK_HEADER_BYTES, KIND_COLUMN, KIND_LANE, SEQ_COLUMN, SEQ_LANE};
use super::index::{Blocks, SegmentIndex};
use super::reader::Segment;
use crate::cache::{BlockKey, Cached};
use crate::error::Result;
use crate::fs::ReadFile;
use crate::schema::Lane;

/// Bytes of a block that tell its codec, unless it has many exceptions.
const CODEC_BYTES: usize = 64;

/// A lane of a segment: a column, or what the store keeps of its own for each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SurveyedLane {
    /// `ColumnDef::id`.
    Column(u32),
    /// Sequence numbers.
    Seqs,
    /// Which rows are tombstones.
    Kinds,
}

/// What a lane costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneSurvey {
    /// Which.
    pub lane: SurveyedLane,
    /// Bytes of its blocks, their headers included.
    pub bytes: u64,
    /// Its blocks.
    pub blocks: u64,
    /// Rows in them.
    pub rows: u64,
    /// NULLs among them.
    pub nulls: u64,
    /// Codecs of the blocks that were looked at.
    pub codecs: BTreeMap<&'static str, u64>,
}

/// Says which blocks to open for their codec.
pub struct BlockChoice {
    every: u64,
    next: u64,
}

impl BlockChoice {
    /// Every `every`-th block, over all segments that this choice is used for; 0: none.
    pub fn new(every: u64) -> BlockChoice {
        BlockChoice { every, next: 0 }
    }

    fn takes(&mut self) -> bool {
        if self.every == 0 {
            return false;
        }
        self.next += 1;
        self.next % self.every == 1 % self.every
    }
}

impl Segment {
    /// The footer, without making room for it.
    pub fn peek_index(&self) -> Result<Arc<SegmentIndex>> {
        match self.cache().peek(BlockKey::footer(self.meta().id)) {
            Some(Cached::Footer(index)) => Ok(index),
            _ => Ok(Arc::new(self.read_index_of(&*self.open_file()?)?)),
        }
    }

    /// What each lane costs; `choice` says which groups' codecs are looked at.
    pub fn survey(&self, choice: &mut BlockChoice) -> Result<Vec<LaneSurvey>> {
        let file = self.open_file()?;
        let index = match self.cache().peek(BlockKey::footer(self.meta().id)) {
            Some(Cached::Footer(index)) => index,
            _ => Arc::new(self.read_index_of(&*file)?),
        };
        let groups: Vec<usize> = (0..index.group_count()).filter(|_| choice.takes()).collect();
        let reader = LaneReader { segment: self, file: &*file, index: &index, groups: &groups };
        let mut lanes = Vec::with_capacity(index.columns.len() + 2);
        for (own, column) in index.schema.columns.iter().zip(&index.columns) {
            let nulls = column.nulls.iter().map(|&n| u64::from(n)).sum();
            lanes.push(reader.survey(SurveyedLane::Column(own.id), own.id, own.lane, &column.blocks, nulls)?);
        }
        lanes.push(reader.survey(SurveyedLane::Seqs, SEQ_COLUMN, SEQ_LANE, &index.groups.seq_blocks, 0)?);
        lanes.push(reader.survey(SurveyedLane::Kinds, KIND_COLUMN, KIND_LANE, &index.groups.kind_blocks, 0)?);
        Ok(lanes)
    }
}

struct LaneReader<'a> {
    segment: &'a Segment,
    file: &'a dyn ReadFile,
    index: &'a SegmentIndex,
    groups: &'a [usize],
}

impl LaneReader<'_> {
    fn survey(&self, lane: SurveyedLane, id: u32, kind: Lane, blocks: &Blocks, nulls: u64) -> Result<LaneSurvey> {
        // A group without sequence numbers or tombstones has no block of them.
        let there: Vec<usize> = (0..blocks.length.len()).filter(|&g| blocks.length[g] > 0).collect();
        let mut codecs = BTreeMap::new();
        for &group in self.groups.iter().filter(|&&g| blocks.length[g] > 0) {
            *codecs.entry(self.codec(id, kind, blocks, group)?).or_insert(0) += 1;
        }
        Ok(LaneSurvey {
            lane,
            bytes: there.iter().map(|&g| u64::from(blocks.length[g]) + BLOCK_HEADER_BYTES as u64).sum(),
            blocks: there.len() as u64,
            rows: there.iter().map(|&g| u64::from(self.index.group(g).rows)).sum(),
            nulls,
            codecs,
        })
    }

    fn codec(&self, id: u32, kind: Lane, blocks: &Blocks, group: usize) -> Result<&'static str> {
        let length = blocks.length[group] as usize;
        let mut start = vec![0; length.min(CODEC_BYTES)];
        self.file.read_at(blocks.offset[group] + BLOCK_HEADER_BYTES as u64, &mut start)?;
        match rrd_codec::codec_name(&start) {
            "unknown" if length > CODEC_BYTES => {
                let place = self.segment.place(self.index, blocks, group, id, kind)?;
                Ok(rrd_codec::codec_name(&self.segment.read_block(self.file, &place)?[BLOCK_HEADER_BYTES..]))
            }
            name => Ok(name),
        }
    }
}
