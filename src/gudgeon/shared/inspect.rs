//! A role as whoever looks into the process sees it.

use crate::exposition::Format;
use crate::serve::Service;

/// The plain listener of a role, and the parts of it that one listener of several roles puts together.
pub(crate) trait Inspect: Service {
    /// As it is called on the command line.
    fn name(&self) -> &'static str;

    /// Whether the role is ready, and what there is to say about it: `ok`, or lines.
    ///
    /// # Errors
    /// Why it is not.
    fn readiness(&self) -> Result<String, String>;

    /// All metrics. They take a while.
    fn metrics(&self, format: Format) -> String;

    /// The sections of the page, from its heading on. They take a while.
    fn sections(&self, page: &mut String);

    /// Style beyond what all pages have.
    fn style(&self) -> &'static str {
        ""
    }
}
