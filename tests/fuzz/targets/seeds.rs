//! No target: writes inputs to begin with, of what a sound folder has, to $SEEDS/TARGET.

#![no_main]

use std::path::PathBuf;

libfuzzer_sys::fuzz_target!(|_input: &[u8]| {
    let Some(folder) = std::env::var_os("SEEDS").map(PathBuf::from) else { return };
    for (number, (target, bytes)) in rrd_store::fuzz::seeds().expect("a sound folder").into_iter().enumerate() {
        let folder = folder.join(target);
        std::fs::create_dir_all(&folder).expect("a folder for the seeds");
        std::fs::write(folder.join(format!("seed-{number}")), bytes).expect("a seed");
    }
});
