//! `include/rrd.h` is what cbindgen makes of the sources: it is committed, and stale it fails here.
//!
//! `RRD_WRITE_HEADER=1 cargo test -p rrd-ffi --test header` writes it.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

const SOURCES: [&str; 17] = [
    "abi.rs",
    "export_engine.rs",
    "export_session.rs",
    "export_prepare.rs",
    "export_table.rs",
    "export_row.rs",
    "export_alter.rs",
    "export_info.rs",
    "export_backup.rs",
    "export_repair.rs",
    "export_tier.rs",
    "time_bucket.rs",
    "export_functions.rs",
    "conditions.rs",
    "aggregate.rs",
    "export_aggregate.rs",
    "export_text.rs",
];

const OPENING: &str = "/* The C ABI of the RRD storage engine. Generated from crates/ffi/src; do not edit.
   RRD_WRITE_HEADER=1 cargo test -p rrd-ffi --test header  writes it.

   The Safety section of a function names the rules that its caller keeps: abi.rs has them. */";

fn generated(root: &Path) -> String {
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        cpp_compat: true,
        header: Some(OPENING.into()),
        include_guard: Some("RRD_H".into()),
        usize_is_size_t: true,
        documentation_style: cbindgen::DocumentationStyle::C99,
        line_length: 110,
        ..Default::default()
    };
    config.constant.allow_static_const = false;
    // What both sides write to: atomic here, plain there.
    for (ours, theirs) in [("SharedPointer", "const uint8_t *"), ("AtomicUsize", "size_t"), ("AtomicBool", "bool")] {
        config.export.rename.insert(ours.into(), theirs.into());
    }
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(root.join("src").join(source));
    }
    let mut text = Vec::new();
    builder.generate().expect("cbindgen reads the sources").write(&mut text);
    String::from_utf8(text).expect("a header is text")
}

#[test]
fn the_committed_header_is_what_the_sources_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("include/rrd.h");
    let expected = generated(root);
    if std::env::var_os("RRD_WRITE_HEADER").is_some() {
        std::fs::write(&path, &expected).expect("the header can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{} is stale: run this test with RRD_WRITE_HEADER=1", path.display());
}

/// A panic that crosses the ABI ends the server.
#[test]
fn every_export_runs_in_the_guard() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut exports = 0;
    for source in SOURCES {
        let text = std::fs::read_to_string(root.join("src").join(source)).expect("a source can be read");
        for export in text.split("#[unsafe(no_mangle)]").skip(1) {
            let body = export.split_once("\n}\n").map_or(export, |(body, _)| body);
            let name = body.split_once("fn ").and_then(|(_, rest)| rest.split_once('(')).map_or("", |(name, _)| name);
            assert!(body.contains("guard(") || body.contains("guard_"), "{source}: {name} does without");
            exports += 1;
        }
    }
    assert!(exports > 100, "{exports}");
}
