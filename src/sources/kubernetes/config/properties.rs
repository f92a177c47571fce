//! Properties of any object of an API server, whatever its bytes are. For a fuzz target and for tests; not part of the program.

use serde_json::Value;
use serde_json::value::RawValue;

use super::watched_object::WatchedObject;

/// Checks that the object of a text, and that of an event, is kept as JSON that yields the same object.
pub(in crate::kubernetes) fn check_object(line: &[u8]) {
    #[derive(serde::Deserialize)]
    struct EventObject<'a> {
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let Ok(text) = std::str::from_utf8(line) else {
        return;
    };
    let event: Result<EventObject<'_>, _> = serde_json::from_str(text);
    let text = event.map_or(text, |event| event.object.get());
    let Ok(first) = serde_json::from_str::<WatchedObject>(text) else {
        return;
    };
    let Some(kept) = first.take() else {
        unreachable!("the text was not taken before");
    };
    assert!(first.take().is_none(), "the text is there twice");
    let second: WatchedObject = match serde_json::from_str(&kept) {
        Ok(second) => second,
        Err(error) => unreachable!("what is kept is no object: {error}: {kept}"),
    };
    // The uid and the generation are kept beside the text.
    assert_eq!(first.version, second.version);
    assert_eq!(first.size(), second.size(), "{kept}");
    let Ok(value) = serde_json::from_str::<Value>(&kept) else {
        // It is nested too deeply: whoever reads the text finds that.
        return;
    };
    assert!(value.is_object(), "{kept}");
}
