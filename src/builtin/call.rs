//! A call of a builtin, and the result of one that has found something.

use crate::model::Event;
use crate::model::need::Fact;
use crate::rules::ask::{BuiltinName, BuiltinResult};
use bstr::BString;

/// A call as the builtin sees it.
pub struct Call<'a> {
    pub builtin: BuiltinName,
    /// Words of the command, the builtin's name first.
    pub argv: &'a [BString],
    pub event: &'a Event,
    /// Answers to the needs of earlier tries of this call, in order.
    pub facts: &'a [Fact],
    /// `udevadm test` and `test-builtin`: no effect on the system.
    pub dry: bool,
}

/// The result of a call that found these properties.
pub(super) fn success(properties: Vec<(BString, Option<BString>)>) -> BuiltinResult {
    BuiltinResult { success: true, properties, ..BuiltinResult::default() }
}
