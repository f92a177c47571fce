//! Workloads by their labels: those of a selector are found without a look at each that runs.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use api::model::{Labels, selects};

/// A workload.
#[derive(Clone, Debug)]
pub(super) struct Runs {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) labels: Labels,
    pub(super) proxy: RunningProxy,
}

/// The proxy of a workload, as far as its object tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunningProxy {
    Router,
    /// The workload is a pod of another object, which may tell more: of a cluster's pods the metadata alone is read.
    OfMaker,
    /// A sidecar, none, or one that is not known.
    Other,
}

/// Routers of one selector that pods are compared with. Chosen: a selector finds one or two.
const MAX_ROUTERS: usize = 20;

/// All workloads.
#[derive(Debug, Default)]
pub(super) struct WorkloadIndex {
    /// The workloads; those of one namespace stand together.
    all: Vec<Runs>,
    by_namespace: HashMap<String, Range<usize>>,
    /// The places of workloads, by the name and the value of each label.
    by_label: HashMap<(Arc<str>, Arc<str>), WorkloadSet>,
}

impl WorkloadIndex {
    pub(super) fn new(mut all: Vec<Runs>) -> Self {
        all.sort_by(|one, other| one.namespace.cmp(&other.namespace));
        let mut by_namespace: HashMap<String, Range<usize>> = HashMap::new();
        let mut by_label: HashMap<_, Vec<usize>> = HashMap::new();
        for (at, runs) in all.iter().enumerate() {
            match by_namespace.get_mut(&runs.namespace) {
                Some(places) => places.end = at + 1,
                None => _ = by_namespace.insert(runs.namespace.clone(), at..at + 1),
            }
            for (name, value) in &runs.labels {
                let label = (Arc::clone(name), Arc::clone(value));
                by_label.entry(label).or_default().push(at);
            }
        }
        let count = all.len();
        let sets = by_label.into_iter();
        let sets = sets.map(|(label, places)| (label, WorkloadSet::new(places, count)));
        Self {
            by_label: sets.collect(),
            all,
            by_namespace,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn get(&self, at: usize) -> Option<&Runs> {
        self.all.get(at)
    }

    /// The set of the workloads at these places, in ascending order.
    pub(super) fn set_of_places(&self, places: Vec<usize>) -> WorkloadSet {
        WorkloadSet::new(places, self.all.len())
    }

    /// The places of a namespace's workloads.
    pub(super) fn places(&self, namespace: &str) -> Range<usize> {
        self.by_namespace.get(namespace).cloned().unwrap_or(0..0)
    }

    /// The places of the workloads that a selector finds in a namespace, or in all. Those that have its rarest label there are
    /// looked at; where many have each of its labels, the bits of its labels.
    pub(super) fn selected<'a>(
        &'a self,
        selector: &'a Labels,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = usize> + use<'a> {
        const NONE: &WorkloadSet = &WorkloadSet::Few(Vec::new());
        let all = namespace.map_or(0..self.all.len(), |namespace| self.places(namespace));
        let (mut rarest, mut of_many): (Option<&[usize]>, Vec<&[u64]>) = (None, Vec::new());
        for (name, value) in selector {
            let set = self.by_label.get(&(Arc::clone(name), Arc::clone(value)));
            match set.unwrap_or(NONE) {
                WorkloadSet::Bits(bits) => of_many.push(bits),
                WorkloadSet::Few(few) if rarest.is_none_or(|rarest| few.len() < rarest.len()) => {
                    rarest = Some(few);
                }
                WorkloadSet::Few(_) => {}
            }
        }
        let words = match rarest {
            Some(_) => 0..0,
            None => all.start / 64..all.end.div_ceil(64),
        };
        let of_words = words.flat_map(move |at| {
            let words = of_many
                .iter()
                .map(|bits| bits.get(at).copied().unwrap_or_default());
            // Without labels the word has all bits: an empty selector finds every workload.
            places_of(at, words.fold(u64::MAX, |all, word| all & word))
        });
        let few = rarest
            .unwrap_or_default()
            .iter()
            .copied()
            .filter(move |at| {
                let runs = self.all.get(*at);
                runs.is_some_and(|runs| selects(selector, &runs.labels))
            });
        few.chain(of_words).filter(move |at| all.contains(at))
    }

    /// Returns true if a selector finds routers in a namespace, or in all, and no workload that may have a sidecar.
    pub(super) fn selects_routers_alone(&self, selector: &Labels, namespace: Option<&str>) -> bool {
        let selected = || {
            let places = self.selected(selector, namespace);
            places.filter_map(|at| self.get(at))
        };
        // The replicas of a router have the labels of its template, and those of their maker.
        let mut routers: BTreeSet<(&str, &Labels)> = BTreeSet::new();
        for runs in selected() {
            match runs.proxy {
                RunningProxy::Router => _ = routers.insert((&runs.namespace, &runs.labels)),
                RunningProxy::OfMaker => {}
                RunningProxy::Other => return false,
            }
            if routers.len() > MAX_ROUTERS {
                return false;
            }
        }
        let mut pods = selected().filter(|runs| runs.proxy == RunningProxy::OfMaker);
        !routers.is_empty()
            && pods.all(|pod| {
                let mut routers = routers.iter();
                routers.any(|(namespace, labels)| {
                    *namespace == pod.namespace && selects(labels, &pod.labels)
                })
            })
    }

    /// Returns the set of workloads that a selector finds in a namespace, or in all.
    pub(super) fn set(&self, selector: &Labels, namespace: Option<&str>) -> WorkloadSet {
        WorkloadSet::new(self.selected(selector, namespace).collect(), self.all.len())
    }

    /// The namespaces of what a selector finds.
    pub(super) fn namespaces(&self, selector: &Labels) -> BTreeSet<String> {
        let mut namespaces = BTreeSet::new();
        // Those of one stand together.
        let mut last = None;
        for runs in self.selected(selector, None).filter_map(|at| self.get(at)) {
            if last != Some(&runs.namespace) {
                namespaces.insert(runs.namespace.clone());
                last = Some(&runs.namespace);
            }
        }
        namespaces
    }
}

/// The places of the bits that are set in a word.
fn places_of(at: usize, word: u64) -> impl Iterator<Item = usize> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let bit = usize::try_from(rest.trailing_zeros()).ok()?;
        // The subtraction ends the search at an empty word; of others it clears the lowest bit.
        rest = rest.checked_sub(1)? & rest;
        Some(at * 64 + bit)
    })
}

/// Places of workloads: a list of few, or a bit for each there is, so that many sets of many take little.
#[derive(Debug)]
pub(super) enum WorkloadSet {
    /// In ascending order.
    Few(Vec<usize>),
    Bits(Vec<u64>),
}

impl WorkloadSet {
    fn new(places: Vec<usize>, count: usize) -> Self {
        // Bits take a word for 64 workloads, so fewer places than words are shorter as a list.
        if places.len() < count.div_ceil(64) {
            return Self::Few(places);
        }
        let mut bits = vec![0; count.div_ceil(64)];
        for at in places {
            if let Some(word) = bits.get_mut(at / 64) {
                *word |= 1 << (at % 64);
            }
        }
        Self::Bits(bits)
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Few(places) => places.is_empty(),
            Self::Bits(bits) => bits.iter().all(|word| *word == 0),
        }
    }

    /// Returns true if a workload is in both.
    pub(super) fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Few(one), Self::Few(other)) => {
                let (few, many) = match one.len() < other.len() {
                    true => (one, other),
                    false => (other, one),
                };
                few.iter().any(|at| many.binary_search(at).is_ok())
            }
            (Self::Few(places), Self::Bits(bits)) | (Self::Bits(bits), Self::Few(places)) => {
                let has = |at: &usize| {
                    bits.get(at / 64)
                        .is_some_and(|word| word >> (at % 64) & 1 == 1)
                };
                places.iter().any(has)
            }
            (Self::Bits(one), Self::Bits(other)) => {
                one.iter().zip(other).any(|(one, other)| one & other != 0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect()
    }

    fn index(count: usize) -> WorkloadIndex {
        let runs = |at: usize| Runs {
            namespace: format!("n{}", at % 3),
            name: format!("w{at}"),
            labels: labels(&[
                ("all", "x"),
                ("half", &(at % 2).to_string()),
                ("own", &at.to_string()),
            ]),
            proxy: RunningProxy::Other,
        };
        WorkloadIndex::new((0..count).map(runs).collect())
    }

    #[test]
    fn the_index_finds_the_same_workloads_as_a_full_scan() {
        let index = index(300);
        for selector in [
            labels(&[]),
            labels(&[("all", "x")]),
            labels(&[("all", "x"), ("half", "1")]),
            labels(&[("half", "1"), ("own", "7")]),
            labels(&[("half", "0"), ("own", "7")]),
            labels(&[("nothing", "x")]),
        ] {
            for namespace in [None, Some("n1"), Some("none")] {
                let found: Vec<_> = index.selected(&selector, namespace).collect();
                let is_meant = |runs: &Runs| {
                    namespace.is_none_or(|namespace| runs.namespace == namespace)
                        && selects(&selector, &runs.labels)
                };
                let all = index.all.iter().enumerate();
                let wanted = all.filter(|(_, runs)| is_meant(runs)).map(|(at, _)| at);
                assert_eq!(
                    found,
                    wanted.collect::<Vec<_>>(),
                    "{selector:?} {namespace:?}"
                );
            }
        }
    }

    #[test]
    fn sets_meet_where_one_workload_is_in_both() {
        let index = index(300);
        let set = |pairs: &[(&str, &str)]| index.set(&labels(pairs), None);
        let (odd, even, all) = (set(&[("half", "1")]), set(&[("half", "0")]), set(&[]));
        let (seven, eight, none) = (
            set(&[("own", "7")]),
            set(&[("own", "8")]),
            set(&[("own", "")]),
        );
        assert!(matches!(
            (&odd, &seven),
            (WorkloadSet::Bits(_), WorkloadSet::Few(_))
        ));
        for (one, other, wanted) in [
            (&odd, &even, false),
            (&odd, &all, true),
            (&odd, &seven, true),
            (&seven, &odd, true),
            (&even, &seven, false),
            (&seven, &eight, false),
            (&eight, &eight, true),
            (&none, &all, false),
        ] {
            assert_eq!(one.meets(other), wanted, "{one:?} {other:?}");
        }
        assert!(none.is_empty() && !seven.is_empty() && !all.is_empty());
    }
}
