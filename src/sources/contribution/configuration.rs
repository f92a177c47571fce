//! Objects of the kinds that discovery acts on, by kind.

use std::fmt;
use std::sync::Arc;

use api::config::Object;
use api::model::kinds;
use api::model::{Configured, DISTRIBUTION, DRY_RUN, Objects, World, is_dry_run, is_near};
use api::networking::{self, DiscoveryKind};

/// Namespace and name.
pub type ObjectKey = (Arc<str>, Arc<str>);

/// A kind of configuration that discovery acts on.
pub(crate) trait ConfigurationKind:
    DiscoveryKind + Clone + PartialEq + fmt::Debug + Send + Sync + 'static
{
    /// The plural name in the API server's paths.
    const PLURAL: &'static str = Self::KIND.plural;

    /// The objects of this kind.
    fn of(all: &Configuration) -> &Arc<Objects<Self>>;

    /// An object as one of any kind.
    fn any(one: Arc<Configured<Self>>) -> AnyConfigured;

    /// The field of the world; `None` for a kind that services are made of.
    fn in_world(world: &mut World) -> Option<&mut Arc<Objects<Self>>>;
}

/// An action for each kind, whose types differ.
pub(crate) trait EachKind {
    fn kind<T: ConfigurationKind>(&mut self);
}

/// The field of the world that holds a kind.
macro_rules! field {
    (services $_world:ident $_field:ident) => {
        None
    };
    (world $world:ident $field:ident) => {
        Some(&mut $world.$field)
    };
}

macro_rules! kinds {
    ($($group:ident { $($kind:ident $field:ident;)* })*) => {
        /// The objects of one source, or of all, by kind.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Configuration {
            $($(pub $field: Arc<Objects<kinds::$kind>>,)*)*
        }

        /// An object of one of these kinds.
        #[derive(Clone, Debug, PartialEq)]
        pub enum AnyConfigured {
            $($($kind(Arc<Configured<kinds::$kind>>),)*)*
        }

        $($(impl ConfigurationKind for kinds::$kind {
            fn of(all: &Configuration) -> &Arc<Objects<Self>> {
                &all.$field
            }

            fn any(one: Arc<Configured<Self>>) -> AnyConfigured {
                AnyConfigured::$kind(one)
            }

            fn in_world(_world: &mut World) -> Option<&mut Arc<Objects<Self>>> {
                field!($group _world $field)
            }
        })*)*

        impl Configuration {
            /// The names of the kinds in the paths of an API server.
            pub(crate) const PLURALS: &'static [&'static str] = &[$($(kinds::$kind::PLURAL,)*)*];

            /// Returns true if discovery acts on the kind with this group and plural.
            #[must_use]
            pub(crate) fn has(group: &str, plural: &str) -> bool {
                $($((group == kinds::$kind::GROUP && plural == kinds::$kind::PLURAL))||*)||*
            }

            /// Calls `action` for each kind, in the order of the list.
            pub(crate) fn each_kind(action: &mut impl EachKind) {
                $($(action.kind::<kinds::$kind>();)*)*
            }

            /// The number of objects of each kind.
            pub fn counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
                [$($((kinds::$kind::NAME, self.$field.len()),)*)*].into_iter()
            }

            /// Returns true if both hold the same pointers.
            #[must_use]
            pub fn is_same(&self, other: &Self) -> bool {
                $($(Arc::ptr_eq(&self.$field, &other.$field))&&*)&&*
            }

            /// Replaces the object of this kind and name. An equal one keeps its pointer.
            pub fn set(&mut self, one: AnyConfigured) {
                match one {
                    $($(AnyConfigured::$kind(one) => set(&mut self.$field, one),)*)*
                }
            }

            /// Removes an object, if it exists.
            pub fn remove(&mut self, kind: &str, key: &ObjectKey) {
                match kind {
                    $($(kinds::$kind::NAME => remove(&mut self.$field, key),)*)*
                    _ => {}
                }
            }
        }

        impl AnyConfigured {
            /// A valid object as a type; `None`: discovery does not act on its kind.
            ///
            /// # Errors
            ///
            /// Its body is not of the kind's message.
            pub fn of(object: &Object, created: Option<i64>) -> Result<Option<Self>, String> {
                match object.kind.kind {
                    $($(kinds::$kind::NAME => configured(object, created).map(Self::$kind).map(Some),)*)*
                    _ => Ok(None),
                }
            }
        }
    };
}

api::discovery_kinds!(kinds);

fn set<T: ConfigurationKind>(objects: &mut Arc<Objects<T>>, one: Arc<Configured<T>>) {
    let key = (Arc::clone(&one.namespace), Arc::clone(&one.name));
    // `make_mut` copies the map while readers hold it: an equal object must not cause that.
    if objects.get(&key) != Some(&one) {
        Arc::make_mut(objects).insert(key, one);
    }
}

fn remove<T: ConfigurationKind>(objects: &mut Arc<Objects<T>>, key: &ObjectKey) {
    if objects.contains_key(key) {
        Arc::make_mut(objects).remove(key);
    }
}

fn configured<T: ConfigurationKind>(
    object: &Object,
    created: Option<i64>,
) -> Result<Arc<Configured<T>>, String> {
    let spec = networking::spec(object).map_err(|error| error.to_string())?;
    let near = object.annotations.get(DISTRIBUTION).map(|text| text.trim());
    Ok(Arc::new(Configured {
        name: object.name.as_str().into(),
        namespace: object.namespace.as_str().into(),
        created,
        prefers_close: is_near(near),
        dry_run: is_dry_run(object.annotations.get(DRY_RUN).map(|text| text.trim())),
        spec,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_any_kind_come_and_go() {
        let written = |kind: &str, spec: &str| {
            let spec: serde_json::Value = serde_json::from_str(spec).unwrap();
            let written = serde_json::json!({
                "apiVersion": "networking.istio.io/v1", "kind": kind,
                "metadata": {"name": "a", "namespace": "n", "annotations": {DISTRIBUTION: "PreferClose", DRY_RUN: "true"}},
                "spec": spec,
            });
            api::config::read(&written).0.unwrap()
        };
        let rule = written("DestinationRule", r#"{"host": "a.example"}"#);
        let role = serde_json::json!({
            "apiVersion": "rbac.istio.io/v1alpha1", "kind": "ServiceRole",
            "metadata": {"name": "a", "namespace": "n"}, "spec": {"rules": []},
        });
        let role = api::config::read(&role).0.unwrap();
        assert_eq!(AnyConfigured::of(&role, None), Ok(None));
        let one = AnyConfigured::of(&rule, Some(7)).unwrap().unwrap();
        let mut all = Configuration::default();
        all.set(one.clone());
        let before = all.clone();
        all.set(one);
        assert!(all.is_same(&before));
        let stored = all.destination_rules.values().next().unwrap();
        assert_eq!((stored.created, stored.prefers_close), (Some(7), true));
        assert!(stored.dry_run);
        assert_eq!(stored.spec.host, "a.example");
        let counts: Vec<_> = all.counts().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counts, [("DestinationRule", 1)]);
        let key = ("n".into(), "a".into());
        all.remove("VirtualService", &key);
        assert!(all.is_same(&before));
        all.remove("DestinationRule", &key);
        assert_eq!(all, Configuration::default());
    }
}
