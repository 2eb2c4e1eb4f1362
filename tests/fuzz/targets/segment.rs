//! Any bytes as the blocks and the footer of a segment: errors, or rows. Input: see [`rrd_store::fuzz::segment`].

#![no_main]

#[path = "../memory.rs"]
mod memory;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    memory::bounded(input, rrd_store::fuzz::decode_segment);
    rrd_store::fuzz::segment(input);
});
