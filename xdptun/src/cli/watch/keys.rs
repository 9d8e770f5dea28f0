//! Keys that are pressed while something is shown on a terminal.

use std::future::pending;
use std::io::{self, IsTerminal as _, Read as _};
use std::thread;

use nix::libc::_POSIX_VDISABLE;
use nix::sys::termios::{
    LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr,
};
use nix::unistd::{getpgrp, tcgetpgrp};
use tokio::sync::mpsc;

/// Reads single keys from standard input; dropping it makes the terminal collect lines again.
pub struct Keys(Option<Listening>);

struct Listening {
    before: Termios,
    pressed: mpsc::UnboundedReceiver<u8>,
}

impl Keys {
    /// Begins, if standard input is a terminal and this process is in front: the kernel stops one in the
    /// background that asks for keys. Ctrl-C stays a signal.
    pub fn listen() -> Self {
        let input = io::stdin();
        if !input.is_terminal() || !is_in_front() {
            return Self(None);
        }
        let Ok(before) = tcgetattr(&input) else {
            return Self(None);
        };
        let mut single = before.clone();
        single
            .local_flags
            .remove(LocalFlags::ICANON | LocalFlags::ECHO);
        // Not to the background (Ctrl-Z), where the kernel would stop what reads keys.
        single.control_chars[SpecialCharacterIndices::VSUSP as usize] = _POSIX_VDISABLE;
        if tcsetattr(&input, SetArg::TCSANOW, &single).is_err() {
            return Self(None);
        }
        let (sender, pressed) = mpsc::unbounded_channel();
        // A thread, as a terminal that would not block would not block the shell either. It ends with
        // the process.
        thread::spawn(move || {
            let mut key = [0];
            while let Ok(1) = io::stdin().lock().read(&mut key) {
                if sender.send(key[0]).is_err() {
                    return;
                }
            }
        });
        Self(Some(Listening { before, pressed }))
    }

    /// Whether keys are read.
    pub const fn are_read(&self) -> bool {
        self.0.is_some()
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> u8 {
        let key = match &mut self.0 {
            Some(listening) => listening.pressed.recv().await,
            None => None,
        };
        match key {
            Some(key) => key,
            // The terminal is gone.
            None => pending().await,
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(listening) = &self.0
            && is_in_front()
        {
            // If the terminal is gone, there is nothing to restore.
            let _gone = tcsetattr(io::stdin(), SetArg::TCSANOW, &listening.before);
        }
    }
}

/// Whether this process is in front at the terminal, and not in the background.
fn is_in_front() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}
