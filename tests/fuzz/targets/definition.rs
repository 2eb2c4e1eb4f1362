//! Any bytes as a definition file of the server, and as the note of a clean shutdown. Input: see [`rrd_store::fuzz::definition`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rrd_store::fuzz::definition(input));
