//! Sort keys: byte strings whose `memcmp` order is the key order.
//!
//! An integer of width w is its w bytes, most significant first. A byte string is escaped so that no key is
//! a prefix of another with a different first part: 0x00 becomes 0x00 0xFF, and 0x00 0x00 ends it (as the tuple
//! layer of FoundationDB does). Parts follow each other without separators.

/// Something that a sort key can be appended to.
pub trait KeyBuffer {
    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]);
}

impl KeyBuffer for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl<A: smallvec::Array<Item = u8>> KeyBuffer for smallvec::SmallVec<A> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Appends an integer part.
#[inline]
pub fn push_int(out: &mut impl KeyBuffer, value: u64, width: u8) {
    let be = value.to_be_bytes();
    out.put(&be[8 - usize::from(width)..]);
}

/// The integer part that a key begins with, and what follows; `None` if it ends before.
#[inline]
pub fn split_int(key: &[u8], width: u8) -> Option<(u64, &[u8])> {
    let (part, behind) = key.split_at_checked(usize::from(width))?;
    Some((part.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)), behind))
}

/// Appends a byte-string part.
pub fn push_bytes(out: &mut impl KeyBuffer, value: &[u8]) {
    push_bytes_prefix(out, value);
    out.put(&[0, 0]);
}

/// Appends the beginning of a byte-string part: a bound for "starts with `value`".
pub fn push_bytes_prefix(out: &mut impl KeyBuffer, value: &[u8]) {
    let mut rest = value;
    while let Some(zero) = rest.iter().position(|&b| b == 0) {
        out.put(&rest[..=zero]);
        out.put(&[0xFF]);
        rest = &rest[zero + 1..];
    }
    out.put(rest);
}

/// Length of the byte-string part at the start of `bytes`, terminator included; `None` if it has no end.
pub fn bytes_part_len(bytes: &[u8]) -> Option<usize> {
    let mut i = 0;
    while i + 1 < bytes.len() {
        if bytes[i] == 0 {
            if bytes[i + 1] == 0 {
                return Some(i + 2);
            }
            i += 1;
        }
        i += 1;
    }
    None
}

/// The smallest key greater than every key that starts with `prefix`; `None` if there is none (all 0xFF).
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&b| b != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(parts: &(u64, Vec<u8>, u64)) -> Vec<u8> {
        let mut out = Vec::new();
        push_int(&mut out, parts.0, 8);
        push_bytes(&mut out, &parts.1);
        push_int(&mut out, parts.2, 8);
        out
    }

    proptest! {
        #[test]
        fn memcmp_order_is_tuple_order(
            a in (0u64..4, prop::collection::vec(0u8..3, 0..4), any::<u64>()),
            b in (0u64..4, prop::collection::vec(0u8..3, 0..4), any::<u64>()),
        ) {
            prop_assert_eq!(encoded(&a).cmp(&encoded(&b)), a.cmp(&b));
        }

        #[test]
        fn prefix_end_is_the_least_upper_bound(p in prop::collection::vec(any::<u8>(), 0..5), q in prop::collection::vec(any::<u8>(), 0..6)) {
            match prefix_end(&p) {
                Some(end) => prop_assert_eq!(q.starts_with(&p) || q < p, q < end),
                None => prop_assert!(q.starts_with(&p) || q < p),
            }
        }

        #[test]
        fn length_of_a_bytes_part(v in prop::collection::vec(0u8..3, 0..6), rest in prop::collection::vec(any::<u8>(), 0..4)) {
            let mut out = Vec::new();
            push_bytes(&mut out, &v);
            let len = out.len();
            out.extend_from_slice(&rest);
            prop_assert_eq!(bytes_part_len(&out), Some(len));
        }
    }
}
