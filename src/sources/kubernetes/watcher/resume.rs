//! Decides whether a watch goes on where it broke: a server that was restored from a backup has not reached that version.

use kube::core::params::ListParams;

use super::{Page, Watcher};
use crate::kind::Kind;
use crate::kubernetes::failure::Failure;

impl<K: Kind> Watcher<K> {
    /// Returns true if the server has reached this version. Where it has not, a watch from it is accepted, and nothing comes
    /// until as much has changed as before the backup was restored.
    pub(super) async fn has_reached(&self, version: &str) -> Result<bool, Failure> {
        let action = self.action("list");
        let params = ListParams {
            field_selector: self.fields(),
            label_selector: self.selection.labels.clone(),
            limit: Some(1),
            ..ListParams::default()
        };
        let read = |bytes: &[u8]| {
            let page: Page<'_> = serde_json::from_slice(bytes)?;
            Ok(page.metadata.resource_version)
        };
        let exchange = self.cluster.exchange(&action, self.timing.request);
        let now = exchange.read(self.request().list(&params), read).await?;
        Ok(is_at_least(&now, version))
    }
}

/// Compares versions, which are numbers wherever etcd is. Those of another store are not trusted to have an order.
fn is_at_least(now: &str, version: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    number(now)
        .zip(number(version))
        .is_some_and(|(now, version)| now >= version)
}

#[cfg(test)]
mod tests {
    use super::is_at_least;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (now, version, expected) in [
            ("10", "9", true),
            ("10", "10", true),
            ("9", "10", false),
            ("", "10", false),
            ("b", "a", false),
            ("10", "a", false),
        ] {
            assert_eq!(is_at_least(now, version), expected, "{now} {version}");
        }
    }
}
