//! Questions to rtnetlink from code that does not run in a runtime.

use std::future::Future;

use anyhow::{Context as _, Result, anyhow};
use rtnetlink::Handle;

/// Runs `ask` with a netlink connection of its own, on a thread of its own, so
/// that it works inside and outside a runtime. The thread is in the caller's
/// network namespace.
///
/// # Errors
///
/// If there is no netlink, or what `ask` returns.
pub fn block_on<T, F>(ask: impl FnOnce(Handle) -> F + Send) -> Result<T>
where
    F: Future<Output = Result<T>>,
    T: Send,
{
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let (connection, handle, _) =
                    rtnetlink::new_connection().context("cannot open a netlink socket")?;
                tokio::spawn(connection);
                ask(handle).await
            })
        });
        asking
            .join()
            .unwrap_or_else(|_| Err(anyhow!("the netlink thread ended early")))
    })
}
