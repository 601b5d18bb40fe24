//! The eight actions of a uevent (specs: rules section 7, interop 2.3).

/// What happened to a device. Only these eight words are known to udev.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    Add,
    Remove,
    Change,
    Move,
    Online,
    Offline,
    Bind,
    Unbind,
}

impl Action {
    /// All actions, in the order in which `udevadm trigger --action=help` lists them.
    pub const ALL: [Action; 8] = [
        Action::Add,
        Action::Remove,
        Action::Change,
        Action::Move,
        Action::Online,
        Action::Offline,
        Action::Bind,
        Action::Unbind,
    ];

    /// The word of the kernel.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Add => "add",
            Action::Remove => "remove",
            Action::Change => "change",
            Action::Move => "move",
            Action::Online => "online",
            Action::Offline => "offline",
            Action::Bind => "bind",
            Action::Unbind => "unbind",
        }
    }

    /// The action of this word, None if the word is not one of the eight.
    pub fn parse(word: &[u8]) -> Option<Action> {
        Action::ALL.into_iter().find(|a| a.as_str().as_bytes() == word)
    }
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// What is written to the `uevent` file of a device, so that the kernel sends an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    Add,
    Change,
}

impl Trigger {
    /// The word.
    pub fn text(self) -> &'static str {
        match self {
            Trigger::Add => "add",
            Trigger::Change => "change",
        }
    }
}
