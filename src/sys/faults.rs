//! Faults of file systems, for tests: calls of [`super::fs`] fail, or the process dies in front of one.
//!
//! A plan belongs to the thread that [`set`] it. Dying is unwinding: [`Killed`] goes up to the test that started the
//! code, and no call does anything from then on, so that nothing is tidied up on the way.

use super::fs::Op;
use std::cell::RefCell;

/// What a thread that has died carries up.
#[derive(Debug)]
pub struct Killed;

/// What happens to the calls that follow. By default nothing.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The process dies in front of the n-th call, counted from 1.
    pub kill_at: Option<u64>,
    /// The n-th call fails with this, if such a call can.
    pub fail_at: Option<(u64, i32)>,
    /// No room for anything new.
    pub full: bool,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Nothing can be opened.
    pub no_descriptors: bool,
    /// Each n-th call is interrupted; 0: none.
    pub interrupt_every: u64,
}

#[derive(Default)]
struct State {
    plan: Plan,
    calls: u64,
    interrupted: bool,
    dead: bool,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// From now on, for this thread; calls are counted from 1 again.
pub fn set(plan: Plan) {
    STATE.with_borrow_mut(|state| *state = State { plan, ..State::default() });
}

/// How many calls there were since [`set`].
pub fn calls() -> u64 {
    STATE.with_borrow(|state| state.calls)
}

/// Whether an operation can fail like this.
fn can_fail(op: Op, errno: i32) -> bool {
    match errno {
        libc::ENOSPC => matches!(op, Op::Create | Op::Add | Op::Write),
        libc::EROFS => matches!(op, Op::Create | Op::Add | Op::Remove | Op::Change),
        libc::EMFILE => matches!(op, Op::Open | Op::Create),
        _ => true,
    }
}

/// The error that a call meets in place of being made.
pub(super) fn meet(op: Op) -> Option<i32> {
    let died = STATE.with_borrow_mut(|state| {
        if state.dead {
            return Err(Some(libc::EIO));
        }
        state.calls += 1;
        if state.plan.kill_at == Some(state.calls) {
            state.dead = true;
            return Ok(());
        }
        Err(state.error(op))
    });
    match died {
        Ok(()) => std::panic::resume_unwind(Box::new(Killed)),
        Err(errno) => errno,
    }
}

impl State {
    fn error(&mut self, op: Op) -> Option<i32> {
        let plan = &self.plan;
        let every = plan.interrupt_every;
        // Twice in a row proves no more and might go on for ever.
        if every > 0 && self.calls.is_multiple_of(every) && !std::mem::replace(&mut self.interrupted, true) {
            return Some(libc::EINTR);
        }
        self.interrupted = false;
        let failing =
            [(plan.full, libc::ENOSPC), (plan.read_only, libc::EROFS), (plan.no_descriptors, libc::EMFILE)];
        let once = plan.fail_at.filter(|(at, _)| *at == self.calls).map(|(_, errno)| errno);
        let lasting = failing.into_iter().filter(|(holds, _)| *holds).map(|(_, errno)| errno);
        lasting.chain(once).find(|errno| can_fail(op, *errno))
    }
}
