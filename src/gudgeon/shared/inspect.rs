//! A role's interface for administration.

use crate::exposition::ExpositionFormat;
use crate::serve::Service;

/// The plain listener of a role, and the parts of it that one listener of several roles puts together.
pub(crate) trait Inspect: Service {
    /// Returns the role's name on the command line.
    fn name(&self) -> &'static str;

    /// Returns the readiness: `ok`, or lines about the role's parts.
    ///
    /// # Errors
    /// The reasons why the role is not ready.
    fn readiness(&self) -> Result<String, String>;

    /// Renders all metrics, which takes a while; it sets gauges, so one caller at a time may.
    fn metrics(&self, format: ExpositionFormat) -> String;

    /// The sections of the page, from its heading on. They take a while.
    fn sections(&self, page: &mut String);

    /// Style beyond what all pages have.
    fn style(&self) -> &'static str {
        ""
    }
}
