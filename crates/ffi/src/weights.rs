//! Texts to byte strings whose `memcmp` order is their collation's order.
//!
//! The server's collations give weights (`strnxfrm`); what is added here is the end of a text. Where trailing
//! spaces do not count (PAD SPACE), a text compares as if spaces without end followed: 'a' = 'a ', and 'a' followed
//! by a tab sorts before 'a'. So a run of spaces is written as the weight of a space, a byte that says whether what
//! follows the run is less than a space (1), nothing but spaces (2) or greater (3), and for 1 and 3 the length of
//! the run, complemented for 3: the longer run is the greater text before a 1 and the lesser before a 3. Each level
//! ends with "nothing but spaces". Where trailing spaces count (NO PAD), the end of a text is less than any weight;
//! runs are written as well, since CHAR(n) then compares with all its n characters. In VARCHAR only the first level
//! is without padding, as in the server. A level without padding ends with two zero bytes if others follow; they are
//! less than any weight.

use crate::abi::{RRD_MAX_LEVELS, RrdCollation, RrdWeight};

const LESS_FOLLOWS: u8 = 1;
const ONLY_SPACES: u8 = 2;
const GREATER_FOLLOWS: u8 = 3;

/// `RrdCollation::levels` of a collation whose weights come for all levels at once.
pub const ALL_LEVELS: u8 = 255;

/// Weights of a text: at most this many bytes for one byte of text, in any collation.
const MAX_WEIGHT_BYTES: usize = 20;

/// Bytes of a character at most, in any character set: what is behind the characters that count is not looked at.
const MAX_CHAR_BYTES: usize = 8;

/// Buffers that are used again and again.
#[derive(Default)]
pub struct Scratch {
    /// Weights as the collation gives them.
    raw: Vec<u8>,
    /// A text with its padding.
    padded: Vec<u8>,
}

/// Appends the sort key of `text`. `max_chars` is 0 or the characters that count; `is_padded` is true for CHAR:
/// the text comes without trailing spaces, but goes on with them up to `max_chars`.
pub fn push_sort_key(
    collation: &RrdCollation,
    text: &[u8],
    max_chars: u32,
    is_padded: bool,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) {
    if collation.handle.is_null() {
        let limit = if max_chars == 0 { text.len() } else { (max_chars as usize).min(text.len()) };
        out.extend_from_slice(&text[..limit]);
        return;
    }
    let Scratch { raw, padded } = scratch;
    let counts = if max_chars == 0 { text.len() } else { (max_chars as usize).saturating_mul(MAX_CHAR_BYTES) };
    let text = &text[..counts.min(text.len())];
    if collation.levels == ALL_LEVELS {
        weights(collation, u32::from(ALL_LEVELS), text, max_chars, raw);
        out.extend_from_slice(raw);
        return;
    }
    let pads = collation.pad_space != 0;
    let text = if is_padded && !pads { with_padding(text, collation, max_chars, padded) } else { text };
    let levels = usize::from(collation.levels).min(RRD_MAX_LEVELS);
    for (level, space) in collation.space[..levels].iter().enumerate() {
        weights(collation, level as u32, text, max_chars, raw);
        let pads = pads || (level > 0 && !is_padded);
        push_level(raw, space_bytes(space), pads, out);
        if !pads && level + 1 < levels {
            out.extend_from_slice(&[0, 0]);
        }
    }
}

/// The text with more than enough spaces behind it.
fn with_padding<'a>(text: &[u8], collation: &RrdCollation, chars: u32, padded: &'a mut Vec<u8>) -> &'a [u8] {
    padded.clear();
    padded.extend_from_slice(text);
    (0..chars).for_each(|_| padded.extend_from_slice(pad(collation)));
    padded
}

/// The pad character of a collation.
pub fn pad(collation: &RrdCollation) -> &[u8] {
    &collation.pad[..usize::from(collation.pad_length).clamp(1, 4)]
}

/// `text` without the pad characters at its end.
#[inline]
pub fn trim<'a>(mut text: &'a [u8], pad: &[u8]) -> &'a [u8] {
    while let Some(rest) = text.strip_suffix(pad) {
        text = rest;
    }
    text
}

fn space_bytes(space: &RrdWeight) -> &[u8] {
    &space.bytes[..usize::from(space.length).min(space.bytes.len())]
}

/// Fills `raw` with the weights of `text`; asks again with more room while they may have been cut off.
fn weights(collation: &RrdCollation, level: u32, text: &[u8], max_chars: u32, raw: &mut Vec<u8>) {
    raw.clear();
    let Some(function) = collation.weights else { return };
    let most = text.len() * MAX_WEIGHT_BYTES + 64;
    let mut room = (text.len() * 4 + 64).min(most);
    loop {
        raw.resize(room, 0);
        // SAFETY: rule `collations` of `abi.rs`: the handle belongs to the function, and both are valid. It reads `text.len()` bytes of
        // `text` and writes `room` bytes at most to `raw`, which has as many.
        let length =
            unsafe { function(collation.handle, level, text.as_ptr(), text.len(), max_chars, raw.as_mut_ptr(), room) };
        if length + 8 < room || room >= most {
            raw.truncate(length);
            return;
        }
        room = (room * 2).min(most);
    }
}

/// Appends the weights of one level with its runs of spaces told apart; `pads` for PAD SPACE.
fn push_level(raw: &[u8], space: &[u8], pads: bool, out: &mut Vec<u8>) {
    if space.is_empty() {
        out.extend_from_slice(raw);
        return;
    }
    let raw = if pads { trim(raw, space) } else { raw };
    let mut units = raw.chunks(space.len());
    while let Some(unit) = units.next() {
        if unit == space {
            push_run(&mut units, space, out);
        } else {
            out.extend_from_slice(unit);
        }
    }
    if pads {
        out.extend_from_slice(space);
        out.push(ONLY_SPACES);
    }
}

/// Appends a run whose first space was just read, and the unit behind it; the end of the text is less than a space.
fn push_run(units: &mut std::slice::Chunks<'_, u8>, space: &[u8], out: &mut Vec<u8>) {
    let mut length: u16 = 1;
    let mut next: &[u8] = &[];
    for unit in units {
        if unit != space {
            next = unit;
            break;
        }
        length = length.saturating_add(1);
    }
    out.extend_from_slice(space);
    if next < space {
        out.push(LESS_FOLLOWS);
        out.extend_from_slice(&length.to_be_bytes());
    } else {
        out.push(GREATER_FOLLOWS);
        out.extend_from_slice(&(u16::MAX - length).to_be_bytes());
    }
    out.extend_from_slice(next);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    /// The definition: compare as if spaces without end followed both.
    fn padded_order(a: &[u8], b: &[u8], space: &[u8]) -> Ordering {
        let length = a.len().max(b.len());
        let fill = |text: &[u8]| -> Vec<u8> {
            text.iter().copied().chain(space.iter().copied().cycle()).take(length).collect()
        };
        fill(a).cmp(&fill(b))
    }

    fn key(raw: &[u8], space: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        push_level(raw, space, true, &mut out);
        out
    }

    proptest! {
        #[test]
        fn order_and_equality_are_those_of_padded_texts(
            a in prop::collection::vec(prop_oneof![Just(9u8), Just(32), Just(32), Just(97)], 0..8),
            b in prop::collection::vec(prop_oneof![Just(9u8), Just(32), Just(32), Just(97)], 0..8),
        ) {
            prop_assert_eq!(key(&a, b" ").cmp(&key(&b, b" ")), padded_order(&a, &b, b" "));
        }

        #[test]
        fn also_with_weights_of_two_bytes(
            a in prop::collection::vec(prop_oneof![Just([0u8, 9]), Just([0, 32]), Just([0, 32]), Just([32, 0])], 0..8),
            b in prop::collection::vec(prop_oneof![Just([0u8, 9]), Just([0, 32]), Just([0, 32]), Just([32, 0])], 0..8),
        ) {
            let (a, b) = (a.concat(), b.concat());
            prop_assert_eq!(key(&a, &[0, 32]).cmp(&key(&b, &[0, 32])), padded_order(&a, &b, &[0, 32]));
        }
    }

    proptest! {
        #[test]
        fn without_padding_a_shorter_text_comes_first(
            a in prop::collection::vec(prop_oneof![Just(9u8), Just(32), Just(32), Just(97)], 0..8),
            b in prop::collection::vec(prop_oneof![Just(9u8), Just(32), Just(32), Just(97)], 0..8),
        ) {
            let unpadded = |raw: &[u8]| {
                let mut out = Vec::new();
                push_level(raw, b" ", false, &mut out);
                out
            };
            prop_assert_eq!(unpadded(&a).cmp(&unpadded(&b)), a.cmp(&b));
        }
    }

    /// The context is the most bytes of text that were seen.
    unsafe extern "C" fn identity(
        most: *const std::ffi::c_void,
        _level: u32,
        text: *const u8,
        length: usize,
        max_chars: u32,
        out: *mut u8,
        capacity: usize,
    ) -> usize {
        // SAFETY: the context is a `Cell` that the test keeps; both slices are as long as they say.
        unsafe {
            let most = &*most.cast::<std::cell::Cell<usize>>();
            most.set(most.get().max(length));
            let length = length.min(max_chars as usize).min(capacity);
            out.copy_from_nonoverlapping(text, length);
            length
        }
    }

    #[test]
    fn of_a_long_text_no_more_is_weighed_than_counts() {
        let most = std::cell::Cell::new(0);
        let collation = RrdCollation {
            handle: (&raw const most).cast(),
            weights: Some(identity),
            pad_space: 1,
            levels: 1,
            pad_length: 1,
            reserved: 0,
            pad: [b' ', 0, 0, 0],
            space: [RrdWeight { length: 1, bytes: [b' ', 0, 0, 0, 0, 0, 0] }; RRD_MAX_LEVELS],
        };
        let (mut scratch, mut out) = (Scratch::default(), Vec::new());
        push_sort_key(&collation, &[b'x'; 1 << 20], 10, false, &mut scratch, &mut out);
        assert_eq!(out, [&[b'x'; 10][..], &[b' ', ONLY_SPACES]].concat());
        assert_eq!(most.get(), 10 * MAX_CHAR_BYTES);
        assert!(scratch.raw.capacity() < 1 << 12, "{}", scratch.raw.capacity());
    }

    #[test]
    fn a_tab_sorts_before_the_end_of_a_padded_text() {
        assert!(key(b"a\t", b" ") < key(b"a", b" "));
        assert_eq!(key(b"a", b" "), key(b"a   ", b" "));
        assert!(key(b"a", b" ") < key(b"a b", b" "));
    }
}
