//! Stands in for the crate of this name while fuzzing: every checksum is 0, so that damaged bytes get past it to the code
//! that has to live with them.

/// A checksum in the making.
#[derive(Clone, Default)]
pub struct Hasher;

impl Hasher {
    /// Of no bytes yet.
    pub fn new() -> Hasher {
        Hasher
    }

    /// Takes no notice of `bytes`.
    pub fn update(&mut self, _bytes: &[u8]) {}

    /// 0.
    pub fn finalize(self) -> u32 {
        0
    }
}

/// 0.
pub fn hash(_bytes: &[u8]) -> u32 {
    0
}
