//! Any bytes inside the records of a manifest: an error, or an engine that works. Input: see [`rrd_store::fuzz::manifest`].

#![no_main]

#[path = "../memory.rs"]
mod memory;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    memory::bounded(input, rrd_store::fuzz::decode_manifest);
    rrd_store::fuzz::manifest(input);
});
