//! What the suites in `tests/` share.
//!
//! | module | what it gives |
//! |---|---|
//! | [`page`] | the commands of a document, in its order, with what it shows of their output |
//! | [`machine`] | a host on which they run as they are written |
//! | [`shown`] | output compared with what a document shows |

pub mod machine;
pub mod page;
pub mod shown;
