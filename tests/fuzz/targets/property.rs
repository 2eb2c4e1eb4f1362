//! Any bytes as a property of a table in the manifest: an error, or an engine that works. Input: see [`rrd_store::fuzz::property`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rrd_store::fuzz::property(input));
