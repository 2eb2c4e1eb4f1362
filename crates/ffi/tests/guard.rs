//! A panic behind the ABI becomes an error, and nothing is done on the state that it left.

use rrd_ffi::abi::{RRD_INTERNAL, RRD_OK, RrdError};
use rrd_ffi::guard::{broken, guard};

fn text(error: &RrdError) -> String {
    error.message.iter().take_while(|c| **c != 0).map(|c| *c as u8 as char).collect()
}

#[test]
fn a_panic_stops_the_engine_with_its_reason() {
    let mut error = RrdError { status: RRD_OK, index: 0, message: [0; 1016] };
    // SAFETY: the struct is ours.
    let before = unsafe { guard(&mut error, || Ok(())) };
    assert_eq!((before, broken()), (RRD_OK, None));

    let status = unsafe { guard(&mut error, || panic!("the table is inside out")) };
    assert_eq!((status, error.status), (RRD_INTERNAL, RRD_INTERNAL));
    assert!(text(&error).contains("the table is inside out"), "{}", text(&error));

    let after = unsafe { guard(&mut error, || Ok(())) };
    assert_eq!(after, RRD_INTERNAL);
    assert_eq!(broken(), Some("the table is inside out"));
}
