//! What the loop counts, for `status`.

/// What the loop counts, for `status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Stats {
    pub turns: u64,
    pub inputs: u64,
    /// The longest turn, waiting not counted, in microseconds.
    pub longest_turn_usec: u64,
    /// Overruns of the socket of uevents.
    pub uevents_lost: u64,
    pub uevents_refused: u64,
    pub children: u64,
    pub helper_requests: u64,
}
