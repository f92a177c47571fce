//! Servers of one port by their hosts: the first that contradicts another is found without a look at each.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::gateway_server::{GatewayServer, Shares};

/// The first place of several, and the first of another object than that one: whoever asks has one rival among them, if any.
#[derive(Clone, Copy, Debug, Default)]
struct FirstOfTwo {
    first: Option<(usize, usize)>,
    second: Option<(usize, usize)>,
}

impl FirstOfTwo {
    /// Adds a place, which is behind all that are there; `item`: the number of its object.
    fn push(&mut self, at: usize, item: usize) {
        match self.first {
            None => self.first = Some((at, item)),
            Some((_, first)) if first != item && self.second.is_none() => {
                self.second = Some((at, item));
            }
            Some(_) => {}
        }
    }

    /// The first place of another object.
    fn beside(&self, item: usize) -> Option<usize> {
        let both = [self.first, self.second].into_iter().flatten();
        both.filter(|(_, other)| *other != item)
            .map(|(at, _)| at)
            .min()
    }
}

/// Servers with a wildcard, and those with a host or a wildcard that it covers.
#[derive(Debug, Default)]
struct WildcardPlaces {
    own: FirstOfTwo,
    covered: FirstOfTwo,
}

/// The hosts of the servers that share a port.
#[derive(Debug, Default)]
struct HostPlaces<'a> {
    exact: HashMap<&'a str, FirstOfTwo>,
    /// By the text behind the `*`.
    wildcards: HashMap<&'a str, WildcardPlaces>,
    /// The lengths of those texts.
    lengths: BTreeSet<usize>,
}

impl<'a> HostPlaces<'a> {
    /// The ends of a text that are as long as one of a wildcard.
    fn ends<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let lengths = self.lengths.range(..=text.len());
        lengths.filter_map(|length| text.get(text.len() - length..))
    }

    fn add_wildcard(&mut self, host: &'a str) {
        if let Some(end) = host.strip_prefix('*') {
            self.wildcards.entry(end).or_default();
            self.lengths.insert(end.len());
        }
    }

    fn add(&mut self, host: &'a str, at: usize, item: usize) {
        let own = host.strip_prefix('*');
        match own {
            Some(end) => self.wildcards.entry(end).or_default().own.push(at, item),
            None => self.exact.entry(host).or_default().push(at, item),
        }
        let text = own.unwrap_or(host);
        let ends: Vec<&str> = self.ends(text).collect();
        for end in ends {
            // `*.a` does not mean `.a`.
            let is_covered = own.is_some() || end.is_empty() || end.len() < text.len();
            if let Some(wildcard) = self.wildcards.get_mut(end).filter(|_| is_covered) {
                wildcard.covered.push(at, item);
            }
        }
    }

    /// The first server of another object with a host that overlaps.
    fn beside(&self, host: &str, item: usize) -> Option<usize> {
        let own = host.strip_prefix('*');
        let text = own.unwrap_or(host);
        let wildcards = match own {
            Some(end) => self.wildcards.get(end).map(|places| &places.covered),
            None => self.exact.get(host),
        };
        let wider = self.ends(text).filter_map(|end| {
            let is_covered = own.is_some() || end.is_empty() || end.len() < text.len();
            let places = self.wildcards.get(end).filter(|_| is_covered);
            places.map(|places| &places.own)
        });
        let all = wider.chain(wildcards);
        all.filter_map(|places| places.beside(item)).min()
    }
}

/// Servers of one port of workloads, in order.
pub(super) struct ServerIndex<'a> {
    servers: Vec<&'a GatewayServer<'a>>,
    by_shares: BTreeMap<Shares, FirstOfTwo>,
    hosts: BTreeMap<Shares, HostPlaces<'a>>,
}

impl<'a> ServerIndex<'a> {
    pub(super) fn new(servers: Vec<&'a GatewayServer<'a>>) -> Self {
        let mut by_shares: BTreeMap<Shares, FirstOfTwo> = BTreeMap::new();
        let mut hosts: BTreeMap<Shares, HostPlaces<'a>> = BTreeMap::new();
        // Wildcards come first, since `add` enters each host into those that cover it.
        for server in &servers {
            let places = hosts.entry(server.shares).or_default();
            server
                .bare
                .iter()
                .for_each(|host| places.add_wildcard(host));
        }
        for (at, server) in servers.iter().enumerate() {
            let item = server.item.number;
            by_shares.entry(server.shares).or_default().push(at, item);
            let places = hosts.entry(server.shares).or_default();
            server
                .bare
                .iter()
                .for_each(|host| places.add(host, at, item));
        }
        Self {
            servers,
            by_shares,
            hosts,
        }
    }

    /// The first server of another object that is not served along with one of these.
    pub(super) fn rival(&self, server: &GatewayServer<'_>) -> Option<&'a GatewayServer<'a>> {
        let item = server.item.number;
        let excluded = self
            .by_shares
            .iter()
            .filter(|(shares, _)| server.shares.excludes(**shares));
        let excluded = excluded.filter_map(|(_, places)| places.beside(item));
        let hosts = self.hosts.get(&server.shares).into_iter();
        let overlapping = hosts.flat_map(|hosts| {
            server
                .bare
                .iter()
                .filter_map(move |host| hosts.beside(host, item))
        });
        let at = excluded.chain(overlapping).min()?;
        self.servers.get(at).copied()
    }
}
