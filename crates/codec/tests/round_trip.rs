//! Whatever goes in comes out.
use rrd_codec::*;

#[test]
fn first_steps() {
    let mut c = Column::new(Kind::F64);
    for i in 0..1000 {
        if i % 7 == 0 { c.push_null() } else { c.push_f64(f64::from(i) * 0.01) }
    }
    let mut b = Column::new(Kind::Bytes);
    for i in 0..1000 {
        if i % 7 == 0 { b.push_null() } else { b.push_bytes(format!("value {i}").as_bytes()) }
    }
    for column in [c, b] {
        for effort in [Effort::Fast, Effort::Small] {
            let mut out = Vec::new();
            encode(&column, effort, &mut out);
            assert_eq!(decode(&out, column.kind(), column.rows()).as_ref(), Ok(&column));
        }
    }
}
