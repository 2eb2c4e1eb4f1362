//! A panic behind the ABI becomes an error, and nothing is done on the state that it left.

use std::mem::MaybeUninit;

use rrd_ffi::abi::{RRD_INTERNAL, RRD_OK, RrdError};
use rrd_ffi::guard::{broken, guard};

fn text(error: &RrdError) -> String {
    error.message.iter().take_while(|c| **c != 0).map(|c| *c as u8 as char).collect()
}

#[test]
fn a_panic_stops_the_engine_with_its_reason() {
    let mut error = MaybeUninit::new(RrdError { status: RRD_OK, index: 0, message: [0; 1016] });
    let before = guard(Some(&mut error), || Ok(()));
    assert_eq!((before, broken()), (RRD_OK, None));

    let status = guard(Some(&mut error), || panic!("the table is inside out"));
    // SAFETY: all of it was initialised, and some of it written again.
    let error = unsafe { error.assume_init_mut() };
    assert_eq!((status, error.status), (RRD_INTERNAL, RRD_INTERNAL));
    assert!(text(error).contains("the table is inside out"), "{}", text(error));

    let after = guard(None, || Ok(()));
    assert_eq!(after, RRD_INTERNAL);
    assert_eq!(broken(), Some("the table is inside out"));
}
