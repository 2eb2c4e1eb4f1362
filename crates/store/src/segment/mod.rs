//! Segments: immutable files of row versions in key order, in column blocks.
//!
//! [`SegmentWriter`] makes one front to back (flush, bulk load, merge); [`Segment`] reads blocks of it through
//! the [`crate::cache::BlockCache`]. A file's bytes are specified in `docs/internals/format.md`; `format` and `footer`
//! are the only places that know them. Which segments exist is the manifest's business.

mod fields;
pub(crate) mod files;
mod footer;
mod format;
pub mod index;
pub mod meta;
mod order;
#[cfg(feature = "fuzz")]
mod raw;
pub mod reader;
mod salvage;
pub mod survey;
mod verify;
pub mod writer;
pub mod zone;

pub(crate) use fields::{push_varint, take_varint};
pub use index::{GroupIndex, SegmentColumn, SegmentIndex, SegmentSchema};
pub use meta::{SegmentId, SegmentMeta};
#[cfg(feature = "fuzz")]
pub(crate) use raw::{check_footer, file_of, parts_of};
pub use reader::{Compact, Held, Segment};
pub use salvage::Loss;
pub use survey::{BlockChoice, LaneSurvey, SurveyedLane};
pub use writer::SegmentWriter;
pub use zone::{Sum, ZoneMap};

#[cfg(test)]
mod tests;
