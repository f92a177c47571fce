//! Patches of EnvoyFilters that depend on those of others.

use api::config::discovery_notes::names_nothing;
use serde_json::Value as Json;

use super::codes;
use super::inventory::{Inventory, Item, list, text};
use super::messages::{Message, push};

/// Finds patches whose order depends on the age of EnvoyFilters.
pub(super) fn relative_patches(_: &Inventory, item: &Item, messages: &mut Vec<Message>) {
    let priority = item
        .body
        .get("priority")
        .and_then(Json::as_i64)
        .unwrap_or_default();
    if priority != 0 {
        return;
    }
    for (at, patch) in list(&item.body, "/configPatches") {
        let operation = text(patch, "/patch/operation");
        let target = text(patch, "/applyTo");
        // The object has a note about that already.
        if names_nothing(patch) {
            continue;
        }
        let is_relative = match operation {
            "INSERT_BEFORE" | "INSERT_AFTER" => true,
            // The API ignores a REMOVE of these two.
            "REMOVE" => !["ROUTE_CONFIGURATION", "HTTP_ROUTE"].contains(&target),
            "REPLACE" => ["HTTP_FILTER", "NETWORK_FILTER", "VIRTUAL_HOST"].contains(&target),
            _ => false,
        };
        if is_relative {
            let meets = match operation {
                "REMOVE" | "REPLACE" => {
                    "takes away or replaces what another EnvoyFilter may have put there"
                }
                _ => "wants a filter or route that may be another EnvoyFilter's",
            };
            let message = format!(
                "{operation} {meets}: without a priority their age decides which comes first"
            );
            let path = format!("spec.configPatches[{at}].patch.operation");
            push(messages, &codes::RELATIVE_PATCH, item, path, message);
        }
    }
}
