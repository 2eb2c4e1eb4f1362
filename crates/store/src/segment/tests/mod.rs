//! Tests of segments.
