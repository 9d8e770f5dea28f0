//! Undo actions that run once: on drop, or when the process is interrupted.
//!
//! A namespace or a pinned program outlives the process that made it, so
//! `Drop` alone is not enough: SIGINT kills a process without unwinding. Every
//! lasting thing is therefore made through [`guarded`]. A signal runs the undo
//! actions that are still due, newest first, and then lets the process die of
//! that signal, so that its parent sees the truth.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread;

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

type Undo = Box<dyn FnOnce() + Send>;

struct State {
    next_id: u64,
    due: Vec<(u64, Undo)>,
    /// Makers and undo actions that run right now, outside the lock.
    busy: usize,
    interrupted: bool,
}

static STATE: Mutex<State> = Mutex::new(State {
    next_id: 0,
    due: Vec::new(),
    busy: 0,
    interrupted: false,
});
static IDLE: Condvar = Condvar::new();
static WATCH_SIGNALS: Once = Once::new();

thread_local! {
    /// Set on the thread that tears everything down after a signal.
    static TEARING_DOWN: Cell<bool> = const { Cell::new(false) };
}

/// Runs its undo action when dropped, unless a signal ran it before.
#[derive(Debug)]
#[must_use = "dropping the guard undoes what it guards"]
pub struct Guard(u64);

/// Makes a lasting thing together with the action that removes it.
///
/// `make` must be short: a signal that arrives meanwhile waits for it, so that
/// there is no moment in which the thing exists without the action that removes
/// it.
pub fn guarded<T, U>(make: impl FnOnce() -> Result<(T, U)>) -> Result<(T, Guard)>
where
    U: FnOnce() + Send + 'static,
{
    WATCH_SIGNALS.call_once(watch_signals);
    let _busy = Busy::enter(live());
    let (thing, undo) = make()?;
    let mut state = lock();
    state.next_id += 1;
    let id = state.next_id;
    state.due.push((id, Box::new(undo)));
    Ok((thing, Guard(id)))
}

impl Drop for Guard {
    fn drop(&mut self) {
        // An undo action may own what another guard protects; that one's turn
        // comes in the teardown itself.
        if TEARING_DOWN.get() {
            return;
        }
        let mut state = live();
        let Some(position) = state.due.iter().position(|(id, _)| *id == self.0) else {
            return;
        };
        let (_, undo) = state.due.remove(position);
        let _busy = Busy::enter(state);
        undo();
    }
}

/// Counts one maker or undo action as running until dropped.
struct Busy;

impl Busy {
    fn enter(mut state: MutexGuard<'_, State>) -> Self {
        state.busy += 1;
        Self
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        lock().busy -= 1;
        IDLE.notify_all();
    }
}

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of a process that is not being torn down.
///
/// Once a signal arrived the process ends soon; a thread that wants to make or
/// undo something stops here instead of racing with the teardown.
fn live() -> MutexGuard<'static, State> {
    loop {
        let state = lock();
        if !state.interrupted {
            return state;
        }
        drop(state);
        thread::park();
    }
}

fn watch_signals() {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .expect("SIGINT, SIGTERM and SIGHUP can be handled by every process");
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            undo_everything();
            if let Err(error) = emulate_default_handler(signal) {
                eprintln!("cannot end by signal {signal}: {error}");
                std::process::exit(128 + signal);
            }
        }
    });
}

fn undo_everything() {
    TEARING_DOWN.set(true);
    let mut state = lock();
    state.interrupted = true;
    while state.busy > 0 {
        state = IDLE.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    while let Some((_, undo)) = state.due.pop() {
        drop(state);
        undo();
        state = lock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn drop_runs_the_undo_action_once() {
        let runs = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&runs);
        let ((), guard) = guarded(|| {
            Ok(((), move || {
                counter.fetch_add(1, Ordering::Relaxed);
            }))
        })
        .unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 0);
        drop(guard);
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_failed_maker_registers_nothing() {
        let result = guarded::<(), fn()>(|| anyhow::bail!("no"));
        assert_eq!(result.unwrap_err().to_string(), "no");
    }
}
