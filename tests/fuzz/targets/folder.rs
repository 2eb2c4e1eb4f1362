//! The folder of an engine with damage that no checksum finds: it opens or says why not; rows are read, checked, counted,
//! written and repaired, or there is an error; nothing panics. Input: see [`rrd_store::fuzz::folder`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rrd_store::fuzz::folder(input));
