//! What is wrong with the rules, for who asked to have them read again.
//!
//! Must stay true: however much is wrong, what is kept of it is bounded, and what was left out is counted.

use serde::{Deserialize, Serialize};

/// Bytes of what was found in the rules that are kept for who asks; what is beyond is counted.
const MAX_FINDINGS: usize = 256 * 1024;

/// Errors and warnings in the rules, for who asked to have them read again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    pub texts: Vec<String>,
    /// For which there was no room.
    pub left_out: usize,
    #[serde(skip)]
    bytes: usize,
}

impl Findings {
    pub(crate) fn push(&mut self, text: String) {
        if self.left_out > 0 || self.bytes + text.len() > MAX_FINDINGS {
            self.left_out += 1;
        } else {
            self.bytes += text.len();
            self.texts.push(text);
        }
    }
}
