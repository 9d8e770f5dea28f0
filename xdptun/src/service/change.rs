//! Another plan for a group that runs, with other interfaces.

use crate::error::Result;
use crate::group::Handle;

/// Changes the plan of a group, then joins those of its `interfaces` that only the new plan needs;
/// returns their names. On failure the group has the old plan and interfaces.
///
/// # Errors
///
/// If the plan cannot be applied, or an interface not be joined.
pub async fn change<P: Clone>(
    handle: &Handle<P>,
    before: &P,
    after: &P,
    interfaces: Vec<String>,
) -> Result<Vec<String>> {
    handle.change(after.clone()).await?;
    let mut joined = Vec::new();
    for name in interfaces {
        match handle.join(name.clone()).await {
            Ok(true) => joined.push(name),
            Ok(false) => {}
            Err(error) => {
                let mut undone = handle.change(before.clone()).await;
                for name in joined {
                    undone = undone.and(handle.leave(name).await.map(drop));
                }
                return Err(match undone {
                    Ok(()) => error.context(name),
                    Err(also) => error.context(format!("{name}, and it was not undone: {also:#}")),
                });
            }
        }
    }
    Ok(joined)
}
